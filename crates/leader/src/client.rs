//! A client of kube's whose every byte passes the fence.

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use super::fence::Fence;

impl Fence {
    /// A client of the API server that sends only while the fence is open; with the feature `client`. It has the layers
    /// of kube's own client, which has no hook for a connector, but neither its retries nor its proxies.
    ///
    /// ```
    /// use fenced_lease::Elector;
    /// use kube::{Client, Config};
    /// use tokio_util::sync::CancellationToken;
    ///
    /// # async fn controller(_: Client) {}
    /// async fn run(elector: Elector, config: Config, stop: CancellationToken) -> Option<kube::Result<()>> {
    ///     let lead = elector.lead(&stop, async |term| -> kube::Result<()> {
    ///         let client = term.fence.client(&config)?; // its bytes pass the fence
    ///         tokio::select! {
    ///             () = controller(client) => {}
    ///             () = stop.cancelled() => {}
    ///         }
    ///         Ok(())
    ///     });
    ///     lead.await
    /// }
    /// ```
    ///
    /// # Errors
    /// When the TLS settings or the credentials cannot be used, or the configuration has a proxy.
    ///
    /// # Panics
    /// When rustls cannot choose its cryptography, because both `ring` and `aws-lc-rs` are compiled in, or neither, and
    /// the program has not called `CryptoProvider::install_default`.
    pub fn client(&self, config: &Config) -> kube::Result<Client> {
        if let Some(proxy_url) = config.proxy_url.clone().map(Box::new) {
            return Err(kube::Error::ProxyProtocolUnsupported { proxy_url });
        }
        let mut tcp = HttpConnector::new();
        // The scheme is https: TLS is a layer above.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let tls = config.rustls_https_connector_with_connector(self.connector(tcp))?;
        let mut tls = TimeoutConnector::new(tls);
        tls.set_connect_timeout(config.connect_timeout);
        tls.set_read_timeout(config.read_timeout);
        tls.set_write_timeout(config.write_timeout);
        let http: legacy::Client<_, Body> =
            legacy::Client::builder(TokioExecutor::new()).build(tls);
        let stack = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .map_err(BoxError::from)
            .service(http);
        Ok(ClientBuilder::new(stack, config.default_namespace.clone()).build())
    }
}
