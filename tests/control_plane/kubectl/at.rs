//! `kubectl at`, `atq` and `atrm`, started by kubectl as its plugins.

use std::process::Command;

use serde_json::{Value, json};

use super::{kubectl, plain};
use crate::harness::{Kubectl, LATE};

/// A pod template of which the fake kubelet runs the pod without end.
const HOLD: &str =
    r#"{"metadata": {"annotations": {"kwok.my-operator.dev/exit-code": "hold"}}, "spec": {}}"#;

/// A file with this text, in the folder of the tests' data.
fn file(kubectl: &Kubectl, name: &str, text: &str) -> String {
    let path = kubectl
        .cluster
        .directory()
        .join(format!("{}-{name}", kubectl.namespace));
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_at_is_made_listed_shown_and_removed() {
    let kubectl = kubectl("plugin-story").await;
    let run = async |args: &[&str], input: &str| kubectl.run_plugin(args, input).await;

    let args = [
        "at",
        "-t",
        "209911271600",
        "--",
        "./report",
        "--to",
        "it's me",
        "$HOME",
    ];
    let said = run(&args, "").await.good();
    let name = said
        .strip_prefix("at/")
        .and_then(|rest| rest.split(' ').next())
        .unwrap();
    assert!(name.starts_with("report-"), "{said}");
    let rest = format!("at/{name} will run Fri Nov 27 2099 16:00 CET, in ");
    assert!(said.starts_with(&rest), "{said}");
    let at = format!("at/{name}");
    let spec = kubectl.field(&at, "{.spec.schedule} {.spec.command}").await;
    assert_eq!(
        spec,
        r"2099-11-27T15:00:00Z ./report --to 'it'\''s me' '$HOME'"
    );

    let args = [
        "at",
        "-t",
        "209911271500",
        "--name",
        "piped",
        "--suspend",
        "--env",
        "A=$(B)",
    ];
    let said = run(&args, "date |\n  wc\n").await.good();
    let sentence =
        "at/piped is suspended, and once resumed will run Fri Nov 27 2099 15:00 CET, in ";
    assert!(said.starts_with(sentence), "{said}");
    assert_eq!(
        kubectl.field("at/piped", "{.spec.command}").await,
        "date |\n  wc"
    );
    kubectl
        .until_field("at/piped", "{.status.reason}", "Suspended")
        .await;
    kubectl.until_any(&at, "{.status.scheduledTime}").await;

    let table = run(&["atq"], "").await.good();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| {
            line.split("   ")
                .map(str::trim)
                .filter(|it| !it.is_empty())
                .collect()
        })
        .collect();
    assert_eq!(
        rows[0],
        [
            "NAME", "DUE", "WHEN", "STATE", "REASON", "CREATOR", "COMMAND"
        ]
    );
    let (piped, report) = (&rows[1], &rows[2]);
    assert_eq!((piped[0], piped[1]), ("piped", "Fri Nov 27 2099 15:00 CET"));
    assert_eq!(
        (piped[3], piped[4], piped[6]),
        ("Pending", "Suspended", r"date |\n  wc")
    );
    assert_eq!(
        (report[0], report[3], report[4]),
        (name, "Pending", "<none>")
    );
    let creator = kubectl
        .field(
            &at,
            r"{.metadata.annotations.cnat\.programming-kubernetes\.info/created-by}",
        )
        .await;
    assert_eq!(report[5], creator);
    let names = run(&["atq", "-o", "name"], "").await.good();
    assert!(
        names.contains("at.cnat.programming-kubernetes.info/piped\n"),
        "{names}"
    );
    let list = run(&["atq", "-o", "json"], "").await.good();
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "{list}");

    let shown = run(&["at", "-c", "piped"], "").await.good();
    assert!(
        shown.contains("# image: bash:5.3\n# shell: bash -c\ndate |\n  wc\n"),
        "{shown}"
    );
    let error = run(&["at", "--logs", "piped"], "").await.bad();
    assert!(
        error.contains("has not started (Pending: Suspended)"),
        "{error}"
    );

    let completed = run(&["__complete", "atrm", "pi"], "").await;
    assert!(completed.out.starts_with("piped\n"), "{completed:?}");
    let completed = run(&["__complete", "atrm", "AT/pi"], "").await;
    assert!(completed.out.starts_with("AT/piped\n"), "{completed:?}");
    let completed = run(&["__complete", "atrm", "at/piped", "pi"], "").await;
    assert!(completed.out.starts_with(":4\n"), "{completed:?}");

    let args = ["atrm", "piped", &at, "missing"];
    let ended = run(&args, "").await;
    let deleted = |name: &str| {
        let namespace = &kubectl.namespace;
        format!(
            "at.cnat.programming-kubernetes.info \"{name}\" deleted from {namespace} namespace\n"
        )
    };
    assert_eq!(ended.out, format!("{}{}", deleted("piped"), deleted(name)));
    let missing = kubectl.run("delete at missing").await.bad();
    assert_eq!((ended.code, ended.err), (Some(1), missing));
    let none = run(&["atq"], "").await;
    let sentence = format!("No resources found in {} namespace.\n", kubectl.namespace);
    assert_eq!((none.code, none.err), (Some(0), sentence));
}

