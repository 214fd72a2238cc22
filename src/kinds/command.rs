//! A command that people give as one text, for a shell to run.

use crate::admission::faults::Fault;
use crate::admission::rules::Findings;

/// The longest command. It is one argument of a program, and Linux allows 128 KiB for one.
const LONGEST: usize = 32_768;

/// Judges the command in that field.
pub fn check(field: &str, command: &str, findings: &mut Findings) {
    if command.trim().is_empty() {
        findings.fault(Fault::required(field, "command is required"));
    }
    if command.len() > LONGEST {
        findings.fault(Fault::too_long(field, command, LONGEST));
    }
    if command.contains('\0') {
        findings.fault(Fault::invalid(
            field,
            command,
            "must not contain a NUL character: no program can be given one",
        ));
    }
}

/// The text as a container's command must hold it, so that it reaches the program unchanged.
/// Kubernetes expands `$(NAME)` in commands and reads `$$` as an escaped `$`.
pub fn escape(text: &str) -> String {
    text.replace('$', "$$")
}
