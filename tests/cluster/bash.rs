//! The command text of an At, as a kubelet would hand it to bash.

use std::process::Command;

use crate::harness::{run, wait_for};
use crate::kubectl;

/// Kubernetes' expansion of `$(NAME)` in commands and args when no variable is defined
/// (k8s.io/kubernetes/third_party/forked/golang/expansion): `$$` is an escaped `$`, a reference to
/// an unknown variable stays as it is.
fn expand(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        out.push('$');
        if let Some(after) = rest.strip_prefix('$') {
            rest = after;
        } else if let Some(end) = rest.strip_prefix('(').and_then(|r| r.find(')')) {
            out.push_str(&rest[..end + 2]);
            rest = &rest[end + 2..];
        }
    }
    out + rest
}

#[test]
fn the_expansion_is_kubernetes_own() {
    for (text, expanded) in [
        ("a$$b", "a$b"),
        ("$(X)", "$(X)"),
        ("$$(X)", "$(X)"),
        ("$$$$", "$$"),
        ("$X $", "$X $"),
        ("$(X", "$(X"),
    ] {
        assert_eq!(expand(text), expanded, "{text}");
    }
}

#[tokio::test]
async fn a_command_reaches_bash_unchanged() {
    let kubectl = kubectl("bash").await;
    let commands = [
        "echo YAY",
        "echo $$ | grep -c '^[0-9]*$'",
        "echo '$(HOME)' \"$(echo inner)\" '$$(HOME)' '$$$'",
        "X=5; echo $X ${X} \"$X\" '$X' | tr 5 6",
        "printf '%s\\n' \"a  b\" 'c\"d' \\$e",
        "for i in 1 2 3; do\n  echo \"line $i\"\ndone\n",
        "echo \u{e9}\u{4e2d} && false || echo done",
    ];
    for (number, command) in commands.iter().enumerate() {
        let name = format!("c{number}");
        let object = serde_json::json!({
            "apiVersion": "cnat.programming-kubernetes.info/v1alpha1",
            "kind": "At",
            "metadata": { "name": name },
            "spec": { "schedule": "now", "command": command },
        });
        kubectl.apply(&object.to_string()).good();
        let args = wait_for("the pod", || {
            let said = kubectl.run(&format!("get pod {name}-pod -o json"));
            let pod: serde_json::Value = serde_json::from_str(&said.out).ok()?;
            let container = &pod["spec"]["containers"][0];
            let texts = ["command", "args"]
                .iter()
                .flat_map(|list| container[*list].as_array().cloned().unwrap_or_default());
            Some(
                texts
                    .map(|t| t.as_str().unwrap().to_owned())
                    .collect::<Vec<_>>(),
            )
        })
        .await;
        let args: Vec<String> = args.iter().map(|arg| expand(arg)).collect();
        assert_eq!(args, ["bash", "-c", command]);
        let as_in_pod = run(Command::new(&args[0]).args(&args[1..]), "");
        let as_typed = run(Command::new("bash").args(["-c", command]), "");
        assert_eq!(as_in_pod.good(), as_typed.good(), "{command}");
    }
}
