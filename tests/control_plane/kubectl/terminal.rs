//! The plugins in a terminal: what it shows, at every size, whatever the text of the cluster does to it, and how they
//! leave it.
//!
//! The views are of a control plane without an operator: the test writes every status itself.

use std::ops::Range;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use my_operator::kinds::mydaemonset::names::{NAME_LABEL, REVISION_LABEL};
use my_operator::kinds::mydaemonset::revision::{Content, hash};
use my_operator_cluster::{Cluster, FakeNode, Options};
use my_operator_rounds::lengths;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::kubectl;
use crate::harness::proxy::{Mode, Proxy};
use crate::harness::terminal::{Screen, Terminal, contents};
use crate::harness::{self, Kubectl};

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
/// How many requests are in flight at a time.
const IN_FLIGHT: usize = 32;

/// Text that does much to a terminal that it reaches: clears it, changes its title, rings, hides the cursor, goes home,
/// copies, goes to the second screen, and writes from right to left.
const HOSTILE: &str = "\x1b[2J\x1b]0;title\x07\x1b[?25l\x1b[H\x1b]52;c;eA==\x07\x1b[?1049h\u{9b}31m\u{202e}evil\r\n\ttext";
/// The same as it is shown.
const SHOWN: &str =
    r"^[[2J^[]0;title^G^[[?25l^[[H^[]52;c;eA==^G^[[?1049h\u{9b}31m\u{202e}evil\r\n\ttext";

#[tokio::test]
async fn at_asks_for_the_command_until_ctrl_d_and_makes_nothing_after_ctrl_c() {
    let kubectl = kubectl("terminal-prompt").await;
    let start = |name: &str| {
        let args = ["at", "-t", "209911271600", "--name", name];
        Terminal::start(kubectl.plugin(&args), (80, 24))
    };
    let terminal = start("asked");
    terminal.until_shown("\nat>").await;
    terminal.enter("echo one\n");
    terminal.until_shown("at> echo one\nat>").await;
    terminal.enter("echo 'two'\n");
    terminal.until_shown("at> echo 'two'\nat>").await;
    terminal.enter(CTRL_D);
    let shown = terminal.end().await.in_order(0);
    let asked = "\nat> echo one\nat> echo 'two'\nat> <EOT>\nat/asked will run Fri Nov 27 2099 16:00 CET, in ";
    assert!(shown.contains(asked), "{shown}");
    assert_eq!(
        kubectl.field("at/asked", "{.spec.command}").await,
        "echo one\necho 'two'"
    );

    let terminal = start("left");
    terminal.until_shown("\nat>").await;
    terminal.enter("echo one\n");
    terminal.until_shown("at> echo one\nat>").await;
    terminal.enter("echo tw");
    terminal.until_shown("at> echo tw").await;
    terminal.enter(CTRL_C);
    let left = terminal.end().await;
    // The signal ends it, as it ends a shell's `read`.
    assert!(matches!(left.code, None | Some(130)), "{left:?}");
    assert!(!left.is_unrestored && left.effects.is_empty(), "{left:?}");
    assert_eq!(kubectl.names("at").await, ["asked"]);
}

#[tokio::test]
async fn the_countdown_stays_in_its_line_and_goes_with_ctrl_c() {
    let kubectl = kubectl("terminal-countdown").await;
    let args = ["at", "now + 3 minutes", "--name", "soon", "-F", "--", "ls"];
    let terminal = Terminal::start(kubectl.plugin(&args), (80, 24));
    let first = terminal
        .until("the countdown", |screen| {
            let shown = contents(screen);
            (shown.lines().count() == 2 && shown.contains(", in 2 m")).then_some(shown)
        })
        .await;
    let (made, line) = first.split_once('\n').unwrap();
    assert!(made.starts_with("at/soon will run "), "{first}");
    assert!(line.starts_with("at/soon will run "), "{first}");
    terminal
        .until("the next second", |screen| {
            let shown = contents(screen);
            assert_eq!(shown.lines().count(), 2, "{shown}");
            (shown != first).then_some(())
        })
        .await;
    // In a terminal that is too narrow it is cut: a second line would be left over by the next second.
    let narrow = async |columns: u16| {
        terminal.resize((columns, 24));
        let before = terminal.shown();
        terminal
            .until("the next second", |screen| {
                let line = contents(screen).lines().last()?.to_owned();
                let is_cut = line.chars().count() < usize::from(columns);
                (is_cut && !before.ends_with(&line)).then_some(())
            })
            .await;
        assert_eq!(terminal.shown().lines().count(), 2, "{}", terminal.shown());
    };
    narrow(30).await;
    terminal.resize((200, 24));
    terminal.until_shown(", in ").await;
    terminal.enter(CTRL_C);
    let shown = terminal.end().await.in_order(130);
    let namespace = &kubectl.namespace;
    let back =
        format!("at/soon goes on. Come back with: kubectl at --logs soon --follow -n {namespace}");
    // The terminal itself shows ^C.
    assert!(shown.ends_with(&back), "{shown}");
    assert!(!shown.contains(", in 2 m"), "{shown}");
    assert_eq!(kubectl.names("at").await, ["soon"]);
}

