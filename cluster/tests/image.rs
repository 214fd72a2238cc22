//! The image that `make e2e` tests is the one that the Dockerfile describes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

use my_operator_cluster::Image;
use serde_json::{Value, json};

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What `tar` makes of an archive: a line for each entry.
fn listing(archive: &Path) -> Vec<String> {
    let output = Command::new("tar").arg("-tvf").arg(archive).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines();
    let line = |line: &str| {
        // Mode, owner and the path; not size and time.
        let words: Vec<_> = line.split_whitespace().collect();
        format!("{} {} {}", words[0], words[1], words[5..].join(" "))
    };
    lines.map(line).collect()
}

/// The archive's manifest, the image's configuration and the files of its layer.
fn unpack(image: &Image) -> (Value, Value, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("image.tar");
    image.write(&archive).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&archive).arg("-C").arg(directory.path());
    assert!(tar.status().unwrap().success());
    let read = |name: &str| {
        let text = std::fs::read_to_string(directory.path().join(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let layer = listing(&directory.path().join("layer.tar"));
    (read("manifest.json"), read("config.json"), layer)
}

#[test]
fn the_tested_image_is_that_of_the_dockerfiles_last_stage() {
    // Any program will do for its place in the image; text is linked to nothing.
    let program = tempfile::NamedTempFile::new().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(program.path(), mode).unwrap();
    let text = std::fs::read_to_string(checkout().join("Dockerfile")).unwrap();
    let image = Image::from_dockerfile(
        "my-operator:e2e",
        &text,
        &checkout(),
        &[("/my-operator", program.path().to_owned())],
        &[("VERSION", "1.2.3"), ("SOURCE", "https://example.org/x")],
    );
    let (manifest, config, layer) = unpack(&image.unwrap());
    assert_eq!(
        manifest[0]["RepoTags"],
        json!(["docker.io/library/my-operator:e2e"])
    );
    assert_eq!(
        layer,
        ["-rw-r--r-- 0/0 LICENSE", "-rwxr-xr-x 0/0 my-operator",]
    );
    let config = &config["config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["Entrypoint"], json!(["/my-operator"]));
    assert_eq!(config["Cmd"], json!([]));
    let labels = config["Labels"].as_object().unwrap();
    // Every label of the file, and no other.
    let written = text.matches("org.opencontainers.image.").count();
    assert_eq!(labels.len(), written, "{labels:?}");
    assert_eq!(labels["org.opencontainers.image.version"], "1.2.3");
    assert_eq!(labels["org.opencontainers.image.licenses"], "Apache-2.0");
    assert_eq!(
        labels["org.opencontainers.image.source"],
        "https://example.org/x"
    );
    // Every file that the last stage copies.
    let stage = text.rsplit_once("FROM scratch").unwrap().1;
    let copies = stage
        .lines()
        .filter(|line| line.starts_with("COPY "))
        .count();
    assert_eq!(layer.len(), copies);
}

#[test]
fn the_command_line_writes_the_same_archive() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::write(&program, "a program").unwrap();
    let file = checkout().join("Dockerfile");
    let text = std::fs::read_to_string(&file).unwrap();
    let built = [("/my-operator", program.clone())];
    let build_args = [("VERSION", "1.2.3")];
    let image =
        Image::from_dockerfile("x.example/y:1", &text, &checkout(), &built, &build_args).unwrap();
    let image = image.architecture("s390x");
    let (_, config, _) = unpack(&image);
    assert_eq!(config["architecture"], "s390x");
    let archive = folder.path().join("library.tar");
    image.write(&archive).unwrap();
    let output = folder.path().join("output.tar");
    let mut command = Command::new(env!("CARGO_BIN_EXE_my-operator-cluster"));
    command.arg("image").arg("--file").arg(&file);
    command
        .arg("--built")
        .arg(format!("/my-operator={}", program.display()))
        .args(["--build-arg", "VERSION=1.2.3", "--architecture", "s390x"])
        .args(["--tag", "x.example/y:1", "--output"])
        .arg(&output);
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(
        std::fs::read(archive).unwrap(),
        std::fs::read(output).unwrap()
    );
}

#[test]
fn a_dockerfile_that_is_not_understood_makes_no_image() {
    let make = |stage: &str| {
        let text = format!("FROM rust AS build\nRUN make\n{stage}\n");
        let made = Image::from_dockerfile("x:1", &text, &checkout(), &[], &[]);
        made.map(|_| ()).unwrap_err().to_string()
    };
    for (stage, reason) in [
        ("FROM debian", "not FROM scratch"),
        ("FROM scratch\nRUN id", "RUN id"),
        ("FROM scratch\nCOPY --chown=1:1 LICENSE /", "--chown"),
        (
            "FROM scratch\nCOPY --from=build /x /x",
            "no path was given for /x",
        ),
        ("FROM scratch\nENTRYPOINT my-operator", "would need a shell"),
        ("FROM scratch\nUSER $NAME", "a variable without a value"),
        ("FROM scratch\nLABEL a=b", "LABEL a=b"),
        ("FROM scratch\nCOPY no-such-file /x", "no-such-file"),
    ] {
        let error = make(stage);
        assert!(error.contains(reason), "{stage}: {error}");
    }
}

#[test]
fn a_program_that_wants_libraries_is_kept_out_of_an_image() {
    let this = std::env::current_exe().unwrap();
    let image = Image::new("x:1").file("/bin/x", this, 0o755);
    let archive = tempfile::NamedTempFile::new().unwrap();
    let error = image.write(archive.path()).unwrap_err().to_string();
    assert!(error.contains("not linked statically"), "{error}");
}

#[test]
fn a_program_comes_with_its_libraries() {
    let this = std::env::current_exe().unwrap();
    let image = Image::new("x:1")
        .program("/bin/x", &this)
        .and_then(|image| image.program("/bin/y", &this))
        .unwrap();
    let (_, _, layer) = unpack(&image);
    let files: Vec<_> = layer.iter().filter(|line| !line.ends_with('/')).collect();
    for name in ["/ld-linux", "/libc.so.", " bin/x", " bin/y"] {
        let found = files.iter().filter(|line| line.contains(name)).count();
        assert_eq!(found, 1, "{name}: {files:#?}");
    }
    assert!(
        files.iter().all(|line| line.starts_with("-rwxr-xr-x 0/0 ")),
        "{files:#?}"
    );
}

#[test]
fn directories_links_and_texts_are_in_the_archive_as_given() {
    let image = Image::new("registry.example/a/b:1")
        .text("/srv/www/index.html", "hello\n")
        .directory("/tmp", 0o1777)
        .link("/bin/sh", "busybox")
        .command(&["sh"]);
    let (manifest, config, layer) = unpack(&image);
    assert_eq!(manifest[0]["RepoTags"], json!(["registry.example/a/b:1"]));
    assert_eq!(config["config"]["Cmd"], json!(["sh"]));
    assert_eq!(
        layer,
        [
            "drwxr-xr-x 0/0 srv/",
            "drwxr-xr-x 0/0 srv/www/",
            "-rw-r--r-- 0/0 srv/www/index.html",
            "drwxrwxrwt 0/0 tmp/",
            "drwxr-xr-x 0/0 bin/",
            "lrwxrwxrwx 0/0 bin/sh -> busybox",
        ]
    );
}

#[test]
fn the_tested_program_is_built_as_the_dockerfile_builds_it() {
    let read = |name: &str| std::fs::read_to_string(checkout().join(name)).unwrap();
    // `make soak` runs the tests on a real node with what this script builds.
    for file in ["Dockerfile", "hack/make/longer.mk"] {
        assert!(read(file).contains("hack/release"), "{file}");
    }
}
