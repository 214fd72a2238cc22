//! Where a pod belongs, held against Kubernetes' own helpers: the program of `tests/oracle/placement`
//! judges the same random nodes and templates.

use crate::harness;
use std::collections::BTreeMap;
use std::fs;

use chrono::Utc;
use fastrand::Rng;
use my_operator::kinds::mydaemonset::decide::placement::{
    Eligibility, Placement, daemon_tolerations,
};
use my_operator::kinds::mydaemonset::observe::node::NodeView;
use my_operator_cluster::binaries::kubernetes_version;
use my_operator_kind::template::PodTemplate;
use my_operator_rounds::lengths::placements;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// At least that share of the cases, in percent, must end each way: else they hardly show anything.
const SHARE: usize = 5;

/// What Kubernetes says of a pod and a node.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    /// Node selector and required affinity match.
    matches: bool,
    /// The keys of the taints that are not tolerated.
    no_execute: Vec<String>,
    no_schedule: Vec<String>,
}

impl Answer {
    /// What the design makes of that: the built-in controller knows neither cordons nor nodes that
    /// are down.
    fn fate(&self, cordoned: bool) -> Eligibility {
        let down = ["not-ready", "unreachable"].map(|k| format!("node.kubernetes.io/{k}"));
        if !self.matches || !self.no_execute.is_empty() {
            Eligibility::Leave
        } else if !self.no_schedule.iter().all(|key| down.contains(key)) {
            Eligibility::Keep
        } else if cordoned {
            Eligibility::Cordoned
        } else if self.no_schedule.is_empty() {
            Eligibility::Run
        } else {
            Eligibility::Down
        }
    }
}

const KEYS: &[&str] = &["a", "b", "example.com/c"];
/// No label has such a key.
const ODD_KEYS: &[&str] = &["", "-a", "a b", "/a", "a/b/c", "EXAMPLE.com/c"];
const VALUES: &[&str] = &["1", "2", "10", "x", ""];
/// Numbers at the edges, and what only looks like one. Some cannot be values of labels.
const ODD_VALUES: &[&str] = &[
    "-3",
    "+4",
    "007",
    "1.5",
    "1e3",
    "0x10",
    "1_0",
    " 1",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "x-",
    "\u{e4}",
    "\u{661}",
    "0123456789012345678901234567890123456789012345678901234567890123",
];
const TAINTS: &[&str] = &[
    "a",
    "a",
    "b",
    "b",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/network-unavailable",
];
const EFFECTS: &[&str] = &[
    "NoSchedule",
    "NoSchedule",
    "NoSchedule",
    "NoExecute",
    "PreferNoSchedule",
    "",
    "Never",
];

/// Random nodes and templates, out of small alphabets so that they often fit.
struct Maker(Rng);

impl Maker {
    fn once_in(&mut self, n: usize) -> bool {
        self.0.usize(0..n) == 0
    }

    fn one(&mut self, list: &[&str]) -> String {
        list[self.0.usize(0..list.len())].to_owned()
    }

    /// Mostly one of the first list.
    fn mostly(&mut self, list: &[&str], odd: &[&str]) -> String {
        if self.once_in(12) {
            self.one(odd)
        } else {
            self.one(list)
        }
    }

    fn key(&mut self) -> String {
        self.mostly(KEYS, ODD_KEYS)
    }

    fn value(&mut self) -> String {
        self.mostly(VALUES, ODD_VALUES)
    }

    fn list(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> Value) -> Value {
        let length = self.0.usize(0..=most);
        (0..length).map(|_| make(self)).collect()
    }

    /// The same where the API lets the absence of a list say what an empty one says.
    fn optional(&mut self, most: usize, make: impl FnMut(&mut Self) -> Value) -> Value {
        let list = self.list(most, make);
        match list.as_array().map(Vec::len) {
            Some(0) if self.0.bool() => Value::Null,
            _ => list,
        }
    }

    fn labels(&mut self, most: usize) -> BTreeMap<String, String> {
        let length = self.0.usize(0..=most);
        (0..length).map(|_| (self.key(), self.value())).collect()
    }

    fn name(&mut self) -> String {
        self.one(&["n1", "n2"])
    }

    fn taint(&mut self) -> Value {
        json!({
            "key": self.one(TAINTS),
            "value": self.one(VALUES),
            "effect": self.one(EFFECTS),
        })
    }

    fn node(&mut self) -> Value {
        let few = if self.once_in(2) { 3 } else { 1 };
        let mut labels = self.labels(4);
        // An API server stores no label with a space, so a selector of one fits no node. The built-in controller would
        // compare them.
        labels.retain(|key, value| !key.contains(' ') && !value.contains(' '));
        json!({
            "metadata": {"name": self.name(), "labels": labels},
            "spec": {"unschedulable": self.once_in(8), "taints": self.list(few, Self::taint)},
        })
    }

    fn toleration(&mut self) -> Value {
        let mut toleration = Map::new();
        // Each field may be absent.
        let fields = [
            ("key", self.one(&[TAINTS, &[""]].concat())),
            (
                "operator",
                self.one(&[
                    "Equal", "Exists", "Exists", "", "Lt", "Gt", "exists", "Near",
                ]),
            ),
            ("value", self.value()),
            ("effect", self.one(EFFECTS)),
        ];
        for (name, value) in fields {
            if !self.once_in(4) {
                toleration.insert(name.to_owned(), value.into());
            }
        }
        if self.once_in(4) {
            toleration.insert("tolerationSeconds".to_owned(), self.0.i64(-1..9).into());
        }
        toleration.into()
    }

