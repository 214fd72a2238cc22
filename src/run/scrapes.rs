//! The metrics as a part of the whole: where they are served, with which certificate, and how the API
//! server is asked who may read them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt as _;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::flags::{Flags, OptionalAddress};
use super::webhooks::{operator_namespace, service_names};
use super::{Stop, Tasks, serve_plain};
use crate::certs::authority::{self, Authority, BACKDATE};
use crate::certs::call::{self, Call};
use crate::certs::{BundleTarget, Files, ServedCertificate};
use crate::telemetry::access::{self, Ask, Verdict};
use crate::{client, manifests, serving};

/// How long a certificate of our own is good for; it is renewed at half of it.
const VALIDITY: TimeDelta = TimeDelta::days(90);
/// How often the wall clock is looked at. A timer alone would sleep with the machine.
const TICK: Duration = Duration::from_mins(1);

/// Where metrics are served, if they are.
pub(super) fn address(flags: &Flags) -> OptionalAddress {
    flags.metrics_bind_address.unwrap_or_else(|| {
        Some(if client::in_cluster() {
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8443))
        } else {
            SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))
        })
    })
}

/// Serves the page, to all or to those who may.
pub(super) fn serve(
    tasks: &mut Tasks,
    listener: TcpListener,
    router: Router,
    flags: &Flags,
    client: &Client,
    stop: &Stop,
) -> anyhow::Result<()> {
    if !flags.metrics_secure.unwrap_or_else(client::in_cluster) {
        serve_plain(tasks, "metrics", listener, router, stop);
        return Ok(());
    }
    let until = stop.serving.clone();
    let certificate = if let Some(folder) = &flags.metrics_cert_path {
        let files = Files::new(client, "metrics", folder.clone(), &BundleTarget::None);
        let certificate = files.resolver();
        tasks.spawn(async move {
            let result = files.run(until).await;
            ("certificate of the metrics", result.map_err(Into::into))
        });
        certificate
    } else {
        let mut hosts = service_names(manifests::METRICS_SERVICE, &operator_namespace(flags));
        hosts.push("localhost".to_owned());
        let own = OwnCertificate::new(hosts, Utc::now())?;
        let certificate = own.served.clone();
        tasks.spawn(async move {
            own.keep(until).await;
            ("certificate of the metrics", Ok(()))
        });
        certificate
    };
    let tls = serving::tls_config(certificate)?;
    let router = access::guard(router, ask(client));
    let shutdown = serving::Shutdown {
        draining: stop.serving.clone(),
        stop: stop.serving.clone(),
    };
    tasks.spawn(async move {
        let limits = serving::Limits::of_pages();
        serving::serve(listener, tls, router, limits, shutdown, Arc::default()).await;
        ("metrics", Ok(()))
    });
    Ok(())
}

/// A certificate that nobody but ourselves vouches for, as kubebuilder's projects have it: what is
/// said stays secret, but Prometheus must be told not to verify who says it.
struct OwnCertificate {
    hosts: Vec<String>,
    served: Arc<ServedCertificate>,
    signed_at: DateTime<Utc>,
}

impl OwnCertificate {
    fn new(hosts: Vec<String>, now: DateTime<Utc>) -> Result<Self, authority::Error> {
        let mut own = Self {
            hosts,
            served: Arc::default(),
            signed_at: now,
        };
        own.sign(now)?;
        Ok(own)
    }

    /// Signs another, with an authority that nobody will see again.
    fn sign(&mut self, now: DateTime<Utc>) -> Result<(), authority::Error> {
        let leaf = Authority::generate(now, VALIDITY)?.issue(&self.hosts, now, VALIDITY)?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        self.served.set(leaf.certified_key(&provider)?);
        self.signed_at = now;
        Ok(())
    }

    async fn keep(mut self, until: CancellationToken) {
        loop {
            tokio::select! {
                () = until.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
            let now = Utc::now();
            if !due(self.signed_at, now) {
                continue;
            }
            match self.sign(now) {
                Ok(()) => tracing::info!("another certificate was made for the metrics"),
                Err(error) => tracing::warn!(%error, "the certificate of the metrics stays"),
            }
        }
    }
}

/// Whether a certificate is to be followed by another: its half time is over, or the clock was set
/// back so far that it is not valid yet.
fn due(signed_at: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    now >= signed_at + VALIDITY / 2 || now < signed_at - BACKDATE
}

/// Asks the API server whose a token is, and whether they may get `/metrics`.
fn ask(client: &Client) -> Ask {
    let client = client.clone();
    Arc::new(move |token| {
        let client = client.clone();
        async move {
            let verdict = review(&client, token).await;
            verdict.map_err(|error| error.to_string())
        }
        .boxed()
    })
}

async fn review(client: &Client, token: String) -> Result<Verdict, call::Error> {
    let call = |resource| Call {
        verb: "create",
        resource,
        namespace: None,
        name: "for the metrics".to_owned(),
    };
    let parameters = PostParams::default();
    let question = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let reviews: Api<TokenReview> = Api::all(client.clone());
    let answer = call("tokenreviews").run(reviews.create(&parameters, &question));
    let status = answer.await?.status.unwrap_or_default();
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
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = call("subjectaccessreviews").run(reviews.create(&parameters, &question));
    let allowed = answer.await?.status.is_some_and(|status| status.allowed);
    Ok(if allowed {
        Verdict::Allowed
    } else {
        Verdict::Forbidden(name)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_certificate_is_renewed_at_half_its_time_and_when_the_clock_went_back() {
        let signed = DateTime::UNIX_EPOCH + TimeDelta::days(20_000);
        for (days, expected) in [(0, false), (44, false), (45, true), (90, true), (-2, true)] {
            assert_eq!(
                due(signed, signed + TimeDelta::days(days)),
                expected,
                "{days}"
            );
        }
        assert!(!due(signed, signed - BACKDATE));
    }

    #[test]
    fn a_renewed_certificate_is_another_one() {
        let now = Utc::now();
        let mut own = OwnCertificate::new(vec!["localhost".to_owned()], now).unwrap();
        let first = own.served.get().unwrap();
        own.sign(now).unwrap();
        assert_ne!(first.cert, own.served.get().unwrap().cert);
    }
}
