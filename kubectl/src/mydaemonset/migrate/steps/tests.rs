#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::mydaemonset::migrate::translate::manifest;

const LABELS: [&str; 3] = OUR_LABELS;

fn daemon_set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2, "maxSurge": 0}},
            "revisionHistoryLimit": 10,
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:1.29"}]},
            },
        },
    })
}

fn live(manifest: Value) -> Live {
    Live {
        uid: "u".to_owned(),
        version: "1".to_owned(),
        is_observed: true,
        is_deleting: false,
        is_as_created: true,
        controller: None,
        marker: None,
        manifest,
    }
}

fn pod(name: &str, node: &str, kind: Option<&str>) -> Pod {
    Pod {
        name: name.to_owned(),
        uid: name.to_owned(),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        controller: kind.map(|kind| (kind.to_owned(), "web".to_owned())),
        node: node.to_owned(),
        ..Pod::default()
    }
}

/// A `DaemonSet` with three pods, one of which has no node.
fn begin() -> State {
    let owner = Some("DaemonSet");
    State {
        name: "web".to_owned(),
        daemon_set: Some(live(daemon_set())),
        pods: vec![
            pod("a", "n1", owner),
            pod("b", "n2", owner),
            pod("c", "", owner),
        ],
        ..State::default()
    }
}

/// Carries a step out, as the cluster does with its controllers.
fn carry_out(step: &Step, state: &mut State) {
    let kept = state.kept.clone();
    let object = |state: &mut State, side: Side, to: Option<Live>| match side {
        Side::DaemonSet => state.daemon_set = to,
        Side::Ours => state.ours = to,
    };
    match step {
        Step::Keep(kept) => state.kept = Some(kept.clone()),
        Step::Stop(side) => {
            let mut stopped = state.live(*side).unwrap().clone();
            stopped.marker = Some(Marker::Stopped);
            stopped.is_observed = false;
            let strategy = member(&mut stopped.manifest, &["spec", "updateStrategy"]);
            match side {
                Side::DaemonSet => *strategy = json!({"type": "OnDelete"}),
                Side::Ours => *member(strategy, &["rollingUpdate", "paused"]) = true.into(),
            }
            object(state, *side, Some(stopped));
        }
        Step::Label(relabels) => {
            for relabel in relabels {
                let pod = state.pods.iter_mut().find(|pod| pod.name == relabel.pod);
                let labels = &mut pod.unwrap().labels;
                for (key, value) in &relabel.labels {
                    match value {
                        Some(value) => labels.insert(key.clone(), value.clone()),
                        None => labels.remove(key),
                    };
                }
            }
        }
        Step::Orphan(side) => {
            assert!(kept.is_some(), "nothing is kept");
            object(state, *side, None);
            for pod in &mut state.pods {
                pod.controller = None;
            }
        }
        Step::DeleteUnplaced(pods) => {
            assert!(pods.iter().all(|pod| pod.node.is_empty()));
            state.pods.retain(|pod| !pods.contains(pod));
        }
        Step::Create(side) => {
            let has_ours = |pod: &Pod| LABELS.iter().all(|key| pod.labels.contains_key(*key));
            let selector = &kept.as_ref().unwrap().daemon_set["spec"]["selector"];
            let selector = super::selector(selector).unwrap();
            assert!(state.pods.iter().all(|pod| selector.matches(&pod.labels)));
            assert!(*side == Side::DaemonSet || state.pods.iter().all(has_ours));
            let mut created = live(kept.unwrap().manifest(*side).clone());
            if *side == Side::DaemonSet {
                created.manifest = manifest(&guarded(&created.manifest, "web"));
                created.marker = Some(Marker::Guarded);
            }
            object(state, *side, Some(created));
        }
        Step::Finish(side) => {
            // The operator's roll-out counts orphans; that of the built-in controller does not.
            let adopted = state.pods.iter().all(|pod| pod.controller.is_some());
            assert!(*side == Side::Ours || adopted);
            let marked = state.live(*side).unwrap();
            let manifest = unmarked(*side, marked, &kept.unwrap(), "web");
            object(state, *side, Some(live(manifest)));
        }
        // What is waited for happens.
        Step::Wait(_) | Step::Follow => {
            let kind = match (&mut state.daemon_set, &mut state.ours) {
                (Some(live), None) => {
                    live.is_observed = true;
                    "DaemonSet"
                }
                (None, Some(live)) => {
                    live.is_observed = true;
                    "MyDaemonSet"
                }
                _ => panic!("there is no object to wait for: {state:#?}"),
            };
            for pod in &mut state.pods {
                pod.controller = Some((kind.to_owned(), "web".to_owned()));
            }
        }
    }
    assert!(
        state.daemon_set.is_none() || state.ours.is_none(),
        "both exist"
    );
}

