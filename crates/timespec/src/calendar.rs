//! A [`Timespec`] to an instant: the actions of parsetime.y of Debian's at, and what follows them in `parsetime()`.

use chrono::{
    DateTime, Datelike, FixedOffset, NaiveDate, NaiveDateTime, TimeDelta, TimeZone, Timelike, Utc,
};

use crate::Error;
use crate::grammar::{Base, Date, Increment, Time, Timespec};
use crate::lexer::Period;
use crate::mktime::{Clocks, in_range, minute_of_now};

/// What clocks show, as at's `struct tm`: a field may be too large (24:00, day 32) until it is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    year: i64,
    /// Months after January, 0 to 11.
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
}

impl Fields {
    fn new(local: NaiveDateTime) -> Self {
        Self {
            year: local.year().into(),
            month: local.month0().into(),
            day: local.day().into(),
            hour: local.hour().into(),
            minute: local.minute().into(),
        }
    }

    /// The time that these fields are when each is carried over to the next.
    fn carry(self) -> Result<NaiveDateTime, Error> {
        let (Ok(year), Ok(month)) = (i32::try_from(self.year), u32::try_from(self.month)) else {
            return Err(Error::OutOfRange);
        };
        let over = TimeDelta::try_minutes(((self.day - 1) * 24 + self.hour) * 60 + self.minute);
        let first =
            NaiveDate::from_ymd_opt(year, month + 1, 1).and_then(|date| date.and_hms_opt(0, 0, 0));
        in_range(
            over.zip(first)
                .and_then(|(over, first)| first.checked_add_signed(over)),
        )
    }
}

/// The time so far.
struct Reckoning<Tz> {
    clocks: Clocks<Tz>,
    fields: Fields,
    /// The instant of the fields, once it is known: fields alone mean two instants where clocks are set back.
    instant: Option<NaiveDateTime>,
    /// Whether the date is one that the timespec names.
    named_day: bool,
}

/// The instant of a timespec, in the zone of `now`.
pub(crate) fn resolve<Tz: TimeZone>(
    timespec: &Timespec,
    now: &DateTime<Tz>,
) -> Result<DateTime<Utc>, Error> {
    let clocks = Clocks::new(now.timezone());
    let (local, this_minute) = minute_of_now(&clocks, now)?;
    let today = Fields::new(local);
    let mut reckoning = Reckoning {
        clocks,
        fields: today,
        instant: Some(this_minute),
        named_day: false,
    };
    let (time, date) = match timespec.base {
        Base::Now => (None, None),
        Base::At { time, date } => (time, date),
    };
    if let Some(Time { hour, minute, .. }) = time {
        reckoning.set(Fields {
            hour,
            minute,
            ..today
        });
    }
    if let Some(date) = date {
        reckoning.date(date, local)?;
    }
    if let Some(increment) = timespec.increment {
        reckoning.add(increment)?;
    }
    let counts_days = timespec
        .increment
        .is_some_and(|Increment { period, .. }| !matches!(period, Period::Minute | Period::Hour));
    let fields = reckoning.fields;
    if date.is_none() && time.is_some() && !counts_days {
        // A time alone is of today, or else of tomorrow.
        if fields.day == today.day && (fields.hour, fields.minute) <= (today.hour, today.minute) {
            reckoning.set(Fields {
                day: fields.day + 1,
                ..fields
            });
        }
    } else if !has_year(timespec) {
        // A date without a year is of this year, or else of the next one.
        if fields.year == today.year && (fields.month, fields.day) < (today.month, today.day) {
            reckoning.set(Fields {
                year: fields.year + 1,
                ..fields
            });
        }
    }
    let instant = reckoning.resolve()?;
    if instant < this_minute {
        return Err(Error::Past(show(&reckoning.clocks, instant)));
    }
    Ok(instant.and_utc())
}

/// Whether the year is not to be chosen: it is written, or the time is `now` and an increment.
fn has_year(timespec: &Timespec) -> bool {
    match timespec.base {
        Base::Now => true,
        Base::At { date, .. } => matches!(date, Some(Date::Day { year: Some(_), .. })),
    }
}

impl<Tz: TimeZone> Reckoning<Tz> {
    /// Replaces the fields. Which instant they are is no longer known.
    fn set(&mut self, fields: Fields) {
        if fields != self.fields {
            (self.fields, self.instant) = (fields, None);
        }
    }