#[tokio::test]
async fn an_at_that_waits_is_resumed_paused_and_given_another_time() {
    let kubectl = kubectl("plugin-resume").await;
    let run = async |args: &str| {
        let args: Vec<&str> = args.split(' ').collect();
        kubectl.run_plugin(&args, "").await
    };
    run("at -t 209911271500 --name held --suspend -- ls")
        .await
        .good();
    let words = "at/held resumed, and would run Fri Nov 27 2099 15:00 CET, in ";
    for dry_run in ["client", "server"] {
        let said = run(&format!("at --resume held --dry-run={dry_run}"))
            .await
            .good();
        assert!(said.starts_with(words), "{said}");
    }
    let printed = run("at --resume held --dry-run=client -o yaml")
        .await
        .good();
    assert!(printed.contains("\n  suspend: false\n"), "{printed}");
    assert_eq!(kubectl.field("at/held", "{.spec.suspend}").await, "true");
    let said = run("at --resume at/held").await.good();
    let words = "at/held resumed, and will run Fri Nov 27 2099 15:00 CET, in ";
    assert!(said.starts_with(words), "{said}");
    assert_eq!(kubectl.field("at/held", "{.spec.suspend}").await, "false");
    let again = run("at --resume held").await.bad();
    assert_eq!(again, "error: at/held is not suspended\n");
    let said = run("at --reschedule held 2099-11-27T16:00:00Z")
        .await
        .good();
    let words = "at/held rescheduled, and will run Fri Nov 27 2099 17:00 CET, in ";
    assert!(said.starts_with(words), "{said}");
    let path = "{.status.scheduledTime}";
    kubectl
        .until_field("at/held", path, "2099-11-27T16:00:00Z")
        .await;
    let said = run("at --pause held").await.good();
    let words = "at/held suspended, and once resumed will run Fri Nov 27 2099 17:00 CET, in ";
    assert!(said.starts_with(words), "{said}");
    kubectl
        .until_field("at/held", "{.status.reason}", "Suspended")
        .await;
    run("at --reschedule held now").await.good();
    run("at --resume held").await.good();
    kubectl
        .until_field("at/held", "{.status.phase}", "DONE")
        .await;
    for verb in ["pause held", "reschedule held noon"] {
        let error = run(&format!("at --{verb}")).await.bad();
        assert!(error.starts_with("error: at/held is over ("), "{error}");
    }
}

