#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;

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

/// An object as the API server stores it. Its UID is its kind.
fn live(object: &Value) -> Live {
    let mut object = object.clone();
    object["metadata"]["uid"] = object["kind"].clone();
    object["metadata"]["generation"] = 1.into();
    object["status"]["observedGeneration"] = 1.into();
    Live(object)
}

impl Live {
    fn set(&mut self, path: &[&str], value: Value) {
        *member(&mut self.0, path) = value;
    }

    fn annotate(&mut self, value: Value) {
        self.set(&MARK, value);
    }

    /// Its controller has seen it.
    fn observe(&mut self) {
        let generation = self.0["metadata"]["generation"].clone();
        self.set(&["status", "observedGeneration"], generation);
        let answer = self.migration().map(|migration| {
            let message = format!("no pod is created: {migration}");
            json!([{"type": PROGRESSING, "reason": MIGRATING, "message": message}])
        });
        self.set(&["status", "conditions"], answer.unwrap_or_default());
    }
}

fn pod(name: &str, node: &str, kind: Option<&str>) -> Pod {
    Pod {
        name: name.to_owned(),
        uid: name.to_owned(),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        controller: kind.map(controller),
        node: node.to_owned(),
        ..Pod::default()
    }
}

fn controller(kind: &str) -> OwnerReference {
    OwnerReference {
        kind: kind.to_owned(),
        name: "web".to_owned(),
        uid: kind.to_owned(),
        ..OwnerReference::default()
    }
}

/// A `DaemonSet` with three pods, one of which has no node.
fn begin() -> State {
    let owner = Some("DaemonSet");
    State {
        name: "web".to_owned(),
        daemon_set: Some(live(&daemon_set())),
        pods: vec![
            pod("a", "n1", owner),
            pod("b", "n2", owner),
            pod("c", "", owner),
        ],
        ..State::default()
    }
}

/// What an object is once no migration is under way.
fn final_form(state: &State, side: Side) -> Value {
    let live = state.live(side).unwrap();
    assert_eq!(live.migration(), None);
    manifest(&live.0)
}

