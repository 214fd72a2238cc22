//! The images of the tests, without a registry: the operator's own as its Dockerfile says, and
//! stand-ins from Debian's static programs for what samples and Ats name.

use std::path::{Path, PathBuf};

use my_operator_cluster::Image;

use crate::IMAGE;
use crate::harness::checkout;

/// What the image of a later release is called.
pub(crate) const NEXT: &str = "my-operator:e2e-next";

/// The static binary: what the Dockerfile's build stage makes, or that of `OPERATOR`.
pub(crate) fn operator() -> PathBuf {
    let default = || checkout().join("target/release/my-operator");
    std::env::var_os("OPERATOR").map_or_else(default, PathBuf::from)
}

/// All images.
pub(crate) fn all() -> Vec<Image> {
    vec![
        own(IMAGE, "e2e"),
        own(NEXT, "e2e-next"),
        bash(),
        web("nginx:stable-alpine3.17", 80),
        web("nginxinc/nginx-unprivileged:1.29-alpine", 8080).user("101"),
    ]
}

/// The operator's image.
pub(crate) fn own(reference: &str, version: &str) -> Image {
    let text = std::fs::read_to_string(checkout().join("Dockerfile")).unwrap();
    let built = [("/my-operator", operator())];
    Image::from_dockerfile(
        reference,
        &text,
        checkout(),
        &built,
        &[("VERSION", version)],
    )
    .unwrap()
}

/// The image of an At whose template names none.
fn bash() -> Image {
    busybox("bash:5.3")
        .file("/bin/bash", "/bin/bash-static", 0o755)
        .command(&["bash"])
}

/// A web server in the place of nginx.
fn web(reference: &str, port: u16) -> Image {
    // As the first process it would be deaf to SIGTERM.
    let serve = format!("trap exit TERM; httpd -f -p {port} -h /srv & wait");
    busybox(reference)
        .text("/srv/index.html", "served\n")
        .command(&["sh", "-c", &serve])
}

fn busybox(reference: &str) -> Image {
    let places = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new);
    let program = places.into_iter().find(|path| path.is_file());
    let mut image = Image::new(reference)
        .file("/bin/busybox", program.expect("busybox-static"), 0o755)
        .directory("/tmp", 0o1777);
    for name in [
        "cat", "date", "echo", "env", "grep", "head", "httpd", "id", "ls", "sh", "sleep", "touch",
        "tr", "wc",
    ] {
        image = image.link(&format!("/bin/{name}"), "busybox");
    }
    image
}
