//! The search for the next instant, step by step as `SpecSchedule.Next` of the Go module does it,
//! so that it finds the same ones where clocks change, odd ones included.

use chrono::{
    DateTime, Datelike, Days, Months, NaiveDate, NaiveDateTime, TimeDelta, Timelike, Utc,
};

use crate::fields::{Fields, STAR};
use crate::zone::{Moment, Zone};

/// How many years are searched.
const YEARS: i32 = 5;

/// The first instant after `now` at which clocks in `zone` show what the fields say.
pub(crate) fn fields(fields: &Fields, zone: &Zone, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let mut search = Search {
        zone,
        moment: zone.at(now.timestamp().checked_add(1)?)?,
        moved: false,
    };
    let last_year = search.local().year() + YEARS;
    let has = |bits: u64, value: u32| bits >> value & 1 == 1;
    // After a field was reset to its start, the fields above it are checked again.
    'again: while search.local().year() <= last_year {
        while !has(fields.month, search.local().month()) {
            let first = search.local().date().with_day(1)?;
            search.begin(|_| midnight(first))?;
            search.next_month()?;
            if search.local().month() == 1 {
                continue 'again;
            }
        }
        while !day_matches(fields, search.local().date()) {
            search.begin(|local| midnight(local.date()))?;
            search.next_day()?;
            if search.local().day() == 1 {
                continue 'again;
            }
        }
        while !has(fields.hour, search.local().hour()) {
            search.begin(|local| local.date().and_hms_opt(local.hour(), 0, 0))?;
            search.add(3_600)?;
            if search.local().hour() == 0 {
                continue 'again;
            }
        }
        while !has(fields.minute, search.local().minute()) {
            search.cut_seconds()?;
            search.add(60)?;
            if search.local().minute() == 0 {
                continue 'again;
            }
        }
        let second = search.local().second();
        if second == 0 {
            return DateTime::from_timestamp(search.moment.utc, 0);
        }
        search.moved = true;
        search.add(i64::from(60 - second))?;
    }
    None
}

/// The first instant after `now` that is a whole number of durations after `since`, but not `since`
/// itself, which has passed.
pub(crate) fn span(
    span: TimeDelta,
    since: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let (span, since) = (span.num_seconds(), since.timestamp());
    let passed = now.timestamp().checked_sub(since)?.max(0);
    let count = passed.checked_div(span)?.checked_add(1)?;
    DateTime::from_timestamp(since.checked_add(count.checked_mul(span)?)?, 0)
}

fn midnight(date: NaiveDate) -> Option<NaiveDateTime> {
    date.and_hms_opt(0, 0, 0)
}

/// If one of the days is unrestricted, both must match; otherwise either will do.
fn day_matches(fields: &Fields, date: NaiveDate) -> bool {
    let of_month = fields.day_of_month >> date.day() & 1 == 1;
    let of_week = fields.day_of_week >> date.weekday().num_days_from_sunday() & 1 == 1;
    if (fields.day_of_month | fields.day_of_week) & STAR != 0 {
        of_month && of_week
    } else {
        of_month || of_week
    }
}

/// Where the search has arrived.
struct Search<'a> {
    zone: &'a Zone,
    moment: Moment,
    /// It has left the first instant, so that the fields below the current one are already at their start.
    moved: bool,
}

