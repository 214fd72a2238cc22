//! Clocks in a time zone to instants, as glibc's `mktime` does it with `tm_isdst = -1`.

use chrono::{DateTime, NaiveDateTime, Offset, TimeDelta, TimeZone};

use crate::Error;

/// glibc looks at the zone so often, then gives up.
const MAX_PROBES: usize = 6;

/// A time zone, and the offset at which the next search starts: glibc keeps that of the last search, and begins with 0.
pub(crate) struct Clocks<Tz> {
    zone: Tz,
    first_guess: TimeDelta,
}

impl<Tz: TimeZone> Clocks<Tz> {
    pub(crate) fn new(zone: Tz) -> Self {
        Self {
            zone,
            first_guess: TimeDelta::zero(),
        }
    }

    /// The offset of the zone from UTC at an instant.
    pub(crate) fn offset(&self, utc: NaiveDateTime) -> Result<TimeDelta, Error> {
        // Zones may panic outside of the years that they know.
        let utc = in_range(Some(utc))?;
        let offset = self.zone.offset_from_utc_datetime(&utc).fix();
        Ok(TimeDelta::seconds(offset.local_minus_utc().into()))
    }

    /// Begins the next search with the offset at an instant.
    pub(crate) fn begin_at(&mut self, utc: NaiveDateTime) -> Result<(), Error> {
        self.first_guess = self.offset(utc)?;
        Ok(())
    }

    /// What clocks show at an instant.
    pub(crate) fn local(&self, utc: NaiveDateTime) -> Result<NaiveDateTime, Error> {
        in_range(utc.checked_add_signed(self.offset(utc)?))
    }

    /// The instant at which clocks show `local`. If they never do, the later of the two instants found with the offsets
    /// before and after the gap.
    pub(crate) fn instant(&mut self, local: NaiveDateTime) -> Result<NaiveDateTime, Error> {
        let mut guess = in_range(local.checked_sub_signed(self.first_guess))?;
        let (mut before_last, mut last) = (guess, guess);
        for _ in 0..MAX_PROBES {
            let next = in_range(local.checked_sub_signed(self.offset(guess)?))?;
            if next == guess {
                break;
            }
            if guess == before_last && guess != last {
                guess = guess.max(next);
                break;
            }
            (before_last, last, guess) = (last, guess, next);
        }
        self.first_guess = local.signed_duration_since(guess);
        Ok(guess)
    }
}

/// The time, if it is in the years of an RFC 3339 timestamp.
pub(crate) fn in_range(time: Option<NaiveDateTime>) -> Result<NaiveDateTime, Error> {
    use chrono::Datelike;
    time.filter(|time| (1..=9999).contains(&time.year()))
        .ok_or(Error::OutOfRange)
}

/// The local time of "now" and the instant itself, both without seconds.
pub(crate) fn minute_of_now<Tz: TimeZone>(
    clocks: &Clocks<Tz>,
    now: &DateTime<Tz>,
) -> Result<(NaiveDateTime, NaiveDateTime), Error> {
    use chrono::Timelike;
    let utc = in_range(Some(now.naive_utc()))?;
    let local = clocks.local(utc)?;
    let over = TimeDelta::seconds(local.second().into())
        + TimeDelta::nanoseconds(local.nanosecond().into());
    Ok((
        in_range(local.checked_sub_signed(over))?,
        in_range(utc.checked_sub_signed(over))?,
    ))
}
