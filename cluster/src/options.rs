//! What a cluster has.

use crate::fake_node::FakeNode;

/// The options of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Its fake nodes; none by default.
    pub nodes: Vec<FakeNode>,
    /// Further flags of the API server, such as `--feature-gates=...`.
    pub api_server_args: Vec<String>,
    /// Keeps every version of every object for as long as the cluster runs, for a test that reads the history of
    /// objects later. By default the API server has etcd compact its history every five minutes, and a watch or list
    /// from an older version then fails with 410 Gone. Not for a cluster that runs for days: the history only grows,
    /// and etcd takes no writes beyond 8 GiB.
    ///
    /// A watch can still fail with 410 Gone when it begins further back than the API server's watch cache reaches,
    /// which is more than a minute; a list of an exact version cannot.
    pub keep_history: bool,
    /// Further flags of the controller manager, such as `--concurrent-job-syncs=...`.
    pub controller_manager_args: Vec<String>,
    /// Whether everything listens on `::1` rather than on 127.0.0.1, for a network without IPv4. Services have IPv6
    /// addresses then. Not together with a real node, whose network is IPv4.
    pub ipv6: bool,
    /// The name of a real node, which runs containers; none by default. It needs root and more: without, the error says
    /// what is missing.
    pub real_node: Option<String>,
}

impl Options {
    /// A cluster with fake nodes of these names.
    pub fn with_nodes<S: AsRef<str>>(names: &[S]) -> Self {
        let nodes = names
            .iter()
            .map(|name| FakeNode::new(name.as_ref()))
            .collect();
        Self {
            nodes,
            ..Self::default()
        }
    }

    /// A cluster with a real node of this name.
    pub fn with_real_node(name: &str) -> Self {
        Self {
            real_node: Some(name.to_owned()),
            ..Self::default()
        }
    }
}
