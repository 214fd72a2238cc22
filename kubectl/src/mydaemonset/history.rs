//! The revisions of a `MyDaemonSet`: which there are, what each changed, and the one to go back to.

use admission_rules::text::cut;
use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt as _;
use my_operator_kind::watched::controller;
use my_operator_mydaemonset::names::{
    CHANGE_CAUSE_ANNOTATION, CHANGED_FROM_ANNOTATION, REVISION_LABEL,
};
use my_operator_mydaemonset::revision::{Content, since};
use serde::Deserialize as _;
use serde_json::Value;

use super::diff::{Change, diff};
use super::object::Object;

/// kubectl's own: `kubectl rollout restart` sets it in the template of a DaemonSet.
pub(crate) const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
/// A cause longer than this is cut, so that a table stays a table.
const MAX_CAUSE_LEN: usize = 100;

/// A revision.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Revision {
    /// Its number in the history: the newest has the highest.
    pub(crate) number: i64,
    /// The hash of its content, which its pods carry as a label.
    pub(crate) hash: String,
    /// Since when it is, or last was, the newest.
    pub(crate) since: Option<DateTime<Utc>>,
    /// The recorded cause.
    pub(crate) cause: Option<String>,
    /// The hash of the one that it replaced, if the operator recorded it.
    pub(crate) from: Option<String>,
    /// `image` and `template` as they were.
    pub(crate) content: Value,
}

impl Revision {
    fn new(stored: ControllerRevision) -> Self {
        let annotation = |key: &str| {
            let value = stored.annotations().get(key).cloned();
            value.filter(|value| !value.is_empty())
        };
        let hash = stored.labels().get(REVISION_LABEL).cloned();
        Self {
            number: stored.revision,
            hash: hash.unwrap_or_default(),
            since: since(&stored.metadata),
            cause: annotation(CHANGE_CAUSE_ANNOTATION),
            from: annotation(CHANGED_FROM_ANNOTATION),
            content: stored.data.map(|data| data.0).unwrap_or_default(),
        }
    }

    /// The image of its container.
    pub(crate) fn image(&self) -> String {
        let content = Content::deserialize(&self.content).unwrap_or_default();
        content.container_image().unwrap_or("no image").to_owned()
    }
}

/// The revisions that this object controls, the oldest first.
pub(crate) fn history(uid: &str, stored: Vec<ControllerRevision>) -> Vec<Revision> {
    let is_ours = |revision: &ControllerRevision| {
        controller(Some(revision.owner_references())).is_some_and(|owner| owner.uid == uid)
    };
    let ours = stored.into_iter().filter(is_ours);
    let mut history: Vec<Revision> = ours.map(Revision::new).collect();
    history.sort_by(|a, b| (a.number, &a.hash).cmp(&(b.number, &b.hash)));
    history
}

/// The revision to go back to: the one of that number or, for 0, one other than the present spec's: that of the last
/// roll-out that was completed. Where none is known to have been, it is the latest, as with kubectl.
pub(crate) fn target<'a>(
    history: &'a [Revision],
    object: &Object,
    to: i64,
) -> Result<&'a Revision, String> {
    if to != 0 {
        let found = find(history, to);
        return found.ok_or_else(|| format!("unable to find specified revision {to} in history"));
    }
    let present = object.revision();
    if let Some(back) = history.iter().find(|it| it.hash == present)
        && object.goes_back()
    {
        // A second undo is a repetition of the first.
        return Ok(back);
    }
    let others = || history.iter().filter(|revision| revision.hash != present);
    let mut complete = object.status.complete_revisions.iter();
    let complete = complete.find_map(|hash| others().find(|revision| revision.hash == *hash));
    complete
        .or_else(|| others().next_back())
        .ok_or_else(|| "no last revision to roll back to".to_owned())
}

/// The revision of that number.
pub(crate) fn find(history: &[Revision], number: i64) -> Option<&Revision> {
    history.iter().find(|revision| revision.number == number)
}

