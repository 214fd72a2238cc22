//! The transcripts that the product promises, as a person would type them.

use std::collections::BTreeMap;
use std::path::Path;

use my_operator_cluster::Options;

use crate::cluster::at::at_when;
use crate::cluster::kubectl;
use crate::harness::markdown::code_blocks;
use crate::harness::{
    self, Kubectl, NAMESPACE, Operator, OwnPlane, TIMEOUT, checkout, run, try_wait, wait_for,
};

/// `kubectl get` without its header, split into columns.
fn rows(table: &str) -> Vec<Vec<String>> {
    let row = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    table.lines().skip(1).map(row).collect()
}

#[tokio::test]
async fn a_mydaemonset_puts_one_pod_on_each_node() {
    let kubectl = kubectl("mds-transcript").await;
    let said = kubectl
        .run("apply -f config/samples/apps_v1beta1_mydaemonset.yaml")
        .await;
    assert_eq!(
        said.good(),
        "mydaemonset.apps.zhongmingmao.io/mydaemonset-sample created\n"
    );
    kubectl
        .run("wait --for=condition=Available --timeout=90s mds/mydaemonset-sample")
        .await
        .good();
    let table = kubectl.run("get po -owide").await.good();
    let mut by_node: BTreeMap<String, u32> = BTreeMap::new();
    for row in rows(&table) {
        let (name, node) = (&row[0], &row[6]);
        assert!(name.starts_with(&format!("{node}-")), "{table}");
        *by_node.entry(node.clone()).or_default() += 1;
    }
    for node in ["node-1", "node-2", "node-3"] {
        assert_eq!(by_node.get(node), Some(&1), "{table}");
    }
    let containers = kubectl
        .run("get pods -o jsonpath={.items[*].spec.containers[*].name}")
        .await;
    assert!(containers.good().split(' ').all(|name| name == "app"));

    let table = kubectl.run("get mds").await.good();
    for column in [
        "NAME",
        "DESIRED",
        "CURRENT",
        "READY",
        "UP-TO-DATE",
        "AVAILABLE",
        "STATE",
        "AGE",
    ] {
        assert!(table.lines().next().unwrap().contains(column), "{table}");
    }
    let wide = kubectl.run("get mydaemonsets -owide").await.good();
    assert!(
        wide.contains("IMAGE") && wide.contains("nginx:stable-alpine3.17"),
        "{wide}"
    );

    // Nothing changed: nothing is written.
    let again = kubectl
        .run("apply -f config/samples/apps_v1beta1_mydaemonset.yaml")
        .await;
    assert_eq!(
        again.good(),
        "mydaemonset.apps.zhongmingmao.io/mydaemonset-sample unchanged\n"
    );
    // Pods go with their owner.
    kubectl.run("delete mds/mydaemonset-sample").await.good();
    kubectl.until_gone("pods").await;
}

