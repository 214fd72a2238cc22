//! A zone of the IANA database as a `TimeZone` of chrono's.

use std::sync::LazyLock;

use chrono::{DateTime, FixedOffset, MappedLocalTime, NaiveDate, NaiveDateTime, Offset, TimeZone};
use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A zone by its name.
#[derive(Clone, Debug)]
pub(crate) struct Zone(jiff::tz::TimeZone);

/// The offset of a zone at an instant.
#[derive(Clone, Debug)]
pub(crate) struct ZoneOffset(Zone, FixedOffset);

impl Zone {
    pub(crate) fn named(name: &str) -> Self {
        Self(DATABASE.get(name).unwrap())
    }

    /// The instant in this zone.
    pub(crate) fn at(&self, seconds: i64) -> DateTime<Self> {
        DateTime::from_timestamp(seconds, 0)
            .unwrap()
            .with_timezone(self)
    }

    /// Seconds that clocks are ahead of UTC.
    pub(crate) fn offset(&self, seconds: i64) -> i64 {
        let instant = Timestamp::from_second(seconds).unwrap();
        self.0.to_offset(instant).seconds().into()
    }

    /// When clocks change in a span of time.
    pub(crate) fn changes(&self, from: i64, to: i64) -> Vec<i64> {
        let mut changes = Vec::new();
        let (mut start, day) = (from, 86_400);
        while start < to {
            let (mut low, mut high) = (start, start + day);
            start = high;
            if self.offset(low) == self.offset(high) {
                continue;
            }
            while high - low > 1 {
                let middle = i64::midpoint(low, high);
                if self.offset(middle) == self.offset(low) {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            changes.push(high);
        }
        changes
    }
}

impl Offset for ZoneOffset {
    fn fix(&self) -> FixedOffset {
        self.1
    }
}

impl TimeZone for Zone {
    type Offset = ZoneOffset;

    fn from_offset(offset: &ZoneOffset) -> Self {
        offset.0.clone()
    }

    fn offset_from_utc_datetime(&self, utc: &NaiveDateTime) -> ZoneOffset {
        let offset = i32::try_from(self.offset(utc.and_utc().timestamp())).unwrap();
        ZoneOffset(self.clone(), FixedOffset::east_opt(offset).unwrap())
    }

    fn offset_from_utc_date(&self, utc: &NaiveDate) -> ZoneOffset {
        self.offset_from_utc_datetime(&utc.and_hms_opt(0, 0, 0).unwrap())
    }

    fn offset_from_local_datetime(&self, _: &NaiveDateTime) -> MappedLocalTime<ZoneOffset> {
        unreachable!("the crate asks for offsets of instants only")
    }

    fn offset_from_local_date(&self, _: &NaiveDate) -> MappedLocalTime<ZoneOffset> {
        unreachable!("the crate asks for offsets of instants only")
    }
}