/// What a revision replaced, as far as that is known.
#[derive(Debug, PartialEq)]
pub(crate) enum Replaced<'a> {
    /// This one.
    Kept(&'a Revision),
    /// The one of this hash, which is no longer in the history.
    Gone(&'a str),
    /// Nothing, or that is not known.
    Unknown,
}

/// What a revision replaced: the one that the operator recorded. An older operator recorded none; then it is the one whose
/// number is one less, as numbers are given. If that is not there, an undo gave it another since, or it is gone.
pub(crate) fn replaced<'a>(history: &'a [Revision], revision: &'a Revision) -> Replaced<'a> {
    let mut others = history.iter().filter(|it| it.hash != revision.hash);
    let Some(from) = revision.from.as_deref() else {
        let number = revision.number.saturating_sub(1);
        let before = others.find(|it| it.number == number);
        return before.map_or(Replaced::Unknown, Replaced::Kept);
    };
    let before = others.find(|it| it.hash == from);
    before.map_or(Replaced::Gone(from), Replaced::Kept)
}

/// What is said of a revision that replaced the one of that hash, which is no longer there.
pub(crate) fn gone(hash: &str) -> String {
    let hash = cut(hash, MAX_CAUSE_LEN);
    format!("changed from {hash}, which is no longer kept")
}

/// The table of all revisions. Without a recorded cause, what a revision changed is its cause.
pub(crate) fn table(history: &[Revision], object: &Object, now: DateTime<Utc>) -> Vec<[String; 5]> {
    let header = ["REVISION", "HASH", "STATE", "AGE", "CHANGE-CAUSE"].map(str::to_owned);
    let mut rows = vec![header];
    for revision in history {
        let changed = || match replaced(history, revision) {
            Replaced::Kept(before) => Some(summary(&diff(&before.content, &revision.content))),
            Replaced::Gone(hash) => Some(gone(hash)),
            Replaced::Unknown => None,
        };
        let cause = revision.cause.clone().or_else(changed);
        let age = revision.since.map(|since| age(now - since));
        rows.push([
            revision.number.to_string(),
            revision.hash.clone(),
            state(object, &revision.hash).to_owned(),
            age.unwrap_or_else(|| "<unknown>".to_owned()),
            cut(cause.as_deref().unwrap_or("<none>"), MAX_CAUSE_LEN),
        ]);
    }
    rows
}

/// What a revision is to the roll-out.
fn state(object: &Object, hash: &str) -> &'static str {
    let is = |revision: &Option<String>| revision.as_deref() == Some(hash);
    let has_failed = || object.is_auto_paused() || object.is_undone();
    let status = &object.status;
    let mut complete = status.complete_revisions.iter();
    if is(&status.current_revision) {
        "current"
    } else if is(&status.update_revision) {
        if has_failed() { "failed" } else { "update" }
    } else if complete.any(|complete| complete == hash) {
        "previous"
    } else {
        "-"
    }
}

/// The differences in one line.
fn summary(changes: &[Change]) -> String {
    let is_restart = |change: &Change| change.path.ends_with(&format!("[{RESTARTED_AT}]"));
    if !changes.is_empty() && changes.iter().all(is_restart) {
        return "restart".to_owned();
    }
    let texts: Vec<String> = changes.iter().map(Change::to_string).collect();
    texts.join("; ")
}

