//! `demo`: runs the operator on a cluster of its own and shows what it does. `make run` without a kubeconfig does this.
//!
//! Everything here that knows the product (kinds, the operator's flags, where its samples are) is in this file.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use my_operator_cluster::binaries::kubernetes_version;
use my_operator_cluster::{Cluster, Image, Options, Process, free_ports};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::exec::exit_code;
use super::follow::Follower;
use super::stop::Stop;

/// Time limit for the operator to become ready, and for the API server to call its webhooks.
const READY_TIMEOUT: Duration = Duration::from_mins(1);

/// Time limit for what the samples show; afterwards the demo goes on without it.
const SHOW_TIMEOUT: Duration = Duration::from_secs(45);

/// Time limit for the operator to end after SIGTERM. Together with the end of the cluster less than five seconds.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

const POLL: Duration = Duration::from_millis(100);

/// The images that the samples run, and the one of the command that is shown for a roll-out, for a real node, which has
/// no registry.
const IMAGES: [&str; 3] = ["bash:5.3", "nginx:stable-alpine3.17", "nginx:1.29"];

/// What to demonstrate.
pub(crate) struct Demo {
    /// The operator's binary.
    pub(crate) operator: PathBuf,
    /// The directory with `crd/bases` and `samples`.
    pub(crate) config: PathBuf,
    /// Further arguments of the operator.
    pub(crate) arguments: Vec<OsString>,
}

impl Demo {
    /// Runs the demonstration until the operator ends, something fails or the user stops it.
    pub(crate) async fn run(&self, options: Options) -> anyhow::Result<ExitCode> {
        // Before a cluster is started, so that a wrong path is reported at once.
        let operator = fs::canonicalize(&self.operator)
            .with_context(|| format!("no operator at {}", self.operator.display()))?;
        let crds = self.config.join("crd/bases");
        if manifests(&crds)?.is_empty() {
            bail!("no CRDs in {}", crds.display());
        }
        if let Some(missing) = missing_kind(&self.arguments) {
            bail!(
                "this demonstration needs the kinds at and mydaemonset: add {missing} to --kinds"
            );
        }
        let real_node = options.real_node.is_some();
        // Also before, so that a missing program is.
        let images = if real_node {
            let images = IMAGES.iter().map(|name| Image::stand_in(name));
            images.collect::<Result<Vec<_>, _>>()?
        } else {
            Vec::new()
        };
        let fake_nodes = options.nodes.len();
        println!(
            "Starting a local control plane: Kubernetes {}, {}",
            kubernetes_version(),
            in_words(fake_nodes, real_node)
        );
        let begin = Instant::now();
        let cluster = Cluster::start(options).await?;
        println!(
            "Ready after {:.1} s at {}",
            begin.elapsed().as_secs_f64(),
            cluster.server()
        );

        let mut stop = Stop::new()?;
        let prepared = tokio::select! {
            prepared = self.prepare(&cluster, &crds, &images) => Some(prepared),
            () = stop.asked() => None,
        };
        let outcome = match prepared {
            None => Ok(ExitCode::SUCCESS),
            Some(Err(error)) => Err(error),
            Some(Ok(())) => {
                let nodes = fake_nodes + usize::from(real_node);
                self.with_operator(&cluster, &operator, nodes, &mut stop)
                    .await
            }
        };
        stop.at_once_when_asked_again();
        cluster.stop().await;
        outcome
    }

    /// Loads the images, installs the CRDs and makes the operator's namespace, where it keeps its certificates.
    async fn prepare(
        &self,
        cluster: &Cluster,
        crds: &Path,
        images: &[Image],
    ) -> anyhow::Result<()> {
        for image in images {
            cluster.load_image(image).await?;
        }
        if !images.is_empty() {
            show_stand_ins();
        }
        let crds = crds.display().to_string();
        let others = self.config.join("crd/sample-kinds");
        let mut folders = vec![["apply", "-f", &crds]];
        // A user who selects kinds may want some that are off by default.
        let named = |argument: &OsString| argument.to_string_lossy().starts_with("--kinds");
        let others_name = others.display().to_string();
        if others.is_dir() && self.arguments.iter().any(named) {
            folders.push(["apply", "-k", &others_name]);
        }
        for apply in &folders {
            if !show(cluster, apply).await? {
                bail!("the CRDs in {} were refused", apply[2]);
            }
        }
        let wait = "wait --for=condition=Established --timeout=60s crd --all";
        let wait: Vec<&str> = wait.split(' ').collect();
        let (established, output) = kubectl(cluster, &wait).await?;
        if !established {
            bail!(
                "the CRDs are not established: {}",
                output.trim().replace('\n', "; ")
            );
        }
        let namespace = ["create", "namespace", "my-operator-system"];
        let (made, output) = kubectl(cluster, &namespace).await?;
        if !made {
            bail!("cannot make the operator's namespace: {}", output.trim());
        }
        Ok(())
    }

