//! The five fields of a schedule, as sets of values.

/// The bit that a `*` or `?` sets in a field besides all values, for the day rules.
pub(crate) const STAR: u64 = 1 << 63;

/// The days of each month in a leap year.
const DAYS: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// The five fields of a schedule, as [`parse`](fn@crate::parse) reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    pub(crate) minute: u64,
    pub(crate) hour: u64,
    pub(crate) day_of_month: u64,
    pub(crate) month: u64,
    pub(crate) day_of_week: u64,
}

impl Fields {
    /// Whether any day matches: the calendar of a leap year is enough to find out.
    pub(crate) fn has_a_day(&self) -> bool {
        // A matching day of the week comes in every month.
        let any_day_of_month = self.day_of_month & STAR != 0;
        let any_weekday = self.day_of_week & STAR != 0;
        any_day_of_month
            || !any_weekday
            || (1..).zip(DAYS).any(|(month, days)| {
                self.month >> month & 1 == 1
                    && (1..=days).any(|day| self.day_of_month >> day & 1 == 1)
            })
    }
}
