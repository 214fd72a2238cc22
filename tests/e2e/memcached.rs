//! Servers that really serve (part of the test in `sample_kinds.rs`).

use crate::harness::{Kubectl, wait_for};
use crate::{images, kubectl, ready_pods};

/// What a client asks: whom it speaks to, and how much memory there is for items.
const QUESTION: &str = "version\r\nstats settings\r\nquit\r\n";

/// Waits until a condition of the Memcached is as given.
async fn until(kubectl: &Kubectl, condition: &str) {
    let said = kubectl
        .run(&format!(
            "wait --for=condition={condition} --timeout=90s memcached/cache"
        ))
        .await;
    if !said.ok {
        let story = kubectl
            .run("get memcached,deployment,pods,events -o wide")
            .await;
        panic!("{}{}", said.err, story.out);
    }
}

/// The ready pods must be as many, be those that the status names, and answer from their addresses.
/// `first` is their first line; `memory` is in MiB.
async fn all_answer(kubectl: &Kubectl, client: &Kubectl, size: usize, first: &str, memory: u64) {
    let mut pods = ready_pods(kubectl, "app=memcached,memcached_cr=cache").await;
    pods.sort();
    assert_eq!(pods.len(), size, "{pods:?}");
    let nodes = serde_json::to_string(&pods).unwrap();
    kubectl
        .until_field("memcached/cache", "{.status.nodes}", &nodes)
        .await;
    for pod in pods {
        let address = kubectl
            .field(&format!("pod/{pod}"), "{.status.podIP}")
            .await;
        let ask = format!("exec --stdin client -- busybox nc -w 10 {address} 11211");
        // Without a probe a pod is ready before the program in it listens.
        let answer = wait_for(&format!("{pod} to answer"), async || {
            let said = client.with(&ask, QUESTION).await;
            said.ok.then_some(said.out)
        })
        .await;
        let mut lines = answer.lines();
        assert_eq!(lines.next(), Some(first));
        let bytes = lines.find_map(|line| line.strip_prefix("STAT maxbytes "));
        assert_eq!(bytes, Some((memory << 20).to_string().as_str()));
        println!("{pod} at {address}:11211: {first}, {memory} MiB");
    }
}

/// The pods of a Memcached answer on its port, as a server of that version.
pub(crate) async fn answers(version: &str) {
    let first = format!("VERSION {version}");
    let (kubectl, client) = (
        kubectl("memcached").await,
        kubectl("memcached-client").await,
    );
    let restricted = format!(
        "label namespace {} pod-security.kubernetes.io/enforce=restricted",
        kubectl.namespace
    );
    kubectl.run(&restricted).await.good();
    client
        .run("run client --image=bash:5.3 --image-pull-policy=IfNotPresent -- sleep infinity")
        .await
        .good();

    let cache = format!(
        "
apiVersion: cache.example.com/v1alpha1
kind: Memcached
metadata: {{name: cache}}
spec: {{size: 2, image: {}}}
",
        images::MEMCACHED
    );
    kubectl.until_applied(&cache).await;
    until(&kubectl, "Available").await;
    until(&kubectl, "Progressing=False").await;
    client
        .run("wait --for=condition=Ready --timeout=90s pod/client")
        .await
        .good();
    all_answer(&kubectl, &client, 2, &first, 64).await;

    kubectl
        .run("scale memcached/cache --replicas=3")
        .await
        .good();
    until(&kubectl, "Progressing=False").await;
    all_answer(&kubectl, &client, 3, &first, 64).await;

    // Other pods in the place of all.
    let patch = r#"patch memcached/cache --type=merge --patch {"spec":{"memory":48}}"#;
    kubectl.run(patch).await.good();
    until(&kubectl, "Progressing=False").await;
    all_answer(&kubectl, &client, 3, &first, 48).await;
    println!("{}", kubectl.run("get memcached,pods -o wide").await.good());

    client.run("delete pod/client --now").await.good();
    kubectl.run("delete memcached/cache").await.good();
    kubectl.until_gone("pods").await;
}
