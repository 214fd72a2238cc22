//! The judge itself: histories written by hand. Each one that it must reject is one step away from one that it must
//! accept.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use my_operator::kinds::mydaemonset::crd::MyDaemonSetStatus;
use serde_json::json;
use wall_clock_controller::reconcile::condition::Condition;

use super::settings::Settings;
use super::{
    History, Moment, NodeState, ObjectState, PodState, Rules, Spec, Verdict, What, judge, saved,
};

const OLD: &str = "app:1";
const NEW: &str = "app:2";
const LATEST: TimeDelta = TimeDelta::seconds(1);
const GRACE: TimeDelta = TimeDelta::seconds(3);

/// A history that is being written.
struct Story {
    history: History,
    rules: Rules,
    version: u64,
    now: DateTime<Utc>,
    object: ObjectState,
    nodes: BTreeMap<&'static str, NodeState>,
    /// By node and image.
    pods: BTreeMap<(&'static str, &'static str), PodState>,
    uids: usize,
}

impl Story {
    /// Three nodes with a pod each, all of which the operator knows. By default one node at a time may be without a pod.
    fn new() -> Self {
        let mut story = Self {
            history: History::default(),
            rules: Rules {
                pool: "ours".to_owned(),
                by_test: BTreeSet::new(),
                grace: GRACE,
                latest: LATEST,
                two_operators: false,
            },
            version: 100,
            now: DateTime::from_timestamp(1_800_000_000, 0).unwrap(),
            object: ObjectState {
                spec: Spec {
                    generation: 0,
                    image: String::new(),
                    max_unavailable: IntOrString::Int(1),
                    max_surge: IntOrString::Int(0),
                    partition: 0,
                    paused: false,
                    min_ready: TimeDelta::zero(),
                    is_built_in: false,
                    settings: Settings::default(),
                },
                status: MyDaemonSetStatus::default(),
                resumed: None,
                freeze: None,
            },
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            uids: 0,
        };
        for name in ["n1", "n2", "n3"] {
            story.node(name, |node| node.pool = Some("ours".to_owned()));
        }
        story.change(|spec| OLD.clone_into(&mut spec.image));
        story.observe();
        for name in ["n1", "n2", "n3"] {
            story.create(name, OLD);
            story.ready(name, OLD);
        }
        story.pass(LATEST * 2);
        story
    }

    /// The same with a roll-out to [`NEW`] that the operator has begun.
    fn rolling(change: impl FnOnce(&mut Spec)) -> Self {
        let mut story = Self::new();
        story.change(|spec| {
            NEW.clone_into(&mut spec.image);
            change(spec);
        });
        story.observe();
        story
    }

    fn pass(&mut self, time: TimeDelta) {
        self.now += time;
    }

    fn add(&mut self, name: &str, gone: bool, what: What) {
        self.version += 1;
        self.now += TimeDelta::milliseconds(10);
        self.history.0.push(Moment {
            version: self.version,
            seen: self.now,
            name: name.to_owned(),
            gone,
            what,
        });
    }

    /// A user changes the object.
    fn change(&mut self, change: impl FnOnce(&mut Spec)) {
        change(&mut self.object.spec);
        self.object.spec.generation += 1;
        self.add("x", false, What::Object(Box::new(self.object.clone())));
    }

    /// The operator writes that it has seen the last change.
    fn observe(&mut self) {
        let generation = self.object.spec.generation;
        self.status(|status| status.observed_generation = Some(generation));
    }

    fn status(&mut self, change: impl FnOnce(&mut MyDaemonSetStatus)) {
        change(&mut self.object.status);
        self.add("x", false, What::Object(Box::new(self.object.clone())));
    }

    /// A user sets or removes the annotation that freezes the object.
    fn freeze(&mut self, value: Option<&str>) {
        self.object.freeze = value.map(str::to_owned);
        self.status(|_| ());
    }