    /// The instant of the fields.
    fn resolve(&mut self) -> Result<NaiveDateTime, Error> {
        if let Some(instant) = self.instant {
            self.clocks.begin_at(instant)?;
            return Ok(instant);
        }
        self.check_date()?;
        let local = self.fields.carry()?;
        let instant = self.clocks.instant(local)?;
        self.instant = Some(instant);
        Ok(instant)
    }

    /// Fails if the timespec names a day that the month does not have.
    fn check_date(&self) -> Result<(), Error> {
        let Fields {
            year, month, day, ..
        } = self.fields;
        if self.named_day && day > days(year, month) {
            return Err(no_such_date(year, month, day));
        }
        Ok(())
    }

    /// Goes on from an instant.
    fn go_to(&mut self, instant: NaiveDateTime) -> Result<(), Error> {
        self.clocks.begin_at(instant)?;
        self.fields = Fields::new(self.clocks.local(instant)?);
        (self.instant, self.named_day) = (Some(instant), false);
        Ok(())
    }

    fn date(&mut self, date: Date, now: NaiveDateTime) -> Result<(), Error> {
        let add = |count, period| Increment { count, period };
        match date {
            Date::Today => Ok(()),
            Date::Tomorrow => self.add(add(1, Period::Day)),
            Date::Next(period) => self.add(add(1, period)),
            Date::Weekday(day) => {
                let today = i64::from(now.weekday().num_days_from_sunday());
                // Never today: fri on a Friday is in a week.
                self.add(add((6 + day - today).rem_euclid(7) + 1, Period::Day))
            }
            Date::Day { year, month, day } => {
                let year = year.unwrap_or(self.fields.year);
                self.set(Fields {
                    year,
                    month,
                    day,
                    ..self.fields
                });
                self.named_day = true;
                Ok(())
            }
        }
    }

    fn add(&mut self, Increment { count, period }: Increment) -> Result<(), Error> {
        let elapsed = match period {
            Period::Minute => TimeDelta::try_minutes(count),
            Period::Hour => TimeDelta::try_hours(count),
            Period::Day => TimeDelta::try_days(count),
            Period::Week => TimeDelta::try_weeks(count),
            Period::Month => return self.add_months(count),
            Period::Year => return self.add_years(count),
        };
        let from = self.resolve()?;
        let to = in_range(elapsed.and_then(|elapsed| from.checked_add_signed(elapsed)))?;
        if matches!(period, Period::Minute | Period::Hour) {
            return self.go_to(to);
        }
        // The same time of day, though clocks change: a day has 23 or 25 hours then.
        let change = self.clocks.offset(from)? - self.clocks.offset(to)?;
        self.go_to(in_range(to.checked_add_signed(change))?)
    }

    /// A day that the month does not have becomes one of the month after, before years are added: January 31 and one
    /// month is March 3 (2 in a leap year), as in at.
    fn add_months(&mut self, count: i64) -> Result<(), Error> {
        let month = self.fields.month + count;
        self.set_month(self.fields.year, month.rem_euclid(12))?;
        match month.div_euclid(12) {
            0 => Ok(()),
            years => self.add_years(years),
        }
    }

    fn add_years(&mut self, count: i64) -> Result<(), Error> {
        self.set_month(self.fields.year + count, self.fields.month)
    }

    fn set_month(&mut self, year: i64, month: i64) -> Result<(), Error> {
        self.check_date()?;
        let local = Fields {
            year,
            month,
            ..self.fields
        }
        .carry()?;
        let instant = self.clocks.instant(local)?;
        self.go_to(instant)
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The number of days of a month, counted from 0.
fn days(year: i64, month: i64) -> i64 {
    match month {
        1 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// The error of a date that is in no calendar; the month counts from 0.
pub(crate) fn no_such_date(year: i64, month: i64, day: i64) -> Error {
    let month = usize::try_from(month)
        .ok()
        .and_then(|month| MONTHS.get(month));
    Error::NoSuchDate {
        year,
        month: month.copied().unwrap_or_default(),
        day,
    }
}

/// An instant for a message.
fn show<Tz: TimeZone>(clocks: &Clocks<Tz>, instant: NaiveDateTime) -> String {
    let offset = clocks.offset(instant).unwrap_or_default();
    i32::try_from(offset.num_seconds())
        .ok()
        .and_then(FixedOffset::east_opt)
        .map_or_else(
            || instant.and_utc().to_rfc3339(),
            |offset| {
                instant
                    .and_utc()
                    .with_timezone(&offset)
                    .format("%a %b %-d %Y %H:%M %:z")
                    .to_string()
            },
        )
}
