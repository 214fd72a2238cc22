//! How many kubectl processes a test run starts. `make test` prints the number: reads belong in [`crate::Kubectl::field`]
//! and its like, and without the number they would creep back.

use std::fs::OpenOptions;
use std::io::Write as _;

/// One byte for each call, in the file that `hack/test` names. Appending one byte is atomic, also between processes.
pub(crate) fn count() {
    let Some(path) = std::env::var_os("KUBECTL_CALLS") else {
        return;
    };
    let file = OpenOptions::new().append(true).create(true).open(path);
    let written = file.and_then(|mut file| file.write_all(b"."));
    written.expect("cannot count this call of kubectl");
}
