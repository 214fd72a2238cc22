//! A whole kind on one page: `cargo run --example greeting`. docs/example-kind.md explains its main parts.
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use admission_rules::faults::Fault;
use admission_rules::rules::{Findings, Rules, Subject, decode_and_validate};
use chrono::{DateTime, Utc};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use simulated_apiserver::{Options, Resource, Server};
use wall_clock_controller::reconcile::cache::{Cache, CacheEvent};
use wall_clock_controller::reconcile::watch::Selection;
use wall_clock_controller::reconcile::{Action, Context, Controller, Error, Key, Reconciler};
use wall_clock_controller::reconcile::{call_status, if_there, raw, write};

// crd.rs: what users write, and what they read.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced)]
#[kube(status = "GreetingStatus")]
struct GreetingSpec {
    name: Option<String>,
    volume: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
struct GreetingStatus {
    text: Option<String>,
}

// admission.rs: the defaults and rules, for webhook, reconciler and `admit`.
struct GreetingRules;

impl Rules for GreetingRules {
    type Object = Greeting;
    type Spec = GreetingSpec;
    type Status = GreetingStatus;

    fn default(spec: &mut GreetingSpec) {
        spec.volume.get_or_insert(1);
    }

    fn check(subject: &Subject<'_, GreetingSpec>, _now: DateTime<Utc>) -> Findings {
        let mut findings = Findings::default();
        if subject.spec.name.as_deref().is_none_or(str::is_empty) {
            findings.fault(Fault::required("spec.name", "whom to greet"));
        }
        findings.check_number("spec.volume", subject.spec.volume, 1..=5);
        findings
    }
}

// observe.rs: what the cache keeps of an object.
#[derive(PartialEq)]
struct GreetingView {
    uid: String,
    version: String,
    spec: Result<GreetingSpec, Vec<Fault>>,
    status: GreetingStatus,
}

impl GreetingView {
    fn new(object: raw::Object<Greeting>, now: DateTime<Utc>) -> Self {
        let metadata = object.metadata;
        let name = metadata.name.unwrap_or_default();
        let spec = object.spec.text();
        Self {
            spec: decode_and_validate::<GreetingRules>(&name, &BTreeMap::new(), spec, now),
            status: serde_json::from_str(object.status.text()).unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
        }
    }
}

// decide.rs: the status as it should be. Pure.
fn decide(spec: &Result<GreetingSpec, Vec<Fault>>) -> GreetingStatus {
    let text = spec.as_ref().ok().map(|spec| {
        let marks = usize::try_from(spec.volume.unwrap_or(1)).unwrap_or(1);
        let name = spec.name.as_deref().unwrap_or_default();
        format!("Hello, {name}{}", "!".repeat(marks))
    });
    GreetingStatus { text }
}

// controller.rs: watches, and one pass over one object: observe, decide, act.
struct GreetingReconciler {
    context: Context,
    greetings: Arc<Cache<GreetingView>>,
}

impl Reconciler for GreetingReconciler {
    async fn reconcile(&self, key: &Key, _now: DateTime<Utc>) -> Result<Action, Error> {
        let Some(greeting) = self.greetings.get(key) else {
            return Ok(Action::gone());
        };
        let status = decide(&greeting.spec);
        if status == greeting.status {
            return Ok(Action::default());
        }
        let (client, uid, version) = (&self.context.client, &greeting.uid, &greeting.version);
        let request = write::status::<raw::Object<Greeting>, _>(
            client, key, uid, version, &status, "greeter",
        );
        if_there(call_status::<raw::Object<Greeting>, _>(client, key, uid, request).await)?;
        Ok(Action {
            did: status.text,
            ..Action::default()
        })
    }
}

async fn run(context: Context) -> anyhow::Result<()> {
    let apis = context.apis::<raw::Object<Greeting>>();
    let controller = Controller::new("greeting", &context);
    let greetings = Arc::new(Cache::new(apis.len(), |_| Vec::new()));
    let (clock, queue) = (context.clock.clone(), controller.queue());
    let view = move |object| GreetingView::new(object, clock());
    let on_event = move |event: &CacheEvent<'_, GreetingView>| event.enqueue(&queue);
    controller
        .watch(
            apis,
            &Selection::default(),
            &greetings.clone(),
            view,
            on_event,
        )
        .run(Arc::new(GreetingReconciler { context, greetings }))
        .await
}

/// The kind on a simulated API server, where an hour takes no time: the text of a Greeting.
async fn greet(spec: GreetingSpec) -> String {
    let server = Server::new(Options::default());
    server.register(Resource::of::<Greeting>());
    let (client, clock) = (server.client("greeter"), server.clock().source());
    let (context, _publisher) = Context::new(client, clock, "greeter");
    tokio::spawn(run(context));
    let object = serde_json::to_value(Greeting::new("a", spec)).unwrap();
    server.direct().create(object).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stored = server.direct().get("greetings", "default", "a").unwrap();
    stored["status"]["text"].to_string()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    tokio::time::pause();
    let spec = GreetingSpec {
        name: Some("cluster".to_owned()),
        volume: Some(3),
    };
    println!("{}", greet(spec).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_valid_greeting_has_its_text_and_an_invalid_one_has_none() {
        let spec = |name: &str| GreetingSpec {
            name: Some(name.to_owned()),
            volume: None,
        };
        assert_eq!(greet(spec("you")).await, r#""Hello, you!""#);
        assert_eq!(greet(spec("")).await, "null");
    }
}
