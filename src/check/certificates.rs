//! Whether API servers trust the certificate of the webhooks, and for how long.

use std::net::{IpAddr, SocketAddr};

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::configurations::{Configuration, origin};
use super::fetch::{Cluster, Fetched, Resource};
use super::installation::Installation;
use super::report::Finding;
use resilient_kube_client as client;
use webhook_certs::inspect::{self, Bundle, Served, is_overdue};

const BUNDLE: &str = "ca-bundle";
const CERTIFICATE: &str = "certificate";

/// What the bundles are compared with, and where it was seen.
enum Source {
    /// The certificate that a listener shows to callers of that host, or that a Secret holds.
    Served {
        from: String,
        host: String,
        served: Served,
    },
    /// The CA that signs: the serving certificates are in the memory of the replicas.
    Authority { from: String, bundle: Bundle },
    /// Neither could be seen.
    Unseen(Finding),
}

/// How the API server reaches an entry: the address of the listener, and the host in its certificate.
struct Reach {
    address: String,
    host: String,
    /// The Service (namespace, name), which only pods reach.
    service: Option<(String, String)>,
}

impl Reach {
    /// The address, without the cluster's DNS where the Service can be read: API servers do not use it either.
    async fn resolved(&self, cluster: &Cluster) -> String {
        let Some((namespace, name)) = &self.service else {
            return self.address.clone();
        };
        let services = Resource::cluster("", "v1", "services").within(namespace);
        let service = cluster.get(services, name).await.ok();
        let ip = service
            .as_ref()
            .and_then(|it| it["spec"]["clusterIP"].as_str());
        let ip = ip.and_then(|ip| ip.parse::<IpAddr>().ok());
        let port = self.address.rsplit(':').next();
        match (ip, port.and_then(|port| port.parse().ok())) {
            (Some(ip), Some(port)) => SocketAddr::new(ip, port).to_string(),
            _ => self.address.clone(),
        }
    }
}

pub(super) async fn check(
    cluster: &Cluster,
    installed: &Installation,
    configurations: &[Configuration; 2],
    address: Option<&str>,
) -> Vec<Finding> {
    let all = || configurations.iter().flat_map(|it| &it.entries);
    if configurations.iter().all(Configuration::is_unread) {
        let text = "unknown: no webhook configuration was seen";
        return vec![Finding::warning(BUNDLE, text).unknown()];
    }
    let bundles: Vec<(String, Option<Bundle>)> = all().map(entry).collect();
    let injected = configurations.iter().all(|it| it.injected);
    let reach = all().find_map(reach);
    let called = reach.as_ref().map(|it| it.host.clone());
    let mut source = source(cluster, installed, reach, address).await;
    // A certificate from a Secret is compared with the Service that the entries name: OLM's has another name than ours.
    if let (Source::Served { host, .. }, Some(called)) = (&mut source, called) {
        *host = called;
    }
    judge(&bundles, injected, &source, cluster.now())
}

/// An entry's name, and its bundle; None where the field is empty.
fn entry(entry: &Value) -> (String, Option<Bundle>) {
    let bundle = entry["clientConfig"]["caBundle"].as_str();
    let bundle = bundle.filter(|text| !text.is_empty());
    let name = entry["name"].as_str().unwrap_or_default();
    (name.to_owned(), bundle.map(Bundle::from_base64))
}

fn reach(entry: &Value) -> Option<Reach> {
    let config = &entry["clientConfig"];
    if let Some(url) = config["url"].as_str() {
        let authority = origin(url).rsplit('/').next()?;
        let port = authority
            .rsplit(':')
            .next()
            .filter(|port| port.parse::<u16>().is_ok());
        let host = port.map_or(authority, |port| {
            &authority[..authority.len() - port.len() - 1]
        });
        return Some(Reach {
            address: format!("{host}:{}", port.unwrap_or("443")),
            host: host.trim_matches(['[', ']']).to_owned(),
            service: None,
        });
    }
    let service = &config["service"];
    let (namespace, name) = (service["namespace"].as_str()?, service["name"].as_str()?);
    let host = format!("{name}.{namespace}.svc");
    let port = service["port"].as_u64().unwrap_or(443);
    Some(Reach {
        address: format!("{host}:{port}"),
        host,
        service: Some((namespace.to_owned(), name.to_owned())),
    })
}

