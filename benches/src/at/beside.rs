//! Many Ats due at one instant: alone, and beside Ats of other namespaces whose pods cannot be created because an
//! admission webhook does not answer.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Result, ensure};
use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};

use super::{OPERATOR, writes};
use crate::plane::{Plane, at_once};
use crate::sightings::Pod;
use crate::table::{Aim, Figures};

/// How many namespaces have calls that hang, with as many Ats each.
const NAMESPACES: usize = 100;
/// The label of these namespaces.
const LABEL: &str = "bench.example.com/hangs";
/// The instant is so long after the first creation: some seconds, and a time for each.
const LEAD: (f64, f64) = (10.0, 0.025);
/// The Ats whose calls hang are due so long before the others: all of them are being tried by then.
const EARLIER: TimeDelta = TimeDelta::seconds(5);

/// Measures this operator, with `count` Ats due beside `hanging` ones.
pub(super) async fn measure(count: usize, hanging: usize, figures: &mut Figures) -> Result<()> {
    let alone = lateness(count, 0).await?;
    let beside = lateness(count, hanging).await?;
    let names = ["first", "median", "last"];
    for ((name, alone), beside) in names.iter().zip(alone).zip(beside) {
        let of = format!("{name} of {count} due");
        figures.add(format!("{of}: released late by, s"), alone, &[]);
        let name = format!("{of}, beside {hanging} that hang ÷ alone");
        figures.add(name, beside / alone, &[Aim::Most(1.3)]);
    }
    Ok(())
}

/// How late the first, the median and the last pod was released, in seconds.
async fn lateness(count: usize, hanging: usize) -> Result<[f64; 3]> {
    let plane = writes::plane(count.max(250)).await?;
    // Connections are accepted by the kernel, and nothing is ever read from them.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    plane.hang_pods(silent.local_addr()?.port()).await?;
    let running = OPERATOR.start(&plane).await?;
    #[allow(clippy::cast_precision_loss)]
    let lead = LEAD.0 + LEAD.1 * (count + hanging) as f64;
    let due = Utc::now() + TimeDelta::from_std(Duration::from_secs_f64(lead))?;
    at_once(NAMESPACES, |number| plane.create_hanging_namespace(number)).await?;
    plane.create_ats(count, due).await?;
    let create = |number| {
        let (plane, namespace) = (&plane, namespace(number % NAMESPACES));
        async move {
            let name = format!("at-{number}");
            plane.create_at(&namespace, &name, due - EARLIER).await
        }
    };
    at_once(hanging, create).await?;
    ensure!(
        Utc::now() < due - EARLIER,
        "the instant had come before all was ready for it"
    );
    let releases = plane.watch_pods(count, [Pod::is_released]).await?;
    let [mut seen] = releases.all().await?;
    seen.sort_unstable();
    let first = format!("/api/v1/namespaces/{}/pods", namespace(0));
    let pods: Value = plane.get(&first).await?;
    ensure!(pods["items"] == json!([]), "the webhook did not hang");
    running.stop().await;
    plane.stop().await;
    let late = |index: usize| (seen[index] - due).as_seconds_f64();
    Ok([0, count / 2, count - 1].map(late))
}

fn namespace(number: usize) -> String {
    format!("hangs-{number}")
}

impl Plane {
    async fn create_hanging_namespace(&self, number: usize) -> Result<()> {
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace(number), "labels": {LABEL: ""}},
        });
        self.post("/api/v1/namespaces", &namespace).await?;
        Ok(())
    }

    /// In namespaces with the label, pods cannot be created: the webhook at that port does not answer.
    async fn hang_pods(&self, port: u16) -> Result<()> {
        let webhook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "hangs"},
            "webhooks": [{
                "name": "hangs.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": 30,
                "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
                "namespaceSelector": {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["pods"],
                }],
            }],
        });
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        self.post(path, &webhook).await?;
        Ok(())
    }
}
