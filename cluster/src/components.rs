//! The components of the control plane and their flags.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use crate::error::Error;
use crate::fake_kubelet::KUBELET_ADDRESS_TYPE;
use crate::options::Options;
use crate::ports;
use crate::real_node::{self, Place};
use my_operator_programs::Programs;

/// What a component's command line needs to know.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) programs: Programs,
    /// Where everything listens that is not reached from another network.
    loopback: IpAddr,
    etcd: u16,
    etcd_peer: u16,
    api_server: u16,
    /// Where the fake kubelet listens, unless another process has taken that port.
    pub(crate) fake_kubelet: SocketAddr,
    keep_history: bool,
    extra_api_server_args: Vec<String>,
    extra_controller_manager_args: Vec<String>,
    real_node: Option<(Place, String)>,
}

/// The components in the order in which they are started; those of a real node follow.
const COMPONENTS: [&str; 5] = [
    ETCD,
    API_SERVER,
    "kube-controller-manager",
    "kube-scheduler",
    FAKE_KUBELET,
];
pub(crate) const ETCD: &str = "etcd";
pub(crate) const API_SERVER: &str = "kube-apiserver";
/// The only component that is not a program, but a thread of this process.
pub(crate) const FAKE_KUBELET: &str = "fake-kubelet";

impl Plan {
    /// A plan with ports that are free now. With a real node, all is to run in its network.
    pub(crate) fn new(
        programs: Programs,
        options: &Options,
        place: Option<Place>,
    ) -> Result<Self, Error> {
        let loopback = if options.ipv6 {
            Ipv6Addr::LOCALHOST.into()
        } else {
            Ipv4Addr::LOCALHOST.into()
        };
        let [etcd, etcd_peer, api_server] = ports::free_at(loopback)?;
        let machine = place.map_or(loopback, |place| place.machine.into());
        let [fake_kubelet] = ports::free_at(machine)?;
        Ok(Self {
            programs,
            loopback,
            etcd,
            etcd_peer,
            api_server,
            fake_kubelet: SocketAddr::new(machine, fake_kubelet),
            keep_history: options.keep_history,
            extra_api_server_args: options.api_server_args.clone(),
            extra_controller_manager_args: options.controller_manager_args.clone(),
            real_node: place.zip(options.real_node.clone()),
        })
    }