    fn expression(&mut self) -> Value {
        let operator = self.mostly(
            &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
            &["", "in", "Equal", "Near"],
        );
        let values = match operator.as_str() {
            "Exists" | "DoesNotExist" if !self.once_in(8) => Value::Null,
            "Gt" | "Lt" if !self.once_in(8) => json!([self.value()]),
            _ => self.optional(3, |maker| maker.value().into()),
        };
        json!({"key": self.key(), "operator": operator, "values": values})
    }

    fn field(&mut self) -> Value {
        let operator = self.mostly(&["In", "NotIn"], &["", "Exists", "Gt"]);
        let values = if self.once_in(8) {
            self.optional(2, |maker| maker.name().into())
        } else {
            json!([self.name()])
        };
        let key = self.mostly(&["metadata.name"], &["metadata.namespace", ""]);
        json!({"key": key, "operator": operator, "values": values})
    }

    fn term(&mut self) -> Value {
        let expressions = self.optional(2, Self::expression);
        let fields = if self.once_in(3) {
            self.optional(2, Self::field)
        } else {
            Value::Null
        };
        json!({"matchExpressions": expressions, "matchFields": fields})
    }

    fn template(&mut self) -> Value {
        let mut spec = Map::new();
        if self.once_in(4) {
            spec.insert("nodeSelector".to_owned(), json!(self.labels(2)));
        }
        if self.0.bool() {
            let required = json!({"nodeSelectorTerms": self.optional(3, Self::term)});
            let affinity = match self.0.u32(0..8) {
                0 => {
                    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": null}})
                }
                1 => json!({"nodeAffinity": null}),
                _ => {
                    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
                }
            };
            spec.insert("affinity".to_owned(), affinity);
        }
        spec.insert("tolerations".to_owned(), self.optional(3, Self::toleration));
        if self.0.bool() {
            spec.insert("hostNetwork".to_owned(), self.0.bool().into());
        }
        json!({"spec": spec})
    }
}

/// The pod of a template, as far as it matters here.
fn pod(template: &Value) -> Value {
    let mut pod = template.clone();
    let added = daemon_tolerations(template["spec"].as_object());
    let own = pod["spec"]["tolerations"].as_array().cloned();
    pod["spec"]["tolerations"] = own.into_iter().flatten().chain(added).collect();
    pod
}

#[test]
fn a_pod_belongs_where_kubernetes_says() {
    let mut maker = Maker(Rng::with_seed(harness::seed("nodes and templates")));
    let count = placements();
    let cases: Vec<(Value, Value)> = (0..count)
        .map(|_| (maker.template(), maker.node()))
        .collect();
    let ask = |cases: Vec<Value>| -> Vec<Answer> {
        harness::oracle::ask("placement", &[], cases.into_iter())
    };
    let whole = cases
        .iter()
        .map(|(template, node)| json!({"pod": pod(template), "node": node}));
    let answers = ask(whole.collect());
    // Only what the template itself tolerates counts for a cordon, and not what a daemon's pod always tolerates.
    let cordon = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    let cordoned = cases.iter().map(
        |(template, _)| json!({"pod": template, "node": {"spec": {"taints": [cordon.clone()]}}}),
    );
    let tolerant = ask(cordoned.collect());

    let mut wrong = Vec::new();
    let mut shares: BTreeMap<String, usize> = BTreeMap::new();
    for (((template, node), answer), tolerant) in cases.iter().zip(&answers).zip(&tolerant) {
        let watched = serde_json::from_value(node.clone()).unwrap();
        let view = NodeView::from_watched(watched, Utc::now());
        let ours =
            Placement::from_template(Some(&PodTemplate(template.clone()))).eligibility(&view);
        let is_cordoned = node["spec"]["unschedulable"] == true;
        let theirs = answer.fate(is_cordoned && !tolerant.no_schedule.is_empty());
        *shares.entry(format!("{theirs:?}")).or_default() += 1;
        if ours != theirs {
            wrong.push(format!(
                "{ours:?} here, {theirs:?} there: {answer:?}\n  {template}\n  {node}"
            ));
        }
    }
    println!("of {count}: {shares:?}");
    assert!(
        wrong.is_empty(),
        "{} differences, the first of them:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(5)].join("\n")
    );
    for fate in ["Run", "Keep", "Leave"] {
        let share = shares.get(fate).copied().unwrap_or_default();
        assert!(share * 100 >= count * SHARE, "{fate}: {share} of {count}");
    }
}

#[test]
fn the_helpers_are_those_of_the_local_control_plane() {
    let version = kubernetes_version().replacen("v1.", "v0.", 1);
    let modules = fs::read_to_string(harness::checkout().join("tests/oracle/go.mod")).unwrap();
    for module in ["api", "component-helpers"] {
        let line = format!("k8s.io/{module} {version}");
        assert!(modules.contains(&line), "{line} is not in go.mod");
    }
}