/// Runs a verb on an At and what kubectl has for it on a Job, and compares all that is printed and the exit codes.
#[tokio::test]
async fn the_verbs_have_kubectls_words_and_exit_codes() {
    let kubectl = kubectl("plugin-verbs").await;
    let run = async |args: &str| {
        let args: Vec<&str> = args.split(' ').collect();
        kubectl.run_plugin(&args, "").await
    };
    let same = async |ours: &str, theirs: &str| {
        let (ours, theirs) = (run(ours).await, run(theirs).await);
        assert_eq!(plain(&ours), plain(&theirs));
    };

    for flags in [
        "",
        " -o name",
        " -o json",
        " -o yaml",
        " -A -l no=ne",
        " -n none",
        " -A=true -l no=ne",
        " -A -A=false -n first -n none",
    ] {
        same(&format!("atq{flags}"), &format!("get jobs{flags}")).await;
    }
    let logged = run("atq -v=6").await;
    let line = logged.err.lines().next().unwrap_or_default();
    assert!(
        line.starts_with("GET https://")
            && line.contains(" 200 OK in ")
            && line.ends_with(" milliseconds"),
        "{logged:?}"
    );
    // A mistake in the flags leads to the help of the command itself.
    for flags in ["--nosuch", "-x", "--output", "--namespace"] {
        let mut theirs = run(&format!("get jobs {flags}")).await;
        theirs.err = theirs.err.replace("kubectl get", "kubectl atq");
        assert_eq!(plain(&run(&format!("atq {flags}")).await), plain(&theirs));
    }
    for dry_run in ["client", "server", "none"] {
        same(
            &format!("at -t 209911271600 --name x --dry-run={dry_run} -o name -- ls"),
            &format!("create job x --image=bash --dry-run={dry_run} -o name -- ls"),
        )
        .await;
    }
    // kubectl create job puts words of its own before the server's; kubectl create -f does not.
    let again = run("at -t 209911271600 --name x -- ls").await;
    let refusal = "Error from server (AlreadyExists): ats.cnat.programming-kubernetes.info \"x\" already exists\n";
    assert_eq!(again.bad(), refusal);
    kubectl.until_any("at/x", "{.status.scheduledTime}").await;
    for flags in [
        "-o name",
        "-o json",
        "-o yaml",
        "-l no=ne",
        "-A -l no=ne",
        "--as=jane",
        "--token=bad",
    ] {
        same(&format!("atq {flags}"), &format!("get ats {flags}")).await;
    }
    for flags in [
        "--dry-run=client",
        "--dry-run=server",
        "--dry-run=client -o name",
        "--dry-run=server -o name",
        "missing",
        "",
        "--ignore-not-found",
    ] {
        let flags = format!("x {flags}");
        let flags = flags.trim_end();
        same(&format!("atrm {flags}"), &format!("delete job {flags}")).await;
    }
    same("at -c missing", "get job missing").await;
}

#[tokio::test]
async fn rejections_and_warnings_read_as_kubectls() {
    let kubectl = kubectl("plugin-words").await;
    for flags in [
        &["--name", "Bad_", "--timeout", "0"][..],
        &["--name", "one", "--image", "Bad Image"],
        &["--name", "warned", "-t", "202001010000"],
    ] {
        let mut args = vec!["at", "-t", "209911271600"];
        if flags.contains(&"-t") {
            args.truncate(1);
        }
        args.extend(flags);
        let rest = ["--dry-run=server", "--", "ls"];
        let mine = kubectl.run_plugin(&[&args[..], &rest].concat(), "").await;
        let rest = ["--dry-run=client", "-o", "yaml", "--", "ls"];
        let manifest = kubectl
            .run_plugin(&[&args[..], &rest].concat(), "")
            .await
            .good();
        let theirs = kubectl
            .with("create --dry-run=server -f -", &manifest)
            .await;
        // Before its own words for several faults, kubectl puts nothing; before Warnings neither.
        assert_eq!(mine.code == Some(0), theirs.ok, "{mine:?} {theirs:?}");
        assert_eq!(mine.err.trim_end(), theirs.err.trim_end());
        assert!(!theirs.err.is_empty(), "{manifest}");
    }
    let error = kubectl
        .run_plugin(&["at", "16:00", "tommorow", "--", "ls"], "")
        .await
        .bad();
    assert!(error.contains("did you mean \"tomorrow\"?"), "{error}");
    assert_eq!(kubectl.names("at").await, [""; 0]);
}

