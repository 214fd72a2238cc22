//! Conditions of a status, as `metav1.Condition` defines them.

use chrono::{DateTime, SubsecRound, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest message of a condition, in characters. Long lists are cut: a status is read by people.
const MAX_MESSAGE_LEN: usize = 1024;

/// One observation of the object's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is observed, such as Accepted.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// Why, in one word, for programs.
    pub reason: String,
    /// Why, in a sentence or more, at most 1,024 characters.
    pub message: String,
    /// When the status of this condition last changed.
    pub last_transition_time: DateTime<Utc>,
    /// The metadata.generation that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The usual type of the condition that says whether the spec is valid.
pub const ACCEPTED: &str = "Accepted";

/// What a condition is to say.
#[derive(Clone, Debug)]
pub struct State {
    /// Whether it is so.
    pub status: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, in a sentence.
    pub message: String,
}

impl State {
    /// That state.
    pub fn of(status: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
        }
    }

    /// Has the condition of that type say it, as [`set`] does.
    pub fn set(
        &self,
        conditions: &mut Vec<Condition>,
        type_: &str,
        generation: Option<i64>,
        now: DateTime<Utc>,
    ) {
        let (status, reason, message) = (self.status, self.reason, &self.message);
        set(conditions, type_, status, reason, message, generation, now);
    }
}

/// Sets a condition in the list, keeping its transition time unless its status changes.
/// Setting what is already there changes nothing.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: bool,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: DateTime<Utc>,
) {
    let mut next = Condition {
        type_: type_.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.chars().take(MAX_MESSAGE_LEN).collect(),
        // The API's own conditions carry whole seconds.
        last_transition_time: now.trunc_subsecs(0),
        observed_generation: generation,
    };
    match conditions.iter_mut().find(|c| c.type_ == type_) {
        Some(old) => {
            if old.status == next.status {
                next.last_transition_time = old.last_transition_time;
            }
            *old = next;
        }
        None => conditions.push(next),
    }
}

/// Takes a condition out of the list.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|c| c.type_ != type_);
}

/// The condition of that type.
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 5_000_000).unwrap()
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut list = Vec::new();
        set(&mut list, "Ready", false, "A", "a", Some(1), at(1));
        set(&mut list, "Ready", false, "B", "b", Some(2), at(2));
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].last_transition_time, at(1).trunc_subsecs(0));
        assert_eq!(list[0].reason, "B");
        set(&mut list, "Ready", true, "C", "c", Some(2), at(3));
        assert_eq!(list[0].last_transition_time, at(3).trunc_subsecs(0));
    }

    #[test]
    fn setting_an_equal_condition_changes_nothing() {
        let mut list = Vec::new();
        set(&mut list, "Ready", true, "A", "a", Some(1), at(1));
        let before = list.clone();
        set(&mut list, "Ready", true, "A", "a", Some(1), at(9));
        assert_eq!(list, before);
    }
}