    /// The operator says that what has this value is frozen.
    fn acknowledge(&mut self, value: &str) {
        let now = self.now;
        self.status(|status| {
            status.freeze = Some(value.to_owned());
            status.conditions = vec![Condition {
                type_: "Frozen".to_owned(),
                status: "True".to_owned(),
                reason: "Frozen".to_owned(),
                message: "no pod goes".to_owned(),
                last_transition_time: now,
                observed_generation: None,
            }];
        });
    }

    fn node(&mut self, name: &'static str, change: impl FnOnce(&mut NodeState)) {
        let node = self.nodes.entry(name).or_default();
        change(node);
        let node = node.clone();
        self.add(name, false, What::Node(node));
    }

    fn remove_node(&mut self, name: &'static str) {
        let node = self.nodes.remove(name).unwrap();
        self.add(name, true, What::Node(node));
    }

    fn create(&mut self, node: &'static str, image: &'static str) {
        self.uids += 1;
        let pod = PodState {
            name: format!("{node}-{image}-{}", self.uids),
            uid: self.uids.to_string(),
            node: node.to_owned(),
            image: image.to_owned(),
            ready_since: None,
            ended: false,
            deleting: false,
        };
        self.pods.insert((node, image), pod);
        self.show(node, image);
    }

    fn show(&mut self, node: &'static str, image: &'static str) {
        let pod = self.pods[&(node, image)].clone();
        self.add(&pod.name.clone(), false, What::Pod(pod));
    }

    fn pod(&mut self, node: &'static str, image: &'static str) -> &mut PodState {
        self.pods.get_mut(&(node, image)).unwrap()
    }

    fn ready(&mut self, node: &'static str, image: &'static str) {
        self.pod(node, image).ready_since = Some(self.now);
        self.show(node, image);
    }

    fn unready(&mut self, node: &'static str, image: &'static str) {
        self.pod(node, image).ready_since = None;
        self.show(node, image);
    }

    /// The pod is deleted, and is terminating.
    fn terminate(&mut self, node: &'static str, image: &'static str) {
        self.pod(node, image).deleting = true;
        self.show(node, image);
    }

    /// The pod is deleted, and goes.
    fn delete(&mut self, node: &'static str, image: &'static str) {
        self.terminate(node, image);
        self.go(node, image);
    }

    fn go(&mut self, node: &'static str, image: &'static str) {
        let pod = self.pods.remove(&(node, image)).unwrap();
        self.add(&pod.name.clone(), true, What::Pod(pod));
    }

    /// Another client deletes the pod.
    fn delete_by_test(&mut self, node: &'static str, image: &'static str) {
        let uid = self.pod(node, image).uid.clone();
        self.rules.by_test.insert(uid);
        self.delete(node, image);
    }

    /// A node gets its new pod.
    fn replace(&mut self, node: &'static str) {
        self.delete(node, OLD);
        self.create(node, NEW);
        self.ready(node, NEW);
    }

    fn start_operator(&mut self) {
        self.version += 1;
        self.history.started(self.version, self.now);
    }

    fn judge(&self) -> Verdict {
        judge(&self.history, &self.rules)
    }
}

/// Asserts that the judge accepts the story without its wrong step, and with it rejects it in those words, among others.
fn assert_rejected(words: &str, story: impl Fn(bool) -> Story) {
    let good = story(false).judge();
    assert!(good.wrong.is_empty(), "without the step: {}", good.wrong[0]);
    let bad = story(true).judge();
    let found = bad.wrong.iter().any(|wrong| wrong.contains(words));
    assert!(found, "{words}: {:#?}", bad.wrong);
}

#[test]
fn a_whole_roll_out_is_accepted() {
    let mut story = Story::rolling(|_| ());
    for node in ["n3", "n1", "n2"] {
        story.replace(node);
    }
    let verdict = story.judge();
    assert!(verdict.wrong.is_empty(), "{:?}", verdict.wrong);
    assert_eq!((verdict.held_against_limit, verdict.at_limit), (3, 3));
    assert!(verdict.excused.is_empty() && verdict.surges == 0);
}

#[test]
fn two_nodes_at_once_are_one_too_many() {
    assert_rejected("2 nodes unavailable after the deletion on n2", |wrong| {
        let mut story = Story::rolling(|_| ());
        story.delete("n1", OLD);
        story.create("n1", NEW);
        if !wrong {
            story.ready("n1", NEW);
        }
        story.delete("n2", OLD);
        story
    });
}

