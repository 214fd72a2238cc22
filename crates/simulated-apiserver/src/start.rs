//! A new server, with what every cluster has.

use crate::collector;
use crate::resource;
use crate::server::{Options, Server};

impl Server {
    /// A server with the built-in kinds and the namespaces of every cluster.
    ///
    /// # Panics
    /// Outside a tokio runtime, which its controllers run on.
    pub fn new(options: Options) -> Self {
        let server = Self::with_kinds(options, resource::built_in());
        let usual = ["default", "kube-system", "kube-public", "kube-node-lease"];
        let wanted = server.options().namespaces.iter().map(String::as_str);
        for name in usual.into_iter().chain(wanted) {
            server.direct().namespace(name);
        }
        if let Some(after) = server.options().collector {
            tokio::spawn(collector::run(server.clone(), after));
        }
        server
    }
}
