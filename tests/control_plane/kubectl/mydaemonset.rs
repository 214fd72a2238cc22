//! `kubectl mydaemonset` beside `kubectl rollout` of a DaemonSet, and of a Deployment for what a DaemonSet cannot do: the
//! same words and the same exit codes.

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::{kubectl, plain};
use crate::harness::{Ended, Kubectl, wait_for};

/// A pod with this annotation stays Pending on a fake node.
const PENDING: (&str, &str) = ("kwok.my-operator.dev/phase", "Pending");

/// Group, version and name.
type Kind = (&'static str, &'static str, &'static str);
const OURS: Kind = ("apps.zhongmingmao.io", "v1beta1", "MyDaemonSet");
const DAEMON_SET: Kind = ("apps", "v1", "DaemonSet");

/// A namespace with objects of the three kinds, all of the name `web`.
struct Place {
    kubectl: Kubectl,
    namespace: String,
}

impl Place {
    async fn new(name: &str) -> Self {
        let kubectl = kubectl(name).await;
        Self {
            namespace: kubectl.namespace.clone(),
            kubectl,
        }
    }

    async fn api(&self, (group, version, kind): Kind) -> Api<DynamicObject> {
        let client = self.kubectl.cluster.client().await.unwrap();
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(client, &self.namespace, &kind)
    }

    /// Creates an object named `web`, without the annotation that `kubectl apply` leaves.
    async fn create(&self, kind: Kind, spec: Value) {
        let (group, version, name) = kind;
        let object = json!({"apiVersion": format!("{group}/{version}"), "kind": name,
            "metadata": {"name": "web"}, "spec": spec});
        let object = serde_json::from_value(object).unwrap();
        let api = self.api(kind).await;
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn merge(&self, kind: Kind, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        let params = PatchParams::default();
        let api = self.api(kind).await;
        api.patch("web", &params, &patch).await.unwrap();
    }

    async fn create_ours(&self) {
        let spec = json!({"image": "nginx:1.28"});
        self.create(OURS, spec).await;
        assert_eq!(self.run("status web --timeout=60s").await.code, Some(0));
    }

    /// `kubectl mydaemonset ARGS`, split at blanks.
    async fn run(&self, args: &str) -> Ended {
        self.kubectl(&format!("mydaemonset {args}")).await
    }

    /// `kubectl rollout ARGS`, split at blanks.
    async fn built_in(&self, args: &str) -> Ended {
        self.kubectl(&format!("rollout {args}")).await
    }

    async fn kubectl(&self, args: &str) -> Ended {
        let args: Vec<&str> = args.split_whitespace().collect();
        self.kubectl.run_plugin(&args, "").await
    }

    /// Runs a verb on the DaemonSet and on ours, and compares all that is printed.
    async fn same(&self, verb: &str, flags: &str) -> Ended {
        let built_in = self.built_in(&format!("{verb} ds/web {flags}")).await;
        let ours = self.run(&format!("rollout {verb} web {flags}")).await;
        let mut without_goal = ours.clone();
        if let Some((before, goal)) = ours.out.split_once(" to revision ") {
            // What kubectl does not say of an undo.
            let (_, after) = goal.split_once(')').unwrap();
            without_goal.out = format!("{before}{after}");
        }
        assert_eq!(plain(&without_goal), plain(&built_in), "{verb} {flags}");
        ours
    }

    /// The same for a roll-out under way, of which each may print some steps that the other does not see.
    async fn same_end(&self, flags: &str) {
        let built_in = self.built_in(&format!("status ds/web {flags}")).await;
        let ours = self.run(&format!("rollout status web {flags}")).await;
        for ended in [&built_in, &ours] {
            for line in ended.out.lines() {
                let known = [
                    "Waiting for daemon set ",
                    "daemon set \"web\" successfully rolled out",
                ];
                assert!(known.iter().any(|known| line.starts_with(known)), "{line}");
            }
        }
        let end = |ended: &Ended| {
            (
                ended.code,
                ended.out.lines().last().map(str::to_owned),
                ended.err.clone(),
            )
        };
        assert_eq!(end(&ours), end(&built_in));
    }

    /// Waits until one pod of the newest revision is there.
    async fn until_one_is_updated(&self) {
        for object in ["mds/web", "ds/web"] {
            self.kubectl
                .until(object, "to have one updated pod", |object| {
                    let object = object?;
                    let is_observed =
                        object["status"]["observedGeneration"] == object["metadata"]["generation"];
                    (is_observed && object["status"]["updatedNumberScheduled"] == 1).then_some(())
                })
                .await;
        }
    }

    /// Rolls out an image that fails on its first node, and waits until the roll-out stops by itself. Returns the pod.
    async fn fail(&self) -> String {
        let template = json!({"metadata": {"annotations": {PENDING.0: PENDING.1}}});
        let spec = json!({"image": "nginx:1.99", "template": template});
        self.merge(OURS, spec).await;
        let is_new = |pod: &&Value| pod["spec"]["containers"][0]["image"] == "nginx:1.99";
        let pod = self
            .kubectl
            .until("pods", "to have one of the new image", |pods| {
                let pods = pods?["items"].as_array()?;
                let name = pods.iter().find(is_new)?["metadata"]["name"].as_str()?;
                Some(name.to_owned())
            })
            .await;
        let waiting = json!({"waiting": {"reason": "InvalidImageName", "message": "no such image \u{1b}[2J"}});
        let status = json!({"status": {"containerStatuses": [{"name": "app", "ready": false, "restartCount": 0,
            "image": "nginx:1.99", "imageID": "", "state": waiting}]}});
        let pods = self.api(("", "v1", "Pod")).await;
        let params = PatchParams::default();
        let status = Patch::Merge(status);
        pods.patch_status(&pod, &params, &status).await.unwrap();
        self.kubectl
            .until_field("mds/web", "{.status.state}", "AutoPaused")
            .await;
        pod
    }
}

/// The numbers in the first column of a history, and its first line.
fn numbers(history: &Ended) -> (String, Vec<String>) {
    assert_eq!(history.code, Some(0), "{history:?}");
    let (_, out, _) = plain(history);
    let mut lines = out.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    let column = lines.filter_map(|line| line.split_whitespace().next());
    (first, column.map(str::to_owned).collect())
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": image}]}})
}

#[tokio::test]
async fn the_verbs_have_kubectls_words_and_exit_codes() {
    let place = Place::new("verbs").await;
    let selector = json!({"matchLabels": {"app": "web"}});
    let built_in = json!({"selector": selector, "template": template("nginx:1.28")});
    place.create(DAEMON_SET, built_in).await;
    place.create_ours().await;
    place.same_end("--timeout=60s").await;
    let set_image = async |image: &str| {
        place
            .merge(DAEMON_SET, json!({"template": template(image)}))
            .await;
        place.merge(OURS, json!({"image": image})).await;
    };
    set_image("nginx:1.29").await;
    place.same_end("--timeout=60s").await;
    place.same("status", "").await;

    let histories = async || {
        let built_in = numbers(&place.built_in("history ds/web").await);
        let ours = numbers(&place.run("rollout history web").await);
        assert_eq!(ours, built_in);
        ours.1
    };
    assert_eq!(histories().await, ["REVISION", "1", "2"]);
    place.same("history", "--revision=9").await;
    for (typed, completed) in [
        ("rollout status mydaemonset/w", "mydaemonset/web\n:4\n"),
        ("undo web w", ":4\n"),
        (
            "undo mds/web --to-revision=",
            "--to-revision=2\t~ image: \"nginx:1.28\" -> \"nginx:1.29\"\n--to-revision=1\t<none>\n:4\n",
        ),
        ("history web --revision 1", "1\t<none>\n:4\n"),
    ] {
        let shown = place
            .kubectl(&format!("__complete mydaemonset {typed}"))
            .await;
        assert_eq!(shown.out, completed, "{typed}");
    }
    let second = place.run("history web --revision=2").await;
    assert_eq!(
        second.out,
        "mydaemonset.apps.zhongmingmao.io/web with revision #2\nPod Template:\n  image: nginx:1.29\n\
         Changes since cwhv64p2hk (now revision 1):\n  ~ image: \"nginx:1.28\" -> \"nginx:1.29\"\n"
    );

    let undone = place.same("undo", "").await;
    assert_eq!(
        undone.out,
        "mydaemonset.apps.zhongmingmao.io/web rolled back to revision 1 (nginx:1.28)\n"
    );
    place.same_end("--timeout=60s").await;
    assert_eq!(
        place.kubectl.field("mds/web", "{.spec.image}").await,
        "nginx:1.28"
    );
    assert_eq!(histories().await, ["REVISION", "2", "3"]);
    // The first revision has another number now, and the text of the second is what it was.
    let history = place.run("history web").await.out;
    let changes = history.lines().filter_map(|line| line.split_once("~ "));
    let changes: Vec<&str> = changes.map(|(_, change)| change).collect();
    assert_eq!(
        changes,
        [
            "image: \"nginx:1.28\" -> \"nginx:1.29\"",
            "image: \"nginx:1.29\" -> \"nginx:1.28\""
        ]
    );
    for flags in [
        "--to-revision=77",
        "--to-revision=3",
        "--to-revision=2 --dry-run=server",
    ] {
        place.same("undo", flags).await;
    }
    assert_eq!(
        place.kubectl.field("mds/web", "{.spec.image}").await,
        "nginx:1.28"
    );

    place.same("restart", "").await;
    place.same_end("--timeout=60s").await;
    let history = place.run("history web").await;
    assert!(
        history.out.trim_end().ends_with("restart"),
        "{}",
        history.out
    );

    // A roll-out that does not end: its first pod never gets ready.
    let pending = json!({"template": {"metadata": {"annotations": {PENDING.0: PENDING.1}}}});
    place.merge(DAEMON_SET, pending.clone()).await;
    place.merge(OURS, pending).await;
    place.until_one_is_updated().await;
    let shown = place.same("status", "--watch=false").await;
    assert_eq!(shown.code, Some(0));
    let timed_out = place.same("status", "--timeout=1s").await;
    assert_eq!(
        timed_out.err,
        "error: timed out waiting for the condition\n"
    );

    let on_delete = json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}});
    place.merge(DAEMON_SET, on_delete.clone()).await;
    place.merge(OURS, on_delete).await;
    assert_eq!(place.same("status", "").await.code, Some(1));

    for verb in ["status", "history", "undo", "restart"] {
        let built_in = place.built_in(&format!("{verb} ds/none")).await;
        let ours = place.run(&format!("{verb} mydaemonset/none")).await;
        assert_eq!(plain(&ours), plain(&built_in), "{verb}");
        assert_eq!(ours.code, Some(1));
    }
}