#[test]
fn a_percentage_of_the_nodes_is_rounded_up() {
    assert_rejected("the limit is 1", |wrong| {
        let percent = if wrong { "33%" } else { "34%" };
        let limit = IntOrString::String(percent.to_owned());
        let mut story = Story::rolling(|spec| spec.max_unavailable = limit);
        story.delete("n1", OLD);
        story.delete("n2", OLD);
        story
    });
}

#[test]
fn a_pod_that_is_not_yet_available_leaves_its_node_unavailable() {
    assert_rejected("2 nodes unavailable", |wrong| {
        let mut story = Story::rolling(|spec| spec.min_ready = TimeDelta::seconds(5));
        story.pass(TimeDelta::seconds(6));
        story.replace("n1");
        story.pass(TimeDelta::seconds(if wrong { 4 } else { 6 }));
        story.delete("n2", OLD);
        story
    });
}

#[test]
fn an_unready_pod_counts_when_the_operator_must_know_it() {
    assert_rejected("2 nodes unavailable", |wrong| {
        let mut story = Story::rolling(|_| ());
        story.unready("n1", OLD);
        story.pass(if wrong { LATEST } else { LATEST / 2 });
        story.delete("n2", OLD);
        story
    });
}

#[test]
fn an_operator_knows_all_that_was_before_its_start() {
    assert_rejected("2 nodes unavailable", |wrong| {
        let mut story = Story::rolling(|_| ());
        if !wrong {
            story.start_operator();
        }
        story.unready("n1", OLD);
        if wrong {
            story.start_operator();
        }
        story.delete("n2", OLD);
        story
    });
}

#[test]
fn an_operator_that_creates_a_pod_knows_what_happened_before_the_old_one_went() {
    assert_rejected("2 nodes unavailable", |wrong| {
        let mut story = Story::rolling(|_| ());
        story.unready("n1", OLD);
        story.delete_by_test("n3", OLD);
        if wrong {
            story.create("n3", NEW);
            story.ready("n3", NEW);
        }
        story.delete("n2", OLD);
        story
    });
}

#[test]
fn a_pod_of_a_revision_comes_when_the_one_before_has_gone() {
    assert_rejected("two pods of one revision on a node", |wrong| {
        let mut story = Story::new();
        story.unready("n1", OLD);
        story.terminate("n1", OLD);
        let old = story.pods[&("n1", OLD)].clone();
        if !wrong {
            story.add(&old.name, true, What::Pod(old.clone()));
        }
        story.create("n1", OLD);
        story
    });
}

#[test]
fn a_second_new_pod_is_one_too_many() {
    assert_rejected("two pods of one revision on a node", |wrong| {
        let mut story = Story::rolling(|_| ());
        story.replace("n1");
        if wrong {
            story.create("n1", NEW);
        }
        story
    });
}

#[test]
fn the_newest_revision_is_not_deleted() {
    let text = "a Ready pod of the newest revision is deleted";
    assert_rejected(text, |wrong| {
        let mut story = Story::new();
        if !wrong {
            story.change(|spec| NEW.clone_into(&mut spec.image));
        }
        story.delete("n1", OLD);
        story
    });
    // Unless the test did it.
    assert_rejected(text, |wrong| {
        let mut story = Story::new();
        if wrong {
            story.delete("n1", OLD);
        } else {
            story.delete_by_test("n1", OLD);
        }
        story
    });
}

#[test]
fn a_paused_roll_out_deletes_nothing() {
    assert_rejected("a paused roll-out deletes a Ready pod", |wrong| {
        let mut story = Story::rolling(|_| ());
        story.change(|spec| spec.paused = true);
        // Until then it may not know.
        if wrong {
            story.observe();
        }
        story.delete("n1", OLD);
        story
    });
}