/// A MyDaemonSet and its nodes, of which the test writes every state itself.
struct Fleet {
    kubectl: Kubectl,
    uid: String,
    /// The hash of its revision.
    revision: String,
}

static CLUSTER: OnceCell<&'static Cluster> = OnceCell::const_new();

impl Fleet {
    /// With so many nodes, in three zones; `name` is also that of the nodes.
    async fn new(name: &str, nodes: usize) -> Self {
        let cluster = CLUSTER.get_or_init(|| async {
            let cluster = harness::shared_plane("terminal", Options::default()).await;
            harness::install(cluster).await;
            cluster
        });
        let cluster = *cluster.await;
        let nodes: Vec<FakeNode> = (1..=nodes)
            .map(|number| {
                FakeNode::new(format!("{name}-{number}"))
                    .label("pool", name)
                    .label(
                        "topology.kubernetes.io/zone",
                        format!("zone-{}", number % 3),
                    )
            })
            .collect();
        cluster.add_nodes(&nodes).await.unwrap();
        let namespace = cluster.namespace(name).await.unwrap();
        let spec =
            json!({"image": "nginx:1.29", "template": {"spec": {"nodeSelector": {"pool": name}}}});
        let object = json!({"apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
            "metadata": {"name": "web"}, "spec": spec});
        let mut fleet = Self {
            kubectl: Kubectl::new(cluster, &namespace),
            uid: String::new(),
            revision: hash(&Content::from_spec(&decoded(spec)).canonical()),
        };
        let created = fleet.objects().await;
        let created = created
            .create(&PostParams::default(), &decoded(object))
            .await;
        fleet.uid = created.unwrap().metadata.uid.unwrap();
        fleet
    }

    async fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let client = self.kubectl.cluster.client().await.unwrap();
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(client, &self.kubectl.namespace, &kind)
    }

    async fn objects(&self) -> Api<DynamicObject> {
        self.api("apps.zhongmingmao.io", "v1beta1", "MyDaemonSet")
            .await
    }

    /// Creates a pod of a revision on each of these nodes.
    async fn create_pods(&self, numbers: Range<usize>, revision: &str) {
        let pods = &self.api("", "v1", "Pod").await;
        let create = numbers.map(|number| {
            let owner = json!({"apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet", "name": "web",
                "uid": self.uid, "controller": true});
            let pod = json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("web-{number}"), "ownerReferences": [owner],
                    "labels": {NAME_LABEL: "web", REVISION_LABEL: revision}},
                "spec": {"nodeName": format!("{}-{number}", self.prefix()), "automountServiceAccountToken": false,
                    "containers": [{"name": "app", "image": "nginx:1.29"}]}});
            async move { pods.create(&PostParams::default(), &decoded(pod)).await }
        });
        let created = futures::stream::iter(create).buffer_unordered(IN_FLIGHT);
        created.try_collect::<Vec<_>>().await.unwrap();
    }

    /// The name of the nodes: that of the namespace without what makes it unique.
    fn prefix(&self) -> &str {
        self.kubectl.namespace.rsplit_once('-').unwrap().0
    }

    /// Makes the pods those of the newest revision.
    async fn renew(&self, numbers: Range<usize>) {
        let pods = &self.api("", "v1", "Pod").await;
        let patch = &json!({"metadata": {"labels": {REVISION_LABEL: self.revision}}});
        let renewed = numbers.map(|number| async move {
            let params = PatchParams::default();
            pods.patch(&format!("web-{number}"), &params, &Patch::Merge(patch))
                .await
        });
        let renewed = futures::stream::iter(renewed).buffer_unordered(IN_FLIGHT);
        renewed.try_collect::<Vec<_>>().await.unwrap();
    }

    async fn report(&self, state: &str, message: &str) {
        let condition = json!({"type": "Progressing", "status": "True", "reason": "RollingOut", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"state": state, "observedGeneration": 1, "currentRevision": "old",
            "conditions": [condition]}});
        let (objects, params) = (self.objects().await, PatchParams::default());
        objects
            .patch_status("web", &params, &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// `kubectl mydaemonset get web -w` in a terminal.
    fn view(&self, size: (u16, u16), more: &[&str]) -> Terminal {
        let args = [&["mydaemonset", "get", "web", "-w"], more].concat();
        Terminal::start(self.kubectl.plugin(&args), size)
    }
}