    /// Starts the operator, runs the demonstration, and stops the operator again.
    async fn with_operator(
        &self,
        cluster: &Cluster,
        operator: &Path,
        nodes: usize,
        stop: &mut Stop,
    ) -> anyhow::Result<ExitCode> {
        let [webhooks, probes, metrics] = free_ports()?;
        let webhooks = SocketAddr::new(cluster.machine_address(), webhooks);
        let mut command = Command::new(operator);
        command.args(["run", "--webhook-bind-address", &webhooks.to_string()]);
        command.args(["--webhook-url", &format!("https://{webhooks}")]);
        command.args([
            "--health-probe-bind-address",
            &format!("127.0.0.1:{probes}"),
        ]);
        for (flag, value) in [
            ("--metrics-bind-address", format!("127.0.0.1:{metrics}")),
            ("--leader-elect", "false".into()),
        ] {
            // The caller's flags win; giving one twice would be an error.
            if !self
                .arguments
                .iter()
                .any(|argument| argument.to_string_lossy().starts_with(flag))
            {
                command.arg(format!("{flag}={value}"));
            }
        }
        command
            .args(&self.arguments)
            .env("KUBECONFIG", cluster.kubeconfig());

        println!("\nStarting the operator; its log lines begin with a bar");
        let operator = cluster.spawn("operator", &mut command)?;
        let follower = Follower::start(operator.log(), "| ");
        let outcome = tokio::select! {
            failed = self.perform(cluster, &operator, &follower, nodes, probes) => match failed {
                Ok(never) => match never {},
                Err(error) => Err(error),
            },
            status = operator.wait() => {
                follower.finish(true).await;
                eprintln!("my-operator-cluster: the operator ended by itself ({status})");
                return Ok(exit_code(status));
            }
            () = stop.asked() => {
                println!("\nStopping");
                Ok(ExitCode::SUCCESS)
            }
        };
        operator.stop(STOP_TIMEOUT).await;
        follower.finish(outcome.is_err()).await;
        outcome
    }

    /// The whole demonstration; then waits for ever. Only a failure ends it.
    async fn perform(
        &self,
        cluster: &Cluster,
        operator: &Process,
        follower: &Follower,
        nodes: usize,
        probes: u16,
    ) -> anyhow::Result<Infallible> {
        let begin = Instant::now();
        until_ready(probes).await?;
        println!(
            "The operator (pid {}) is ready after {:.1} s",
            operator.pid(),
            begin.elapsed().as_secs_f64()
        );

        // Its log would interleave with the transcript.
        follower.hide();
        let samples = self.config.join("samples");
        let (bad, good) = samples_of(&samples)?;
        if good.is_empty() {
            bail!("no samples in {}", samples.display());
        }
        until_judged(cluster, &bad).await?;
        println!("\nThe samples, as a user would apply them:");
        for sample in &good {
            if !show(cluster, &["apply", "-f", sample]).await? {
                bail!("{sample} was refused");
            }
        }
        println!("\nAnd objects that the webhooks refuse:");
        for sample in &bad {
            if show(cluster, &["apply", "-f", sample]).await? {
                bail!("{sample} was accepted, but must be refused");
            }
        }

        println!("\nA MyDaemonSet has one pod on every node:");
        until_pods_run(cluster, nodes).await?;
        show(cluster, &["get", "mds"]).await?;
        show(cluster, &["get", "pods", "-o", "wide"]).await?;
        println!("\nAn At runs once, at its time:");
        watch_ats(cluster).await?;
        show(cluster, &["get", "at,pods"]).await?;
        println!("\nWhat its command printed:");
        show(cluster, &["logs", "example-at-pod"]).await?;

        show_ways_on(cluster, &samples, nodes);
        follower.show_from_now();
        std::future::pending().await
    }
}

