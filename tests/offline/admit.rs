//! `my-operator admit` as a program: files, streams, exit codes, and the transcripts of its page.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use my_operator_harness::markdown::code_blocks;
use serde_json::{Value, json};

use crate::checkout::checkout;

pub const GOOD: &str = "\
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: good}
spec: {schedule: now, command: x}
";
pub const BAD: &str = "\
apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata: {name: bad}
spec: {schedule: now}
";
const OTHER: &str = "apiVersion: v1\nkind: Secret\n";

fn admit(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_my-operator"));
    command.arg("admit").args(args).current_dir(checkout());
    command
}

/// The exit code, standard output and standard error.
fn said(output: Output) -> (i32, String, String) {
    (
        output.status.code().expect("ended by a signal"),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn run(args: &[&str]) -> (i32, String, String) {
    said(admit(args).stdin(Stdio::null()).output().unwrap())
}

fn with_input(args: &[&str], input: &[u8]) -> (i32, String, String) {
    let mut command = admit(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program that has read enough closes its end.
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    said(output)
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

#[test]
fn good_samples_are_accepted_and_each_bad_one_is_refused() {
    let (code, out, err) = run(&["-f", "config/samples"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(
        out.ends_with("4 accepted, 0 refused, 1 passed over, 0 unreadable\n"),
        "{out}"
    );
    for entry in fs::read_dir(checkout().join("config/samples/bad")).unwrap() {
        let path = entry.unwrap().path();
        let (code, out, err) = run(&["-f", path.to_str().unwrap()]);
        assert_eq!((code, err.as_str()), (1, ""), "{out}");
        assert!(out.lines().count() >= 3, "{out}");
    }
}

#[test]
fn every_source_is_judged_and_the_worst_end_is_the_exit_code() {
    let folder = folder(&[
        ("a.yaml", GOOD),
        ("b.yml", BAD),
        (
            "c.json",
            &format!(
                "{}{}",
                json!({"apiVersion": "v1", "kind": "Secret"}),
                json!({"kind": "x", "apiVersion": "v1"})
            ),
        ),
        ("d.txt", "not: [a manifest"),
        ("e/a.yaml", "broken: ["),
    ]);
    let path = folder.path().to_str().unwrap();
    let (code, out, err) = run(&["-f", path]);
    assert_eq!((code, err.as_str()), (1, ""), "{out}");
    assert!(out.contains(&format!("{path}/b.yml:4: document 1: At \"bad\": spec.command: Required value: command is required\n")), "{out}");
    assert!(
        out.contains(&format!(
            "{path}/c.json: note: passed over: Secret (1), x (1)\n"
        )),
        "{out}"
    );
    assert!(out.ends_with("1 accepted, 1 refused, 2 passed over, 0 unreadable\n"));
    let (code, out, err) = run(&["--filename", path, "--recursive"]);
    assert_eq!(code, 2);
    assert!(
        err.starts_with(&format!("error: {path}/e/a.yaml:1:9: document 1: "))
            && err.lines().count() == 1,
        "{err}"
    );
    assert!(out.ends_with("1 accepted, 1 refused, 2 passed over, 1 unreadable\n"));
    // A file that is named is read, whatever it is called; the others are judged all the same.
    let (code, out, err) = run(&[
        "-f",
        &format!("{path}/d.txt"),
        "-f",
        &format!("{path}/a.yaml"),
    ]);
    assert_eq!((code, err.lines().count()), (2, 1), "{err}");
    assert_eq!(out, "1 accepted, 0 refused, 0 passed over, 1 unreadable\n");
}

#[test]
fn what_is_no_object_is_skipped_in_a_folder_and_an_error_where_it_is_named() {
    let folder = folder(&[
        ("a.yaml", GOOD),
        ("chart/Chart.yaml", "apiVersion: v2\nname: chart\n"),
        ("chart/values.yaml", "image: {tag: 1}\n"),
        ("kustomization.yaml", "resources: [a.yaml]\n"),
        ("list.json", "[1, 2]\n"),
        ("readme.yaml", "just text\n"),
    ]);
    let path = folder.path().to_str().unwrap();
    let (code, out, err) = run(&["-R", "-f", path]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(
        out,
        "note: skipped 5 documents that are not Kubernetes objects (-v lists them)\n\
         1 accepted, 0 refused, 0 passed over, 0 unreadable\n"
    );
    let (code, out, _) = run(&["-v", "-R", "-f", path]);
    assert_eq!((code, out.lines().count()), (0, 6), "{out}");
    let line = format!("{path}/chart/Chart.yaml:1: document 1: note: skipped: kind not set\n");
    assert!(out.starts_with(&line), "{out}");
    let (code, out, _) = run(&["-R", "-f", path, "-o", "json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["summary"]["notObjects"]), (0, &json!(5)));
    assert_eq!(report["results"][1]["result"], "notAnObject");

    let values = format!("{path}/chart/values.yaml");
    let (code, _, err) = run(&["-f", &format!("{path}/a.yaml"), &values]);
    let said = format!("error: {values}:1: document 1: apiVersion not set, kind not set\n");
    assert_eq!((code, err), (2, said));
    // Nothing else is there: that does not count as a check.
    let (code, _, err) = run(&["-f", &format!("{path}/chart")]);
    assert_eq!(code, 2);
    assert_eq!(err, "error: no objects passed to admit\n");
    let (code, out, err) = run(&["-f", &format!("{path}/chart"), "-v", "-o", "github"]);
    assert_eq!((code, err.as_str()), (2, ""));
    assert_eq!(
        out,
        "note: skipped 2 documents that are not Kubernetes objects (-v lists them)\n\
         ::error title=my-operator admit::no objects passed to admit\n\
         0 accepted, 0 refused, 0 passed over, 0 unreadable\n"
    );
}

/// A manifest that says half of what it is must not pass as a file for another program.
#[test]
fn an_object_of_ours_with_a_forgotten_field_is_an_error_in_a_folder_too() {
    let bad: Value = serde_saphyr::from_str(BAD).unwrap();
    let of_its_kind = json!({"kind": "AtList", "items": [{"metadata": {"name": "bad"}}]});
    let within = json!([{"apiVersion": "v1", "kind": "List", "items": [bad]}]);
    for (text, said) in [
        (
            json!({"kind": "List", "items": [{"a": 1}, bad]}).to_string(),
            "apiVersion not set",
        ),
        (
            json!({"apiVersion": "v1", "items": [bad]}).to_string(),
            "kind not set",
        ),
        (json!({"items": [bad]}).to_string(), "kind not set"),
        (of_its_kind.to_string(), "apiVersion not set"),
        (json!([1, bad]).to_string(), "not an object"),
        (within.to_string(), "not an object"),
        (GOOD.replace("kind: At", "knd: At"), "kind not set"),
        (
            GOOD.replace("apiVersion", "apiversion"),
            "apiVersion not set",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: [{a: 1}]\n".to_owned(),
            "not set",
        ),
        ("a: [\n".to_owned(), "a.yaml:"),
    ] {
        let folder = folder(&[("a.yaml", &text), ("b.yaml", GOOD)]);
        let (code, out, err) = run(&["-f", folder.path().to_str().unwrap()]);
        assert_eq!(code, 2, "{text}: {out}");
        assert!(err.contains(said) && err.lines().count() == 1, "{err}");
    }
}

#[test]
fn the_formats_for_code_hosts_have_every_finding_and_the_same_exit_code() {
    let folder = folder(&[("a.yaml", BAD), ("b.yaml", GOOD), ("c d.yaml", "a: [\n")]);
    fs::write(folder.path().join("x%,\n::set-output name=a::b.yaml"), BAD).unwrap();
    let all = |output: &str| {
        let mut command = admit(&["-o", output, "-f", "."]);
        said(command.current_dir(folder.path()).output().unwrap())
    };
    let (code, out, err) = all("github");
    assert_eq!((code, err.as_str()), (2, ""));
    let lines: Vec<&str> = out.lines().collect();
    let fault = "title=my-operator admit%3A FieldValueRequired::At \"bad\": spec.command: \
                 Required value: command is required";
    assert_eq!(
        lines[0],
        format!("::error file=a.yaml,line=4,col=1,{fault}")
    );
    let unreadable = "::error file=c d.yaml,line=";
    assert!(lines[1].starts_with(unreadable), "{out}");
    let hostile = "file=x%25%2C%0A%3A%3Aset-output name=a%3A%3Ab.yaml";
    assert_eq!(lines[2], format!("::error {hostile},line=4,col=1,{fault}"));
    assert_eq!(
        lines[3..],
        ["1 accepted, 2 refused, 0 passed over, 1 unreadable"]
    );

    let (code, out, err) = all("sarif");
    assert_eq!((code, err.lines().count()), (2, 1), "{err}");
    let log: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let invocation = &run["invocations"][0];
    assert_eq!(
        (&invocation["executionSuccessful"], &invocation["exitCode"]),
        (&json!(false), &json!(2))
    );
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), 3, "{out}");
    let located = |result: &Value| {
        assert_eq!(result["level"], "error");
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        let place = &result["locations"][0]["physicalLocation"];
        assert!(place["region"]["startLine"].as_u64().unwrap() >= 1);
        assert!(place["region"]["startColumn"].as_u64().unwrap() >= 1);
        place["artifactLocation"]["uri"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let files: Vec<String> = results.iter().map(located).collect();
    let hostile = "x%25%2C%0A%3A%3Aset-output%20name%3Da%3A%3Ab.yaml";
    assert_eq!(files, ["a.yaml", "c%20d.yaml", hostile]);
    assert_eq!(results[0]["ruleId"], "FieldValueRequired");
    let region = &results[0]["locations"][0]["physicalLocation"]["region"];
    assert_eq!(*region, json!({"startLine": 4, "startColumn": 1}));
}

#[test]
fn names_and_values_are_no_commands_in_a_workflow() {
    let hostile = "::stop-commands::a.yaml";
    let value = BAD.replace("name: bad", "name: '##[error]x'");
    let folder = folder(&[(hostile, &value), ("##[group]b.yaml", "a: [\n")]);
    let all = |workflow: &str, output: &str| {
        let mut command = admit(&["-o", output, "-f", "##[group]b.yaml", hostile]);
        command.env("GITHUB_ACTIONS", workflow);
        said(command.current_dir(folder.path()).output().unwrap())
    };
    for output in ["text", "json", "sarif"] {
        let (code, out, err) = all("true", output);
        assert_eq!(code, 2, "{out}");
        assert!(err.starts_with("error: ## [group]b.yaml:"), "{err}");
        let is_command = |line: &str| line.contains("##[") || line.trim_start().starts_with("::");
        let mut lines = out.lines().chain(err.lines());
        assert!(!lines.any(is_command), "{out}{err}");
    }
    let (_, out, _) = all("true", "json");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["results"][1]["name"], "##[error]x");
    let (_, out, err) = all("", "text");
    assert!(
        out.contains("At \"##[error]x\"") && out.starts_with(hostile),
        "{out}"
    );
    assert!(err.starts_with("error: ##[group]b.yaml:"), "{err}");
}

#[test]
fn standard_input_is_a_source() {
    let stream = format!("{GOOD}---\n# nothing\n---\n{OTHER}---\n{BAD}");
    let (code, out, err) = with_input(&["-f", "-"], stream.as_bytes());
    assert_eq!((code, err.as_str()), (1, ""));
    assert_eq!(
        out,
        "-:14: document 3: At \"bad\": spec.command: Required value: command is required\n\
         -: note: passed over: Secret (1)\n\
         1 accepted, 1 refused, 1 passed over, 0 unreadable\n"
    );
}

#[test]
fn nothing_to_judge_is_an_error() {
    for input in ["", "---\n", "# a comment\n---\n---\n", "null\n"] {
        let (code, out, err) = with_input(&["-f", "-"], input.as_bytes());
        assert_eq!(code, 2, "{input:?}: {out}");
        assert_eq!(err, "error: no objects passed to admit\n", "{input:?}");
    }
    let (code, _, err) = run(&[]);
    assert_eq!(code, 2);
    assert!(err.contains("--filename <PATH>..."), "{err}");
    // A closed standard input is an empty one.
    let closed = Command::new("sh")
        .args([
            "-c",
            "exec \"$0\" admit -f - <&-",
            env!("CARGO_BIN_EXE_my-operator"),
        ])
        .output()
        .unwrap();
    assert_eq!(said(closed).0, 2);
}

#[test]
fn what_cannot_be_read_is_one_line_and_code_2() {
    let folder = folder(&[
        ("empty/readme.md", ""),
        ("bin.yaml", ""),
        ("pipes/x.yaml", GOOD),
    ]);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("bin.yaml"), b"a: 1\nb: \xff\n").unwrap();
    fs::write(at("nul.yaml"), b"a: 1\nb: \0\n").unwrap();
    fs::write(at("tab.yaml"), "a:\n\tb: c\n").unwrap();
    fs::write(
        at("template.yaml"),
        "kind: At\nmetadata:\n  name: {{ .Release.Name }}\n",
    )
    .unwrap();
    fs::write(at("twice.yaml"), "kind: At\nkind: At\n").unwrap();
    fs::write(at("deep.yaml"), "[".repeat(1 << 20)).unwrap();
    fs::write(at("cut.json"), "{\"kind\": \"At\",").unwrap();
    std::os::unix::fs::symlink("/nonexistent", at("broken.yaml")).unwrap();
    let made = Command::new("mkfifo")
        .arg(at("pipes/pipe.yaml"))
        .status()
        .unwrap();
    assert!(made.success());
    for (path, words) in [
        (at("missing.yaml"), "No such file"),
        (
            at("empty"),
            "recognized file extensions are .json .yaml .yml",
        ),
        (at("bin.yaml"), "not valid UTF-8, in line 2"),
        (
            at("nul.yaml"),
            "nul.yaml:2: document 1: control characters are not allowed",
        ),
        (at("tab.yaml"), "tab.yaml:2:"),
        (
            at("template.yaml"),
            "template.yaml:3:10: document 1: a list or an object cannot be a key (is this a template that must be rendered first?)",
        ),
        (
            at("twice.yaml"),
            "twice.yaml:2:1: document 1: key \"kind\" already set in map",
        ),
        (at("deep.yaml"), "recursion limit exceeded"),
        (at("cut.json"), "cut.json:1:"),
        (at("broken.yaml"), "No such file"),
        (at("pipes"), "not a regular file"),
        ("/dev/zero".to_owned(), "longer than 16 MiB"),
        (format!("{}/x", at("bin.yaml")), "Not a directory"),
    ] {
        let (code, _, err) = run(&["-f", &path]);
        assert_eq!(code, 2, "{path}: {err}");
        assert!(
            err.contains(words) && err.lines().count() == 1,
            "{path}: {err}"
        );
    }
}

#[test]
fn a_pipe_that_is_named_is_read() {
    let script = format!("exec \"$0\" admit -f <(printf '%s' '{GOOD}')");
    let output = Command::new("bash")
        .args(["-c", &script, env!("CARGO_BIN_EXE_my-operator")])
        .output()
        .unwrap();
    let (code, out, err) = said(output);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn a_closed_output_pipe_ends_it_quietly() {
    let many = format!("{BAD}---\n").repeat(1_500);
    let folder = folder(&[("many.yaml", &many)]);
    let path = folder.path().join("many.yaml");
    for output in ["text", "json", "github", "sarif"] {
        let mut command = admit(&["-f", path.to_str().unwrap(), "-o", output]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = [0; 10];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut first).unwrap();
        drop(stdout);
        let (code, _, err) = said(child.wait_with_output().unwrap());
        assert_eq!((code, err.as_str()), (1, ""), "{output}");
    }
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = admit(&["-f", path.to_str().unwrap()])
        .stdout(full)
        .output()
        .unwrap();
    let (code, _, err) = said(output);
    assert_eq!(code, 2);
    assert!(
        err.starts_with("error: cannot write the report: ") && err.lines().count() == 1,
        "{err}"
    );
}

#[test]
fn a_field_of_pods_that_came_later_is_accepted_where_that_is_asked_for() {
    let later = GOOD.replace("x}", "x, template: {spec: {fieldOfTheFuture: 1}}}");
    let (code, out, _) = with_input(&["-f", "-"], later.as_bytes());
    assert!(code == 1 && out.contains("fieldOfTheFuture"), "{out}");
    let (code, out, _) = with_input(&["-f", "-", "--skip-pod-schema"], later.as_bytes());
    assert_eq!(code, 0, "{out}");
}

#[test]
fn the_json_has_the_documented_shape() {
    let stream = format!("{GOOD}---\n{BAD}---\n{OTHER}---\na: [\n");
    let args = ["-f", "-", "-f", "/nonexistent.yaml", "-o", "json"];
    let (code, out, err) = with_input(&args, stream.as_bytes());
    assert_eq!((code, err.lines().count()), (2, 2), "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        report["summary"],
        json!({"accepted": 1, "refused": 1, "passedOver": 1, "notObjects": 0, "unreadable": 2})
    );
    let result = |i: usize| report["results"][i].clone();
    let mut bad = result(1);
    let faults = bad["faults"].take();
    assert_eq!(
        bad,
        json!({
            "file": "-", "document": 2, "item": null, "line": 6, "column": null,
            "apiVersion": "cnat.programming-kubernetes.info/v1alpha1", "kind": "At",
            "namespace": null, "name": "bad", "result": "refused", "error": null,
            "faults": null, "warnings": [],
        })
    );
    let fault = json!({"field": "spec.command", "line": 9, "column": 1, "reason": "FieldValueRequired", "message": "Required value: command is required"});
    assert_eq!(faults, json!([fault]));
    assert_eq!(result(0)["result"], "accepted");
    assert_eq!(result(2)["result"], "passedOver");
    assert_eq!(
        (&result(3)["result"], &result(3)["column"]),
        (&json!("unreadable"), &json!(4))
    );
    assert_eq!(
        (&result(4)["file"], &result(4)["document"]),
        (&json!("/nonexistent.yaml"), &Value::Null)
    );
    assert!(
        result(4)["error"]
            .as_str()
            .unwrap()
            .contains("No such file")
    );

    let (_, out, _) = with_input(&["-f", "-", "-o", "json", "--show-patch"], GOOD.as_bytes());
    let report: Value = serde_json::from_str(&out).unwrap();
    let image = json!({"op": "add", "path": "/spec/image", "value": "bash:5.3"});
    assert!(
        report["results"][0]["patch"]
            .as_array()
            .unwrap()
            .contains(&image),
        "{out}"
    );
    let (_, out, _) = with_input(&["-f", "-", "--show-patch"], GOOD.as_bytes());
    assert!(
        out.contains("-:1: document 1: At \"good\": default: add /spec/image \"bash:5.3\"\n"),
        "{out}"
    );
}

#[test]
fn what_kubectl_calls_a_list_is_judged() {
    let items: Vec<Value> = [GOOD, BAD]
        .iter()
        .map(|text| serde_saphyr::from_str(text).unwrap())
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let (code, out, _) = with_input(&["-f", "-"], list.as_bytes());
    assert_eq!(code, 1);
    assert!(
        out.contains("-:1: document 1, items[1]: At \"bad\": spec.command: "),
        "{out}"
    );
}

/// The blocks of the page: commands behind `$`, their next lines behind `>`, and what they print.
fn transcripts(page: &str) -> Vec<(String, String)> {
    let mut transcripts: Vec<(String, String)> = Vec::new();
    for block in code_blocks(page) {
        let mut inside = false;
        for line in block.lines {
            if let Some(command) = line.strip_prefix("$ ") {
                transcripts.push((command.to_owned(), String::new()));
                inside = true;
            } else if let (Some(more), Some((command, _))) =
                (line.strip_prefix("> "), transcripts.last_mut())
            {
                command.push('\n');
                command.push_str(more);
            } else if let (true, Some((_, output))) = (inside, transcripts.last_mut()) {
                output.push_str(line);
                output.push('\n');
            }
        }
    }
    transcripts
}

#[test]
fn the_page_shows_the_actual_output() {
    let page = fs::read_to_string(checkout().join("docs/admit.md")).unwrap();
    let transcripts = transcripts(&page);
    assert!(transcripts.len() >= 4, "{transcripts:?}");
    let binaries = PathBuf::from(env!("CARGO_BIN_EXE_my-operator"));
    let path = format!(
        "{}:{}",
        binaries.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    for (command, expected) in transcripts {
        let output = Command::new("bash")
            .args(["-c", &format!("exec 2>&1; {command}")])
            .env("PATH", &path)
            .current_dir(checkout())
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        assert_eq!(out, expected, "{command}");
    }
}