/// The kinds of the steps from there to the end.
fn to_the_end(direction: Direction, state: &mut State) -> Vec<String> {
    let mut steps = Vec::new();
    for _ in 0..40 {
        let step = next(direction, state).unwrap();
        let text = format!("{step:?}");
        let kind: String = text
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        steps.push(kind);
        carry_out(&step, state);
        if step == Step::Follow {
            return steps;
        }
    }
    panic!("{direction:?} does not end: {steps:?}");
}

#[test]
fn both_ways_have_their_order() {
    let mut state = begin();
    assert_eq!(
        to_the_end(Direction::Forward, &mut state),
        [
            "Keep",
            "Stop",
            "Wait",
            "Label",
            "Orphan",
            "DeleteUnplaced",
            "Create",
            "Follow"
        ]
    );
    let ours = &state.ours.as_ref().unwrap().manifest;
    assert_eq!(*ours, to_ours(&daemon_set()).unwrap().object);
    assert_eq!(
        to_the_end(Direction::Back, &mut state),
        [
            "Keep", "Stop", "Wait", "Orphan", "Create", "Wait", "Finish", "Label", "Follow"
        ]
    );
    assert_eq!(state.daemon_set.unwrap().manifest, daemon_set());
    for pod in &state.pods {
        assert!(
            LABELS.iter().all(|key| !pod.labels.contains_key(*key)),
            "{pod:?}"
        );
    }
}

