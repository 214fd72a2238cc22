//! The user's time zone, by the rules of tzset(3): TZ, else /etc/localtime, else UTC.

use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;

/// Where every Linux distribution and macOS keep the zone of the machine.
const LOCALTIME: &str = "/etc/localtime";

/// The zone that times are read and shown in.
pub(super) fn local() -> TimeZone {
    let named = std::env::var("TZ").ok();
    zone(named.as_deref(), Path::new(LOCALTIME))
}

fn zone(named: Option<&str>, localtime: &Path) -> TimeZone {
    match named {
        None => file(localtime).unwrap_or(TimeZone::UTC),
        // Set but empty means UTC, and so does what is not understood.
        Some(name) => by_name(name.strip_prefix(':').unwrap_or(name)).unwrap_or(TimeZone::UTC),
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
    use jiff::Timestamp;

    use super::*;

    fn shown(named: Option<&str>, localtime: &str) -> String {
        let zone = zone(named, Path::new(localtime));
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
}
