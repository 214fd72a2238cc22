//! A test that is killed leaves nothing on the machine.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{Killed, operator_program, try_wait, wait_for};
use crate::ip_families;

/// Mounts, interfaces, processes and control groups of the cluster in that directory.
fn left(directory: &Path, interface: &str, container: &str) -> Vec<String> {
    let name = directory.display().to_string();
    let mut left = Vec::new();
    if directory.exists() {
        left.push(name.clone());
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    left.extend(
        mounts
            .lines()
            .filter(|line| line.contains(&name))
            .map(str::to_owned),
    );
    if Path::new("/sys/class/net").join(interface).exists() {
        left.push(interface.to_owned());
    }
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
        let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        let groups = String::from_utf8_lossy(&read("cgroup")).into_owned();
        if command.contains(&name) || groups.contains(container) {
            left.push(command);
        }
    }
    let groups = Command::new("find")
        .args(["/sys/fs/cgroup", "-name", container])
        .output();
    left.extend(
        String::from_utf8_lossy(&groups.unwrap().stdout)
            .lines()
            .map(str::to_owned),
    );
    left
}

#[tokio::test]
async fn a_killed_cluster_with_a_real_node_leaves_nothing() {
    // A second cluster with a container in it: it reports where it is, and is killed.
    let report = tempfile::NamedTempFile::new().unwrap();
    let script = r#"
kubectl run sleeper --image=registry.k8s.io/pause:3.10 --restart=Never --image-pull-policy=IfNotPresent
kubectl wait pod/sleeper --for=condition=Ready --timeout=60s
id=$(kubectl get pod sleeper -o jsonpath='{.status.containerStatuses[0].containerID}')
address=$(kubectl get node real-node -o jsonpath='{.status.addresses[0].address}')
echo "$KUBECONFIG $address ${id#containerd://}" >"$1.new"
mv "$1.new" "$1"
sleep 1000
"#;
    let cluster = Command::new(operator_program().with_file_name("my-operator-cluster"))
        .args([
            "exec",
            "--nodes",
            "0",
            "--real-node",
            "--",
            "sh",
            "-c",
            script,
            "sh",
        ])
        .arg(report.path())
        .stdin(Stdio::null())
        .spawn();
    let mut cluster = Killed(cluster.unwrap());
    let words = wait_for("a pod in a second cluster", async || {
        let text = std::fs::read_to_string(report.path()).unwrap_or_default();
        let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        <[String; 3]>::try_from(words).ok()
    });
    let [kubeconfig, address, container] = words.await;
    let directory = Path::new(&kubeconfig).parent().unwrap();
    let number = address.split('.').nth(2).unwrap();
    let interface = format!("my-op-node-{number}");
    assert!(!left(directory, &interface, &container).is_empty());
    cluster.0.kill().unwrap();
    cluster.0.wait().unwrap();
    let rest = std::cell::RefCell::new(Vec::new());
    let gone = try_wait(Duration::from_secs(20), async || {
        *rest.borrow_mut() = left(directory, &interface, &container);
        rest.borrow().is_empty().then_some(())
    });
    assert!(gone.await.is_some(), "left behind: {:#?}", rest.borrow());
}

#[tokio::test]
async fn a_killed_test_in_a_network_namespace_leaves_nothing() {
    // What its control plane makes is below this folder, and the namespace lives only in its processes.
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().display().to_string();
    let test = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", ip_families::WITHOUT_IPV4])
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut test = Killed(test.unwrap());
    let left = || -> Vec<String> {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let variables = processes.map(|process| std::fs::read(process.path().join("environ")));
        let variables = variables
            .flatten()
            .filter_map(|it| String::from_utf8(it).ok());
        let files = std::fs::read_dir(folder.path()).unwrap().flatten();
        let files = files.map(|file| file.path().display().to_string());
        let processes = variables.filter(|variables| variables.contains(&name));
        files.chain(processes).collect()
    };
    wait_for("a control plane in a network namespace", async || {
        let words = |text: &String| text.contains("KUBERNETES_SERVICE_HOST=::1");
        left().iter().any(words).then_some(())
    })
    .await;
    test.0.kill().unwrap();
    test.0.wait().unwrap();
    let gone = try_wait(Duration::from_secs(20), async || {
        left().is_empty().then_some(())
    });
    assert!(gone.await.is_some(), "left behind: {:#?}", left());
}