#[tokio::test]
async fn a_pod_that_would_be_refused_is_warned_of() {
    let kubectl = kubectl("plugin-early").await;
    let wrong = r#"{"spec": {"containers": [{"name": "at", "imagePullPolicy": "never"}]}}"#;
    let wrong = file(&kubectl, "wrong.json", wrong);
    let at = ["at", "-t", "209911271600", "--name"];
    let said = kubectl
        .run_plugin(
            &[&at[..], &["x", "--template", &wrong, "--", "ls"]].concat(),
            "",
        )
        .await;
    let start = "Warning: the pod of at/x would be refused: ";
    assert!(said.err.starts_with(start), "{said:?}");
    assert!(said.err.contains("imagePullPolicy"), "{said:?}");
    assert_eq!((said.code, said.err.lines().count()), (Some(0), 1));
    // A dry run, of which the operator knows nothing, shows it too.
    let dry = ["z", "--dry-run=server", "--template", &wrong, "--", "ls"];
    let said = kubectl.run_plugin(&[&at[..], &dry].concat(), "").await;
    let start = "Warning: the pod of at/z would be refused: ";
    assert!(said.err.starts_with(start), "{said:?}");
    assert_eq!((said.code, said.err.lines().count()), (Some(0), 1));
    for dry_run in ["server", "none"] {
        let dry_run = format!("--dry-run={dry_run}");
        let args = [&at[..], &["y", &dry_run, "--", "ls"]].concat();
        let said = kubectl.run_plugin(&args, "").await;
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    }
}

#[tokio::test]
async fn a_running_one_is_only_removed_by_force() {
    let kubectl = kubectl("plugin-force").await;
    let template = file(&kubectl, "hold.json", HOLD);
    let args = [
        "at",
        "now",
        "--name",
        "runs",
        "--template",
        &template,
        "--",
        "sleep",
        "100",
    ];
    let said = kubectl.run_plugin(&args, "").await.good();
    assert_eq!(said, "at/runs will run now\n");
    kubectl
        .until_field("at/runs", "{.status.phase}", "RUNNING")
        .await;
    let error = kubectl.run_plugin(&["atrm", "runs"], "").await.bad();
    assert!(error.contains("at/runs is running; --force"), "{error}");
    kubectl
        .run_plugin(&["atrm", "runs", "--force"], "")
        .await
        .good();
    kubectl.until_gone("at/runs,pod/runs-pod").await;
}

#[tokio::test]
async fn follow_ends_with_75_for_missed_and_76_for_unknown() {
    let kubectl = kubectl("plugin-ends").await;
    let ended = kubectl.run_plugin(LATE, "").await;
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let words = "at/late was missed, its command has not run: StartingDeadlineExceeded";
    assert!(ended.err.contains(words), "{ended:?}");

    let template = file(&kubectl, "hold.json", HOLD);
    let args = [
        "at",
        "now",
        "--name",
        "lost",
        "--template",
        &template,
        "--",
        "sleep",
        "100",
    ];
    kubectl.run_plugin(&args, "").await.good();
    let follow = kubectl.run_plugin(&["at", "--logs", "lost", "--follow"], "");
    let lose = async {
        kubectl
            .until_field("pod/lost-pod", "{.status.phase}", "Running")
            .await;
        kubectl
            .run("delete pod lost-pod --force --grace-period=0")
            .await
            .good();
    };
    let (ended, ()) = tokio::join!(follow, lose);
    assert_eq!(ended.code, Some(76), "{ended:?}");
    let words = "at/lost has an unknown end, its command may have run: PodLost";
    assert!(ended.err.contains(words), "{ended:?}");
}