#[test]
fn a_roll_out_that_paused_itself_deletes_nothing() {
    let stopped = || {
        let mut story = Story::rolling(|_| ());
        let now = story.now;
        story.status(|status| {
            status.update_revision = Some("new".to_owned());
            status.conditions.push(Condition {
                type_: "Progressing".to_owned(),
                status: "False".to_owned(),
                reason: "AutoPaused".to_owned(),
                message: String::new(),
                last_transition_time: now,
                observed_generation: status.observed_generation,
            });
        });
        story
    };
    let text = "a roll-out that stopped by itself deletes a Ready pod";
    assert_rejected(text, |wrong| {
        let mut story = stopped();
        if !wrong {
            story.object.resumed = Some("new".to_owned());
            story.status(|_| ());
        }
        story.delete("n1", OLD);
        story
    });
    // Another image is another roll-out.
    assert_rejected(text, |wrong| {
        let mut story = stopped();
        let image = if wrong { NEW } else { "app:3" };
        story.change(|spec| image.clone_into(&mut spec.image));
        story.delete("n1", OLD);
        story
    });
}

#[test]
fn a_partition_holds_the_last_nodes() {
    assert_rejected("the partition holds this node", |wrong| {
        let mut story = Story::rolling(|spec| spec.partition = if wrong { 3 } else { 2 });
        story.delete("n1", OLD);
        story
    });
}

#[test]
fn a_node_that_joins_takes_no_place_in_the_partition() {
    assert_rejected("the partition holds this node", |wrong| {
        let mut story = Story::rolling(|spec| spec.partition = if wrong { 2 } else { 1 });
        story.node("n4", |node| node.pool = Some("ours".to_owned()));
        story.create("n4", NEW);
        story.ready("n4", NEW);
        story.delete("n2", OLD);
        story
    });
}

#[test]
fn nothing_is_deleted_on_a_cordoned_node() {
    assert_rejected("a Ready pod is deleted on a cordoned node", |wrong| {
        let mut story = Story::rolling(|_| ());
        story.node("n1", |node| node.cordoned = true);
        story.pass(if wrong { LATEST } else { LATEST / 2 });
        story.delete("n1", OLD);
        story
    });
}

#[test]
fn nothing_is_created_on_a_cordoned_node() {
    assert_rejected("a pod is made on a cordoned node", |wrong| {
        let mut story = Story::new();
        story.delete_by_test("n1", OLD);
        story.node("n1", |node| node.cordoned = true);
        story.pass(if wrong { LATEST } else { LATEST / 2 });
        story.create("n1", OLD);
        story
    });
}

#[test]
fn a_surge_keeps_its_limit() {
    let surging = |limit| {
        Story::rolling(|spec| {
            spec.max_unavailable = IntOrString::Int(0);
            spec.max_surge = IntOrString::Int(limit);
        })
    };
    assert_rejected("2 nodes with two pods, the limit is 1", |wrong| {
        let mut story = surging(1);
        story.create("n1", NEW);
        story.ready("n1", NEW);
        if !wrong {
            story.delete("n1", OLD);
        }
        story.create("n2", NEW);
        story
    });
    assert_rejected("1 nodes with two pods, the limit is 0", |wrong| {
        let mut story = Story::rolling(|spec| spec.max_surge = IntOrString::Int((!wrong).into()));
        story.create("n1", NEW);
        story
    });
    let mut story = surging(1);
    story.create("n1", NEW);
    story.ready("n1", NEW);
    story.delete("n1", OLD);
    assert_eq!(story.judge().surges, 1);
}

#[test]
fn there_is_no_third_pod_on_a_node() {
    assert_rejected("3 pods on a node", |wrong| {
        let mut story = Story::rolling(|spec| spec.max_surge = IntOrString::Int(2));
        story.create("n1", NEW);
        if wrong {
            story.create("n1", "app:0");
        }
        story
    });
}

#[test]
fn two_operators_have_twice_the_limit() {
    assert_rejected("3 nodes unavailable after the deletion on n3", |wrong| {
        let mut story = Story::rolling(|_| ());
        story.rules.two_operators = true;
        story.delete("n1", OLD);
        story.delete("n2", OLD);
        if wrong {
            story.delete("n3", OLD);
        }
        story
    });
}

