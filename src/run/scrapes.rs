//! Wiring of the metrics endpoint: its address, its certificate, and the authorization of scrapes by the API server.

use std::fmt::Debug;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures::FutureExt as _;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::flags::{Flags, OptionalAddress};
use super::process::Process;
use super::webhooks::service_names;
use my_operator_kind::manager::MANAGER;
use my_operator_telemetry::access::{self, Ask, Verdict};
use resilient_kube_client::{self as client, clock, explain};
use webhook_certs::{BundleTarget, Files, SelfSigned};

/// The time limit of a question to the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of the metrics endpoint, if it is on.
pub(super) fn address(flags: &Flags) -> OptionalAddress {
    flags.metrics_bind_address.unwrap_or_else(|| {
        Some(if client::in_cluster() {
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8443))
        } else {
            SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))
        })
    })
}

/// Serves the page, to all or only to authorized clients.
pub(super) fn serve(
    process: &mut Process,
    listener: TcpListener,
    router: Router,
    flags: &Flags,
    client: &Client,
) -> anyhow::Result<()> {
    let Process { tasks, stop, .. } = process;
    if !flags.metrics_secure.unwrap_or_else(client::in_cluster) {
        let stop = stop.serving.clone();
        tasks.spawn(async move {
            let served = bounded_listener::serve_plain(listener, router, stop).await;
            ("metrics", served.map_err(Into::into))
        });
        return Ok(());
    }
    let until = stop.serving.clone();
    let certificate = if let Some(folder) = &flags.metrics_cert_path {
        let files = Files::new(
            client,
            MANAGER,
            "metrics",
            folder.clone(),
            &BundleTarget::None,
            Vec::new(),
            clock::system(),
        );
        let certificate = files.resolver();
        tasks.spawn(async move {
            let result = files.run(until).await;
            ("certificate of the metrics", result.map_err(Into::into))
        });
        certificate
    } else {
        let names = flags.names();
        let mut hosts = service_names(&names.metrics_service(), names.namespace());
        hosts.push("localhost".to_owned());
        let own = SelfSigned::new(hosts, "metrics", clock::system())?;
        let certificate = own.resolver();
        tasks.spawn(async move {
            own.run(until).await;
            ("certificate of the metrics", Ok(()))
        });
        certificate
    };
    let tls = bounded_listener::tls_config(certificate, None)?;
    let router = access::guard(router, ask(client));
    let shutdown = bounded_listener::Shutdown {
        draining: stop.serving.clone(),
        stop: stop.serving.clone(),
    };
    tasks.spawn(async move {
        let limits = bounded_listener::Limits::of_pages();
        let counters = Arc::default();
        let served =
            bounded_listener::serve(listener, tls, router, limits, shutdown, counters).await;
        ("metrics", served.map_err(Into::into))
    });
    Ok(())
}

/// Asks the API server for the user of a token, and whether that user may get `/metrics`.
fn ask(client: &Client) -> Ask {
    let client = client.clone();
    Arc::new(move |token| {
        let client = client.clone();
        async move { review(&client, token).await }.boxed()
    })
}

async fn review(client: &Client, token: String) -> Result<Verdict, String> {
    let question = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let answer = create(client, &question).await?;
    let status = answer.status.unwrap_or_default();
    let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
        return Ok(Verdict::Unknown);
    };
    let name = user.username.clone().unwrap_or_default();
    let question = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some("/metrics".to_owned()),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer = create(client, &question).await?;
    let allowed = answer.status.is_some_and(|status| status.allowed);
    Ok(if allowed {
        Verdict::Allowed
    } else {
        Verdict::Forbidden(name)
    })
}

/// Asks the API server, which answers with the question and a status.
async fn create<K>(client: &Client, question: &K) -> Result<K, String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let parameters = PostParams::default();
    let reviews: Api<K> = Api::all(client.clone());
    let answer = timeout(CALL_TIMEOUT, reviews.create(&parameters, question)).await;
    let (verb, problem) = match answer {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => {
            ("not allowed to", status.message)
        }
        Ok(Err(error)) => ("cannot", explain(&error)),
        Err(_) => ("cannot", format!("no answer within {CALL_TIMEOUT:?}")),
    };
    Err(format!("{verb} create {}: {problem}", K::plural(&())))
}
