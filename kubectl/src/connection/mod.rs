//! From kubectl's flags to a client, and back from its failures to kubectl's words.

mod config;
mod exchange;
mod failure;
mod name;
mod retry;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use k8s_openapi::NamespaceResourceScope;
use kube::core::ApiResource;
use kube::core::DynamicResourceScope;
use kube::{Api, Client, Resource};
use resilient_kube_client as client;
use tower::buffer::BufferLayer;

pub use failure::Failure;
pub(crate) use failure::root;
pub use name::Kind;
use name::is_name;

use crate::flags::natural;

/// kubectl's flags that say which cluster, as whom, and in which namespace.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection (as for every command of kubectl)")]
pub struct Flags {
    /// The namespace; that of the context if absent
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,
    /// The kubeconfig file; $KUBECONFIG or ~/.kube/config if absent
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// The cluster of the kubeconfig to use
    #[arg(long, global = true)]
    pub cluster: Option<String>,
    /// The user of the kubeconfig to use
    #[arg(long, global = true)]
    pub user: Option<String>,
    /// The user to act as
    #[arg(long = "as", global = true, value_name = "USER")]
    pub as_user: Option<String>,
    /// A group to act as; can be repeated
    #[arg(long, global = true, value_name = "GROUP")]
    pub as_group: Vec<String>,
    /// The UID to act as
    #[arg(long, global = true, value_name = "UID")]
    pub as_uid: Option<String>,
    /// How long to wait for the answer to one request, such as 1s, 2m or 3h; 0 means without end
    #[arg(long, global = true, value_name = "DURATION", value_parser = my_operator_times::duration::request_timeout, default_value = "0")]
    pub request_timeout: Option<Duration>,
    /// The address of the API server
    #[arg(short, long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// A bearer token
    #[arg(long, global = true)]
    pub token: Option<String>,
    /// A file with the certificates of the API server's authority
    #[arg(long, global = true, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// A file with the client's certificate
    #[arg(long, global = true, value_name = "FILE")]
    pub client_certificate: Option<PathBuf>,
    /// A file with the client's key
    #[arg(long, global = true, value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// The name that the API server's certificate must have
    #[arg(long, global = true, value_name = "NAME")]
    pub tls_server_name: Option<String>,
    /// Accept any certificate of the API server: insecure
    #[arg(long, global = true)]
    pub insecure_skip_tls_verify: bool,
    /// The level of the log on standard error: from 6 on, each request is a line
    #[arg(short, long = "v", global = true, value_name = "LEVEL", default_value_t = 0, value_parser = natural::<i32>)]
    pub verbosity: i32,
}

/// So many requests wait for each other at most: no command has more at once.
const MAX_WAITING: usize = 64;

/// The level of `-v` from which on kubectl logs each request.
const LOG_REQUESTS: i32 = 6;

/// A client, and what the kubeconfig says besides.
#[derive(Clone)]
pub struct Connection {
    /// The client. Warnings of the server go to standard error.
    pub client: Client,
    /// The namespace of the flags, else of the context, else `default`.
    pub namespace: String,
    /// Host and port, for messages.
    pub server: String,
}

impl Connection {
    /// Reads the kubeconfig. No request is made.
    ///
    /// # Errors
    /// When no cluster is configured, the kubeconfig cannot be read or used, or the namespace is not a name.
    pub async fn new(flags: &Flags) -> Result<Self, Failure> {
        let config = config::config(flags).await?;
        let namespace = config.default_namespace.clone();
        if !is_name(&namespace) {
            let rule = "it has lower case letters, digits and -";
            return Err(format!("invalid namespace {namespace:?}: {rule}").into());
        }
        let server = config
            .cluster_url
            .authority()
            .map_or_else(String::new, ToString::to_string);
        let log = (flags.verbosity >= LOG_REQUESTS).then(|| config.cluster_url.to_string());
        let builder =
            client::builder(&config, client::tcp()).map_err(|error| failure::causes(&error))?;
        let client = builder
            .with_layer(&exchange::layer(flags.request_timeout, log))
            // The client's own service cannot be cloned, as retries need it.
            .with_layer(&BufferLayer::new(MAX_WAITING))
            .with_layer(&retry::layer())
            .build();
        Ok(Self {
            client,
            namespace,
            server,
        })
    }

    /// The objects of a kind in the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The same of a kind that requests name so.
    pub fn api_of<K>(&self, kind: &ApiResource) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        Api::namespaced_with(self.client.clone(), &self.namespace, kind)
    }

    /// The answer to a request.
    ///
    /// # Errors
    /// What to print when it has failed.
    pub async fn answer<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Failure> {
        request.await.map_err(|error| self.failure(error))
    }

    /// What to print when a request has failed.
    pub fn failure(&self, error: kube::Error) -> Failure {
        Failure::of_request(error, &self.server)
    }
}