#[tokio::test]
async fn the_editor_may_do_everything_and_the_viewer_reads_which_right_is_missing() {
    let kubectl = kubectl("plugin-rights").await;
    for role in ["editor", "viewer"] {
        let args = format!(
            "create rolebinding {role} --clusterrole=my-operator-at-{role}-role --user={role}"
        );
        kubectl.run(&args).await.good();
    }
    let run = async |user: &str, args: &[&str]| {
        let mut all = args.to_vec();
        let flag = format!("--as={user}");
        all.insert(1, &flag);
        kubectl.run_plugin(&all, "").await
    };
    let at = ["at", "-t", "209911271600", "--name", "x", "--", "ls"];
    let one_line = |error: &str, verb: &str| {
        let part = format!("User \"viewer\" cannot {verb} resource \"ats\"");
        assert!(
            error.starts_with("Error from server (Forbidden): ") && error.contains(&part),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    };
    one_line(&run("viewer", &at).await.bad(), "create");
    run("editor", &at).await.good();
    for user in ["editor", "viewer"] {
        assert!(run(user, &["atq"]).await.good().contains("x "), "{user}");
        assert!(
            run(user, &["at", "-c", "x"])
                .await
                .good()
                .ends_with("\nexec ls\n"),
            "{user}"
        );
    }
    // The editor's role has no right to logs: it is said once, and the exit code comes all the same. Without a terminal,
    // so does "will run".
    let soon = Command::new("date")
        .env("TZ", "Europe/Berlin")
        .args(["-d", "+4 seconds", "+%Y%m%d%H%M.%S"])
        .output()
        .unwrap();
    let soon = String::from_utf8(soon.stdout).unwrap();
    let at = ["at", "-t", soon.trim(), "--name", "soon", "-F", "--", "ls"];
    let ended = run("editor", &at).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        ended.out.matches("at/soon will run ").count(),
        1,
        "{ended:?}"
    );
    assert!(!ended.err.contains("will run"), "{ended:?}");
    assert_eq!(ended.err.matches("(Forbidden)").count(), 1, "{ended:?}");
    assert!(ended.err.ends_with("at/soon succeeded\n"), "{ended:?}");

    one_line(&run("viewer", &["atrm", "x"]).await.bad(), "delete");
    run("editor", &["atrm", "x"]).await.good();
    let elsewhere = run("editor", &["atq", "-A"]).await.bad();
    assert!(elsewhere.contains("at the cluster scope"), "{elsewhere}");
}

/// A pod template of a server, with that container.
fn server(container: &str, more: &Value) -> Value {
    let mut container = json!({
        "name": container, "image": "example.com/web:1", "command": ["./serve", "--port", "80"],
        "env": [{"name": "GREETING", "value": "hello"}],
        "ports": [{"containerPort": 80, "hostPort": 8080}],
        "readinessProbe": {"httpGet": {"port": 80}}, "livenessProbe": {"httpGet": {"port": 80}},
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    });
    if container["name"] == "app" {
        container.as_object_mut().unwrap().remove("image");
    }
    let mut spec = json!({
        "serviceAccountName": "web", "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "config"}}],
    });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"metadata": {"labels": {"app": "web"}, "annotations": {"note": "kept"}}, "spec": spec})
}

/// An object of the name `web`.
fn object(api: &str, kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": "web"}, "spec": spec})
}

/// The spec of a set of no pods.
fn set(more: &Value) -> Value {
    let mut set = json!({
        "replicas": 0,
        "selector": {"matchLabels": {"app": "web"}},
        "template": server("web", &json!({})),
    });
    let fields = set.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    set
}

/// One object of each kind that has a pod template, and what their pods need.
fn sources() -> Vec<Value> {
    let none = json!({});
    let template = server("web", &json!({"restartPolicy": "Never"}));
    let of_job = json!({"template": template, "activeDeadlineSeconds": 600});
    let nowhere = json!({"nodeSelector": {"kubernetes.io/hostname": "none"}});
    let mut pod = object("v1", "Pod", &server("web", &none)["spec"]);
    // Those of the sets would make them adopt the pod.
    pod["metadata"]["labels"] = json!({"app": "alone"});
    pod["metadata"]["annotations"] = json!({"note": "of this pod"});
    let mut job = of_job.clone();
    job["suspend"] = json!(true);
    let cron_job =
        json!({"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": of_job}});
    let stateful = json!({
        "serviceName": "web",
        "template": server("web", &json!({"hostname": "web", "subdomain": "web"})),
    });
    let daemons = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "template": server("web", &nowhere),
    });
    let ours = json!({"image": "example.com/web:1", "template": server("app", &nowhere)});
    let controller = json!({"replicas": 0, "template": server("web", &none)});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}}),
        pod,
        object("batch/v1", "Job", &job),
        object("batch/v1", "CronJob", &cron_job),
        object("apps/v1", "Deployment", &set(&none)),
        object("apps/v1", "ReplicaSet", &set(&none)),
        object("apps/v1", "StatefulSet", &set(&stateful)),
        object("apps/v1", "DaemonSet", &daemons),
        object("v1", "ReplicationController", &controller),
        object("apps.zhongmingmao.io/v1beta1", "MyDaemonSet", &ours),
    ]
}