/// Asserts that a deletion on n2 is accepted because of that excuse, while n1 has no pod and the limit is 1, and that it
/// is rejected without.
fn assert_excused(excuse: &str, prepare: impl Fn(&mut Story)) {
    assert_rejected("2 nodes unavailable after the deletion on n2", |wrong| {
        let mut story = Story::rolling(|_| ());
        story.delete("n1", OLD);
        if !wrong {
            prepare(&mut story);
        }
        story.delete("n2", OLD);
        if !wrong {
            let verdict = story.judge();
            let found: Vec<_> = verdict.excused.keys().copied().collect();
            assert_eq!(found, [excuse]);
        }
        story
    });
}

#[test]
fn deletions_that_cost_nothing_are_excused() {
    assert_excused("pod not ready", |story| story.unready("n2", OLD));
    assert_excused("pod ready just now", |story| {
        story.unready("n2", OLD);
        story.ready("n2", OLD);
    });
    assert_excused("node not eligible", |story| story.remove_node("n2"));
    assert_excused("node not eligible", |story| {
        story.node("n2", |node| node.pool = Some("other".to_owned()));
    });
    assert_excused("node not ready for long", |story| {
        let since = story.now;
        story.node("n2", |node| node.not_ready_since = Some(since));
        story.pass(GRACE);
    });
    assert_excused("node ready just now", |story| {
        let since = story.now;
        story.node("n2", |node| node.not_ready_since = Some(since));
        story.node("n2", |node| node.not_ready_since = None);
    });
}

#[test]
fn an_excuse_needs_its_time() {
    let text = "2 nodes unavailable";
    assert_rejected(text, |wrong| {
        let mut story = Story::rolling(|_| ());
        story.delete("n1", OLD);
        story.unready("n2", OLD);
        story.ready("n2", OLD);
        story.pass(if wrong { LATEST } else { LATEST / 2 });
        story.delete("n2", OLD);
        story
    });
    assert_rejected(text, |wrong| {
        let mut story = Story::rolling(|_| ());
        story.delete("n1", OLD);
        let since = story.now;
        story.node("n2", |node| node.not_ready_since = Some(since));
        story.pass(if wrong { GRACE / 2 } else { GRACE });
        story.delete("n2", OLD);
        story
    });
}

#[test]
fn a_successor_excuses_when_it_is_available() {
    assert_rejected("2 nodes unavailable", |wrong| {
        let mut story = Story::rolling(|spec| spec.max_surge = IntOrString::Int(1));
        story.delete("n1", OLD);
        story.create("n2", NEW);
        if wrong {
            story.pass(LATEST);
        } else {
            story.ready("n2", NEW);
        }
        story.delete("n2", OLD);
        story
    });
}

/// Whether it still terminates or is gone: the operator may have seen neither.
#[test]
fn a_successor_that_was_taken_away_excuses_while_it_may_not_be_known() {
    for gone in [false, true] {
        assert_rejected("2 nodes unavailable", |wrong| {
            let mut story = Story::rolling(|spec| spec.max_surge = IntOrString::Int(1));
            story.delete("n1", OLD);
            story.create("n2", NEW);
            story.ready("n2", NEW);
            story.pass(LATEST);
            let uid = story.pod("n2", NEW).uid.clone();
            story.rules.by_test.insert(uid);
            story.terminate("n2", NEW);
            if gone {
                story.go("n2", NEW);
            }
            story.pass(if wrong { LATEST } else { LATEST / 2 });
            story.delete("n2", OLD);
            story
        });
    }
}

/// An operator needs no event to know what it deleted.
#[test]
fn a_successor_that_the_operator_deleted_is_no_excuse() {
    for gone in [false, true] {
        assert_rejected("2 nodes unavailable", |wrong| {
            let mut story = Story::rolling(|spec| spec.max_surge = IntOrString::Int(1));
            story.delete("n1", OLD);
            story.create("n2", NEW);
            story.ready("n2", NEW);
            // Undone: what was the newest revision is an old one.
            story.change(|spec| OLD.clone_into(&mut spec.image));
            story.observe();
            story.terminate("n2", NEW);
            if gone {
                story.go("n2", NEW);
            }
            if wrong {
                story.change(|spec| NEW.clone_into(&mut spec.image));
                story.observe();
                story.delete("n2", OLD);
            }
            story
        });
    }
}

