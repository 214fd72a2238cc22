//! Checks a manifest by a CRD and the rules of its kind: `cargo run -p my-operator-admit --example check`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::io;

use admission_rules::judge::Admission;
use admission_rules::rules::{Findings, Rules, Subject};
use chrono::{DateTime, Utc};
use kube::{CustomResource, CustomResourceExt as _};
use my_operator_admit::object::Rulebook;
use my_operator_admit::read::Source;
use my_operator_admit::{judge, report};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced)]
struct LampSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    watts: Option<i64>,
}

struct LampRules;

impl Rules for LampRules {
    type Object = Lamp;
    type Spec = LampSpec;
    type Status = ();

    fn default(_: &mut LampSpec) {}

    fn check(lamp: &Subject<'_, LampSpec>, _now: DateTime<Utc>) -> Findings {
        let mut findings = Findings::default();
        findings.check_number("spec.watts", lamp.spec.watts, 1..=60);
        findings
    }
}

const MANIFEST: &str = "\
apiVersion: example.com/v1
kind: Lamp
metadata: {name: desk}
spec: {watts: 100}
---
apiVersion: example.com/v1
kind: Lamp
metadata: {name: Floor}
spec:
  volts: 12
";

fn main() {
    let books = [Rulebook::new(Lamp::crd(), Admission::of::<LampRules>())];
    let source = Source {
        name: "lamps.yaml".to_owned(),
        text: Ok(MANIFEST.to_owned()),
        is_named: true,
    };
    let judged = judge(&source, &books, Utc::now());
    report::text(&judged, &mut io::stdout(), &mut io::stderr()).unwrap();
}