/// Carries a step out, as the cluster does with its controllers.
fn carry_out(to: Side, step: &Step, state: &mut State) {
    let has_ours = |pod: &Pod| LABELS.iter().all(|key| pod.labels.contains_key(*key));
    match step {
        Step::Create(side, object) => {
            let mut created = live(object);
            match side {
                Side::DaemonSet => {
                    assert!(is_guarded(object, "web"));
                    let selector = super::selector(&object["spec"]["selector"]).unwrap();
                    assert!(state.pods.iter().all(|pod| selector.matches(&pod.labels)));
                    assert!(state.ours.as_ref().unwrap().is_left_alone());
                    state.daemon_set = Some(created);
                }
                Side::Ours => {
                    created.annotate(mark(to, "web").into());
                    state.ours = Some(created);
                }
            }
        }
        Step::Begin => {
            let ours = state.ours.as_mut().unwrap();
            ours.annotate(mark(to, "web").into());
        }
        Step::Stop => {
            let stopped = state.daemon_set.as_mut().unwrap();
            stopped.annotate(stopped.0["spec"]["updateStrategy"].to_string().into());
            stopped.set(&["spec", "updateStrategy"], json!({"type": "OnDelete"}));
            stopped.set(&["metadata", "generation"], 2.into());
        }
        Step::Change(changes) => {
            for change in changes {
                let pod = state.pods.iter_mut().find(|pod| pod.name == change.pod);
                let pod = pod.unwrap();
                for (key, value) in &change.labels {
                    match value {
                        Some(value) => pod.labels.insert(key.clone(), value.clone()),
                        None => pod.labels.remove(key),
                    };
                }
                if change.owner.is_some() {
                    let ours = state.ours.as_ref().unwrap();
                    assert!(ours.is_left_alone());
                    pod.controller = None;
                }
            }
        }
        Step::Orphan(side) => {
            let (gone, other) = match side {
                Side::DaemonSet => (state.daemon_set.take(), &state.ours),
                Side::Ours => (state.ours.take(), &state.daemon_set),
            };
            assert!(other.is_some(), "nothing has the state");
            for pod in &mut state.pods {
                let controller = pod.controller.as_ref();
                if controller.is_some_and(|it| it.uid == gone.as_ref().unwrap().uid()) {
                    pod.controller = None;
                }
            }
        }
        Step::Delete(pods, _) => {
            state.pods.retain(|pod| !pods.contains(pod));
            for pod in pods.iter().filter(|pod| !pod.node.is_empty()) {
                assert_eq!(to, Side::DaemonSet, "{pod:?}");
                let mut left = state.pods.iter();
                assert!(left.any(|other| other.node == pod.node), "{pod:?}");
            }
        }
        Step::Finish(Side::Ours) => {
            assert!(state.daemon_set.is_none());
            assert!(state.pods.iter().all(has_ours));
            let ours = state.ours.as_mut().unwrap();
            ours.annotate(Value::Null);
        }
        Step::Finish(Side::DaemonSet) => {
            // The operator's roll-out counts orphans; that of the built-in controller does not.
            assert!(state.pods.iter().all(|pod| pod.controller.is_some()));
            let daemon_set = state.daemon_set.as_mut().unwrap();
            daemon_set.0 = settled(daemon_set, "web").unwrap();
        }
        // What is waited for happens.
        Step::Wait(_) | Step::Follow => {
            let adopts = match (&mut state.daemon_set, &mut state.ours) {
                (Some(daemon_set), _) if !daemon_set.is_observed() => {
                    daemon_set.observe();
                    "DaemonSet"
                }
                (Some(_), None) => "DaemonSet",
                (daemon_set, Some(ours)) => {
                    ours.observe();
                    match (daemon_set, ours.migration()) {
                        (Some(_), _) => "DaemonSet",
                        (None, None) => "MyDaemonSet",
                        (None, Some(_)) => return,
                    }
                }
                (None, None) => panic!("there is no object to wait for: {state:#?}"),
            };
            for pod in &mut state.pods {
                pod.controller.get_or_insert_with(|| controller(adopts));
            }
        }
    }
}

/// The kinds of the steps from there to the end.
fn to_the_end(to: Side, state: &mut State) -> Vec<String> {
    let mut steps = Vec::new();
    for _ in 0..40 {
        let step = next(to, state).unwrap();
        let text = format!("{step:?}");
        let kind: String = text
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        steps.push(kind);
        carry_out(to, &step, state);
        if step == Step::Follow {
            return steps;
        }
    }
    panic!("{to:?} does not end: {steps:?}");
}

#[test]
fn both_ways_have_their_order() {
    let mut state = begin();
    assert_eq!(
        to_the_end(Side::Ours, &mut state),
        [
            "Create", "Wait", "Stop", "Wait", "Change", "Orphan", "Delete", "Finish", "Follow"
        ]
    );
    let ours = final_form(&state, Side::Ours);
    assert_eq!(ours, to_ours(&daemon_set()).unwrap().object);
    assert_eq!(
        to_the_end(Side::DaemonSet, &mut state),
        [
            "Begin", "Wait", "Change", "Create", "Wait", "Finish", "Change", "Orphan", "Follow"
        ]
    );
    assert_eq!(final_form(&state, Side::DaemonSet), daemon_set());
    for pod in &state.pods {
        assert!(
            LABELS.iter().all(|key| !pod.labels.contains_key(*key)),
            "{pod:?}"
        );
    }
}

#[test]
fn turning_round_at_any_step_ends_with_the_same_objects() {
    for seed in 0..2_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut state = begin();
        let mut to = Side::Ours;
        for _ in 0..random.usize(0..40) {
            if random.u32(0..5) == 0 {
                to = random.choice([Side::Ours, Side::DaemonSet]).unwrap();
            }
            // At either end there is no way on.
            if let Ok(step) = next(to, &state) {
                carry_out(to, &step, &mut state);
            }
        }
        for to in [Side::Ours, Side::DaemonSet] {
            to_the_end(to, &mut state);
            let manifest = match to {
                Side::Ours => to_ours(&daemon_set()).unwrap().object,
                Side::DaemonSet => daemon_set(),
            };
            assert_eq!(final_form(&state, to), manifest, "seed {seed}");
            assert_eq!(state.live(to.other()), None, "seed {seed}");
        }
    }
}