#[tokio::test]
async fn a_pause_has_the_words_of_one_of_a_deployment() {
    let place = Place::new("pause").await;
    let selector = json!({"matchLabels": {"app": "web"}});
    let deployment =
        json!({"replicas": 1, "selector": selector, "template": template("nginx:1.28")});
    place.create(("apps", "v1", "Deployment"), deployment).await;
    place.create_ours().await;
    for verb in [
        "resume", "pause", "pause", "restart", "resume", "resume", "restart",
    ] {
        let built_in = place.built_in(&format!("{verb} deployment/web")).await;
        let ours = place.run(&format!("rollout {verb} web")).await;
        assert_eq!(plain(&ours), plain(&built_in), "{verb}");
    }

    assert_eq!(place.run("status web --timeout=60s").await.code, Some(0));
    place.run("pause web").await;
    place.merge(OURS, json!({"image": "nginx:1.29"})).await;
    place
        .kubectl
        .until_field("mds/web", "{.status.state}", "Paused")
        .await;
    let waiting = place.run("status web --watch=false").await;
    let hint = format!(
        "paused; go on with: kubectl mydaemonset rollout resume web -n {}\n",
        place.kubectl.namespace
    );
    assert_eq!(
        (waiting.out.as_str(), waiting.err.as_str()),
        (
            "Waiting for daemon set \"web\" rollout to finish: 0 out of 3 new pods have been updated...\n",
            hint.as_str()
        )
    );
    let shown = place.run("get web").await.out;
    assert!(shown.ends_with("\n3 nodes: · 3 held\n"), "{shown}");

    // One node first, then the others.
    let set = place.run("partition web 2").await;
    assert_eq!(
        set.out,
        "mydaemonset.apps.zhongmingmao.io/web partition set to 2 (was 0)\n"
    );
    assert_eq!(place.run("resume web").await.code, Some(0));
    let partitioned = place.run("status web --timeout=60s").await;
    assert_eq!(partitioned.code, Some(0));
    let last = partitioned.out.lines().last();
    assert_eq!(
        last,
        Some("partitioned roll out complete: 1 new pods have been updated...")
    );
    let shown = place.run("get web").await.out;
    assert!(
        shown.ends_with("\n● node-1  · node-2  · node-3\n3 nodes: ● 1 new  · 2 held\n"),
        "{shown}"
    );
    place.run("partition web 0").await;
    assert_eq!(place.run("status web --timeout=60s").await.code, Some(0));
    let shown = place.run("get web").await.out;
    assert!(shown.ends_with("\n3 nodes: ● 3 new\n"), "{shown}");
}

