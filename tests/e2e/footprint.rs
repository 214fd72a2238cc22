//! The size of the operator's image, its memory, and its rights.

use std::path::Path;

use my_operator_rounds::is_soak;

use crate::{PODS, images, own, pods};

/// The maximum size of the image.
const MAX_SIZE: u64 = 25 << 20;
/// The maximum memory of an idle replica: twice what the manifest requests.
const MAX_MEMORY: u64 = 64 << 20;

/// The limits are those of the release image. The development binary is several times as large.
#[tokio::test]
async fn the_release_image_is_small_and_an_idle_operator_needs_little_memory() {
    let Some(release) = images::release() else {
        assert!(!is_soak(), "SOAK=1 needs OPERATOR=<the release binary>");
        println!("skipped: this image has the development binary; `make soak` measures");
        return;
    };
    let own = own().await;
    let size = std::fs::metadata(release).unwrap().len();
    println!("the binary, and so the image: {} kB", size / 1000);
    assert!(size < MAX_SIZE, "{size} bytes");
    for pod in pods(&own, PODS).await {
        let status = &pod["status"]["containerStatuses"][0];
        let id = status["containerID"].as_str().unwrap();
        let id = id.trim_start_matches("containerd://");
        let (name, resident) = (&pod["metadata"]["name"], resident(id));
        println!("{name}: {} MiB resident", resident >> 20);
        assert!(resident > 0, "no process of {name} found");
        assert!(resident < MAX_MEMORY, "{name}: {resident} bytes");
    }
}

/// The resident memory of the processes of a container, in bytes: those whose control group it is.
fn resident(container: &str) -> u64 {
    let mut total = 0;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let read =
            |name: &str| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        if read("cgroup").contains(container) {
            let status = read("status");
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
            total += kilobytes.map_or(0, |text| text.parse::<u64>().unwrap()) << 10;
        }
    }
    total
}

#[tokio::test]
async fn the_operator_runs_as_65532_on_a_read_only_root() {
    let own = own().await;
    let namespace = own
        .field(
            &format!("namespace/{}", own.namespace),
            "{.metadata.labels.pod-security\\.kubernetes\\.io/enforce}",
        )
        .await;
    assert_eq!(namespace, "restricted");
    let pods = pods(&own, PODS).await;
    assert!(!pods.is_empty());
    for pod in pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let status = &pod["status"]["containerStatuses"][0];
        let id = status["containerID"].as_str().unwrap();
        let process = process_of(id.trim_start_matches("containerd://"));
        let read = |file: &str| std::fs::read_to_string(process.join(file)).unwrap();
        let status = read("status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().split_whitespace().next().unwrap().to_owned()
        };
        // As the kernel has it, not as the manifest says.
        assert_eq!(
            (field("Uid:"), field("Gid:")),
            ("65532".into(), "65532".into()),
            "{name}"
        );
        assert_eq!(field("CapEff:"), "0000000000000000", "{name}");
        assert_eq!(field("NoNewPrivs:"), "1", "{name}");
        assert_eq!(field("Seccomp:"), "2", "{name}: a filter");
        let mounts = read("mounts");
        let root = mounts
            .lines()
            .find(|line| line.split(' ').nth(1) == Some("/"));
        let options = root.unwrap().split(' ').nth(3).unwrap();
        assert!(
            options.split(',').any(|option| option == "ro"),
            "{name}: {options}"
        );
    }
}

/// The one process of a container.
fn process_of(container: &str) -> std::path::PathBuf {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut found = entries
        .map(|entry| entry.path())
        .filter(|path: &std::path::PathBuf| {
            let groups = std::fs::read_to_string(Path::join(path, "cgroup"));
            groups.is_ok_and(|groups| groups.contains(container))
        });
    found.next().expect("the operator's process")
}
