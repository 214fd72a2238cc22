//! The rules of a field that names a time zone.

use admission_rules::faults::Fault;
use admission_rules::rules::Findings;
use robfig_cron::Zone;

/// The default time zone. A CronJob without one follows the clock of whatever machine its
/// controller runs on, so that its next run would be unknown.
pub const TIME_ZONE: &str = "Etc/UTC";

/// Rejects the name of an unknown time zone.
pub fn check(field: &str, name: &str, findings: &mut Findings) {
    if Zone::named(name).is_some() {
        return;
    }
    // The API server's words for CronJobs, and how to fix it.
    let detail = if name.eq_ignore_ascii_case("Local") {
        "must be an explicit time zone as defined in https://www.iana.org/time-zones"
    } else {
        "unknown time zone: give a name of the IANA database, such as Europe/Berlin, letter for letter"
    };
    findings.fault(Fault::invalid(field, name, detail));
}