#[tokio::test]
async fn an_at_runs_once_and_is_done() {
    let kubectl = kubectl("at-transcript").await;
    // A watch brings every phase, however short, once it shows what was there before.
    let earlier = at_when("2999-01-01T00:00:00Z", "earlier", "", "");
    kubectl.apply(&earlier).await.good();
    let watch = "get at -w -o jsonpath={.metadata.name}={.status.phase}{\"\\n\"}";
    let watch = kubectl.spawn(watch, "phases");
    wait_for("the watch", async || {
        let said = std::fs::read_to_string(watch.log()).ok()?;
        said.contains("earlier=").then_some(())
    })
    .await;
    let said = kubectl
        .run("apply -f config/samples/cnat_v1alpha1_at.yaml")
        .await;
    assert_eq!(
        said.good(),
        "at.cnat.programming-kubernetes.info/example-at created\n"
    );
    let phases = wait_for("phase DONE", async || {
        let said = std::fs::read_to_string(watch.log()).ok()?;
        let lines = said.lines();
        let phases = lines.filter_map(|line| line.strip_prefix("example-at="));
        let mut phases: Vec<String> = phases.map(str::to_owned).collect();
        phases.retain(|line| ["PENDING", "RUNNING", "DONE"].contains(&line.as_str()));
        phases.dedup();
        (phases.last()? == "DONE").then_some(phases)
    })
    .await;
    assert_eq!(phases, ["PENDING", "RUNNING", "DONE"]);
    let table = kubectl.run("get at,pods").await.good();
    let pod = table
        .lines()
        .find(|line| line.starts_with("pod/example-at-pod"));
    assert!(
        pod.is_some_and(|line| line.contains("0/1") && line.contains("Completed")),
        "{table}"
    );
    for column in ["DUE", "PHASE", "RESULT", "EXIT", "LATE", "REASON", "AGE"] {
        assert!(table.lines().next().unwrap().contains(column), "{table}");
    }
    let seconds = TIMEOUT.as_secs();
    for condition in ["Complete", "Finished"] {
        kubectl
            .run(&format!(
                "wait --for=condition={condition} --timeout={seconds}s at/example-at"
            ))
            .await
            .good();
    }
    assert_eq!(
        kubectl.field("at/example-at", "{.status.result}").await,
        "Succeeded"
    );
    assert_eq!(
        kubectl.field("at/example-at", "{.status.exitCode}").await,
        "0"
    );
    let story = wait_for("the Events of the whole story", async || {
        let story = kubectl.run("describe at/example-at").await.good();
        story.contains("Completed").then_some(story)
    })
    .await;
    assert!(story.contains("Started"), "{story}");
}

/// A command that a page shows, and what it prints.
#[derive(Debug, PartialEq)]
struct Shown {
    command: String,
    prints: Vec<String>,
}

/// The commands of a page, which begin with `$ ` in its code blocks. One with a here-document goes
/// on to its END.
fn shown(page: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let mut reads = false;
    for line in code_blocks(page).into_iter().flat_map(|block| block.lines) {
        if let Some(command) = line.strip_prefix("$ ") {
            reads = command.ends_with("<<'END'");
            let command = command.to_owned();
            all.push(Shown {
                command,
                prints: vec![],
            });
        } else if let Some(last) = all.last_mut() {
            if reads {
                last.command = format!("{}\n{line}", last.command);
                reads = line != "END";
            } else {
                last.prints.push(line.to_owned());
            }
        }
    }
    all
}

/// Whether a program says what the page shows, but for blanks between columns and words that
/// change. A line `...` stands for any lines, also for none.
fn is_as_shown(said: &str, shown: &[String]) -> bool {
    let said: Vec<&str> = said.lines().collect();
    are_as_shown(&said, shown)
}

fn are_as_shown(said: &[&str], shown: &[String]) -> bool {
    match shown.split_first() {
        None => said.is_empty(),
        Some((dots, rest)) if dots == "..." => {
            (0..=said.len()).any(|from| are_as_shown(&said[from..], rest))
        }
        Some((line, rest)) => said
            .split_first()
            .is_some_and(|(first, others)| is_same_line(first, line) && are_as_shown(others, rest)),
    }
}

fn is_same_line(said: &str, shown: &str) -> bool {
    let said: Vec<&str> = said.split_whitespace().collect();
    let shown: Vec<&str> = shown.split_whitespace().collect();
    said.len() == shown.len() && said.iter().zip(shown).all(|(a, b)| is_same_word(a, b))
}

/// Instants, durations such as 1m3s and 1.2s, numbers of more than one digit, and the ends of the names of a
/// node's pods stand for any other.
fn is_same_word(said: &str, shown: &str) -> bool {
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let is_instant = |word: &str| chrono::DateTime::parse_from_rfc3339(word).is_ok();
    let is_age = |word: &str| {
        word.starts_with(|first: char| first.is_ascii_digit())
            && word.ends_with(['s', 'm', 'h'])
            && word.bytes().all(|byte| b".0123456789smh".contains(&byte))
    };
    let pod_of = |word: &str| {
        let (front, end) = word.rsplit_once('-')?;
        let is_hash =
            end.len() == 10 && end.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'));
        (is_hash && front.contains("node-")).then(|| front.to_owned())
    };
    said == shown
        || (pod_of(shown).is_some() && pod_of(shown) == pod_of(said))
        || (shown.len() > 1 && is_number(shown) && is_number(said))
        || (is_age(shown) && is_age(said))
        || (is_instant(shown) && is_instant(said))
}