/// What the listener shows, if it can be reached from here; else what the Secret has.
async fn source(
    cluster: &Cluster,
    installed: &Installation,
    reach: Option<Reach>,
    address: Option<&str>,
) -> Source {
    let reach =
        reach.filter(|it| address.is_some() || client::in_cluster() || it.service.is_none());
    let mut problem = None;
    if let Some(reach) = reach {
        let address = match address {
            Some(address) => address.to_owned(),
            None => reach.resolved(cluster).await,
        };
        let host = reach.host;
        match inspect::served(&address, &host).await {
            Ok(served) => {
                return Source::Served {
                    from: format!("the webhook at {address}"),
                    host,
                    served,
                };
            }
            Err(error) => problem = Some(format!("{address}: {error}")),
        }
    }
    let name = installed
        .certificate_secret
        .as_deref()
        .map_or_else(|| installed.names.ca_secret(), str::to_owned);
    let secrets = Resource::cluster("", "v1", "secrets").within(installed.namespace());
    let found = if name.is_empty() {
        return Source::Unseen(Finding::warning(
            CERTIFICATE,
            "unknown: the folder of --webhook-cert-path is no Secret, and the webhook is not reached from here",
        )
        .unknown());
    } else {
        cluster.get(secrets, &name).await
    };
    let host = format!(
        "{}.{}.svc",
        installed.names.webhook_service(),
        installed.namespace()
    );
    from_secret(installed, &name, found, host, problem)
}

fn from_secret(
    installed: &Installation,
    name: &str,
    found: Fetched<Value>,
    host: String,
    problem: Option<String>,
) -> Source {
    let from = format!("Secret {name}");
    let found = match found {
        Ok(found) => found,
        Err(unread) => {
            let mut finding = unread.finding(CERTIFICATE).about(&from);
            if let Some(problem) = problem {
                let text = format!("{}; {problem}", finding.message);
                finding = Finding::warning(CERTIFICATE, text).unknown();
            }
            return Source::Unseen(finding);
        }
    };
    let data = |key: &str| found["data"][key].as_str().unwrap_or_default();
    if installed.certificate_secret.is_none() {
        let bundle = Bundle::from_base64(data("ca.crt"));
        return Source::Authority { from, bundle };
    }
    match Served::from_base64(data("tls.crt")) {
        Ok(served) => Source::Served { from, host, served },
        Err(error) => Source::Unseen(
            Finding::failed(CERTIFICATE, format!("{from}: tls.crt: {error}"))
                .action("look at the Certificate of cert-manager, or put a pair into the Secret"),
        ),
    }
}

fn judge(
    bundles: &[(String, Option<Bundle>)],
    injected: bool,
    source: &Source,
    now: DateTime<Utc>,
) -> Vec<Finding> {
    vec![
        bundle(bundles, injected, source, now),
        certificate(source, now),
    ]
}

/// The finding on the bundles of all entries.
fn bundle(
    bundles: &[(String, Option<Bundle>)],
    injected: bool,
    source: &Source,
    now: DateTime<Utc>,
) -> Finding {
    let action = if injected {
        "look at cert-manager's injector (cainjector) and the Certificate"
    } else {
        "the operator restores it within seconds: look at its log, and find who else writes it"
    };
    let names = |wrong: &dyn Fn(&Option<Bundle>) -> bool| {
        let wrong = bundles.iter().filter(|(_, bundle)| wrong(bundle));
        let names: Vec<&str> = wrong.map(|(name, _)| name.as_str()).collect();
        names.join(", ")
    };
    let empty = names(&|it| it.as_ref().is_none_or(Bundle::is_empty));
    if !empty.is_empty() {
        let text = format!("caBundle of {empty} holds no certificate");
        return Finding::failed(BUNDLE, text).action(action);
    }
    let trusts = |bundle: &Bundle| match source {
        Source::Served { served, .. } => served.is_trusted_by(bundle, now),
        Source::Authority { bundle: ca, .. } => bundle.contains(ca),
        Source::Unseen(_) => true,
    };
    let from = match source {
        Source::Served { from, .. } | Source::Authority { from, .. } => from,
        Source::Unseen(_) => {
            return Finding::warning(
                BUNDLE,
                "every entry has one; whether it is the right one is unknown",
            )
            .unknown();
        }
    };
    let wrong = names(&|it| it.as_ref().is_some_and(|it| !trusts(it)));
    if wrong.is_empty() {
        return Finding::passed(
            BUNDLE,
            format!("every entry trusts the certificate of {from}"),
        );
    }
    let text = format!("caBundle of {wrong} does not trust the certificate of {from}");
    Finding::failed(BUNDLE, text).action(action)
}

