//! The API server's audit log of the operator's writes: which token asked for what, and when.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use my_operator_cluster::{Cluster, Options};
use serde_json::Value;

use crate::harness::{checkout, time};

/// In the cluster's folder, where the API server runs.
const LOG: &str = "audit.log";

/// A write that the API server was asked for.
pub(super) struct Write {
    pub(super) at: DateTime<Utc>,
    /// Verb, path and answer.
    pub(super) what: String,
    /// It is an update of a Lease that did not succeed.
    pub(super) is_failed_renewal: bool,
}

/// Lets the API server write down all writes of the operator.
pub(crate) fn audited(mut options: Options) -> Options {
    let policy = checkout().join("tests/control_plane/disruption/leader/audit-policy.yaml");
    options.api_server_args.extend([
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={LOG}"),
        "--audit-log-mode=blocking".to_owned(),
    ]);
    options
}

/// The log of a cluster.
pub(super) struct Audit {
    log: PathBuf,
}

impl Audit {
    pub(super) fn of(cluster: &Cluster) -> Self {
        Self {
            log: cluster.directory().join(LOG),
        }
    }

    /// Every write with that token.
    pub(super) fn writes(&self, credential: &str) -> Vec<Write> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let lines = text.lines().filter(|line| line.contains(credential));
        lines
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .map(|event| Write {
                at: time(event["requestReceivedTimestamp"].as_str().unwrap()),
                what: format!(
                    "{} {} {}",
                    event["verb"], event["requestURI"], event["responseStatus"]["code"]
                ),
                is_failed_renewal: event["verb"] == "update"
                    && event["objectRef"]["resource"] == "leases"
                    && event["responseStatus"]["code"] != 200,
            })
            .collect()
    }
}

/// What the audit log calls the token of a kubeconfig: its `jti`.
pub(super) fn credential(kubeconfig: &Path) -> String {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let token = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("token: "));
    let claims = token.unwrap().split('.').nth(1).unwrap();
    let claims = URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    claims["jti"].as_str().unwrap().to_owned()
}