#[test]
fn a_guarded_daemon_set_waits_for_every_pod() {
    let mut state = begin();
    to_the_end(Side::Ours, &mut state);
    until(Side::DaemonSet, &mut state, |step| {
        matches!(step, Step::Create(_, _))
    });
    let create = next(Side::DaemonSet, &state).unwrap();
    carry_out(Side::DaemonSet, &create, &mut state);
    let waits = |state: &State| match next(Side::DaemonSet, state).unwrap() {
        Step::Wait(text) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(waits(&state), "DaemonSet web to adopt 2 pods (a, b)");
    carry_out(Side::DaemonSet, &Step::Wait(String::new()), &mut state);
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
    // On a node of its own it is not a second one.
    state.pods[1].meant_for = "n3".to_owned();
    let finish = Step::Finish(Side::DaemonSet);
    assert_eq!(next(Side::DaemonSet, &state), Ok(finish));
    // A pod that the operator had been creating when it stood aside is released, too.
    state.pods.push(pod("late", "n4", Some("MyDaemonSet")));
    let released = Change {
        pod: "late".to_owned(),
        uid: "late".to_owned(),
        labels: strings(&json!({"app": "web"})),
        owner: Some("MyDaemonSet".to_owned()),
    };
    let released = Step::Change(vec![released]);
    assert_eq!(next(Side::DaemonSet, &state), Ok(released));
}

/// A guarded `DaemonSet` deletes all pods of a node but the oldest (`podsShouldBeOnNode`, daemon_controller.go), ready or not.
#[test]
fn of_two_pods_on_a_node_the_ready_one_stays() {
    let mut state = begin();
    to_the_end(Side::Ours, &mut state);
    state.pods.clear();
    let owner = Some("MyDaemonSet");
    for (node, created, is_ready) in [
        // The old one failed while its successor got ready; the successor is not ready; both are.
        ("n1", 1, false),
        ("n1", 2, true),
        ("n2", 1, true),
        ("n2", 2, false),
        ("n3", 2, true),
        ("n3", 1, true),
        ("n4", 1, false),
    ] {
        state.pods.push(Pod {
            is_ready,
            created,
            ..pod(&format!("{node}-{created}"), node, owner)
        });
    }
    // A failed one does not have its successor deleted, nor a pod of a user the operator's.
    let failed = Pod {
        created: 1,
        has_ended: true,
        ..pod("n5-failed", "n5", owner)
    };
    let users = Pod {
        is_ready: true,
        ..pod("n5-users", "n5", None)
    };
    let starting = Pod {
        created: 2,
        ..pod("n5-2", "n5", owner)
    };
    state.pods.extend([failed, users, starting]);
    to_the_end(Side::DaemonSet, &mut state);
    let left: Vec<&str> = state.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(left, ["n1-2", "n2-1", "n3-1", "n4-1", "n5-2"]);
}

#[test]
fn nothing_is_touched_before_the_operator_stands_aside() {
    let mut state = begin();
    let create = next(Side::Ours, &state).unwrap();
    carry_out(Side::Ours, &create, &mut state);
    let wait = "the operator to leave the pods of MyDaemonSet web alone";
    assert_eq!(next(Side::Ours, &state), Ok(Step::Wait(wait.to_owned())));
    // Nor for the other way by what it said about the first.
    carry_out(Side::Ours, &Step::Wait(String::new()), &mut state);
    carry_out(Side::DaemonSet, &Step::Begin, &mut state);
    assert_eq!(
        next(Side::DaemonSet, &state),
        Ok(Step::Wait(wait.to_owned()))
    );
}

#[test]
fn a_daemon_set_that_is_changed_meanwhile_is_translated_again() {
    let mut state = begin();
    until(Side::Ours, &mut state, |step| {
        matches!(step, Step::Orphan(_))
    });
    let annotations = ["spec", "template", "metadata", "annotations"];
    let live = state.daemon_set.as_mut().unwrap();
    live.set(&annotations, json!({"changed": "now"}));
    assert_eq!(next(Side::Ours, &state), Ok(Step::Orphan(Side::Ours)));
    to_the_end(Side::Ours, &mut state);
    let ours = final_form(&state, Side::Ours);
    let template = &ours["spec"]["template"]["metadata"];
    assert_eq!(template["annotations"]["changed"], "now");
    // The strategy is not the one that the migration has set.
    let limit = "/spec/updateStrategy/rollingUpdate/maxUnavailable";
    assert_eq!(ours.pointer(limit), Some(&json!(2)));
    let kept = state.ours.unwrap().kept().unwrap();
    assert_eq!(kept.pointer(limit), Some(&json!(2)));
}

#[test]
fn what_cannot_be_migrated_is_one_line() {
    let mut state = begin();
    let refused = |to, state: &State| next(to, state).unwrap_err();
    state.ours = Some(live(&to_ours(&daemon_set()).unwrap().object));
    for to in [Side::Ours, Side::DaemonSet] {
        assert_eq!(
            refused(to, &state),
            "there are both a DaemonSet and a MyDaemonSet \"web\": delete the one that is not to stay, and run this again"
        );
    }
    state.daemon_set = None;
    assert_eq!(
        refused(Side::Ours, &state),
        "there is no DaemonSet \"web\" to migrate, and a MyDaemonSet of that name exists"
    );
    state.ours = None;
    assert_eq!(refused(Side::Ours, &state), "there is no DaemonSet \"web\"");
    assert_eq!(
        refused(Side::DaemonSet, &state),
        "there is no MyDaemonSet \"web\""
    );
}

/// Takes steps until that one is next.
fn until(to: Side, state: &mut State, is_next: impl Fn(&Step) -> bool) {
    for _ in 0..40 {
        let step = next(to, state).unwrap();
        if is_next(&step) {
            return;
        }
        carry_out(to, &step, state);
    }
    panic!("the step never comes: {state:#?}");
}

#[test]
fn a_pod_that_the_selector_excludes_is_named_and_never_labelled_for_ever() {
    let mut state = begin();
    let spec = &mut state.daemon_set.as_mut().unwrap().0["spec"];
    spec["selector"]["matchExpressions"] =
        json!([{"key": "quarantine", "operator": "DoesNotExist"}]);
    to_the_end(Side::Ours, &mut state);
    let quarantine = |state: &mut State| {
        let labels = &mut state.pods[0].labels;
        labels.insert("quarantine".to_owned(), "yes".to_owned());
    };
    // Before anything is changed.
    let mut excluded = state.clone();
    quarantine(&mut excluded);
    assert_eq!(
        next(Side::DaemonSet, &excluded).unwrap_err(),
        "spec.selector of the DaemonSet excludes 1 pod (a) by a label: remove the label or delete the pods first"
    );
    // After it.
    until(Side::DaemonSet, &mut state, |step| {
        matches!(step, Step::Create(_, _))
    });
    quarantine(&mut state);
    assert_eq!(
        next(Side::DaemonSet, &state),
        Ok(Step::Wait(
            "a change of labels: spec.selector of the DaemonSet excludes 1 pod (a) by a label"
                .to_owned()
        ))
    );
}

#[test]
fn turning_round_keeps_what_others_have_changed_meanwhile() {
    let place = ["spec", "template", "spec", "priorityClassName"];
    let changed = |state: &mut State| {
        let live = state.daemon_set.as_mut().unwrap();
        live.set(&place, "changed".into());
    };
    let mut wanted = daemon_set();
    *member(&mut wanted, &place) = "changed".into();
    // The DaemonSet is stopped, and the way back begins.
    let mut state = begin();
    until(Side::Ours, &mut state, |step| {
        matches!(step, Step::Orphan(_))
    });
    changed(&mut state);
    to_the_end(Side::DaemonSet, &mut state);
    assert_eq!(final_form(&state, Side::DaemonSet), wanted);

    // It is guarded.
    let mut state = begin();
    to_the_end(Side::Ours, &mut state);
    until(Side::DaemonSet, &mut state, |step| {
        *step == Step::Finish(Side::DaemonSet)
    });
    changed(&mut state);
    to_the_end(Side::DaemonSet, &mut state);
    assert_eq!(final_form(&state, Side::DaemonSet), wanted);

    // A strategy that another client has set stays.
    let mut state = begin();
    until(Side::Ours, &mut state, |step| {
        matches!(step, Step::Orphan(_))
    });
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}});
    let live = state.daemon_set.as_mut().unwrap();
    live.set(&["spec", "updateStrategy"], strategy.clone());
    to_the_end(Side::Ours, &mut state);
    let ours = final_form(&state, Side::Ours);
    assert_eq!(ours["spec"]["updateStrategy"], strategy);
}