fn decoded<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Waits until the screen shows these lines and no other.
async fn until_exactly(terminal: &Terminal, lines: &[&str]) {
    let expected = lines.join("\n");
    terminal
        .until(&format!("exactly\n{expected}"), |screen| {
            (contents(screen) == expected).then_some(())
        })
        .await;
}

#[tokio::test]
async fn the_view_of_three_nodes_fits_every_size_and_leaves_the_terminal_as_it_was() {
    let fleet = Fleet::new("three", 3).await;
    fleet.create_pods(1..3, "old").await;
    fleet
        .report(
            "Rolling 0%",
            "2 of 3 nodes wait for the new revision: three-1, three-2",
        )
        .await;
    let terminal = fleet.view((80, 24), &[]);
    let (namespace, revision) = (&fleet.kubectl.namespace, &fleet.revision);
    let namespace = format!("Namespace: {namespace}");
    let revision = format!("Revision:  {revision} (in place of old)");
    let wide = [
        "Name:      web",
        &namespace,
        "Image:     nginx:1.29",
        &revision,
        "State:     Rolling 0%",
        "Reason:    2 of 3 nodes wait for the new revision: three-1, three-2",
        "",
        "○ three-1  ○ three-2  ◐ three-3",
        "3 nodes: ○ 2 old  ◐ 1 starting",
    ];
    until_exactly(&terminal, &wide).await;
    let screen = terminal.screen();
    assert!(screen.alternate_screen() && screen.hide_cursor());

    let cut: String = revision.chars().take(29).collect::<String>() + "~";
    let narrow = [
        "Name:      web",
        &namespace,
        "Image:     nginx:1.29",
        &cut,
        "State:     Rolling 0%",
        "Reason:    2 of 3 nodes wait",
        "           for the new",
        "           revision: three-1,",
        "           three-2",
        "",
        "○ three-1  ○ three-2",
        "◐ three-3",
        "3 nodes: ○ 2 old  ◐ 1 starting",
    ];
    terminal.resize((30, 24));
    until_exactly(&terminal, &narrow).await;
    // Lower than the frame: the first lines.
    terminal.resize((30, 5));
    until_exactly(&terminal, &narrow[..5]).await;
    terminal.resize((200, 50));
    until_exactly(&terminal, &wide).await;

    // What changes is drawn, and nothing else stays.
    fleet.create_pods(3..4, &fleet.revision).await;
    fleet.renew(1..3).await;
    fleet.report("Complete", "done").await;
    let mut done = wide;
    done[4] = "State:     Complete";
    done[5] = "Reason:    done";
    done[7] = "● three-1  ● three-2  ● three-3";
    done[8] = "3 nodes: ● 3 new";
    until_exactly(&terminal, &done).await;
    terminal.enter(CTRL_C);
    let shown = terminal.end().await.in_order(130);
    assert!(shown.ends_with(&done.join("\n")), "{shown}");

    let terminal = fleet.view((200, 24), &[]);
    until_exactly(&terminal, &done).await;
    let params = DeleteParams::default();
    fleet.objects().await.delete("web", &params).await.unwrap();
    let shown = terminal.end().await.in_order(1);
    assert!(
        shown.ends_with("\nerror: object has been deleted"),
        "{shown}"
    );
}