#[tokio::test]
async fn a_roll_out_that_stopped_by_itself_is_shown_and_resumed_only_on_purpose() {
    let place = Place::new("stopped").await;
    place.create_ours().await;
    let pod = place.fail().await;
    let status = place.run("status web").await;
    assert_eq!(status.code, Some(1));
    assert!(
        status
            .err
            .starts_with("error: daemon set \"web\" stopped by itself: revision "),
        "{status:?}"
    );
    let shown = place.run("get web").await.out;
    for text in [
        "State:     AutoPaused",
        "3 nodes: ✗ 1 failed  · 2 held",
        "no such image ^[[2J",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    assert!(
        shown.contains(&format!("✗ InvalidImageName  node-1  {pod}\n")),
        "{shown}"
    );
    // The table of all, by the short name.
    for (args, column) in [("mds get", 0), ("mds get -A", 1)] {
        let table = place.kubectl(args).await.good();
        let rows = table
            .lines()
            .map(|row| row.split_whitespace().collect::<Vec<_>>());
        let is_ours =
            |row: &Vec<&str>| row[column] == "web" && (column == 0 || row[0] == place.namespace);
        let row = rows.skip(1).find(is_ours).unwrap();
        assert_eq!(
            row[column + 4..column + 7],
            ["AutoPaused", "nginx:1.99", "revision"]
        );
    }

    let history = place.run("history web").await.out;
    let column = history
        .lines()
        .filter_map(|row| row.split_whitespace().nth(2));
    let column: Vec<_> = column.collect();
    assert_eq!(column, ["STATE", "current", "failed"]);
    let restart = place.run("restart web").await;
    assert!(
        restart.err.contains("run rollout resume or undo first"),
        "{restart:?}"
    );
    // There is no terminal to ask at.
    let refused = place.run("resume web").await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("no such image ^[[2J"), "{refused:?}");
    assert!(
        refused
            .err
            .ends_with("add --yes to resume it all the same\n"),
        "{refused:?}"
    );
    let annotation = "{.metadata.annotations.apps\\.zhongmingmao\\.io/resume-revision}";
    place.kubectl.absent("mds/web", annotation).await;
    let resumed = place.run("resume web --yes").await;
    assert_eq!(
        resumed.out,
        "mydaemonset.apps.zhongmingmao.io/web resumed\n"
    );
    let revision = place
        .kubectl
        .field("mds/web", "{.status.updateRevision}")
        .await;
    assert_eq!(place.kubectl.field("mds/web", annotation).await, revision);

    // Back to the revision that works, also after another bad change.
    place.merge(OURS, json!({"image": "nginx:1.98"})).await;
    assert_eq!(
        place.run("undo web").await.out,
        "mydaemonset.apps.zhongmingmao.io/web rolled back to revision 1 (nginx:1.28)\n"
    );
    assert_eq!(place.run("status web --timeout=60s").await.code, Some(0));
    assert_eq!(
        place.kubectl.field("mds/web", "{.spec.image}").await,
        "nginx:1.28"
    );
}