impl Search<'_> {
    fn local(&self) -> NaiveDateTime {
        self.moment.local
    }

    /// Goes to the start of the current field, once.
    fn begin(&mut self, of: impl FnOnce(NaiveDateTime) -> Option<NaiveDateTime>) -> Option<()> {
        if !self.moved {
            self.moved = true;
            self.moment = self.zone.showing(of(self.local())?)?;
        }
        Some(())
    }

    /// The same for a minute, which is truncated from the instant and not from the local time.
    fn cut_seconds(&mut self) -> Option<()> {
        if !self.moved {
            self.moved = true;
            self.add(-self.moment.utc.rem_euclid(60))?;
        }
        Some(())
    }

    fn add(&mut self, seconds: i64) -> Option<()> {
        self.moment = self.zone.at(self.moment.utc.checked_add(seconds)?)?;
        Some(())
    }

    /// The same time of day a month later; a day that this month lacks is one of the month after.
    fn next_month(&mut self) -> Option<()> {
        let local = self.local();
        let first = local
            .date()
            .with_day(1)?
            .checked_add_months(Months::new(1))?;
        let date = first.checked_add_days(Days::new(u64::from(local.day0())))?;
        self.moment = self.zone.showing(date.and_time(local.time()))?;
        Some(())
    }

    /// The next midnight, or what replaces it on a day that has none.
    fn next_day(&mut self) -> Option<()> {
        let local = self.local();
        let date = local.date().succ_opt()?;
        self.moment = self.zone.showing(date.and_time(local.time()))?;
        match i64::from(self.local().hour()) {
            0 => Some(()),
            hour @ 13.. => self.add((24 - hour) * 3_600),
            hour => self.add(-hour * 3_600),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::parse;

    fn instant(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    /// The next times, one after the other.
    fn times(text: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let (schedule, zone) = (parse(text).unwrap(), Zone::named(zone).unwrap());
        let since = instant(from);
        let all = std::iter::successors(Some(since), |now| schedule.next(&zone, since, *now));
        let all = all.skip(1).take(count);
        all.map(|t| t.format("%FT%TZ").to_string()).collect()
    }

    #[test]
    fn the_next_time_is_after_now() {
        for (text, from, expected) in [
            ("* * * * *", "2026-11-22T03:34:00Z", "2026-11-22T03:35:00Z"),
            (
                "* * * * *",
                "2026-11-22T03:33:59.9Z",
                "2026-11-22T03:34:00Z",
            ),
            ("5 0 * * *", "2026-11-22T00:05:00Z", "2026-11-23T00:05:00Z"),
            (
                "* * * * */5",
                "2026-11-23T12:00:00Z",
                "2026-11-27T00:00:00Z",
            ),
            ("0 0 29 2 *", "2026-11-22T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 13 * 5", "2026-11-22T00:00:00Z", "2026-11-27T00:00:00Z"),
            (
                "59 23 31 12 *",
                "2026-12-31T23:59:00Z",
                "2027-12-31T23:59:00Z",
            ),
            ("@hourly", "2026-12-31T23:00:01Z", "2027-01-01T00:00:00Z"),
            (
                "@every 90s",
                "2026-12-31T23:00:01.5Z",
                "2026-12-31T23:01:31Z",
            ),
        ] {
            assert_eq!(times(text, "UTC", from, 1), [expected], "{text} {from}");
        }
        // 2100 is not a leap year.
        assert!(times("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", 1).is_empty());
    }

    #[test]
    fn an_hour_that_is_skipped_or_comes_twice_is_as_the_controller_has_it() {
        let berlin = |text, from| times(text, "Europe/Berlin", from, 3);
        assert_eq!(
            berlin("30 2 * * *", "2026-03-27T12:00:00Z"),
            [
                "2026-03-28T01:30:00Z",
                "2026-03-30T00:30:00Z",
                "2026-03-31T00:30:00Z"
            ]
        );
        assert_eq!(
            berlin("30 2 * * *", "2026-10-24T12:00:00Z"),
            [
                "2026-10-25T00:30:00Z",
                "2026-10-25T01:30:00Z",
                "2026-10-26T01:30:00Z"
            ]
        );
        assert_eq!(
            times("0 0 * * *", "America/Santiago", "2026-09-05T00:00:00Z", 2),
            ["2026-09-05T04:00:00Z", "2026-09-07T03:00:00Z"]
        );
    }

    #[test]
    fn spans_are_counted_from_the_last_start() {
        let schedule = parse("@every 1h").unwrap();
        let utc = Zone::named("UTC").unwrap();
        let since = instant("2026-01-01T00:10:00Z");
        for (now, expected) in [
            ("2026-01-01T00:00:00Z", "2026-01-01T01:10:00Z"),
            ("2026-01-01T01:09:59.9Z", "2026-01-01T01:10:00Z"),
            ("2026-01-01T01:10:00Z", "2026-01-01T02:10:00Z"),
            ("2026-01-03T00:00:00Z", "2026-01-03T00:10:00Z"),
        ] {
            let next = schedule.next(&utc, since, instant(now));
            assert_eq!(next, Some(instant(expected)), "{now}");
        }
    }
}
