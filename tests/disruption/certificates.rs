//! Certificates that change while the API server and others call: no call may fail for it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use chrono::{TimeDelta, Utc};
use my_operator::certs::authority::{Authority, Leaf};

use crate::harness::{self, Operator, http_get, operator_kubeconfig, wait_for};
use crate::load::{Load, call, trust};
use crate::{cluster, webhooks};

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

#[tokio::test]
async fn files_that_change_under_load_fail_no_call() {
    let cluster = cluster().await;
    let _webhooks = webhooks().await;
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
    // Nothing there, and something that cannot be read: waited out, and said in one line each.
    let unready = |why: &'static str| {
        let probes = operator.probes.clone();
        wait_for(why, move || {
            let (status, page) = http_get(&probes, "/readyz")?;
            (status == 503 && page.contains(why)).then_some(())
        })
    };
    unready("tls.crt: No such file or directory").await;
    let in_the_way = folder.path().join("tls.crt");
    std::fs::create_dir(&in_the_way).unwrap();
    unready("tls.crt: Is a directory").await;
    // Before the folder goes: without it the first of them would be true again, and be told again.
    let log = operator.log();
    std::fs::remove_dir(&in_the_way).unwrap();
    // Of the certificates, that is: others have troubles of their own, as when the API server has
    // not made ready what it stores a new kind in.
    let told = log
        .lines()
        .filter(|line| line.contains("webhook certificates"));
    assert_eq!(told.count(), 2, "{log}");
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
    wait_for("the first certificate to be served", || {
        (seen.lock().unwrap().len() == 1).then_some(())
    })
    .await;
    let refusals = || {
        operator
            .log()
            .matches("does not belong to the certificate")
            .count()
    };
    for round in 1..=3 {
        // A certificate and a key that are no pair: the last good pair is kept.
        let before = refusals();
        put(2 * round, &leaf(), &leaf());
        wait_for("the wrong pair to be refused", || {
            (refusals() > before).then_some(())
        })
        .await;
        assert_eq!(seen.lock().unwrap().len(), round);
        let next = leaf();
        put(2 * round + 1, &next, &next);
        wait_for("the new certificate to be served", || {
            let seen = seen.lock().unwrap();
            seen.contains(&*next.chain[0].to_vec()).then_some(())
        })
        .await;
    }
    let calls = load.end_well().await;
    assert_eq!(seen.lock().unwrap().len(), 4);
    assert!(calls > 100, "{calls} calls only");
}
