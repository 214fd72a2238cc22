//! krew's manifests of the plugins: what krew demands of them, which `make release-dry-run` has krew itself check.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use my_operator_kubectl::PROGRAMS;
use serde_json::{Value, json};

/// Writes the manifests of two archives into a folder.
fn write(folder: &Path) -> Output {
    let archive = |name: &str| format!("{}", folder.join(name).display());
    Command::new(env!("CARGO_BIN_EXE_my-operator-packaging"))
        .args(["krew", "--downloads=https://example.com/v1/"])
        .args(["--homepage=https://example.com", "--out"])
        .arg(folder)
        .arg(format!("linux/amd64={}", archive("a.tar.gz")))
        .arg(format!("darwin/arm64={}", archive("b.tar.gz")))
        .output()
        .unwrap()
}

#[test]
fn every_command_has_a_manifest_with_the_archives_and_their_checksums() {
    let folder = tempfile::tempdir().unwrap();
    // Their checksums are those of the examples in RFC 6234.
    fs::write(folder.path().join("a.tar.gz"), "abc").unwrap();
    fs::write(folder.path().join("b.tar.gz"), "").unwrap();
    let run = write(folder.path());
    assert!(run.status.success(), "{run:?}");
    for program in PROGRAMS {
        let name = program.name.strip_prefix("kubectl-").unwrap();
        let path = folder.path().join(format!("krew-{name}.yaml"));
        let manifest: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(
            manifest["apiVersion"],
            "krew.googlecontainertools.github.com/v1alpha2"
        );
        assert_eq!(manifest["kind"], "Plugin");
        // A dash would become an underscore in the name of krew's link, and the program would not know it.
        assert_eq!(manifest["metadata"]["name"], name);
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase()), "{name}");
        let spec = &manifest["spec"];
        assert_eq!(
            spec["version"],
            concat!("v", env!("CARGO_PKG_VERSION")),
            "{name}"
        );
        let short = spec["shortDescription"].as_str().unwrap();
        assert!(!short.is_empty() && short.len() <= 50, "{short}");
        assert!(!short.ends_with('.'), "{short}");
        let description = spec["description"].as_str().unwrap();
        assert!(
            description.contains(&format!("kubectl {name} --help")),
            "{description}"
        );
        let files = json!([{"from": "kubectl-at", "to": "."}, {"from": "LICENSE", "to": "."}]);
        let platforms = json!([
            {
                "selector": {"matchLabels": {"os": "linux", "arch": "amd64"}},
                "uri": "https://example.com/v1/a.tar.gz",
                "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
                "files": files,
                "bin": "kubectl-at",
            },
            {
                "selector": {"matchLabels": {"os": "darwin", "arch": "arm64"}},
                "uri": "https://example.com/v1/b.tar.gz",
                "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                "files": files,
                "bin": "kubectl-at",
            },
        ]);
        assert_eq!(spec["platforms"], platforms, "{name}");
    }
}

#[test]
fn an_archive_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = write(folder.path());
    let message = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1), "{message}");
    assert!(message.contains("a.tar.gz"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
