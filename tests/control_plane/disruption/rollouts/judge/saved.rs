//! Histories of failed runs as files, to be judged again: `HISTORY=<file> cargo test a_saved_history_is_judged_again`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{History, Rules};
use crate::harness::checkout;

/// What is in a file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Saved {
    /// Replays the run, as far as that is possible.
    pub(super) seed: u64,
    pub(super) rules: Rules,
    pub(super) history: History,
}

/// Writes a history to `target/histories` and returns the file's path.
pub(crate) fn save(name: &str, seed: u64, rules: &Rules, history: &History) -> PathBuf {
    let folder = checkout().join("target/histories");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}-{seed}.json"));
    let saved = Saved {
        seed,
        rules: rules.clone(),
        history: history.clone(),
    };
    std::fs::write(&path, serde_json::to_vec_pretty(&saved).unwrap()).unwrap();
    path
}

/// Reads what [`save`] has written.
pub(super) fn read(path: &Path) -> Saved {
    let text = std::fs::read(path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

/// A `TimeDelta` as a number.
pub(super) mod milliseconds {
    use chrono::TimeDelta;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        time: &TimeDelta,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.num_milliseconds().serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<TimeDelta, D::Error> {
        i64::deserialize(deserializer).map(TimeDelta::milliseconds)
    }
}
