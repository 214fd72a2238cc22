//! Time zones for code that works with chrono's types.

use chrono::{FixedOffset, MappedLocalTime, NaiveDate, NaiveDateTime};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

/// The zone for code that works with chrono's types.
#[derive(Clone, Debug)]
pub struct ChronoZone(pub TimeZone);

/// An offset of it.
#[derive(Clone, Debug)]
pub struct ChronoOffset {
    zone: TimeZone,
    fixed: FixedOffset,
}

impl std::fmt::Display for ChronoOffset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fixed.fmt(f)
    }
}

impl chrono::Offset for ChronoOffset {
    fn fix(&self) -> FixedOffset {
        self.fixed
    }
}

impl ChronoZone {
    fn offset(&self, offset: Offset) -> ChronoOffset {
        // Both libraries bound offsets; jiff's bound is a second wider, where no zone is.
        let utc = chrono::Offset::fix(&chrono::Utc);
        ChronoOffset {
            zone: self.0.clone(),
            fixed: FixedOffset::east_opt(offset.seconds()).unwrap_or(utc),
        }
    }
}

impl chrono::TimeZone for ChronoZone {
    type Offset = ChronoOffset;

    fn from_offset(offset: &ChronoOffset) -> Self {
        Self(offset.zone.clone())
    }

    fn offset_from_local_date(&self, local: &NaiveDate) -> MappedLocalTime<ChronoOffset> {
        self.offset_from_local_datetime(&local.and_time(chrono::NaiveTime::MIN))
    }

    fn offset_from_local_datetime(&self, local: &NaiveDateTime) -> MappedLocalTime<ChronoOffset> {
        let Ok(civil) = local.to_string().parse::<DateTime>() else {
            return MappedLocalTime::None;
        };
        match self.0.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => MappedLocalTime::Single(self.offset(offset)),
            AmbiguousOffset::Gap { .. } => MappedLocalTime::None,
            AmbiguousOffset::Fold { before, after } => {
                MappedLocalTime::Ambiguous(self.offset(before), self.offset(after))
            }
        }
    }

    fn offset_from_utc_date(&self, utc: &NaiveDate) -> ChronoOffset {
        self.offset_from_utc_datetime(&utc.and_time(chrono::NaiveTime::MIN))
    }

    fn offset_from_utc_datetime(&self, utc: &NaiveDateTime) -> ChronoOffset {
        let seconds = utc.and_utc().timestamp();
        let instant = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        self.offset(self.0.to_offset(instant))
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone as _;

    use super::*;

    #[test]
    fn chrono_sees_the_same_clock_changes() {
        let zone = ChronoZone(TimeZone::get("Europe/Berlin").unwrap_or(TimeZone::UTC));
        let local = |text: &str| {
            let time = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M");
            zone.from_local_datetime(&time.unwrap_or_default())
                .map(|time| time.to_rfc3339())
        };
        assert_eq!(
            local("2026-07-01 12:00"),
            MappedLocalTime::Single("2026-07-01T12:00:00+02:00".to_owned())
        );
        assert_eq!(local("2026-03-29 02:30"), MappedLocalTime::None);
        assert_eq!(
            local("2026-10-25 02:30"),
            MappedLocalTime::Ambiguous(
                "2026-10-25T02:30:00+02:00".to_owned(),
                "2026-10-25T02:30:00+01:00".to_owned()
            )
        );
        let utc = chrono::DateTime::from_timestamp(1_782_907_200, 0).unwrap_or_default();
        assert_eq!(
            utc.with_timezone(&zone).to_rfc3339(),
            "2026-07-01T14:00:00+02:00"
        );
    }
}
