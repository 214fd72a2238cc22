//! A command that users give as one text, for a shell to run.

use admission_rules::faults::Fault;
use admission_rules::rules::Findings;

/// The maximum length. Linux allows 128 KiB for one argument of a program, or one variable.
const MAX_LEN: usize = 32_768;

/// Validates the command in that field.
pub fn check(field: &str, command: &str, findings: &mut Findings) {
    if command.trim().is_empty() {
        findings.fault(Fault::required(field, "command is required"));
    }
    check_text(field, command, findings);
}

/// Validates a text that a program gets as an argument or in its environment.
pub fn check_text(field: &str, text: &str, findings: &mut Findings) {
    if text.len() > MAX_LEN {
        findings.fault(Fault::too_long(field, text, MAX_LEN));
    }
    if text.contains('\0') {
        findings.fault(Fault::invalid(
            field,
            text,
            "must not contain a NUL character: no program can be given one",
        ));
    }
}

/// The text as a container's command or environment must have it, so that it reaches the program
/// unchanged. Kubernetes expands `$(NAME)` in both and reads `$$` as an escaped `$`.
pub fn escape(text: &str) -> String {
    text.replace('$', "$$")
}
