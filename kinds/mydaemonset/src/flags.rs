//! The flags of this kind.

use chrono::TimeDelta;

use my_operator_kind::flag_values::period;

#[derive(clap::Args, Clone, Debug)]
// clap names groups by their types: the flags of `run` are another `Flags`.
#[group(skip)]
pub(super) struct Flags {
    /// How long a node may be NotReady before the roll-out of a MyDaemonSet leaves it out: it is
    /// then neither counted nor waited for. At most 365d.
    #[arg(long, env = "MY_OPERATOR_NODE_NOT_READY_GRACE", value_name = "DURATION", default_value = "60s", value_parser = grace)]
    pub(super) node_not_ready_grace: TimeDelta,
}

fn grace(text: &str) -> Result<TimeDelta, String> {
    let grace = period(text)?;
    if grace > TimeDelta::days(365) {
        return Err("that is too long".to_owned());
    }
    Ok(grace)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::{Args as _, FromArgMatches as _};

    use super::*;
    use crate::basis::GRACE;

    #[test]
    fn without_the_flag_the_grace_is_that_of_a_client() {
        let command = Flags::augment_args(clap::Command::new("run"));
        let matches = command.get_matches_from(["run"]);
        let flags = Flags::from_arg_matches(&matches).unwrap();
        assert_eq!(flags.node_not_ready_grace, GRACE);
    }

    #[test]
    fn the_grace_has_a_maximum() {
        assert_eq!(grace("365d"), Ok(TimeDelta::days(365)));
        assert!(grace("366d").is_err());
    }
}