/// A roll-out under a freeze that the operator has acknowledged.
fn frozen(value: &str) -> Story {
    let mut story = Story::rolling(|_| ());
    story.freeze(Some(value));
    story.acknowledge(value);
    story
}

#[test]
fn no_pod_that_runs_is_deleted_after_a_freeze_is_acknowledged() {
    let text = "a pod that runs is deleted under a freeze";
    assert_rejected(text, |wrong| {
        let mut story = Story::rolling(|_| ());
        story.freeze(Some("since 2"));
        story.acknowledge(if wrong { "since 2" } else { "since 1" });
        story.delete("n1", OLD);
        story
    });
    assert_rejected(text, |wrong| {
        let mut story = frozen("since 1");
        if !wrong {
            story.freeze(None);
        }
        story.delete("n1", OLD);
        story
    });
    // Whatever the reason, such as that it is not ready; unless it has ended.
    assert_rejected(text, |wrong| {
        let mut story = frozen("since 1");
        story.pod("n1", OLD).ended = !wrong;
        story.unready("n1", OLD);
        story.delete("n1", OLD);
        story
    });
    // The pods of a node that is gone are not the operator's alone.
    assert_rejected(text, |wrong| {
        let mut story = frozen("since 1");
        if wrong {
            story.node("n1", |node| node.pool = Some("other".to_owned()));
        } else {
            story.remove_node("n1");
        }
        story.delete("n1", OLD);
        story
    });
}

#[test]
fn nothing_is_made_or_deleted_under_a_freeze_of_everything() {
    let value = |wrong| if wrong { "all since 1" } else { "since 1" };
    assert_rejected("a pod is deleted under a freeze of everything", |wrong| {
        let mut story = frozen(value(wrong));
        story.pod("n1", OLD).ended = true;
        story.unready("n1", OLD);
        story.delete("n1", OLD);
        story
    });
    assert_rejected("a pod is made under a freeze of everything", |wrong| {
        let mut story = frozen(value(wrong));
        story.delete_by_test("n1", OLD);
        story.create("n1", OLD);
        story
    });
}

/// A roll-out with that window. The stories begin on Friday 2027-01-15 at 8:00 UTC.
fn in_window(window: &serde_json::Value) -> Story {
    let object = json!({"spec": {"updateStrategy": {"rollingUpdate": {"windows": [window]}}}});
    Story::rolling(|spec| spec.settings = Settings::of(&object))
}

#[test]
fn no_step_is_made_outside_of_the_windows() {
    let text = "a step outside of the windows";
    let deleted = |mut story: Story| {
        story.delete("n1", OLD);
        story
    };
    let minute = TimeDelta::seconds(60);
    // It closes at 8:01.
    assert_rejected(text, |wrong| {
        let window = json!({"schedule": "1 7 * * *", "duration": "1h"});
        let mut story = in_window(&window);
        story.pass(if wrong { minute * 3 / 2 } else { minute / 2 });
        deleted(story)
    });
    // It opens at 8:01, by the clocks of that zone.
    assert_rejected(text, |wrong| {
        let window =
            json!({"schedule": "1 9 * * 5", "duration": "1h30m", "timeZone": "Europe/Berlin"});
        let mut story = in_window(&window);
        story.pass(if wrong { minute / 2 } else { minute * 3 / 2 });
        deleted(story)
    });
    assert_rejected(text, |wrong| {
        let date = if wrong { "2027-01-15" } else { "2027-01-16" };
        deleted(in_window(
            &json!({"schedule": "0 8 * * *", "duration": "1h", "excludedDates": [date]}),
        ))
    });
    // What was decided on a moment before it closed.
    assert_rejected(text, |wrong| {
        let mut story = in_window(&json!({"schedule": "1 7 * * *", "duration": "1h"}));
        story.pass(minute + TimeDelta::seconds(if wrong { 15 } else { 2 }));
        deleted(story)
    });
    // Back to what has been on every node.
    assert_rejected(text, |wrong| {
        let mut story = in_window(&json!({"schedule": "0 20 * * *", "duration": "1h"}));
        if !wrong {
            story.status(|status| status.failed_revisions = vec!["new".to_owned()]);
        }
        deleted(story)
    });
}