#[test]
fn turning_round_at_any_step_ends_with_the_same_objects() {
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut state = begin();
        let mut direction = Direction::Forward;
        for _ in 0..random.usize(0..40) {
            if random.u32(0..5) == 0 {
                direction = random
                    .choice([Direction::Forward, Direction::Back])
                    .unwrap();
            }
            // Before anything was kept there is no way back.
            if let Ok(step) = next(direction, &state) {
                carry_out(&step, &mut state);
            }
        }
        for direction in [Direction::Forward, Direction::Back] {
            to_the_end(direction, &mut state);
            let (side, manifest) = match direction {
                Direction::Forward => (Side::Ours, to_ours(&daemon_set()).unwrap().object),
                Direction::Back => (Side::DaemonSet, daemon_set()),
            };
            let live = state.live(side).unwrap();
            assert_eq!(
                (&live.manifest, live.marker),
                (&manifest, None),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn a_guarded_daemon_set_waits_for_every_pod() {
    let mut state = begin();
    to_the_end(Direction::Forward, &mut state);
    while !matches!(next(Direction::Back, &state), Ok(Step::Create(_))) {
        let step = next(Direction::Back, &state).unwrap();
        carry_out(&step, &mut state);
    }
    carry_out(&Step::Create(Side::DaemonSet), &mut state);
    assert!(is_guarded(
        &state.daemon_set.as_ref().unwrap().manifest,
        "web"
    ));
    let waits = |state: &State| match next(Direction::Back, state).unwrap() {
        Step::Wait(text) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(waits(&state), "DaemonSet web to adopt 2 pods (a, b)");
    carry_out(&Step::Wait(String::new()), &mut state);
    // One that cannot be adopted, because it is being deleted.
    state.pods[0].controller = None;
    state.pods[0].is_deleting = true;
    assert_eq!(waits(&state), "1 pod (a) to be gone");
    state.pods.remove(0);
    // The second pod of a node.
    let mut second = pod("second", "", Some("DaemonSet"));
    second.meant_for = "n2".to_owned();
    state.pods.push(second);
    assert_eq!(waits(&state), "DaemonSet web to delete 1 pod (second)");
    // On a node of its own it is no second one.
    state.pods[1].meant_for = "n3".to_owned();
    assert_eq!(
        next(Direction::Back, &state),
        Ok(Step::Finish(Side::DaemonSet))
    );
}

#[test]
fn a_change_of_the_source_meanwhile_is_kept_too() {
    let mut state = begin();
    while !matches!(next(Direction::Forward, &state), Ok(Step::Orphan(_))) {
        let step = next(Direction::Forward, &state).unwrap();
        carry_out(&step, &mut state);
    }
    let image = ["spec", "template", "metadata", "annotations"];
    let live = state.daemon_set.as_mut().unwrap();
    *member(&mut live.manifest, &image) = json!({"changed": "now"});
    let Ok(Step::Keep(kept)) = next(Direction::Forward, &state) else {
        panic!("{state:#?}");
    };
    assert_eq!(
        kept.ours["spec"]["template"]["metadata"]["annotations"]["changed"],
        "now"
    );
    // The strategy is not the one that the migration has set.
    let limit = "/spec/updateStrategy/rollingUpdate/maxUnavailable";
    assert_eq!(kept.daemon_set.pointer(limit), Some(&json!(2)));
}

#[test]
fn what_cannot_be_migrated_is_one_line() {
    let mut state = begin();
    assert_eq!(
        next(Direction::Back, &state).unwrap_err(),
        "there is no MyDaemonSet \"web\" to migrate, and a DaemonSet of that name exists"
    );
    state.ours = Some(live(to_ours(&daemon_set()).unwrap().object));
    assert_eq!(
        next(Direction::Forward, &state).unwrap_err(),
        "there are both a DaemonSet and a MyDaemonSet \"web\": delete the one that is not to stay, and run this again"
    );
    state = State {
        name: "web".to_owned(),
        ..State::default()
    };
    assert_eq!(
        next(Direction::Forward, &state).unwrap_err(),
        "there is no DaemonSet \"web\""
    );
}

/// Takes steps until that one is next.
fn until(direction: Direction, state: &mut State, is_next: impl Fn(&Step) -> bool) {
    for _ in 0..40 {
        let step = next(direction, state).unwrap();
        if is_next(&step) {
            return;
        }
        carry_out(&step, state);
    }
    panic!("the step never comes: {state:#?}");
}

#[test]
fn a_pod_that_the_selector_excludes_is_named_and_never_labelled_for_ever() {
    let mut state = begin();
    let spec = &mut state.daemon_set.as_mut().unwrap().manifest["spec"];
    spec["selector"]["matchExpressions"] =
        json!([{"key": "quarantine", "operator": "DoesNotExist"}]);
    to_the_end(Direction::Forward, &mut state);
    let mut excluded = state.clone();
    excluded.pods[0]
        .labels
        .insert("quarantine".to_owned(), "yes".to_owned());
    // Before anything is changed.
    until(Direction::Back, &mut state, |step| {
        matches!(step, Step::Orphan(_))
    });
    excluded.kept.clone_from(&state.kept);
    assert_eq!(
        next(Direction::Back, &excluded).unwrap_err(),
        "spec.selector of the DaemonSet excludes 1 pod (a) by a label: remove the label or delete the pods first"
    );
    // After it.
    excluded.ours = None;
    for pod in &mut excluded.pods {
        pod.controller = None;
    }
    assert_eq!(
        next(Direction::Back, &excluded),
        Ok(Step::Wait(
            "1 pod (a) to lose the label by which spec.selector of the DaemonSet excludes them"
                .to_owned()
        ))
    );
}

#[test]
fn turning_round_keeps_what_others_have_changed_meanwhile() {
    let image = ["spec", "template", "spec", "priorityClassName"];
    let changed = |state: &mut State| {
        let live = state.daemon_set.as_mut().unwrap();
        *member(&mut live.manifest, &image) = "changed".into();
        live.is_as_created = false;
    };
    let mut wanted = daemon_set();
    *member(&mut wanted, &image) = "changed".into();
    // The DaemonSet is stopped, and the way back begins.
    let mut state = begin();
    until(Direction::Forward, &mut state, |step| {
        matches!(step, Step::Orphan(_))
    });
    changed(&mut state);
    to_the_end(Direction::Back, &mut state);
    assert_eq!(state.daemon_set.unwrap().manifest, wanted);

    // It is guarded: on the same way, and after another turn.
    for direction in [Direction::Back, Direction::Forward] {
        let mut state = begin();
        to_the_end(Direction::Forward, &mut state);
        until(Direction::Back, &mut state, |step| {
            *step == Step::Finish(Side::DaemonSet)
        });
        changed(&mut state);
        to_the_end(direction, &mut state);
        to_the_end(Direction::Back, &mut state);
        assert_eq!(state.daemon_set.unwrap().manifest, wanted, "{direction:?}");
    }

    // A strategy that another client has set stays.
    let mut state = begin();
    to_the_end(Direction::Forward, &mut state);
    until(Direction::Back, &mut state, |step| {
        matches!(step, Step::Orphan(_))
    });
    let limit = ["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"];
    *member(&mut state.ours.as_mut().unwrap().manifest, &limit) = 3.into();
    to_the_end(Direction::Forward, &mut state);
    let strategy = &state.ours.unwrap().manifest["spec"]["updateStrategy"];
    assert_eq!(strategy["rollingUpdate"]["maxUnavailable"], 3);
    assert_ne!(strategy["rollingUpdate"]["paused"], true);
}

#[test]
fn another_term_beside_the_guard_stays() {
    let mut state = begin();
    to_the_end(Direction::Forward, &mut state);
    until(Direction::Back, &mut state, |step| {
        *step == Step::Finish(Side::DaemonSet)
    });
    let other = json!({"topologyKey": "zone"});
    let live = state.daemon_set.as_mut().unwrap();
    live.is_as_created = false;
    let terms = member(&mut live.manifest, &GUARDS);
    terms.as_array_mut().unwrap().push(other.clone());
    to_the_end(Direction::Back, &mut state);
    let manifest = state.daemon_set.unwrap().manifest;
    let place = format!("/{}", GUARDS.join("/"));
    assert_eq!(manifest.pointer(&place), Some(&json!([other])));
}

#[test]
fn an_object_that_another_one_controls_is_not_migrated() {
    let mut state = begin();
    state.daemon_set.as_mut().unwrap().controller = Some("Agent web".to_owned());
    assert_eq!(
        next(Direction::Forward, &state).unwrap_err(),
        "DaemonSet \"web\" is controlled by Agent web, which would put it back: take it out of that first"
    );
}