/// Says how to go on by hand, and what runs on the nodes, of which there are so many.
fn show_ways_on(cluster: &Cluster, samples: &Path, nodes: usize) {
    println!("\nThe operator goes on running. From another terminal, in this folder:\n");
    println!("  export KUBECONFIG={}", cluster.kubeconfig().display());
    if let Some(directory) = cluster.program("kubectl").parent() {
        println!("  export PATH={}:$PATH", directory.display());
    }
    println!("\nA webhook rejects an object; an At runs; a MyDaemonSet rolls out:\n");
    let samples = samples.display();
    println!("  kubectl apply -f {samples}/bad/cnat_v1alpha1_at.yaml");
    println!(
        "  kubectl replace --force -f {samples}/cnat_v1alpha1_at.yaml && kubectl get at,pods -w"
    );
    println!(
        "  kubectl patch mds mydaemonset-sample --type=merge -p '{{\"spec\":{{\"image\":\"nginx:1.29\"}}}}' && kubectl get mds -w"
    );
    println!();
    if cluster.has_real_node() {
        println!(
            "Commands run on the real node. It has only these images: {}.",
            IMAGES.join(", ")
        );
    }
    if nodes > usize::from(cluster.has_real_node()) {
        println!(
            "On a fake node, pods become Ready and end, but no command runs: kubectl logs says so."
        );
        println!("To run them: make run NODE=real (root; cluster/README.md says what it needs).");
    }
    println!(
        "Ctrl-C stops everything and leaves nothing behind. What the operator logs from here on:"
    );
}

/// The kind that the demonstration shows and the arguments leave out. Without `--kinds`, both are there.
fn missing_kind(arguments: &[OsString]) -> Option<&'static str> {
    let mut arguments = arguments.iter().map(|argument| argument.to_string_lossy());
    let mut kinds = Vec::new();
    while let Some(argument) = arguments.next() {
        if argument == "--kinds" {
            kinds.extend(arguments.next());
        } else if let Some(named) = argument.strip_prefix("--kinds=") {
            kinds.push(named.to_owned().into());
        }
    }
    let has = |kind: &str| {
        kinds
            .iter()
            .any(|named| named.split(',').any(|it| it == kind))
    };
    let mut shown = ["at", "mydaemonset"].into_iter();
    shown.find(|kind| !kinds.is_empty() && !has(kind))
}

/// The nodes of a cluster, in words.
fn in_words(fake: usize, real: bool) -> String {
    let fake = match fake {
        0 => None,
        1 => Some("1 fake node".to_owned()),
        count => Some(format!("{count} fake nodes")),
    };
    let all = [fake, real.then(|| "1 real node".to_owned())];
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() {
        return "no nodes".to_owned();
    }
    all.join(" and ")
}

/// Says what the images are that were loaded.
fn show_stand_ins() {
    println!(
        "There is no registry. The images are stand-ins of the same names, loaded onto the node:"
    );
    for name in IMAGES {
        println!(
            "  {name}: {}",
            Image::stand_in_words(name).unwrap_or_default()
        );
    }
}