#[tokio::test]
async fn the_view_of_many_nodes_fits_every_size() {
    let nodes = lengths::nodes_of_a_view();
    let (new, old) = (nodes * 35 / 100, nodes - nodes * 35 / 100);
    let fleet = Fleet::new("many", nodes).await;
    fleet.create_pods(1..nodes + 1, "old").await;
    let terminal = fleet.view((80, 24), &[]);
    let begin = format!("\n{nodes} nodes: ○ {nodes} old");
    terminal.until_shown(&begin).await;
    fleet.renew(1..new + 1).await;
    let counts = format!("\n{nodes} nodes: ● {new} new  ○ {old} old");
    let shown = terminal.until_shown(&counts).await;
    // As `Fleet::new` deals the nodes to the zones.
    let zones = (0..3).map(|zone| {
        let of = |numbers: Range<usize>| numbers.filter(|number| number % 3 == zone).count();
        let (new, old) = (of(1..new + 1), of(new + 1..nodes + 1));
        format!("\nzone-{zone}  {new} new  {old} old")
    });
    let zones = zones.collect::<String>();
    assert!(shown.contains(&zones), "{shown}");

    // A mark for each node, and one in the last line.
    let marks = |shown: &str| {
        let count = |mark| shown.chars().filter(|c| *c == mark).count();
        (count('●'), count('○'))
    };
    for size in [(200, 50), (120, 60), (200, 50)] {
        terminal.resize(size);
        let marked = terminal.until("a mark for each node", |screen| {
            let shown = contents(screen);
            (marks(&shown) == (new + 1, old + 1)).then_some(shown)
        });
        let shown = marked.await;
        assert!(shown.contains("\nzone-0  "), "{shown}");
    }
    // Too low for the marks again, and too low for anything.
    terminal.resize((60, 16));
    terminal.until_shown(&zones).await;
    terminal.resize((60, 3));
    terminal
        .until("three lines", |screen| {
            contents(screen)
                .starts_with("Name:      web\nNamespace: many-")
                .then_some(())
        })
        .await;
    terminal.resize((80, 24));
    terminal.until_shown(&counts).await;
    terminal.enter(CTRL_C);
    terminal.end().await.in_order(130);
}

#[tokio::test]
async fn hostile_text_of_the_cluster_is_shown_and_does_nothing() {
    let fleet = Fleet::new("hostile", 2).await;
    fleet.create_pods(1..3, &fleet.revision).await;
    fleet.report(HOSTILE, HOSTILE).await;
    let pods = fleet.api("", "v1", "Pod").await;
    let fail = |name: &'static str, phase: &str, state: Value| {
        // With this annotation the fake kubelet leaves it alone.
        let status = json!({"status": {"phase": phase, "containerStatuses": [{"name": "app", "ready": false,
            "restartCount": 7, "image": "nginx:1.29", "imageID": "", "state": state}]}});
        let (pods, hold) = (
            &pods,
            json!({"metadata": {"annotations": {"kwok.my-operator.dev/phase": "Pending"}}}),
        );
        async move {
            let params = PatchParams::default();
            pods.patch(name, &params, &Patch::Merge(hold))
                .await
                .unwrap();
            pods.patch_status(name, &params, &Patch::Merge(status))
                .await
                .unwrap();
        }
    };
    let waiting =
        json!({"running": null, "waiting": {"reason": "ImagePullBackOff", "message": HOSTILE}});
    fail("web-1", "Pending", waiting).await;
    // With another exit code, its last words would be the log, which is the fake kubelet's.
    let ended = json!({"running": null, "terminated": {"exitCode": 0, "reason": HOSTILE, "message": HOSTILE}});
    fail("web-2", "Failed", ended).await;
    for size in [(200, 50), (80, 40)] {
        let terminal = fleet.view(size, &[]);
        let width = usize::from(size.0);
        // The last lines of the pods come after the first frame.
        terminal
            .until("the messages of the containers", |screen| {
                let shown = contents(screen);
                let lines = shown.lines().filter(|line| line.starts_with("      ^[[2J"));
                (lines.count() == 2).then_some(())
            })
            .await;
        let shown = terminal.shown();
        let state: String = format!("State:     {SHOWN}").chars().take(70).collect();
        assert!(shown.contains(&state), "{shown}");
        assert!(shown.starts_with("Name:      web\n"), "{shown}");
        assert!(shown.contains("\n2 nodes: ✗ 2 failed"), "{shown}");
        assert!(
            shown.lines().all(|line| line.chars().count() <= width),
            "{shown}"
        );
        terminal.enter(CTRL_C);
        let left = terminal.end().await.in_order(130);
        assert!(left.contains("\n2 nodes: ✗ 2 failed"), "{left}");
    }
    // Also where it does not go on, and in kubectl's words about a status.
    for args in [&["get", "web"][..], &["status", "web", "--watch=false"]] {
        let args = [&["mydaemonset"], args].concat();
        let terminal = Terminal::start(fleet.kubectl.plugin(&args), (100, 50));
        terminal.end().await.in_order(0);
    }
}

