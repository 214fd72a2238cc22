//! The images of the tests, without a registry: the operator's own as its Dockerfile says, and
//! stand-ins for what samples and Ats name. Memcached alone is itself.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use my_operator_cluster::Image;

use crate::IMAGE;
use crate::harness::{checkout, operator_program, run};

/// What the image of a later release is called.
pub(crate) const NEXT: &str = "my-operator:e2e-next";

/// What the image of a Memcached is called.
pub(crate) const MEMCACHED: &str = "memcached:debian";

/// What samples and Ats name, and what CronTabs of tests do.
const STAND_INS: [&str; 4] = [
    "bash:5.3",
    BUSYBOX,
    "nginx:stable-alpine3.17",
    "nginxinc/nginx-unprivileged:1.29-alpine",
];

/// The image of a CronTab, which has no default.
pub(crate) const BUSYBOX: &str = "busybox:1.37";

/// The path of the static release binary, which `make soak` builds and passes in `OPERATOR`.
pub(crate) fn release() -> Option<PathBuf> {
    std::env::var_os("OPERATOR").map(PathBuf::from)
}

/// All images.
pub(crate) fn all() -> Vec<Image> {
    let own = [own(IMAGE, "e2e"), own(NEXT, "e2e-next")];
    own.into_iter().chain(stand_ins()).collect()
}

/// Those that are not the operator's own.
pub(crate) fn stand_ins() -> [Image; STAND_INS.len()] {
    STAND_INS.map(|name| Image::stand_in(name).unwrap())
}

/// The image of a Memcached: Debian's program with its libraries. And the program's version.
///
/// # Panics
///
/// If the machine lacks it or one of the libraries, with a line that says how to get them.
pub(crate) async fn memcached() -> (Image, String) {
    const WAY: &str = "memcached is of the Debian package memcached; hack/ci-tools takes it out of there, and installs its libraries";
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join("memcached"));
    let program = places.find(|path| path.is_file());
    let program = program.unwrap_or_else(|| panic!("no memcached on PATH: {WAY}"));
    let image = Image::new(MEMCACHED).program("/usr/bin/memcached", &program);
    let image = image.unwrap_or_else(|error| panic!("{error}: {WAY}"));
    let said = run(Command::new(&program).arg("-V"), "").await.good();
    let version = said.trim().trim_start_matches("memcached ");
    (image, version.to_owned())
}

/// The development binary without its debug information, which is most of it: an image is read, hashed and unpacked many
/// times.
fn stripped() -> PathBuf {
    static STRIPPED: LazyLock<PathBuf> = LazyLock::new(|| {
        let program = operator_program();
        let stripped = program.with_extension("stripped");
        let mut strip = Command::new("strip");
        strip.arg("--strip-debug").arg("-o").arg(&stripped);
        let status = strip.arg(program).status();
        let status = status.expect("strip, of the Debian package binutils, can be run");
        assert!(status.success());
        stripped
    });
    STRIPPED.clone()
}

/// The operator's image as its Dockerfile describes it. It contains the release binary if there is one, and otherwise
/// the development binary with the shared libraries that it needs.
pub(crate) fn own(reference: &str, version: &str) -> Image {
    let text = std::fs::read_to_string(checkout().join("Dockerfile")).unwrap();
    let binary = release().unwrap_or_else(stripped);
    let built = [("/my-operator", binary.clone())];
    let arguments = [("VERSION", version)];
    let image = Image::from_dockerfile(reference, &text, checkout(), &built, &arguments);
    image.unwrap().program("/my-operator", binary).unwrap()
}