/// The finding on the certificate itself.
fn certificate(source: &Source, now: DateTime<Utc>) -> Finding {
    const RENEW: &str = "look at who renews it: the operator's log, or cert-manager's Certificate";
    match source {
        Source::Unseen(finding) => finding.clone(),
        Source::Served { from, host, served } => {
            if let Some(fault) = served.fault(host, now) {
                return Finding::failed(CERTIFICATE, format!("{from}: {fault}")).action(RENEW);
            }
            let until = served.not_after();
            if served.is_overdue(now) {
                let text = format!("{from}: expires at {until}, and is not renewed");
                return Finding::warning(CERTIFICATE, text).action(RENEW);
            }
            Finding::passed(CERTIFICATE, format!("{from}: valid until {until}"))
        }
        Source::Authority { from, bundle } => {
            let Some((begin, end)) = bundle.validity() else {
                return Finding::failed(
                    CERTIFICATE,
                    format!("{from}: ca.crt holds no certificate"),
                )
                .action("look at the operator's log: it replaces the CA");
            };
            if now >= end {
                return Finding::failed(CERTIFICATE, format!("{from}: the CA expired at {end}"))
                    .action(RENEW);
            }
            let text = format!("{from}: the CA is valid until {end}");
            if is_overdue((begin, end), now) {
                return Finding::warning(CERTIFICATE, format!("{text}, and is not renewed"))
                    .action(RENEW);
            }
            Finding::passed(
                CERTIFICATE,
                format!(
                    "{text}; the serving certificates, which each replica keeps in memory, are seen only from a pod or with --webhook-address"
                ),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::TimeDelta;
    use serde_json::json;
    use webhook_certs::authority::Authority;

    use super::*;
    use crate::check::report::Level::{self, Failed, Passed, Warning};

    const HOST: &str = "service.own.svc";

    fn pem(authority: &Authority) -> Bundle {
        Bundle::from_pem(authority.certificate_pem().as_bytes())
    }

    fn served(authority: &Authority, now: DateTime<Utc>, days: i64) -> Source {
        let leaf = authority.issue(&[HOST.to_owned()], now, TimeDelta::days(days));
        Source::Served {
            from: "the webhook at x".to_owned(),
            host: HOST.to_owned(),
            served: Served::new(leaf.unwrap().chain).unwrap(),
        }
    }

    #[test]
    fn bundles_and_certificates_are_judged_together() {
        let now = Utc::now();
        let ours = Authority::generate(now, TimeDelta::days(365)).unwrap();
        let other = Authority::generate(now, TimeDelta::days(365)).unwrap();
        let entries = |bundle: Option<Bundle>| {
            vec![("a".to_owned(), Some(pem(&ours))), ("b".to_owned(), bundle)]
        };
        let good = || entries(Some(pem(&ours)));
        let secret = |authority: &Authority| Source::Authority {
            from: "Secret s".to_owned(),
            bundle: pem(authority),
        };
        let later = |days| now + TimeDelta::days(days);
        let unseen = Source::Unseen(Finding::warning(CERTIFICATE, "unknown:"));
        for (entries, source, at, levels, words) in [
            (
                good(),
                served(&ours, now, 7),
                now,
                [Passed, Passed],
                "every entry trusts",
            ),
            (
                entries(None),
                served(&ours, now, 7),
                now,
                [Failed, Passed],
                "caBundle of b holds no certificate",
            ),
            (
                entries(Some(Bundle::default())),
                served(&ours, now, 7),
                now,
                [Failed, Passed],
                "caBundle of b holds no certificate",
            ),
            (
                entries(Some(pem(&other))),
                served(&ours, now, 7),
                now,
                [Failed, Passed],
                "caBundle of b does not trust",
            ),
            (
                good(),
                served(&ours, now, 7),
                later(8),
                [Passed, Failed],
                "expired at",
            ),
            (
                good(),
                served(&ours, now, 7),
                later(6),
                [Passed, Warning],
                "is not renewed",
            ),
            (
                good(),
                secret(&ours),
                now,
                [Passed, Passed],
                "the CA is valid until",
            ),
            (
                good(),
                secret(&other),
                now,
                [Failed, Passed],
                "does not trust the certificate of Secret s",
            ),
            (
                good(),
                secret(&ours),
                later(366),
                [Passed, Failed],
                "the CA expired at",
            ),
            (
                good(),
                unseen,
                now,
                [Warning, Warning],
                "is the right one is unknown",
            ),
        ] {
            let findings = judge(&entries, false, &source, at);
            let found: Vec<Level> = findings.iter().map(|it| it.level).collect();
            assert_eq!(found, levels, "{findings:?}");
            assert!(
                findings.iter().any(|it| it.message.contains(words)),
                "{words}: {findings:?}"
            );
        }
    }

    #[test]
    fn the_listener_is_found_by_url_or_service() {
        for (config, address, host) in [
            (
                json!({"url": "https://127.0.0.1:9443/x"}),
                "127.0.0.1:9443",
                "127.0.0.1",
            ),
            (json!({"url": "https://[::1]:9443/x"}), "[::1]:9443", "::1"),
            (
                json!({"url": "https://example.com/x"}),
                "example.com:443",
                "example.com",
            ),
            (
                json!({"service": {"name": "s", "namespace": "n"}}),
                "s.n.svc:443",
                "s.n.svc",
            ),
        ] {
            let reach = reach(&json!({ "clientConfig": config })).unwrap();
            assert_eq!(
                (reach.address.as_str(), reach.host.as_str()),
                (address, host)
            );
        }
    }
}