#[test]
fn another_term_beside_the_guard_stays() {
    let mut state = begin();
    to_the_end(Side::Ours, &mut state);
    until(Side::DaemonSet, &mut state, |step| {
        *step == Step::Finish(Side::DaemonSet)
    });
    let other = json!({"topologyKey": "zone"});
    let live = state.daemon_set.as_mut().unwrap();
    let terms = member(&mut live.0, &GUARDS);
    terms.as_array_mut().unwrap().push(other.clone());
    to_the_end(Side::DaemonSet, &mut state);
    let manifest = final_form(&state, Side::DaemonSet);
    let place = format!("/{}", GUARDS.join("/"));
    assert_eq!(manifest.pointer(&place), Some(&json!([other])));
}

#[test]
fn an_object_that_another_one_controls_is_not_migrated() {
    let mut state = begin();
    let agent = json!([{"kind": "Agent", "name": "web", "controller": true}]);
    let live = state.daemon_set.as_mut().unwrap();
    live.set(&["metadata", "ownerReferences"], agent);
    assert_eq!(
        next(Side::Ours, &state).unwrap_err(),
        "DaemonSet \"web\" is controlled by Agent web, which would put it back: take it out of that first"
    );
}

#[test]
fn what_another_client_has_written_is_no_state_of_a_migration() {
    // An object that was copied with its annotations.
    let mut state = begin();
    to_the_end(Side::Ours, &mut state);
    let copy = state.ours.as_mut().unwrap();
    assert!(copy.kept().is_some());
    copy.set(&["metadata", "name"], "copy".into());
    assert_eq!(copy.kept(), None);

    // An annotation that was set by hand.
    let mut state = begin();
    to_the_end(Side::Ours, &mut state);
    state.ours.as_mut().unwrap().annotate("hands off".into());
    assert!(!state.is_begun());
    for to in [Side::Ours, Side::DaemonSet] {
        assert_eq!(
            next(to, &state).unwrap_err(),
            "MyDaemonSet \"web\" has the annotation apps.zhongmingmao.io/migration of another client: hands off"
        );
    }

    // The strategy of a DaemonSet that was edited.
    let mut state = begin();
    until(Side::Ours, &mut state, |step| {
        matches!(step, Step::Orphan(_))
    });
    state.daemon_set.as_mut().unwrap().annotate("{".into());
    let error = next(Side::Ours, &state).unwrap_err();
    assert!(error.contains("is not its strategy"), "{error}");

    // A spec that the operator rejects: it would never stand aside.
    let mut state = begin();
    to_the_end(Side::Ours, &mut state);
    let rejected = json!([{"type": "Accepted", "status": "False", "message": "spec.image: bad"}]);
    let ours = state.ours.as_mut().unwrap();
    ours.set(&["status", "conditions"], rejected);
    assert_eq!(
        next(Side::DaemonSet, &state).unwrap_err(),
        "MyDaemonSet \"web\" is invalid: spec.image: bad"
    );
}
