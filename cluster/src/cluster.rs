//! A running control plane.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, ObjectMeta, PostParams};
use my_operator_programs::{Programs, log_tail};

use crate::components::{API_SERVER, ETCD, FAKE_KUBELET, Plan};
use crate::error::Error;
use crate::fake_kubelet::FakeKubelet;
use crate::guard::Guard;
use crate::kubeconfig;
use crate::options::Options;
use crate::pki::{self, Credentials};
use crate::process::Process;
use crate::real_node::{self, Namespaces, Place};

/// Time limit of every wait. Generous, because a machine that also compiles is slow, and because only a failure takes
/// that long.
const TIMEOUT: Duration = Duration::from_mins(2);

/// The pause between two polls.
const POLL: Duration = Duration::from_millis(50);

/// How long a component may take to end before it is killed. Its data is discarded anyway.
const STOP_TIMEOUT: Duration = Duration::from_millis(1200);

/// A running control plane. When it is dropped, or this process ends in whatever way, all its processes are killed
/// and its directory is removed; [`Cluster::stop`] does the same in order.
///
/// Nothing in it depends on the tokio runtime that started it, so tests with a runtime each can share one.
#[derive(Debug)]
pub struct Cluster {
    plan: Plan,
    credentials: Credentials,
    server: String,
    kubeconfig: PathBuf,
    namespaces: AtomicU64,
    kubeconfigs: AtomicU64,
    // Before the components: otherwise it would log that they are gone.
    fake_kubelet: Mutex<Option<FakeKubelet>>,
    // Before the guard: fields are dropped in this order, and the guard's end removes the directory.
    components: Mutex<BTreeMap<&'static str, Arc<Process>>>,
    guard: Guard,
    // After the guard, whose watchdog looks at the node's processes before it kills them.
    namespaces_of_node: Option<Namespaces>,
}

impl Cluster {
    /// Starts a control plane and its fake nodes; returns when the nodes are ready and pods can be created.
    ///
    /// The first use on a machine builds the programs, with progress on standard error.
    pub async fn start(options: Options) -> Result<Self, Error> {
        // kube needs a default provider. If one is installed already, that one stays.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let ensure = match options.real_node {
            Some(_) => Programs::ensure_with_node,
            None => Programs::ensure,
        };
        let programs = tokio::task::spawn_blocking(ensure)
            .await
            .map_err(|error| Error::Internal(error.to_string()))??;