/// Waits for the operator's `/readyz`, and says which gates are missing if that takes long.
async fn until_ready(port: u16) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut reported = Duration::ZERO;
    loop {
        let answer = readyz(port).await;
        if matches!(answer, Ok((200, _))) {
            return Ok(());
        }
        let missing = match answer {
            Ok((_, page)) => {
                let gates: Vec<_> = page
                    .lines()
                    .filter_map(|line| line.strip_prefix("[-]"))
                    .collect();
                if gates.is_empty() {
                    page.trim().replace('\n', "; ")
                } else {
                    gates.join("; ")
                }
            }
            Err(error) => format!("no answer from 127.0.0.1:{port}/readyz ({error})"),
        };
        let elapsed = begin.elapsed();
        if elapsed > READY_TIMEOUT {
            bail!(
                "the operator is not ready after {} s: {missing}",
                READY_TIMEOUT.as_secs()
            );
        }
        if elapsed > reported + Duration::from_secs(5) {
            reported = elapsed;
            println!(
                "Waiting for the operator for {} s: {missing}",
                elapsed.as_secs()
            );
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Status code and page of the operator's `/readyz?verbose`, by a minimal HTTP request.
async fn readyz(port: u16) -> std::io::Result<(u16, String)> {
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        stream
            .write_all(
                b"GET /readyz?verbose HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            )
            .await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(Duration::from_secs(3), ask)
        .await
        .map_err(std::io::Error::other)??;
    let status = answer
        .split_whitespace()
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or(0);
    let page = answer.split_once("\r\n\r\n").map_or("", |(_, page)| page);
    Ok((status, page.to_owned()))
}

/// Waits until the API server calls the webhooks: it notices their configuration about a second after its creation, and
/// objects before that are not reviewed.
async fn until_judged(cluster: &Cluster, bad: &[String]) -> anyhow::Result<()> {
    let begin = Instant::now();
    for sample in bad {
        while kubectl(cluster, &["apply", "--dry-run=server", "-f", sample])
            .await?
            .0
        {
            if begin.elapsed() > READY_TIMEOUT {
                bail!(
                    "{sample} is accepted after {} s, but must be refused",
                    READY_TIMEOUT.as_secs()
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

/// Waits until the MyDaemonSets have a running pod on every node, or the time is over. Shows the pods either way.
async fn until_pods_run(cluster: &Cluster, nodes: usize) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await?);
    let begin = Instant::now();
    while begin.elapsed() < SHOW_TIMEOUT {
        let running = pods
            .list(&ListParams::default())
            .await?
            .items
            .into_iter()
            .filter(|pod| {
                let owners = pod.metadata.owner_references.iter().flatten();
                let phase = pod
                    .status
                    .as_ref()
                    .and_then(|status| status.phase.as_deref());
                owners.into_iter().any(|owner| owner.kind == "MyDaemonSet")
                    && phase == Some("Running")
            });
        if running.count() >= nodes {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// Shows the phases of the Ats as they change, until all are done or the time is over.
async fn watch_ats(cluster: &Cluster) -> anyhow::Result<()> {
    let kind = GroupVersionKind::gvk("cnat.programming-kubernetes.info", "v1alpha1", "At");
    let ats: Api<DynamicObject> = Api::default_namespaced_with(
        cluster.client().await?,
        &ApiResource::from_gvk_with_plural(&kind, "ats"),
    );
    println!("$ kubectl get at -w");
    let mut command = cluster.kubectl();
    command
        .args(["get", "at", "-w"])
        .stdin(std::process::Stdio::null());
    // Killed when it is dropped.
    let _watch = cluster.attach(&mut command)?;
    let begin = Instant::now();
    while begin.elapsed() < SHOW_TIMEOUT {
        let items = ats.list(&ListParams::default()).await?.items;
        if items.iter().all(|at| at.data["status"]["phase"] == "DONE") {
            // Gives the watch time to show it, too.
            tokio::time::sleep(POLL * 5).await;
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// The bad samples (in `bad/`, or with it in their name) and the good ones, in the order of their names. Those for
/// namespaces with the restricted Pod Security profile show nothing more here.
fn samples_of(directory: &Path) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let (mut bad, good): (Vec<_>, Vec<_>) = manifests(directory)?
        .into_iter()
        .filter(|path| !path.ends_with("_restricted.yaml"))
        .partition(|path| path.rsplit('/').next().unwrap_or(path).contains("bad"));
    let folder = directory.join("bad");
    if folder.is_dir() {
        bad.extend(manifests(&folder)?);
    }
    Ok((bad, good))
}

/// The manifests in a directory, sorted.
fn manifests(directory: &Path) -> anyhow::Result<Vec<String>> {
    let read = || -> std::io::Result<Vec<String>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let is_manifest = path
                .extension()
                .is_some_and(|extension| extension == "yaml")
                && path
                    .file_name()
                    .is_some_and(|name| name != "kustomization.yaml");
            if is_manifest {
                paths.push(path.display().to_string());
            }
        }
        paths.sort();
        Ok(paths)
    };
    read().with_context(|| format!("cannot read {}", directory.display()))
}

/// Shows a kubectl command as typed, and its output. Returns whether it succeeded.
async fn show(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<bool> {
    println!("$ kubectl {}", arguments.join(" "));
    let (success, output) = kubectl(cluster, arguments).await?;
    print!("{output}");
    Ok(success)
}

/// Runs kubectl; returns whether it succeeded, and its output.
async fn kubectl(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<(bool, String)> {
    let mut command = tokio::process::Command::from(cluster.kubectl());
    let output = command
        .args(arguments)
        .kill_on_drop(true)
        .output()
        .await
        .context("cannot run kubectl")?;
    let text = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use my_operator_cluster::Image;

    use super::{IMAGES, in_words};

    #[test]
    fn nodes_are_counted_and_what_is_fake_is_called_so() {
        for (fake, real, words) in [
            (3, false, "3 fake nodes"),
            (1, false, "1 fake node"),
            (0, true, "1 real node"),
            (2, true, "2 fake nodes and 1 real node"),
            (0, false, "no nodes"),
        ] {
            assert_eq!(in_words(fake, real), words);
        }
    }

    #[test]
    fn a_kind_that_is_shown_and_left_out_is_found() {
        for (arguments, missing) in [
            ("", None),
            ("--log-level=debug", None),
            ("--kinds at,mydaemonset,foo", None),
            ("--kinds=mydaemonset --kinds at --kinds=foo", None),
            ("--kinds=foo", Some("at")),
            ("--kinds at,count --log-level debug", Some("mydaemonset")),
        ] {
            let arguments: Vec<_> = arguments.split_whitespace().map(Into::into).collect();
            assert_eq!(super::missing_kind(&arguments), missing, "{arguments:?}");
        }
    }

    #[test]
    fn there_is_a_stand_in_for_every_image() {
        for name in IMAGES {
            assert!(!Image::stand_in_words(name).unwrap().is_empty(), "{name}");
        }
    }
}