#[tokio::test]
async fn hostile_text_of_an_at_is_shown_and_does_nothing() {
    // Its namespace is on the plane without an operator: nothing writes another status.
    let fleet = Fleet::new("hostile-at", 0).await;
    let ats = fleet
        .api("cnat.programming-kubernetes.info", "v1alpha1", "At")
        .await;
    let create = async |name: &str, status: Value| {
        let at = json!({"apiVersion": "cnat.programming-kubernetes.info/v1alpha1", "kind": "At",
            "metadata": {"name": name, "annotations": {"cnat.programming-kubernetes.info/created-by": HOSTILE}},
            "spec": {"schedule": "2099-01-01T00:00:00Z", "command": HOSTILE}});
        ats.create(&PostParams::default(), &decoded(at))
            .await
            .unwrap();
        let status = Patch::Merge(json!({"status": status}));
        ats.patch_status(name, &PatchParams::default(), &status)
            .await
            .unwrap();
    };
    create(
        "waits",
        json!({"phase": "PENDING", "reason": HOSTILE, "message": HOSTILE}),
    )
    .await;
    create(
        "missed",
        json!({"phase": "DONE", "result": "Missed", "reason": HOSTILE, "message": HOSTILE}),
    )
    .await;
    let run = |args: &[&str]| Terminal::start(fleet.kubectl.plugin(args), (400, 24));
    let shown = run(&["atq", "--all"]).end().await.in_order(0);
    assert_eq!(shown.lines().count(), 3, "{shown}");
    assert!(shown.contains(SHOWN), "{shown}");
    let shown = run(&["at", "-c", "waits"]).end().await.in_order(0);
    // A command has lines, and they are shown as lines.
    assert!(shown.contains("\\u{202e}evil\\r\n        text"), "{shown}");
    let shown = run(&["at", "--logs", "missed", "--follow"])
        .end()
        .await
        .in_order(75);
    assert_eq!(
        shown,
        format!("at/missed was missed, its command has not run: {SHOWN}: {SHOWN}")
    );
    let terminal = run(&["at", "--logs", "waits", "--follow"]);
    terminal
        .until_shown(&format!("{SHOWN}: at/waits waits: {SHOWN}"))
        .await;
    terminal.enter(CTRL_C);
    let shown = terminal.end().await.in_order(130);
    assert!(!shown.contains("title"), "{shown}");
}

#[tokio::test]
async fn a_lost_connection_is_said_and_the_view_goes_on_when_it_is_back() {
    let fleet = Fleet::new("lost", 2).await;
    fleet.create_pods(1..3, "old").await;
    let proxy = Proxy::to(fleet.kubectl.cluster).await;
    let kubeconfig = proxy.kubeconfig(fleet.kubectl.cluster, "lost.kubeconfig");
    let flag = format!("--kubeconfig={}", kubeconfig.display());
    let terminal = fleet.view((200, 24), &[&flag]);
    terminal.until_shown("2 nodes: ○ 2 old").await;
    proxy.set(Mode::Gone);
    terminal.until_shown("; trying again").await;
    fleet.renew(1..2).await;
    proxy.set(Mode::Open);
    let good = |screen: &Screen| {
        let shown = contents(screen);
        let is_new = shown.contains("2 nodes: ● 1 new  ○ 1 old");
        (is_new && !shown.contains("trying again")).then_some(())
    };
    terminal.until("what happened meanwhile", good).await;
    // It can also be left while there is none.
    proxy.set(Mode::Gone);
    terminal.until_shown("; trying again").await;
    terminal.enter(CTRL_C);
    let shown = terminal.end().await.in_order(130);
    assert!(shown.contains("2 nodes: ● 1 new  ○ 1 old"), "{shown}");
}