        let mut attempts = 5;
        let cluster = loop {
            attempts -= 1;
            match Self::attempt(&programs, &options).await {
                // Another process took a port between our choice and the component's bind.
                Err(Error::Died { log, .. })
                    if attempts > 0 && log.contains("address already in use") => {}
                other => break other?,
            }
        };
        cluster.add_nodes(&options.nodes).await?;
        Ok(cluster)
    }

    async fn attempt(programs: &Programs, options: &Options) -> Result<Self, Error> {
        let guard = Guard::new()?;
        let directory = guard.directory();
        let namespaces = match options.real_node {
            Some(_) => Some(Namespaces::new(&guard).await?),
            None => None,
        };
        let place = namespaces.as_ref().map(Namespaces::place);
        let plan = Plan::new(programs.clone(), options, place)?;
        if let Some(programs) = programs.node_directory() {
            real_node::write(directory, programs)?;
        }
        let credentials = pki::write(directory, plan.address())?;
        let server = plan.server();
        let kubeconfig = directory.join("kubeconfig");
        kubeconfig::write(
            &kubeconfig,
            &server,
            &credentials.ca,
            "admin",
            &credentials.token,
            "default",
        )?;

        let cluster = Self {
            plan,
            credentials,
            server,
            kubeconfig,
            namespaces: AtomicU64::new(0),
            kubeconfigs: AtomicU64::new(0),
            fake_kubelet: Mutex::default(),
            components: Mutex::default(),
            namespaces_of_node: namespaces,
            guard,
        };
        cluster.start_components().await?;
        if let Some(name) = &options.real_node {
            cluster.load_pause().await?;
            cluster.until_node_is_ready(name).await?;
        }
        // The controller manager creates it; without it no pod is admitted.
        cluster.default_service_account("default").await?;
        Ok(cluster)
    }

    async fn start_components(&self) -> Result<(), Error> {
        // The API server waits for etcd by itself; the others exit early without an API server.
        self.spawn_component(ETCD)?;
        self.spawn_component(API_SERVER)?;
        self.until_ready().await?;
        for component in self.plan.components() {
            if component == ETCD || component == API_SERVER {
                continue;
            }
            if component == FAKE_KUBELET {
                self.start_fake_kubelet().await?;
                continue;
            }
            self.spawn_component(component)?;
            if component == real_node::CONTAINERD {
                self.until_containerd_answers().await?;
            }
        }
        Ok(())
    }

    /// The administrator's kubeconfig: certificate authority and token inside, current context set.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The work directory: logs as `<name>.log`, and whatever a test wants to put there. Removed with the cluster.
    pub fn directory(&self) -> &Path {
        self.guard.directory()
    }

    /// The API server's address, like `https://127.0.0.1:20000`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The address of this machine at which the API server reaches what listens there, such as webhooks: loopback, or,
    /// with a real node, one that only this machine and the node have.
    pub fn machine_address(&self) -> IpAddr {
        self.plan.machine()
    }

    /// Whether one of its nodes runs containers.
    pub fn has_real_node(&self) -> bool {
        self.namespaces_of_node.is_some()
    }

    /// The path of a program of the control plane, like `kubectl`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.plan.programs.path(name)
    }

    /// A `kubectl` of the same release that talks to this cluster and keeps its caches in [`Cluster::directory`].
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(self.program("kubectl"));
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.directory())
            .env("KUBECACHEDIR", self.directory().join("kubectl-cache"))
            // The user's kubectl preferences are for the user's clusters.
            .env("KUBERC", "off");
        command
    }

    /// A new client with the administrator's rights. Clients belong to a runtime: make one per test.
    pub async fn client(&self) -> Result<kube::Client, Error> {
        kubeconfig::client(&self.kubeconfig).await
    }

    /// Starts any program, such as the operator under test. It dies with this process; its output is appended to
    /// `<directory>/<name>.log`, its standard input is empty.
    pub fn spawn(&self, name: &str, command: &mut Command) -> Result<Process, Error> {
        self.guard.spawn(name, command)
    }

    /// Starts any program like [`Cluster::spawn`], but with the standard streams that `command` has.
    pub fn attach(&self, command: &mut Command) -> Result<Process, Error> {
        Ok(Process::new(self.guard.run(command)?, PathBuf::new()))
    }

    /// Runs a program that may read the terminal until it ends; one at a time. It dies with this process. When `stop`
    /// completes it is sent SIGTERM.
    pub async fn run_in_foreground(
        &self,
        command: &mut Command,
        stop: impl Future<Output = ()>,
    ) -> Result<ExitStatus, Error> {
        let process = Process::new(self.guard.run_in_foreground(command)?, PathBuf::new());
        let status = tokio::select! {
            status = process.wait() => status,
            () = stop => {
                process.terminate();
                process.wait().await
            }
        };
        self.guard.release();
        Ok(status)
    }

    /// Creates a fresh namespace `<prefix>-<n>` and returns its name when pods can be created in it.
    pub async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        let name = format!(
            "{prefix}-{}",
            self.namespaces.fetch_add(1, Ordering::Relaxed) + 1
        );
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        Api::all(self.client().await?)
            .create(&PostParams::default(), &namespace)
            .await
            .map_err(Error::api(format!("create namespace {name}")))?;
        self.default_service_account(&name).await?;
        Ok(name)
    }

    /// Writes a kubeconfig with a token of a `ServiceAccount`, so that a program runs with the rights that this one
    /// has. The `ServiceAccount` is created if it is not there. The token is valid for a day, and file and token are of
    /// each caller's own.
    pub async fn service_account_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<PathBuf, Error> {
        let action = || format!("get a token of ServiceAccount {namespace}/{name}");
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        if accounts
            .get_opt(name)
            .await
            .map_err(Error::api(action()))?
            .is_none()
        {
            let account = ServiceAccount {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    ..ObjectMeta::default()
                },
                ..ServiceAccount::default()
            };
            accounts
                .create(&PostParams::default(), &account)
                .await
                .map_err(Error::api(action()))?;
        }
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(86_400),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .map_err(Error::api(action()))?;
        let token = answer
            .status
            .ok_or_else(|| {
                Error::Internal(format!(
                    "no token in the API server's answer to {}",
                    action()
                ))
            })?
            .token;
        let number = self.kubeconfigs.fetch_add(1, Ordering::Relaxed);
        let path = self
            .directory()
            .join(format!("kubeconfig-{namespace}-{name}-{number}"));
        kubeconfig::write(
            &path,
            &self.server,
            &self.credentials.ca,
            name,
            &token,
            namespace,
        )?;
        Ok(path)
    }

    /// Access to the real node, if there is one.
    pub(crate) fn place(&self) -> Option<Place> {
        self.plan.place()
    }

    /// Stops one component (`etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` or `fake-kubelet`; of
    /// a real node `containerd`, `kubelet` or `kube-proxy`) and returns when it has ended. Containers run on.
    pub async fn stop_component(&self, name: &str) -> Result<(), Error> {
        if self.known(name)? == FAKE_KUBELET {
            drop(self.fake_kubelet().take());
            return Ok(());
        }
        let process = self.components().remove(name);
        if let Some(process) = process {
            process.stop(STOP_TIMEOUT).await;
        }
        Ok(())
    }

    /// Starts a component that was stopped, on the same ports and with the same data, and returns when it answers.
    /// Does nothing if it is running.
    pub async fn start_component(&self, name: &str) -> Result<(), Error> {
        let name = self.known(name)?;
        if name == FAKE_KUBELET {
            return self.start_fake_kubelet().await;
        }
        if self
            .components()
            .get(name)
            .is_some_and(|process| process.is_running())
        {
            return Ok(());
        }
        if name == real_node::CONTAINERD {
            self.forget_containerd();
        }
        self.spawn_component(name)?;
        if name == API_SERVER {
            return self.until_ready().await;
        }
        if name == real_node::CONTAINERD {
            return self.until_containerd_answers().await;
        }
        if let Some(listener) = self.plan.listener(name) {
            let answers = || async { Ok(TcpStream::connect(listener).is_ok().then_some(())) };
            self.wait_for(&format!("{name} to answer"), answers).await?;
        }
        Ok(())
    }

    /// The process of a component, if it was not stopped. `fake-kubelet` has none: it is a thread of this process.
    pub fn component(&self, name: &str) -> Option<Arc<Process>> {
        self.components().get(name).cloned()
    }

    /// Ends everything in order (the API server before etcd, which it would otherwise wait for) and removes the
    /// directory. Takes less than three seconds.
    pub async fn stop(self) {
        self.stop_components().await;
    }

    /// Ends all components in the same order, for a cluster that is borrowed for the rest of the process. The directory
    /// stays.
    pub async fn stop_components(&self) {
        drop(self.fake_kubelet().take());
        let components = std::mem::take(&mut *self.components());
        let (etcd, others): (Vec<_>, Vec<_>) =
            components.into_iter().partition(|(name, _)| *name == ETCD);
        for group in [others, etcd] {
            futures::future::join_all(group.iter().map(|(_, process)| process.stop(STOP_TIMEOUT)))
                .await;
        }
    }

    /// Polls until `poll` returns something. Fails when a component has died or the time is over.
    pub(crate) async fn wait_for<T, F>(
        &self,
        what: &str,
        mut poll: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<Option<T>, Error>>,
    {
        let begin = Instant::now();
        loop {
            // First, so that the answer of another process on the port of a dead component (another cluster's etcd)
            // does not count.
            self.check_components()?;
            if let Some(found) = poll().await? {
                return Ok(found);
            }
            if begin.elapsed() > TIMEOUT {
                let logs = self.directory().to_owned();
                return Err(Error::TimedOut {
                    what: what.to_owned(),
                    seconds: TIMEOUT.as_secs(),
                    logs,
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn check_components(&self) -> Result<(), Error> {
        let fake_kubelet = self.fake_kubelet();
        if fake_kubelet.as_ref().is_some_and(|it| !it.is_running()) {
            return Err(Error::Internal("the fake kubelet panicked".to_owned()));
        }
        for (name, process) in self.components().iter() {
            if let Some(status) = process.try_wait() {
                return Err(Error::Died {
                    component: (*name).to_owned(),
                    status,
                    log: process.log_tail(12),
                });
            }
        }
        Ok(())
    }

    fn spawn_component(&self, name: &'static str) -> Result<(), Error> {
        let process = self
            .guard
            .spawn(name, &mut self.plan.command(name, self.directory()))?;
        self.components().insert(name, Arc::new(process));
        Ok(())
    }

    async fn start_fake_kubelet(&self) -> Result<(), Error> {
        let is_running = |found: &Option<FakeKubelet>| {
            let found = found.as_ref();
            found.is_some_and(FakeKubelet::is_running)
        };
        if is_running(&self.fake_kubelet()) {
            return Ok(());
        }
        let log = self.directory().join(format!("{FAKE_KUBELET}.log"));
        let started = FakeKubelet::start(&self.kubeconfig, &log, self.plan.fake_kubelet).await?;
        // If two callers start one, the second replaces the first and thereby stops it.
        *self.fake_kubelet() = Some(started);
        Ok(())
    }

    fn fake_kubelet(&self) -> MutexGuard<'_, Option<FakeKubelet>> {
        self.fake_kubelet
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn until_ready(&self) -> Result<(), Error> {
        let client = self.client().await?;
        self.wait_for("the API server to be ready", || async {
            let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else {
                return Ok(None);
            };
            // Refused connections and failing checks both mean: not ready yet.
            Ok(client.request_text(request).await.ok().map(|_| ()))
        })
        .await
    }

    async fn default_service_account(&self, namespace: &str) -> Result<(), Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        self.wait_for(
            &format!("the default ServiceAccount of namespace {namespace}"),
            || async {
                let found = accounts.get_opt("default").await;
                Ok(found
                    .map_err(Error::api(format!(
                        "read the ServiceAccounts of {namespace}"
                    )))?
                    .map(|_| ()))
            },
        )
        .await
    }

    fn components(&self) -> MutexGuard<'_, BTreeMap<&'static str, Arc<Process>>> {
        self.components
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The last lines of a component's log.
    pub fn log_tail(&self, name: &str, lines: usize) -> String {
        log_tail(&self.directory().join(format!("{name}.log")), lines)
    }

    fn known(&self, name: &str) -> Result<&'static str, Error> {
        let components = self.plan.components();
        let found = components.iter().find(|component| **component == name);
        found.copied().ok_or_else(|| Error::UnknownComponent {
            name: name.to_owned(),
            known: components.join(", "),
        })
    }
}