#[test]
fn commands_and_what_they_print_are_found_in_a_page() {
    let page = "a\n```\nmake run\n```\n```\n$ a <<'END'\nb: c\nEND\nd\n$ e f\n```\n$ g\n";
    let show = |command: &str, prints: &[&str]| Shown {
        command: command.to_owned(),
        prints: prints.iter().map(|line| (*line).to_owned()).collect(),
    };
    let expected = [show("a <<'END'\nb: c\nEND", &["d"]), show("e f", &[])];
    assert_eq!(shown(page), expected);
    let table = ["NAME  AGE  LATE".to_owned(), "x  2s  12".to_owned()];
    assert!(is_as_shown("NAME AGE   LATE\nx    1m3s  734\n", &table));
    assert!(is_as_shown("NAME AGE LATE\nx 1m3s 7\n", &table));
    assert!(is_same_word("1.2s", "12ms"));
    assert!(!is_as_shown("NAME AGE LATE\ny 1m3s 7\n", &table));
    assert!(!is_as_shown("NAME AGE LATE\n", &table));
    let excerpt = ["...", "b 1", "..."].map(str::to_owned);
    assert!(is_as_shown("a\nb 1\nc\nd\n", &excerpt));
    assert!(is_as_shown("b 1\n", &excerpt));
    assert!(!is_as_shown("a\nb 2\n", &excerpt));
    assert!(is_same_word(
        "pod/node-1-aaaaaaaaaa",
        "pod/node-1-bbbbbbbbb7"
    ));
    assert!(!is_same_word(
        "pod/node-2-aaaaaaaaaa",
        "pod/node-1-bbbbbbbbb7"
    ));
    assert!(!is_same_word("web-aaaaaaaaaa", "web-bbbbbbbbb7"));
}

/// Whether a line is of kubectl's log, as `I1129 14:21:51.033714   27763 reflector.go:664] ...`: now and then it notes that
/// it has ended a watch.
fn is_log(line: &str) -> bool {
    let (head, message) = line.split_once("] ").unwrap_or_default();
    let (level, rest) = head.split_at_checked(1).unwrap_or_default();
    let mut words = rest.split_whitespace();
    let date = words.next().unwrap_or_default();
    let is_date = date.len() == 4 && date.bytes().all(|byte| byte.is_ascii_digit());
    let is_place = words
        .next_back()
        .is_some_and(|place| place.contains(".go:"));
    "IWEF".contains(level) && is_date && is_place && !message.is_empty()
}

#[test]
fn lines_of_kubectls_log_are_no_output() {
    let log = r#"I1129 14:21:51.033714   27763 reflector.go:664] "Warning: watch ended with error" err="context canceled""#;
    assert!(is_log(log));
    for line in [
        "mydaemonset.apps.zhongmingmao.io/web condition met\n",
        "Error from server (NotFound): x not found\n",
        "I1129 is no log] y\n",
        "\n",
        "",
    ] {
        assert!(!is_log(line), "{line}");
    }
}

/// Types the commands of a page in that directory, and compares what they print.
async fn is_what_happens(page: &str, kubectl: &Kubectl, directory: &Path) {
    let program = harness::counting_kubectl(kubectl.cluster);
    let typed = async |command: &str| {
        let mut bash = std::process::Command::new("bash");
        bash.arg("-c")
            .arg(format!(
                "exec 2>&1\nkubectl() {{ {} --namespace {} \"$@\"; }}\n{command}",
                program.display(),
                kubectl.namespace
            ))
            .current_dir(directory)
            .env("KUBECONFIG", kubectl.cluster.kubeconfig());
        // A person is in the namespace default.
        let said = run(&mut bash, "").await.out;
        let shown = said.split_inclusive('\n').filter(|line| !is_log(line));
        shown
            .collect::<String>()
            .replace(&kubectl.namespace, "default")
    };
    let commands = shown(&std::fs::read_to_string(checkout().join(page)).unwrap());
    assert!(commands.len() > 2);
    for Shown { command, prints } in commands {
        let looks = ["get", "events", "describe"].map(|verb| format!("kubectl {verb} "));
        let mut said = typed(&command).await;
        // What is only looked at may take a moment to be so.
        if looks.iter().any(|look| command.starts_with(look)) {
            try_wait(TIMEOUT, async || {
                said = typed(&command).await;
                is_as_shown(&said, &prints).then_some(())
            })
            .await;
        }
        assert!(
            is_as_shown(&said, &prints),
            "{page}: {command}\nprints\n{said}\nand not\n{}",
            prints.join("\n")
        );
    }
}

