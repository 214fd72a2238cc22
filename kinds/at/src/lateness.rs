//! How late a command started, as `kubectl get` shows it.

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A duration in the style of kubectl's ages: two units while the smaller one matters, then one.
/// Below ten seconds it is more exact than an age, because most commands start within milliseconds.
pub(super) fn text(milliseconds: i64) -> String {
    match milliseconds {
        ..SECOND => format!("{milliseconds}ms"),
        SECOND..10_000 => {
            let tenths = milliseconds / 100;
            format!("{}.{}s", tenths / 10, tenths % 10)
        }
        10_000..120_000 => format!("{}s", milliseconds / SECOND),
        120_000..600_000 => two_units(milliseconds, (MINUTE, "m"), (SECOND, "s")),
        600_000..10_800_000 => format!("{}m", milliseconds / MINUTE),
        10_800_000..28_800_000 => two_units(milliseconds, (HOUR, "h"), (MINUTE, "m")),
        28_800_000..172_800_000 => format!("{}h", milliseconds / HOUR),
        172_800_000..691_200_000 => two_units(milliseconds, (DAY, "d"), (HOUR, "h")),
        _ => format!("{}d", milliseconds / DAY),
    }
}

/// The duration in a large and a small unit, without the small one where it is zero.
fn two_units(milliseconds: i64, large: (i64, &str), small: (i64, &str)) -> String {
    let whole = format!("{}{}", milliseconds / large.0, large.1);
    match milliseconds % large.0 / small.0 {
        0 => whole,
        rest => format!("{whole}{rest}{}", small.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lateness_reads_as_an_age_of_kubectl() {
        for (milliseconds, expected) in [
            (0, "0ms"),
            (21, "21ms"),
            (999, "999ms"),
            (1_000, "1.0s"),
            (1_250, "1.2s"),
            (9_999, "9.9s"),
            (10_000, "10s"),
            (119_999, "119s"),
            (180_000, "3m"),
            (185_400, "3m5s"),
            (3_600_000, "60m"),
            (4 * HOUR, "4h"),
            (4 * HOUR + 5 * MINUTE, "4h5m"),
            (9 * HOUR + 5 * MINUTE, "9h"),
            (3 * DAY + 2 * HOUR, "3d2h"),
            (7 * DAY, "7d"),
            (400 * DAY + HOUR, "400d"),
            (i64::MAX, "106751991167d"),
        ] {
            assert_eq!(text(milliseconds), expected);
        }
    }
}