async fn created(kubectl: &Kubectl, objects: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    kubectl.with("create -f -", &list.to_string()).await.good();
}

#[tokio::test]
async fn an_at_runs_in_the_pod_of_every_kind_of_object() {
    let kubectl = kubectl("plugin-from").await;
    created(&kubectl, &sources()).await;
    let kinds = ["pod", "job", "cj", "deploy", "rs", "sts", "rc"];
    // The pods of these have no node to run on.
    let nowhere = ["ds", "mds"];
    for kind in kinds.iter().chain(&nowhere) {
        let from = format!("{kind}/web");
        let time = if nowhere.contains(kind) {
            &["at", "-t", "209911271600"][..]
        } else {
            &["at", "now"]
        };
        let args = ["--name", kind, "--from", &from, "--", "./migrate", "up"];
        let said = kubectl.run_plugin(&[time, &args].concat(), "").await;
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    }
    for kind in kinds {
        let at = format!("at/{kind}");
        kubectl
            .until_field(&at, "{.status.result}", "Succeeded")
            .await;
        let pod = kubectl.object(&format!("pod/{kind}-pod")).await;
        let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
        assert_eq!(metadata["labels"].get("app"), None, "{pod:#}");
        assert_eq!(spec["serviceAccountName"], "web", "{pod:#}");
        let volumes = spec["volumes"].as_array().unwrap();
        // The other one is that of the ServiceAccount's token.
        assert_eq!(volumes.len(), 2, "{pod:#}");
        assert_eq!(volumes[0]["name"], "config", "{pod:#}");
        assert_eq!(spec["containers"].as_array().unwrap().len(), 1, "{pod:#}");
        let container = &spec["containers"][0];
        assert_eq!(container["name"], "at");
        assert_eq!(container["image"], "example.com/web:1");
        assert_eq!(container["command"], json!(["./migrate", "up"]));
        assert_eq!(
            container["env"],
            json!([{"name": "GREETING", "value": "hello"}])
        );
        assert_eq!(container["volumeMounts"].as_array().unwrap().len(), 2);
        for gone in ["args", "ports", "readinessProbe", "livenessProbe"] {
            assert_eq!(container.get(gone), None, "{pod:#}");
        }
        let note = metadata["annotations"].get("note");
        assert_eq!(note.is_none(), kind == "pod", "{pod:#}");
    }
    for kind in nowhere {
        let at = format!("at/{kind}");
        let image = kubectl.field(&at, "{.spec.image}").await;
        assert_eq!(image, "example.com/web:1");
        // The API server would accept the pod.
        kubectl.until_any(&at, "{.status.dryRunGeneration}").await;
    }
    let table = kubectl.run_plugin(&["atq"], "").await.good();
    assert!(table.contains("./migrate up"), "{table}");
    let shown = kubectl.run_plugin(&["at", "-c", "deploy"], "").await.good();
    assert!(
        shown.ends_with("# image: example.com/web:1\n./migrate up\n"),
        "{shown}"
    );
    let args = ["__complete", "at", "noon", "--from", "deploy/w"];
    let completed = kubectl.run_plugin(&args, "").await;
    assert!(completed.out.starts_with("deploy/web\n"), "{completed:?}");
}