#[tokio::test]
async fn an_editor_may_do_everything_and_a_viewer_is_shown_the_missing_right() {
    let place = Place::new("rights").await;
    place.create_ours().await;
    place.merge(OURS, json!({"image": "nginx:1.29"})).await;
    assert_eq!(place.run("status web --timeout=60s").await.code, Some(0));
    let namespace = &place.namespace;
    for role in ["view", "edit"] {
        place
            .kubectl
            .run(&format!("create serviceaccount {role}"))
            .await
            .good();
        let account = format!("--clusterrole={role} --serviceaccount={namespace}:{role}");
        place
            .kubectl
            .run(&format!("create rolebinding {role} {account}"))
            .await
            .good();
    }
    let user = |role: &str| format!("--as=system:serviceaccount:{namespace}:{role}");
    // The API server sees a new binding, and the rules that a role aggregates, a moment later.
    for (role, verb) in [
        ("view", "history web"),
        ("edit", "pause web --dry-run=server"),
    ] {
        let verb = format!("{verb} {}", user(role));
        wait_for("the rights", async || {
            (place.run(&verb).await.code == Some(0)).then_some(())
        })
        .await;
    }
    for role in ["view", "edit"] {
        for verb in [
            "status web",
            "history web",
            "history web --revision=1",
            "get web",
        ] {
            let ended = place.run(&format!("{verb} {}", user(role))).await;
            assert_eq!(
                (ended.code, ended.err.as_str()),
                (Some(0), ""),
                "{role}: {verb}"
            );
        }
    }
    let shown = place.run(&format!("get web {}", user("view"))).await.out;
    assert!(
        shown.contains("\n3 nodes: ● 3 new\nYou may not list nodes"),
        "{shown}"
    );
    let ended = place.run(&format!("why web {}", user("view"))).await;
    assert!(
        ended.out.starts_with("3 of 3 nodes have an available pod"),
        "{ended:?}"
    );
    assert!(
        ended.err.starts_with("You may not list nodes") && ended.err.lines().count() == 1,
        "{ended:?}"
    );
    for verb in ["pause web", "restart web", "undo web", "partition web 1"] {
        let ended = place.run(&format!("{verb} {}", user("view"))).await;
        let expected = format!(
            "Error from server (Forbidden): mydaemonsets.apps.zhongmingmao.io \"web\" is forbidden: User \"system:serviceaccount:{namespace}:view\" cannot patch resource \"mydaemonsets\" in API group \"apps.zhongmingmao.io\" in the namespace \"{namespace}\"\n"
        );
        assert_eq!((ended.code, ended.err), (Some(1), expected), "{verb}");
    }
    for verb in [
        "restart web",
        "pause web",
        "resume web",
        "undo web",
        "partition web 1",
    ] {
        let ended = place.run(&format!("{verb} {}", user("edit"))).await;
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{verb}");
    }
}

