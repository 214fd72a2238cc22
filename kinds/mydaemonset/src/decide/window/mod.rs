//! The windows in which steps of a roll-out may begin.
//!
//! A window is open from each time of its schedule on, for its duration as a stopwatch counts it: a change of the clocks makes
//! it neither longer nor shorter. What of it lies on an excluded day, by the clocks of its zone, is closed.

use std::collections::BTreeSet;

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, Utc};
use robfig_cron::{Schedule, Zone, parse, parse_duration};

use super::strategy::ON_DELETE;
use crate::crd::{self, MyDaemonSetSpec};
use my_operator_kind::time_zone::TIME_ZONE;

pub(crate) mod rules;
#[cfg(test)]
mod tests;

/// How many times of a schedule that cover an instant are looked at. Of one that is due every minute, these say less about
/// when the window closes, and it is asked again then.
const LOOKS: usize = 16;
/// By how much clocks are set, in seconds, where that is at midnight.
const HOUR: i64 = 3_600;

/// Whether a step may begin. By default it may, for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gate {
    /// No window is open.
    pub(crate) is_closed: bool,
    /// Until when that is so at least; `None` if it does not change, or no window opens within five years.
    pub(crate) until: Option<DateTime<Utc>>,
}

impl Gate {
    /// Whether a step that this allowed is too late at `now`.
    pub(crate) fn is_over(self, now: DateTime<Utc>) -> bool {
        !self.is_closed && self.until.is_some_and(|until| until <= now)
    }
}

/// A window of a valid spec.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    schedule: Schedule,
    duration: TimeDelta,
    zone: Zone,
    excluded: BTreeSet<NaiveDate>,
}

/// The windows of a valid, defaulted spec.
pub(crate) fn from_spec(spec: &MyDaemonSetSpec) -> Vec<Window> {
    let strategy = spec.update_strategy.as_ref();
    let rolls = |strategy: &&crd::UpdateStrategy| strategy.type_.as_deref() != Some(ON_DELETE);
    let rolling = strategy
        .filter(rolls)
        .and_then(|it| it.rolling_update.as_ref());
    let windows = rolling.and_then(|rolling| rolling.windows.as_ref());
    let windows = windows.into_iter().flatten();
    windows.filter_map(Window::from_spec).collect()
}

/// Whether a step may begin at `now`. A way back waits for no window: what it ends is there already.
pub(crate) fn gate(windows: &[Window], goes_back: bool, now: DateTime<Utc>) -> Gate {
    if windows.is_empty() || goes_back {
        return Gate::default();
    }
    let open = windows.iter().filter_map(|window| window.open_until(now));
    if let Some(until) = open.max() {
        return Gate {
            is_closed: false,
            until: Some(until),
        };
    }
    let opens = windows.iter().filter_map(|window| window.opens(now));
    Gate {
        is_closed: true,
        until: opens.filter(|at| *at > now).min(),
    }
}

/// A day as the spec has it.
fn date(text: &str) -> Option<NaiveDate> {
    let date: NaiveDate = text.parse().ok()?;
    (date.to_string() == text).then_some(date)
}

impl Window {
    fn from_spec(window: &crd::Window) -> Option<Self> {
        let zone = window.time_zone.as_deref().unwrap_or(TIME_ZONE);
        let dates = window.excluded_dates.iter().flatten();
        Some(Self {
            schedule: parse(window.schedule.as_deref()?).ok()?,
            duration: parse_duration(window.duration.as_deref()?).ok()?,
            zone: Zone::named(zone)?,
            excluded: dates.filter_map(|text| date(text)).collect(),
        })
    }

    /// The first time of the schedule after `at`.
    fn due_after(&self, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.schedule.next(&self.zone, at, at)
    }

    /// Until when it is open at least; `None` if it is closed.
    fn open_until(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let today = self.day(now)?;
        let first = self.due_after(now - self.duration)?;
        let dues = std::iter::successors(Some(first), |due| self.due_after(*due));
        let last = dues.take_while(|due| *due <= now).take(LOOKS).last()?;
        let until = last + self.duration;
        match self.excluded.range(today..).next() {
            Some(day) if *day == today => None,
            Some(day) => {
                let begins = self.begins(*day).filter(|at| *at > now);
                Some(begins.map_or(until, |begins| begins.min(until)))
            }
            None => Some(until),
        }
    }

    /// When it is open next, if it is closed now.
    fn opens(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut at = now;
        // Each excluded day is left once, and may be met once more by the schedule.
        for _ in 0..2 * self.excluded.len() + 2 {
            if self.open_until(at).is_some() {
                return Some(at);
            }
            let today = self.day(at)?;
            at = if self.excluded.contains(&today) {
                self.begins(today.succ_opt()?)?
            } else {
                self.due_after(at)?
            };
        }
        None
    }

    /// The day that calendars in the zone show.
    fn day(&self, at: DateTime<Utc>) -> Option<NaiveDate> {
        Some(self.zone.at(at.timestamp())?.local.date())
    }

    /// The first instant of a day. Where clocks are set at midnight, there may be none, or two.
    fn begins(&self, day: NaiveDate) -> Option<DateTime<Utc>> {
        let midnight = self.zone.showing(day.and_time(NaiveTime::MIN))?.utc;
        let mut near = [midnight - HOUR, midnight, midnight + HOUR].into_iter();
        let is_there = |utc: &i64| {
            let moment = self.zone.at(*utc);
            moment.is_some_and(|moment| moment.local.date() >= day)
        };
        DateTime::from_timestamp(near.find(is_there)?, 0)
    }
}