    /// The components that there are, in the order in which they are started.
    pub(crate) fn components(&self) -> Vec<&'static str> {
        let real_node: &[_] = match self.real_node {
            Some(_) => &real_node::COMPONENTS,
            None => &[],
        };
        COMPONENTS.iter().chain(real_node).copied().collect()
    }

    /// How to get to the real node, if there is one.
    pub(crate) fn place(&self) -> Option<Place> {
        self.real_node.as_ref().map(|(place, _)| *place)
    }

    /// The address that the API server is reached at.
    pub(crate) fn address(&self) -> IpAddr {
        match self.place() {
            Some(place) => place.address.into(),
            None => self.loopback,
        }
    }

    /// The address of this machine at which the API server reaches its other programs.
    pub(crate) fn machine(&self) -> IpAddr {
        self.fake_kubelet.ip()
    }

    /// Where the API server listens.
    pub(crate) fn server(&self) -> String {
        format!(
            "https://{}",
            SocketAddr::new(self.address(), self.api_server)
        )
    }

    /// The address at which to check whether a component answers, for those that are reachable from here.
    pub(crate) fn listener(&self, component: &str) -> Option<SocketAddr> {
        match component {
            ETCD if self.real_node.is_none() => Some(SocketAddr::new(self.loopback, self.etcd)),
            API_SERVER => Some(SocketAddr::new(self.address(), self.api_server)),
            _ => None,
        }
    }

    /// The command line of a component whose files are in `directory`.
    pub(crate) fn command(&self, component: &str, directory: &Path) -> Command {
        if let Some((place, name)) = &self.real_node
            && real_node::COMPONENTS.contains(&component)
        {
            return real_node::command(component, *place, &self.programs, directory, name);
        }
        let program = self.programs.path(component);
        let mut command = match self.place() {
            Some(place) => place.network(&program),
            None => Command::new(program),
        };
        // Nothing of the user's environment: ETCD_* variables, GODEBUG and the like change what these programs do.
        command
            .env_clear()
            .env("HOME", directory)
            .env("PATH", "/usr/bin:/bin")
            .current_dir(directory);
        command.args(match component {
            ETCD => self.etcd_args(directory),
            API_SERVER => self.api_server_args(directory),
            "kube-controller-manager" => self.controller_manager_args(directory),
            "kube-scheduler" => scheduler_args(directory),
            _ => Vec::new(),
        });
        command
    }

    fn on_loopback(&self, port: u16) -> String {
        format!("http://{}", SocketAddr::new(self.loopback, port))
    }

    fn etcd_args(&self, directory: &Path) -> Vec<String> {
        let client = self.on_loopback(self.etcd);
        let peer = self.on_loopback(self.etcd_peer);
        vec![
            format!("--data-dir={}", file(directory, "etcd")),
            // The data is not needed after a power failure.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=error".to_owned(),
            "--quota-backend-bytes=8589934592".to_owned(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
        ]
    }

    fn api_server_args(&self, directory: &Path) -> Vec<String> {
        let file = |name| file(directory, name);
        // Of the family of the advertised address, or the API server does not start.
        let service_range = if self.address().is_ipv6() {
            "fd00:10::/112"
        } else {
            "10.0.0.0/24"
        };
        let mut args = vec![
            format!("--etcd-servers={}", self.on_loopback(self.etcd)),
            // Should our port turn out to be another cluster's etcd, nothing of that one is touched.
            format!("--etcd-prefix={}", directory.display()),
            format!("--secure-port={}", self.api_server),
            format!("--tls-cert-file={}", file("apiserver.crt")),
            format!("--tls-private-key-file={}", file("apiserver.key")),
            format!("--cert-dir={}", file("apiserver-certs")),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("service-account.pub")),
            format!(
                "--service-account-signing-key-file={}",
                file("service-account.key")
            ),
            format!("--service-cluster-ip-range={service_range}"),
            format!("--advertise-address={}", self.address()),
            "--allow-privileged=true".to_owned(),
            "--shutdown-delay-duration=0s".to_owned(),
            // A fake node's first; a real node has only the others.
            format!("--kubelet-preferred-address-types={KUBELET_ADDRESS_TYPE},InternalIP,Hostname"),
            // A burst of a load test is to meet the operator's limits, not these.
            "--max-requests-inflight=4000".to_owned(),
            "--max-mutating-requests-inflight=2000".to_owned(),
        ];
        if self.real_node.is_some() {
            args.push("--bind-address=0.0.0.0".to_owned());
        } else {
            args.push(format!("--bind-address={}", self.loopback));
            // Loopback addresses cannot be endpoints of the kubernetes Service.
            args.push("--endpoint-reconciler-type=none".to_owned());
        }
        if self.keep_history {
            args.push("--etcd-compaction-interval=0".to_owned());
        }
        args.extend(self.extra_api_server_args.iter().cloned());
        args
    }

    fn controller_manager_args(&self, directory: &Path) -> Vec<String> {
        let mut args = vec![
            kubeconfig(directory),
            format!(
                "--service-account-private-key-file={}",
                file(directory, "service-account.key")
            ),
            format!("--root-ca-file={}", file(directory, "ca.crt")),
            "--leader-elect=false".to_owned(),
            // No metrics: one port less to find.
            "--secure-port=0".to_owned(),
            "--kube-api-qps=2000".to_owned(),
            "--kube-api-burst=4000".to_owned(),
            // Ten years, because fake nodes send no heartbeats, and a cluster in the background may run for days.
            "--node-monitor-grace-period=87600h".to_owned(),
        ];
        args.extend(self.extra_controller_manager_args.iter().cloned());
        args
    }
}

fn scheduler_args(directory: &Path) -> Vec<String> {
    vec![
        kubeconfig(directory),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "--kube-api-qps=2000".to_owned(),
        "--kube-api-burst=4000".to_owned(),
    ]
}

fn kubeconfig(directory: &Path) -> String {
    format!("--kubeconfig={}", file(directory, "kubeconfig"))
}

fn file(directory: &Path, name: &str) -> String {
    directory.join(name).display().to_string()
}