#[tokio::test]
async fn a_dry_run_and_an_output_format_change_nothing_and_print_the_object() {
    let place = Place::new("dry-run").await;
    place.create_ours().await;
    let before = place
        .kubectl
        .field("mds/web", "{.metadata.resourceVersion}")
        .await;
    for (flags, text) in [
        (
            "--dry-run=client",
            "mydaemonset.apps.zhongmingmao.io/web paused (dry run)\n",
        ),
        (
            "--dry-run=server",
            "mydaemonset.apps.zhongmingmao.io/web paused (server dry run)\n",
        ),
        (
            "--dry-run=server -o name",
            "mydaemonset.apps.zhongmingmao.io/web\n",
        ),
    ] {
        assert_eq!(place.run(&format!("pause web {flags}")).await.out, text);
    }
    for flags in ["--dry-run=client -o json", "--dry-run=server -o json"] {
        let json: Value =
            serde_json::from_str(&place.run(&format!("pause web {flags}")).await.out).unwrap();
        assert_eq!(
            json["spec"]["updateStrategy"]["rollingUpdate"]["paused"],
            true
        );
        assert!(json["metadata"]["managedFields"].is_null());
    }
    let yaml = place.run("pause web --dry-run=client -o yaml").await.out;
    assert!(yaml.contains("\n      paused: true\n"), "{yaml}");
    let after = place
        .kubectl
        .field("mds/web", "{.metadata.resourceVersion}")
        .await;
    assert_eq!(after, before);
    // What was applied from a file is changed with kubectl's warning.
    let applied = json!({"apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
        "metadata": {"name": "web"}, "spec": {"image": "nginx:1.29"}});
    place.kubectl.apply(&applied.to_string()).await.good();
    assert_eq!(place.run("status web --timeout=60s").await.code, Some(0));
    let undone = place.run("undo web").await;
    assert!(
        undone.err.starts_with(
            "Warning: resource mydaemonsets/web was previously managed with 'kubectl apply'."
        ),
        "{undone:?}"
    );
}

/// The built-in `DaemonSet` `web`, with a pod on each of the three nodes.
async fn with_daemon_set(place: &Place, strategy: Value) {
    let spec = json!({
        "selector": {"matchLabels": {"app": "web"}}, "updateStrategy": strategy,
        "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "nginx", "image": "nginx:1.28"}]}},
    });
    place.create(DAEMON_SET, spec).await;
    place
        .kubectl
        .until_field("ds/web", "{.status.numberAvailable}", "3")
        .await;
}