#[tokio::test]
async fn a_dry_run_shows_what_would_be_taken_and_creates_nothing() {
    let kubectl = kubectl("plugin-from-dry").await;
    created(&kubectl, &sources()).await;
    let mut expected = json!({
        "schedule": "2099-11-27T15:00:00Z",
        "image": "example.com/web:1",
        "shell": ["./serve", "--port"],
        "command": "80",
        "activeDeadlineSeconds": 600,
        "template": {
            "metadata": {"annotations": {"note": "kept"}},
            "spec": {
                "serviceAccountName": "web",
                "containers": [{"name": "at", "imagePullPolicy": "IfNotPresent", "resources": {},
                    "env": [{"name": "GREETING", "value": "hello"}, {"name": "MORE", "value": "x"}],
                    "volumeMounts": [{"name": "config", "mountPath": "/config"}]}],
                "volumes": [{"name": "config", "configMap": {"name": "config", "defaultMode": 420}}],
                "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
                "securityContext": {}, "terminationGracePeriodSeconds": 30,
            },
        },
    });
    for (dry_run, timeout) in [("client", None), ("server", None), ("client", Some(1200))] {
        let dry_run = format!("--dry-run={dry_run}");
        let mut args = vec![
            "at",
            "-t",
            "209911271600",
            "--from",
            "cronjob/web",
            "--env",
            "MORE=x",
            &dry_run,
            "-o",
            "json",
        ];
        // A flag takes precedence over the deadline of the Job.
        if let Some(seconds) = timeout {
            args.push("--timeout=20m");
            expected["activeDeadlineSeconds"] = json!(seconds);
        }
        let said = kubectl.run_plugin(&args, "").await;
        assert_eq!(
            said.err,
            "Note: cronjob/web runs its own command: ./serve --port 80\n"
        );
        let mut at: Value = serde_json::from_str(&said.good()).unwrap();
        let name = at["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with("web-"), "{name}");
        // A default of the webhook.
        at["spec"].as_object_mut().unwrap().remove("suspend");
        assert_eq!(at["spec"], expected, "{dry_run}");
    }
    assert_eq!(kubectl.names("at").await, [""; 0]);
}

#[tokio::test]
async fn what_cannot_be_taken_is_one_line() {
    let kubectl = kubectl("plugin-from-not").await;
    let two = json!([{"name": "log", "image": "log:1"}, {"name": "web", "image": "web:1"}]);
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    let db = json!([{"name": "db", "image": "db:1", "volumeMounts": mounts}]);
    let template = |containers: &Value| {
        let labels = json!({"app": "web"});
        json!({"metadata": {"labels": labels}, "spec": {"containers": containers}})
    };
    let resources = json!({"requests": {"storage": "1Gi"}});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": resources});
    let stateful = json!({
        "serviceName": "web",
        "template": template(&db),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
    });
    let objects = [
        object(
            "apps/v1",
            "Deployment",
            &set(&json!({"template": template(&two)})),
        ),
        object("apps/v1", "StatefulSet", &set(&stateful)),
    ];
    created(&kubectl, &objects).await;
    let at = |args: &[&str]| {
        let time = ["at", "-t", "209911271600", "--name", "x"];
        kubectl.run_plugin(&[&time[..], args].concat(), "")
    };
    for (args, words) in [
        (
            &["--from", "deploy/web", "--", "ls"][..],
            "error: deployment/web has several containers, choose one with -c: log, web",
        ),
        (
            &["--from", "deploy/web", "-c", "wbe", "--", "ls"],
            "error: deployment/web has no container \"wbe\", but log, web",
        ),
        (
            &["--from", "deploy/web", "-c", "web"],
            "error: deployment/web needs a command: give one after --, with -f FILE, or on standard input",
        ),
        (
            &["--from", "sts/web", "--", "ls"],
            "error: statefulset/web mounts \"data\" in its container \"db\", of which each of its pods has its own",
        ),
        (
            &["--from", "deploy/missing", "--", "ls"],
            "Error from server (NotFound): deployments.apps \"missing\" not found",
        ),
        (
            &["--as=jane", "--from", "deploy/web", "--", "ls"],
            "Error from server (Forbidden): deployments.apps \"web\" is forbidden: User \"jane\" cannot get resource",
        ),
        (&["--from", "web", "--", "ls"], "is not KIND/NAME"),
    ] {
        let error = at(args).await.bad();
        assert!(error.contains(words), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    // One word after --, text on standard input, and a file need a shell.
    let text = "pg_dumpall >/backup/x";
    let job = file(&kubectl, "job.sh", text);
    for (name, how, input, command) in [
        ("word", &["--", "./migrate"][..], "", "./migrate"),
        ("piped", &[], text, text),
        ("file", &["-f", job.as_str()], "", text),
    ] {
        let args = ["at", "-t", "209911271600", "--name", name];
        let from = ["--from", "deploy/web", "-c", "web"];
        let args = [&args[..], &from, how].concat();
        let said = kubectl.run_plugin(&args, input).await;
        let notes = [
            "Note: deployment/web leaves out container log, which would keep the pod running",
            "Note: deployment/web needs sh in its image: the command runs with sh -c",
        ];
        assert_eq!(said.err.lines().collect::<Vec<_>>(), notes, "{name}");
        let words = format!("at/{name} will run ");
        assert!(said.good().starts_with(&words), "{name}");
        let spec = kubectl.object(&format!("at/{name}")).await["spec"].clone();
        assert_eq!(
            (&spec["image"], &spec["shell"], &spec["command"]),
            (&json!("web:1"), &json!(["sh", "-c"]), &json!(command))
        );
    }
}

#[tokio::test]
async fn more_ats_than_a_page_are_listed() {
    let kubectl = kubectl("plugin-pages").await;
    let names: Vec<String> = (0..503).map(|number| format!("at-{number:03}")).collect();
    let items: Vec<String> = names
        .iter()
        .map(|name| {
            format!(
                r#"{{"apiVersion": "cnat.programming-kubernetes.info/v1alpha1", "kind": "At", "metadata": {{"name": "{name}"}}, "spec": {{"schedule": "2099-01-01T00:00:00Z", "command": "ls"}}}}"#
            )
        })
        .collect();
    let list = format!(
        r#"{{"apiVersion": "v1", "kind": "List", "items": [{}]}}"#,
        items.join(",")
    );
    kubectl.with("create -f -", &list).await.good();
    let listed = kubectl
        .run_plugin(&["atq", "--no-headers"], "")
        .await
        .good();
    let listed: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(listed, names);
}

#[tokio::test]
async fn mistakes_on_the_way_to_the_server_are_one_line() {
    let kubectl = kubectl("plugin-mistakes").await;
    for (args, words) in [
        (
            &["atq", "--server=https://127.0.0.1:1"][..],
            "The connection to the server 127.0.0.1:1 was refused",
        ),
        (&["atq", "--context=none"], "none"),
        (
            &["atq", "--kubeconfig=/nonexistent"],
            "cannot use the kubeconfig /nonexistent",
        ),
        (&["atq", "--user=none"], "auth info \"none\" does not exist"),
        (
            &["at", "noon", "--template=/nonexistent", "--", "ls"],
            "--template /nonexistent",
        ),
        (
            &["at", "noon", "-f", "/nonexistent"],
            "cannot read /nonexistent",
        ),
        (&["at", "noon"], "standard input has no command"),
        (
            &["atq", "--server=http://no-such-host.invalid"],
            "Unable to connect to the server: ",
        ),
        (
            &["at", "sat", "-30min", "--", "ls"],
            "write a blank after the minus",
        ),
        (
            &["at", "noon", "--deadline", "-5s", "--", "ls"],
            "--deadline takes no negative value",
        ),
        (&["atrm", "--all"], "kubectl atrm has no --all"),
        (&["at", "-c", "pod/x"], "\"pod/x\" is not the name of an At"),
    ] {
        let error = kubectl.run_plugin(args, "").await.bad();
        assert!(error.contains(words), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
