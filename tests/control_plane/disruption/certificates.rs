//! Certificates that change while the API server and other clients call: no call may fail because of it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use chrono::{TimeDelta, Utc};
use my_operator_rounds::lengths;
use webhook_certs::authority::{Authority, Leaf};

use crate::disruption::load::Load;
use crate::disruption::webhook_plane;
use crate::harness::peer::{call, trust};
use crate::harness::{self, Operator, http_get, operator_kubeconfig, wait_for};

/// Puts files into the folder as the kubelet does for a Secret: a new folder beside the old, and a
/// link to it that is swapped in one step.
fn swap(folder: &Path, round: usize, files: [(&str, &str); 3]) {
    let data = folder.join(format!("..{round}"));
    std::fs::create_dir(&data).unwrap();
    for (name, text) in files {
        std::fs::write(data.join(name), text).unwrap();
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(format!("..data/{name}"), link).unwrap();
        }
    }
    let fresh = folder.join("..data_tmp");
    std::os::unix::fs::symlink(format!("..{round}"), &fresh).unwrap();
    std::fs::rename(fresh, folder.join("..data")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_change_under_load_fail_no_call() {
    let plane = webhook_plane().await;
    let cluster = *plane;
    let namespace = cluster.namespace("files").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let now = Utc::now();
    let authority = Authority::generate(now, TimeDelta::days(1)).unwrap();
    let leaf = || -> Leaf {
        let hosts = ["127.0.0.1".to_owned()];
        authority.issue(&hosts, now, TimeDelta::hours(1)).unwrap()
    };
    let put = |round: usize, certificate: &Leaf, key: &Leaf| {
        let files = [
            ("ca.crt", &*authority.certificate_pem()),
            ("tls.crt", &*certificate.certificate_pem()),
            ("tls.key", &*key.key_pem()),
        ];
        swap(folder.path(), round, files);
    };
    let path = folder.path().display().to_string();
    let extra = [
        "--webhook-cert-path",
        &path,
        "--namespace",
        &namespace,
        "--log-level=warn",
    ];
    let kubeconfig = operator_kubeconfig(cluster).await;
    let operator = Operator::spawn(cluster, "files", &kubeconfig, &extra);
    // A missing file, and one that cannot be read: the operator waits, and logs one line for each.
    let unready = |why: &'static str| {
        let probes = operator.probes.clone();
        wait_for(why, async move || {
            let (status, page) = http_get(&probes, "/readyz")?;
            (status == 503 && page.contains(why)).then_some(())
        })
    };
    unready("tls.crt: No such file or directory").await;
    let in_the_way = folder.path().join("tls.crt");
    std::fs::create_dir(&in_the_way).unwrap();
    unready("tls.crt: Is a directory").await;
    // Before the folder is removed: without it the first message would be true again, and be logged again.
    let log = operator.log();
    std::fs::remove_dir(&in_the_way).unwrap();
    // Only those about the certificates: the log has other warnings, as when the API server is not yet ready to
    // store a new kind.
    let logged = log
        .lines()
        .filter(|line| line.contains("webhook certificates"));
    assert_eq!(logged.count(), 2, "{log}");
    let first = leaf();
    put(0, &first, &first);
    operator.until_ready().await;

    let mut load = Load::start(&harness::client(cluster).await, &namespace, 2);
    let seen: Arc<Mutex<HashSet<Vec<u8>>>> = Arc::default();
    for _ in 0..2 {
        let (webhook, tls) = (
            operator.webhook.clone(),
            trust(authority.certificate_pem().as_bytes()),
        );
        let seen = seen.clone();
        load.repeat(move |_| {
            let (webhook, tls, seen) = (webhook.clone(), tls.clone(), seen.clone());
            async move {
                let presented = call(&webhook, tls).await?;
                seen.lock().unwrap().insert(presented);
                Ok(())
            }
        });
    }
    wait_for("the first certificate to be served", async || {
        (seen.lock().unwrap().len() == 1).then_some(())
    })
    .await;
    let refusals = || {
        operator
            .log()
            .matches("does not belong to the certificate")
            .count()
    };
    let rounds = lengths::replaced_files();
    for round in 1..=rounds {
        // A certificate and a key that are no pair: the last good pair is kept.
        let before = refusals();
        put(2 * round, &leaf(), &leaf());
        wait_for("the wrong pair to be refused", async || {
            (refusals() > before).then_some(())
        })
        .await;
        assert_eq!(seen.lock().unwrap().len(), round);
        let next = leaf();
        put(2 * round + 1, &next, &next);
        wait_for("the new certificate to be served", async || {
            let seen = seen.lock().unwrap();
            seen.contains(&*next.chain[0].to_vec()).then_some(())
        })
        .await;
    }
    let calls = load.end_well().await;
    assert_eq!(seen.lock().unwrap().len(), 1 + rounds);
    assert!(calls > 100, "{calls} calls only");
}
