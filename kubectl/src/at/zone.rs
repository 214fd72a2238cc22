//! The user's time zone, by the rules of tzset(3): TZ, else /etc/localtime, else UTC.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use my_operator_times::moment::Clock;

/// Where every Linux distribution and macOS keep the zone of the machine.
const LOCALTIME: &str = "/etc/localtime";

/// The clock of this machine, in the user's zone.
pub(super) fn clock() -> Clock {
    Clock {
        now: Timestamp::now(),
        zone: local(),
    }
}

/// The zone that times are read and shown in. Of a TZ that is not understood, a line on standard error warns once.
fn local() -> TimeZone {
    static LOCAL: OnceLock<TimeZone> = OnceLock::new();
    let found = LOCAL.get_or_init(|| {
        let named = std::env::var_os("TZ").map(|it| it.to_string_lossy().into_owned());
        zone(named.as_deref(), Path::new(LOCALTIME)).unwrap_or_else(|| {
            let named = named.unwrap_or_default();
            // Nothing can be done about a standard error that takes no more.
            let _ = writeln!(io::stderr(), "{}", unknown(&named));
            TimeZone::UTC
        })
    });
    found.clone()
}

fn unknown(named: &str) -> String {
    format!("Warning: TZ={named:?} is not a known time zone: times are in UTC")
}

/// The zone; `None` if it is not understood, which means UTC.
fn zone(named: Option<&str>, localtime: &Path) -> Option<TimeZone> {
    match named {
        None => Some(file(localtime).unwrap_or(TimeZone::UTC)),
        // Set but empty means UTC.
        Some("" | ":") => Some(TimeZone::UTC),
        Some(name) => by_name(name.strip_prefix(':').unwrap_or(name)),
    }
}

/// A file, a name of the database, or rules as POSIX writes them (`CET-1CEST,M3.5.0,M10.5.0/3`).
fn by_name(name: &str) -> Option<TimeZone> {
    if name.starts_with('/') {
        return file(Path::new(name));
    }
    TimeZone::get(name).or_else(|_| TimeZone::posix(name)).ok()
}

/// The zone of a file of the database: by its name where the path ends with one, so that it is that of the database, with
/// all its rules; else by its content.
fn file(path: &Path) -> Option<TimeZone> {
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path));
    let target = target.to_string_lossy();
    let name = target.split_once("zoneinfo/").map(|(_, name)| name);
    if let Some(zone) = name.and_then(|name| TimeZone::get(name).ok()) {
        return Some(zone);
    }
    let bytes = std::fs::read(path).ok()?;
    TimeZone::tzif("Local", &bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(named: Option<&str>, localtime: &str) -> String {
        let zone = zone(named, Path::new(localtime)).unwrap_or(TimeZone::UTC);
        let summer = Timestamp::constant(1_782_907_200, 0);
        summer.to_zoned(zone).strftime("%H:%M %Z").to_string()
    }

    #[test]
    fn the_zone_is_found_as_tzset_finds_it() {
        let missing = "/nonexistent/localtime";
        assert_eq!(shown(None, missing), "12:00 UTC");
        assert_eq!(shown(Some(""), missing), "12:00 UTC");
        assert_eq!(shown(Some("No/Such"), missing), "12:00 UTC");
        assert_eq!(shown(Some("Europe/Berlin"), missing), "14:00 CEST");
        assert_eq!(shown(Some(":Asia/Kolkata"), missing), "17:30 IST");
        assert_eq!(
            shown(Some("CET-1CEST,M3.5.0,M10.5.0/3"), missing),
            "14:00 CEST"
        );
    }

    #[test]
    fn only_a_zone_that_is_not_understood_is_worth_a_warning() {
        let missing = Path::new("/nonexistent/localtime");
        for (named, known) in [
            (None, true),
            (Some(""), true),
            (Some(":"), true),
            (Some("UTC"), true),
            (Some("EST5EDT"), true),
            (Some("XYZ-3"), true),
            (Some("No/Such"), false),
            (Some("/nonexistent/zone"), false),
            (Some("Berlin"), false),
        ] {
            assert_eq!(zone(named, missing).is_some(), known, "{named:?}");
        }
        assert_eq!(unknown("No/\nSuch").lines().count(), 1);
    }
}