/// A roll-out in which n1 is of zone b, and the other two of zone a.
fn in_zones(rolling: &serde_json::Value) -> Story {
    let object = json!({"spec": {"updateStrategy": {"rollingUpdate": rolling}}});
    let mut story = Story::rolling(|spec| {
        spec.settings = Settings::of(&object);
        spec.max_unavailable = IntOrString::Int(2);
    });
    for (node, zone) in [("n1", "b"), ("n2", "a"), ("n3", "a")] {
        story.node(node, |node| {
            node.labels.insert("zone".to_owned(), zone.to_owned());
        });
    }
    story
}

#[test]
fn one_domain_comes_after_the_other() {
    let text = "a step in a domain before another is done";
    let zones = json!({"topologyKey": "zone"});
    // Two nodes of a domain may go at once, and the next one waits until the last of them is available.
    assert_rejected(text, |wrong| {
        let mut story = in_zones(&zones);
        story.delete("n2", OLD);
        story.delete("n3", OLD);
        for node in ["n2", "n3"] {
            story.create(node, NEW);
        }
        story.ready("n2", NEW);
        if !wrong {
            story.ready("n3", NEW);
        }
        story.delete("n1", OLD);
        story
    });
    assert_rejected(text, |wrong| {
        let mut story = in_zones(&zones);
        story.replace(if wrong { "n2" } else { "n3" });
        if !wrong {
            story.replace("n2");
        }
        story.delete("n1", OLD);
        story
    });
    // Unless nothing can reach the rest.
    assert_rejected(text, |wrong| {
        let mut story = in_zones(&zones);
        story.replace("n2");
        story.node("n3", |node| node.cordoned = !wrong);
        story.delete("n1", OLD);
        story
    });
    assert_rejected(text, |wrong| {
        let order = if wrong {
            json!(["a", "b"])
        } else {
            json!(["b"])
        };
        let mut story = in_zones(&json!({"topologyKey": "zone", "order": order}));
        story.replace("n1");
        story
    });
    // Without the label it is the last.
    assert_rejected(text, |wrong| {
        let mut story = in_zones(&json!({"topologyKey": "zone", "order": ["b"]}));
        if wrong {
            story.node("n1", |node| node.labels.clear());
        }
        story.delete("n1", OLD);
        story
    });
    // Back to what has been on every node.
    assert_rejected(text, |wrong| {
        let mut story = in_zones(&zones);
        if !wrong {
            story.status(|status| status.failed_revisions = vec!["new".to_owned()]);
        }
        story.delete("n1", OLD);
        story
    });
}

/// `HISTORY=<file>` judges the history of a failed run again.
#[test]
fn a_saved_history_is_judged_again() {
    if let Some(path) = std::env::var_os("HISTORY") {
        let saved = saved::read(path.as_ref());
        println!("SEED={} {:?}", saved.seed, saved.rules);
        let verdict = judge(&saved.history, &saved.rules);
        assert!(verdict.wrong.is_empty(), "{}", verdict.wrong.join("\n\n"));
        return;
    }
    let mut story = Story::rolling(|spec| spec.min_ready = TimeDelta::seconds(2));
    story.start_operator();
    story.delete_by_test("n3", OLD);
    story.replace("n1");
    story.delete("n2", OLD);
    let verdict = story.judge();
    assert_eq!(verdict.wrong.len(), 1);

    let path = saved::save("round-trip", 7, &story.rules, &story.history);
    let read = saved::read(&path);
    std::fs::remove_file(path).unwrap();
    let again = judge(&read.history, &read.rules);
    assert_eq!(read.seed, 7);
    assert_eq!(again.wrong, verdict.wrong);
    assert_eq!(again.held_against_limit, verdict.held_against_limit);
}