#[tokio::test]
async fn the_tutorial_of_at_is_what_happens() {
    let kubectl = kubectl("tutorial").await;
    is_what_happens("docs/at/tutorial.md", &kubectl, checkout()).await;
}

#[tokio::test]
async fn the_pages_of_mydaemonset_are_what_happens() {
    // Every node has a pod: no other test may be there.
    let nodes = Options::with_nodes(&["node-1", "node-2", "node-3"]);
    let plane = OwnPlane::start(nodes).await;
    let cluster = plane.cluster;
    harness::install(cluster).await;
    let _operator = Operator::start(cluster, "operator", &[]).await;
    let kubectl = Kubectl::new(cluster, "default");
    let bad = "apply --dry-run=server -f config/samples/bad/cnat_v1alpha1_at.yaml";
    wait_for("a refusal", async || {
        (!kubectl.run(bad).await.ok).then_some(())
    })
    .await;
    // `make run` has applied it, and the other sample is in the first page.
    kubectl
        .run("apply -f config/samples/cnat_v1alpha1_at.yaml")
        .await
        .good();
    let directory = cluster.directory().join("reader");
    std::fs::create_dir(&directory).unwrap();
    std::os::unix::fs::symlink(checkout().join("config"), directory.join("config")).unwrap();
    for page in ["docs/mydaemonset/README.md", "docs/mydaemonset/tutorial.md"] {
        is_what_happens(page, &kubectl, &directory).await;
    }
    plane.stop().await;
}

#[tokio::test]
async fn the_webhook_configurations_have_their_names() {
    let kubectl = kubectl("names").await;
    let names = kubectl
        .run("get validatingwebhookconfigurations,mutatingwebhookconfigurations -o name")
        .await;
    let names = names.good();
    for name in [
        "/my-operator-validating-webhook-configuration",
        "/my-operator-mutating-webhook-configuration",
    ] {
        assert!(names.contains(name), "{names}");
    }
}

#[tokio::test]
async fn everything_for_a_cluster_builds_and_is_accepted() {
    let kubectl = kubectl("kustomize").await;
    let all = kubectl.run("kustomize config/default").await.good();
    for object in [
        "name: my-operator-controller-manager",
        "name: my-operator-webhook-service",
        "name: my-operator-manager-role",
        "name: ats.cnat.programming-kubernetes.info",
    ] {
        assert!(all.contains(object), "{object} is not in\n{all}");
    }
    let own = Kubectl::new(kubectl.cluster, NAMESPACE);
    // The operator under test owns configurations of these names, with URLs in them.
    let others = all.replace("-webhook-configuration", "-webhook-configuration-too");
    own.with("apply --dry-run=server -f -", &others)
        .await
        .good();
}

#[tokio::test]
async fn kubectl_explains_every_field() {
    let kubectl = kubectl("explain").await;
    for (field, word) in [
        ("at.spec.schedule", "RFC 3339"),
        ("at.status.result", "Succeeded"),
        (
            "mds.spec.updateStrategy.rollingUpdate.maxUnavailable",
            "unavailable",
        ),
        ("mds.spec.template.metadata.labels", "abels"),
    ] {
        let text = kubectl.run(&format!("explain {field}")).await.good();
        assert!(
            text.contains("DESCRIPTION") && text.contains(word),
            "{field}: {text}"
        );
    }
}
