//! What can be said of the image without a container engine: the Dockerfile and its context.

use crate::checkout::{checkout, text, toolchain};

/// The instructions of a Dockerfile: comments gone, continued lines joined, blanks single.
fn instructions(file: &str) -> Vec<String> {
    let lines = text(file).replace("\\\n", " ");
    let lines = lines.lines().filter(|line| !line.starts_with('#'));
    let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    words.filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_image_is_built_with_the_toolchain_of_the_checkout() {
    let channel = toolchain();
    let file = instructions("Dockerfile");
    // The compiler runs on the builder's architecture, whatever the image's is.
    let image = format!(
        "FROM --platform=$BUILDPLATFORM ${{BASE_REGISTRY}}/library/rust:{channel}-slim-bookworm@sha256:"
    );
    // A mirror may serve it: the digest says what it is.
    assert_eq!(file[0], "ARG BASE_REGISTRY=docker.io");
    assert!(file[1].starts_with(&image), "{}", file[1]);
}

#[test]
fn base_images_are_pinned_by_digest() {
    // A tag is what its owner, or the registry, makes it point to today.
    for line in instructions("Dockerfile") {
        let Some(image) = line.strip_prefix("FROM ") else {
            continue;
        };
        let mut words = image.split(' ').filter(|word| !word.starts_with("--"));
        let image = words.next().unwrap();
        let digest = image.split_once("@sha256:").map(|(_, digest)| digest);
        let pinned = digest.is_some_and(|digest| {
            digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit())
        });
        assert!(pinned || image == "scratch", "{line}");
    }
}

#[test]
fn the_image_holds_the_program_and_its_licence_and_runs_as_65532() {
    let file = instructions("Dockerfile");
    let last = file.iter().rposition(|line| line.starts_with("FROM "));
    let stage = &file[last.unwrap()..];
    assert_eq!(stage[0], "FROM scratch", "no shell, no packages");
    let copies: Vec<_> = stage
        .iter()
        .filter(|line| line.starts_with("COPY"))
        .collect();
    assert_eq!(
        copies,
        [
            "COPY LICENSE /LICENSE",
            "COPY --from=build /my-operator /my-operator"
        ]
    );
    assert!(stage.contains(&"USER 65532:65532".to_owned()), "{stage:?}");
    assert!(
        stage.contains(&r#"ENTRYPOINT ["/my-operator"]"#.to_owned()),
        "{stage:?}"
    );
    let labels = stage.iter().find(|line| line.starts_with("LABEL "));
    for name in ["title", "description", "licenses", "source", "version"] {
        let label = format!("org.opencontainers.image.{name}=");
        assert!(labels.unwrap().contains(&label), "{name}");
    }
    // An instruction that runs something would need a shell.
    for line in stage {
        let word = line.split(' ').next().unwrap();
        assert!(
            ["FROM", "ARG", "LABEL", "COPY", "USER", "ENTRYPOINT"].contains(&word),
            "{line}"
        );
    }
}

/// The folders that a member of the workspace stands for. Not every builder of images knows wildcards in .dockerignore.
fn folders(member: &str) -> Vec<String> {
    let Some(parent) = member.strip_suffix("/*") else {
        return vec![member.to_owned()];
    };
    let entries = std::fs::read_dir(checkout().join(parent)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.map(|name| format!("{parent}/{name}")).collect()
}

#[test]
fn the_build_sees_every_member_of_the_workspace_and_no_more() {
    let ignore = text(".dockerignore");
    let mut lines = ignore.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.next(), Some("*"), "all is left out but for a list");
    let seen: Vec<&str> = lines.map(|line| line.strip_prefix('!').unwrap()).collect();
    for path in &seen {
        let there = checkout().join(path).exists();
        assert!(there, "{path} is not there");
    }
    let manifest = text("Cargo.toml");
    let members = manifest
        .lines()
        .find_map(|line| line.strip_prefix("members = "));
    let members: Vec<String> = serde_json::from_str(members.unwrap()).unwrap();
    for member in members.iter().filter(|member| *member != ".") {
        for folder in folders(member) {
            for needed in ["Cargo.toml", "src"] {
                let path = format!("{folder}/{needed}");
                assert!(seen.contains(&path.as_str()), "{path}");
            }
        }
    }
    for needed in ["Cargo.toml", "Cargo.lock", "src", "LICENSE"] {
        assert!(seen.contains(&needed), "{needed}");
    }
}