#[tokio::test]
async fn a_daemon_set_is_migrated_there_and_back() {
    let place = Place::new("migrate").await;
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    with_daemon_set(&place, rolling).await;
    let spec = place.kubectl.field("ds/web", "{.spec}").await;
    for flags in ["--plan", "--dry-run=server", "--plan -o yaml"] {
        let plan = place.run(&format!("migrate ds/web {flags}")).await.good();
        let names = ["becomes MyDaemonSet web.", "kind: MyDaemonSet"];
        assert!(names.iter().any(|text| plan.contains(text)), "{plan}");
    }
    let refused = place.run("migrate ds/web").await.bad();
    assert_eq!(refused, "error: nothing was changed: add --yes to begin\n");
    assert_eq!(place.kubectl.field("ds/web", "{.spec}").await, spec);

    let there = place.run("migrate daemonset/web --yes").await.good();
    for text in [
        "mydaemonset.apps.zhongmingmao.io/web created",
        "daemonset.apps/web stopped",
        "3 pods labelled",
        "daemonset.apps/web deleted, its pods stay",
        "mydaemonset.apps.zhongmingmao.io/web takes over",
        "daemon set \"web\" successfully rolled out",
        "Back with: kubectl mydaemonset migrate mydaemonset/web",
    ] {
        assert!(there.contains(text), "{text}: {there}");
    }
    // Again, there is nothing left to do.
    place.run("migrate daemonset/web --yes").await.good();
    let shown = place.run("get web").await.good();
    assert!(shown.ends_with("\n3 nodes: ● 3 new\n"), "{shown}");

    let back = place.run("migrate mydaemonset/web --yes").await.good();
    for text in [
        "3 pods released",
        "daemonset.apps/web takes over",
        "mydaemonset.apps.zhongmingmao.io/web deleted, its pods stay",
        "Follow its roll-out with: kubectl rollout status daemonset/web",
    ] {
        assert!(back.contains(text), "{text}: {back}");
    }
    let rollout = "rollout status daemonset/web --timeout=120s";
    place.kubectl.run(rollout).await.good();
    assert_eq!(place.kubectl.field("ds/web", "{.spec}").await, spec);
    let marker = "{.metadata.annotations.apps\\.zhongmingmao\\.io/migration}";
    place.kubectl.absent("ds/web", marker).await;
    let labels = place
        .kubectl
        .run("get pods -l apps.zhongmingmao.io/mydaemonset -o name")
        .await;
    assert_eq!(labels.good(), "");
}

#[tokio::test]
async fn nothing_is_touched_that_cannot_be_migrated_to_its_end() {
    let place = Place::new("no-migrate").await;
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    with_daemon_set(&place, rolling).await;
    // The webhook refuses what a template of ours may not have.
    let bad = json!({"template": {"spec": {"schedulingGates": [{"name": "example.com/x"}]}}});
    place
        .merge(
            DAEMON_SET,
            json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}),
        )
        .await;
    place.merge(DAEMON_SET, bad).await;
    let refused = place.run("migrate ds/web --yes").await.bad();
    assert!(refused.contains("schedulingGates"), "{refused}");
    place.kubectl.run("get mds/web").await.bad();
    place
        .merge(
            DAEMON_SET,
            json!({"template": {"spec": {"schedulingGates": null}}}),
        )
        .await;

    let namespace = &place.namespace;
    place.kubectl.run("create serviceaccount view").await.good();
    let binding =
        format!("create rolebinding view --clusterrole=view --serviceaccount={namespace}:view");
    place.kubectl.run(&binding).await.good();
    let user = format!("--as=system:serviceaccount:{namespace}:view");
    let missing = wait_for("the rights to read", async || {
        let err = place
            .run(&format!("migrate ds/web --plan {user}"))
            .await
            .bad();
        err.starts_with("error: you have no right").then_some(err)
    })
    .await;
    assert_eq!(
        missing,
        format!(
            "error: you have no right in the namespace {namespace:?} to: patch daemonsets.apps, delete daemonsets.apps, create mydaemonsets.apps.zhongmingmao.io, patch mydaemonsets.apps.zhongmingmao.io, delete mydaemonsets.apps.zhongmingmao.io, patch pods, delete pods\n"
        )
    );

    // OnDelete stays OnDelete: the pods are adopted, and nothing is replaced.
    let before = place.kubectl.run("get pods -o name").await.good();
    let there = place.run("migrate ds/web --yes").await.good();
    assert!(there.contains("takes over"), "{there}");
    assert_eq!(place.kubectl.run("get pods -o name").await.good(), before);

    // What is kept of that one does not answer the question for another.
    place
        .kubectl
        .run("delete mds/web --timeout=90s")
        .await
        .good();
    with_daemon_set(&place, json!({"type": "OnDelete"})).await;
    let refused = place.run("migrate ds/web").await.bad();
    assert_eq!(refused, "error: nothing was changed: add --yes to begin\n");
}