/// An age as kubectl writes it: `42s`, `5m7s`, `3h5m`, `2d3h`, `40d`, `2y18d`.
pub(crate) fn age(age: TimeDelta) -> String {
    let seconds = age.num_seconds().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let pair = |whole: i64, unit: char, rest: i64, small: char| match rest {
        0 => format!("{whole}{unit}"),
        rest => format!("{whole}{unit}{rest}{small}"),
    };
    match (minutes, hours, days) {
        (0..2, ..) => format!("{seconds}s"),
        (2..10, ..) => pair(minutes, 'm', seconds % 60, 's'),
        (10..180, ..) => format!("{minutes}m"),
        (_, 3..8, _) => pair(hours, 'h', minutes % 60, 'm'),
        (_, 8..48, _) => format!("{hours}h"),
        (_, _, 2..8) => pair(days, 'd', hours % 24, 'h'),
        (_, _, 8..730) => format!("{days}d"),
        _ => pair(days / 365, 'y', days % 365, 'd'),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::object::tests::object;
    use super::*;
    use serde_json::json;

    pub(crate) fn revision(number: i64, hash: &str, content: Value) -> Revision {
        Revision {
            number,
            hash: hash.to_owned(),
            content,
            ..Revision::default()
        }
    }

    fn three() -> Vec<Revision> {
        vec![
            revision(1, "a", json!({"image": "nginx:1.27"})),
            revision(2, "b", json!({"image": "nginx:1.28"})),
            revision(
                3,
                "c",
                json!({"image": "nginx:1.28", "template": {"metadata": {"labels": {"x": "y"}}}}),
            ),
        ]
    }

    #[test]
    fn only_the_revisions_that_the_object_controls_are_its_history() {
        let stored = |name: &str, owner: Value, number: i64| -> ControllerRevision {
            let object = json!({"metadata": {"name": name, "ownerReferences": owner,
                    "labels": {"apps.zhongmingmao.io/revision": name},
                    "annotations": {"apps.zhongmingmao.io/since": "2026-01-01T00:00:00Z", "kubernetes.io/change-cause": "why",
                        "apps.zhongmingmao.io/changed-from": ""}},
                "data": {"image": name}, "revision": number});
            serde_json::from_value(object).unwrap()
        };
        let owner = |uid: &str, controller: bool| json!([{"apiVersion": "v1", "kind": "X", "name": "web", "uid": uid, "controller": controller}]);
        let all = vec![
            stored("two", owner("u", true), 2),
            stored("foreign", owner("v", true), 3),
            stored("not-controlled", owner("u", false), 4),
            stored("orphan", Value::Null, 5),
            stored("one", owner("u", true), 1),
        ];
        let history = history("u", all);
        let hashes: Vec<&str> = history.iter().map(|r| r.hash.as_str()).collect();
        assert_eq!(hashes, ["one", "two"]);
        assert_eq!(history[0].cause.as_deref(), Some("why"));
        assert_eq!(history[0].from, None);
        assert_eq!(history[0].content, json!({"image": "one"}));
        assert_eq!(history[0].since, DateTime::from_timestamp(1_767_225_600, 0));
    }

    #[test]
    fn undo_goes_to_the_last_revision_whose_roll_out_was_completed() {
        let spec = json!({"image": "nginx:1.29"});
        let present = object(&spec, &Value::Null).revision();
        let mut history = three();
        history.push(revision(5, &present, spec.clone()));
        let to = |status: Value, to: i64| {
            target(&history, &object(&spec, &status), to).map(|revision| revision.number)
        };
        let complete = |last: &str, before: &str| json!({"observedGeneration": 3, "completeRevisions": [last, before]});
        let mut back = complete(&present, "a");
        back["conditions"] = json!([{"type": "Progressing", "status": "True", "reason": "RollingOut",
            "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        for (status, goal) in [
            // Nothing is known: the latest other one.
            (Value::Null, 3),
            (
                json!({"observedGeneration": 3, "completeRevisions": [present]}),
                3,
            ),
            // c failed before the present one.
            (complete("b", "a"), 2),
            (complete(&present, "a"), 1),
            // What was complete is no longer there.
            (complete(&present, "gone"), 3),
            // It goes back already.
            (back, 5),
        ] {
            assert_eq!(to(status.clone(), 0), Ok(goal), "{status}");
        }
        assert_eq!(to(complete("b", "a"), 3), Ok(3));
        assert_eq!(
            to(Value::Null, 4),
            Err("unable to find specified revision 4 in history".to_owned())
        );
        let only = &history[3..];
        assert_eq!(
            target(only, &object(&spec, &Value::Null), 0).unwrap_err(),
            "no last revision to roll back to"
        );
    }

    #[test]
    fn the_table_says_what_each_revision_changed() {
        let status = json!({"currentRevision": "b", "updateRevision": "c"});
        let object = object(&json!({"image": "x"}), &status);
        let now = DateTime::from_timestamp(1_000_000, 0).unwrap();
        let mut history = three();
        history[0].cause = Some("first".to_owned());
        history[1].since = Some(now - TimeDelta::days(1));
        let rows = table(&history, &object, now);
        assert_eq!(rows[0][0], "REVISION");
        assert_eq!(rows[1], ["1", "a", "-", "<unknown>", "first"]);
        assert_eq!(
            rows[2],
            [
                "2",
                "b",
                "current",
                "24h",
                r#"~ image: "nginx:1.27" -> "nginx:1.28""#
            ]
        );
        assert_eq!(rows[3][2], "update");
        assert_eq!(rows[3][4], r#"+ template.metadata.labels.x: "y""#);
        history.remove(0);
        assert_eq!(table(&history, &object, now)[1][4], "<none>");
    }

    /// The last column.
    fn causes(history: &[Revision]) -> Vec<String> {
        let object = object(&json!({"image": "x"}), &Value::Null);
        let rows = table(history, &object, Utc::now()).into_iter();
        rows.skip(1).map(|[.., cause]| cause).collect()
    }

    #[test]
    fn an_undo_does_not_change_what_the_history_says_of_other_revisions() {
        let from = |from: &str, revision: Revision| Revision {
            from: Some(from.to_owned()),
            ..revision
        };
        let [one, two, three] = [("a", "28"), ("b", "29"), ("c", "30")]
            .map(|(hash, minor)| revision(0, hash, json!({"image": format!("nginx:1.{minor}")})));
        let text = |old: &str, new: &str| format!(r#"~ image: "nginx:1.{old}" -> "nginx:1.{new}""#);
        let numbered = |number, revision: &Revision| Revision {
            number,
            ..revision.clone()
        };
        let before = [
            numbered(1, &one),
            from("a", numbered(2, &two)),
            from("b", numbered(3, &three)),
        ];
        let [second, third] = [text("28", "29"), text("29", "30")];
        let first = "<none>".to_owned();
        assert_eq!(causes(&before), [first, second, third.clone()]);
        // Back to the second one.
        let mut after = vec![
            numbered(1, &one),
            from("b", numbered(3, &three)),
            from("c", numbered(4, &two)),
        ];
        let back = text("30", "29");
        assert_eq!(causes(&after)[1..], [third.clone(), back.clone()]);
        // And to the first.
        after.push(from("b", numbered(5, &one)));
        after.remove(0);
        let again = text("29", "28");
        assert_eq!(causes(&after), [third, back.clone(), again.clone()]);
        // What a revision replaced is no longer kept.
        after.remove(0);
        let gone = "changed from c, which is no longer kept".to_owned();
        assert_eq!(causes(&after), [gone, again]);
        // An older operator recorded nothing: the second one may have replaced any.
        let older = [numbered(1, &one), numbered(3, &three), numbered(4, &two)];
        assert_eq!(causes(&older)[1..], ["<none>".to_owned(), back]);
    }

    #[test]
    fn what_another_client_wrote_for_a_replaced_revision_is_one_that_is_gone() {
        let mut history = three();
        for (hostile, shown) in [
            ("c", "changed from c, which is no longer kept"),
            (
                "\u{1b}[2J",
                "changed from \u{1b}[2J, which is no longer kept",
            ),
        ] {
            history[2].from = Some(hostile.to_owned());
            assert_eq!(replaced(&history, &history[2]), Replaced::Gone(hostile));
            assert_eq!(causes(&history)[2], shown);
        }
        history[2].from = Some("x".repeat(100_000));
        assert!(causes(&history)[2].len() < 200);
        assert!(gone(&"x".repeat(100_000)).len() < 200);
        history[2].from = None;
        history[2].number = i64::MIN;
        assert_eq!(replaced(&history, &history[2]), Replaced::Unknown);
    }

    #[test]
    fn the_table_says_what_each_revision_is() {
        let spec = json!({"image": "nginx:1.29"});
        let present = object(&spec, &Value::Null).revision();
        let mut history = three();
        history.push(revision(5, &present, spec.clone()));
        let mut status = json!({"currentRevision": "c", "updateRevision": present, "completeRevisions": ["c", "b"]});
        let shown = |status: &Value| {
            let rows = table(&history, &object(&spec, status), Utc::now());
            let column = rows.into_iter().skip(1).map(|[_, _, state, ..]| state);
            column.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(&status), "- previous current update");
        status["conditions"] = json!([{"type": "Progressing", "status": "False", "reason": "AutoPaused",
            "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        assert_eq!(shown(&status), "- previous current failed");
    }

    #[test]
    fn a_restart_is_called_one() {
        let template =
            |at: &str| json!({"template": {"metadata": {"annotations": {RESTARTED_AT: at}}}});
        let cause = |before: &Value, after: &Value| summary(&diff(before, after));
        assert_eq!(cause(&json!({}), &template("1")), "restart");
        assert_eq!(cause(&template("1"), &template("2")), "restart");
        let mut other = template("2");
        other["image"] = json!("a:1");
        assert!(cause(&template("1"), &other).starts_with("+ image: \"a:1\"; ~ template"));
    }

    #[test]
    fn a_long_cause_is_cut() {
        let text = "ü".repeat(300);
        let kept = "ü".repeat(MAX_CAUSE_LEN);
        let said = |hash: &str| format!("changed from {hash}, which is no longer kept");
        assert_eq!(gone(&text), said(&format!("{kept}...")));
        assert_eq!(gone("short"), said("short"));
    }

    #[test]
    fn ages_are_kubectls() {
        for (seconds, text) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (307, "5m7s"),
            (3600, "60m"),
            (11_100, "3h5m"),
            (36_000, "10h"),
            (183_600, "2d3h"),
            (86_400 * 40, "40d"),
            (86_400 * 748, "2y18d"),
        ] {
            assert_eq!(age(TimeDelta::seconds(seconds)), text);
        }
    }
}
