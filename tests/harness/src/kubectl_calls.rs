//! How many kubectl processes a test run starts. `make test` prints the number: reads belong in [`crate::Kubectl::field`]
//! and its like, and without the number they would creep back.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use my_operator_cluster::Cluster;

/// One byte for each call, in the file that `hack/test` names. Appending one byte is atomic, also between processes.
pub(crate) fn count() {
    let Some(path) = std::env::var_os("KUBECTL_CALLS") else {
        return;
    };
    let file = OpenOptions::new().append(true).create(true).open(path);
    let written = file.and_then(|mut file| file.write_all(b"."));
    written.expect("cannot count this call of kubectl");
}

/// A program that counts, and then is the kubectl of that cluster: for scripts, which start it themselves.
pub fn counting_kubectl(cluster: &Cluster) -> PathBuf {
    let script = cluster.directory().join("counting-kubectl");
    if !script.exists() {
        let program = cluster.program("kubectl");
        let text = format!(
            "#!/bin/sh\n[ -z \"$KUBECTL_CALLS\" ] || printf . >>\"$KUBECTL_CALLS\"\nexec '{}' \"$@\"\n",
            program.display()
        );
        // Under another name first: another test may be about to run it.
        let draft = tempfile::NamedTempFile::new_in(cluster.directory()).unwrap();
        std::fs::write(draft.path(), text).unwrap();
        std::fs::set_permissions(draft.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        draft.into_temp_path().persist(&script).unwrap();
    }
    script
}
