//! Where a pod belongs: a pure function of a node and a template.
//!
//! The scheduler does not see these pods, so its rules are applied here: node selector and required
//! node affinity as in `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`, taints and
//! tolerations as in `k8s.io/api/core/v1`, and the built-in `DaemonSet` controller's view of both.

use serde_json::{Map, Value, json};

use crate::kinds::mydaemonset::observe::node::{NodeView, Taint};
use crate::kinds::shared::template::PodTemplate;
use my_operator_admission::names::is_subdomain;

pub(crate) mod rules;

/// Whether a node should have a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// The node should have a pod: it is created and updated.
    Run,
    /// The node would be eligible if it were not down: an existing pod stays, counts and is
    /// updated; a missing one is not created.
    Down,
    /// An existing pod stays as it is; none is created, and the node does not count.
    Keep,
    /// The node is cordoned: an existing pod stays and counts; none is created or replaced.
    Cordoned,
    /// The node must not have a pod.
    Leave,
}

/// Why a node must not have a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Its labels do not match the node selector.
    NodeSelector,
    /// It matches no term of the required node affinity.
    NodeAffinity,
    /// It has a `NoExecute` taint that the pod does not tolerate.
    Taint,
}

/// The taints that only say that the node is not Ready. The node lifecycle controller sets them
/// with `NoSchedule` (and with `NoExecute`, which daemons tolerate) within seconds: a node that
/// fell silent must still count as one that should have a pod, or each failure of a node would let
/// a roll-out take down one more.
const DOWN_TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

/// The tolerations that a daemon needs, as the built-in controller adds them: (key, effect).
const DAEMON_TOLERATIONS: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// The same for pods in the host's network, which do not need the pod network to be up.
const HOST_NETWORK_TOLERATION: (&str, &str) =
    ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The tolerations that the operator adds to a pod of this spec, in the API's form.
pub fn daemon_tolerations(spec: Option<&Map<String, Value>>) -> Vec<Value> {
    let host_network = spec.and_then(|s| s.get("hostNetwork")) == Some(&Value::Bool(true));
    DAEMON_TOLERATIONS
        .into_iter()
        .chain(host_network.then_some(HOST_NETWORK_TOLERATION))
        .map(|(key, effect)| json!({"key": key, "operator": "Exists", "effect": effect}))
        .collect()
}

/// A template's requirements on a node, parsed once so that each node costs little.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    selector: Vec<(String, Option<String>)>,
    /// A node that matches none of them is excluded. `None` without a required affinity.
    terms: Option<Vec<Term>>,
    tolerations: Vec<Toleration>,
    /// Whether the template itself tolerates cordons, as networking and storage daemons do: their pods come back on
    /// a cordoned node, as those of a `DaemonSet`. The toleration that the operator adds does not count.
    tolerates_cordon: bool,
}

/// A term of a required node affinity: all of it must match.
#[derive(Clone, Debug, PartialEq)]
struct Term {
    labels: Vec<Demand>,
    fields: Vec<Demand>,
}

/// One requirement. What the API server would call invalid is parsed as [`Test::Never`], including
/// keys and values that no label can have: a term with an error in it matches nothing.
#[derive(Clone, Debug, PartialEq)]
struct Demand {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
    Never,
}

#[derive(Clone, Debug, PartialEq)]
struct Toleration {
    key: String,
    operator: String,
    value: String,
    effect: String,
}

impl Placement {
    /// The requirements of a pod built from this template, with the tolerations that the operator adds.
    pub fn from_template(template: Option<&PodTemplate>) -> Self {
        let spec = template.and_then(PodTemplate::spec);
        let own = list(spec.and_then(|spec| spec.get("tolerations")));
        let added = daemon_tolerations(spec);
        let cordon = Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        Self {
            tolerates_cordon: own
                .iter()
                .any(|own| Toleration::read(own).tolerates(&cordon)),
            selector: selector(spec.and_then(|spec| spec.get("nodeSelector"))),
            terms: spec.and_then(terms),
            tolerations: own.iter().chain(&added).map(Toleration::read).collect(),
        }
    }

    /// Whether this node should have a pod.
    pub fn eligibility(&self, node: &NodeView) -> Eligibility {
        let untolerated = |effect: &'static str| {
            let taints = node.taints.iter();
            taints.filter(move |t| t.effect == effect && !self.tolerates(t))
        };
        let is_down = |taint: &Taint| DOWN_TAINTS.contains(&taint.key.as_str());
        if self.obstacle(node).is_some() {
            Eligibility::Leave
        } else if !untolerated("NoSchedule").all(is_down) {
            Eligibility::Keep
        } else if node.cordoned && !self.tolerates_cordon {
            Eligibility::Cordoned
        } else if untolerated("NoSchedule").next().is_some() {
            Eligibility::Down
        } else {
            Eligibility::Run
        }
    }

    /// Why there must be no pod on this node, if so.
    pub(crate) fn obstacle(&self, node: &NodeView) -> Option<Obstacle> {
        let mut selector = self.selector.iter();
        let selects = |(key, value): &(String, Option<String>)| {
            value.is_some() && node.label(key) == value.as_deref()
        };
        let affine = |terms: &Vec<Term>| terms.iter().any(|term| term.matches(node));
        let expels = |taint: &Taint| taint.effect == "NoExecute" && !self.tolerates(taint);
        if !selector.all(selects) {
            Some(Obstacle::NodeSelector)
        } else if !self.terms.as_ref().is_none_or(affine) {
            Some(Obstacle::NodeAffinity)
        } else {
            let expelled = node.taints.iter().any(expels);
            expelled.then_some(Obstacle::Taint)
        }
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|t| t.tolerates(taint))
    }
}

impl Term {
    fn matches(&self, node: &NodeView) -> bool {
        // A term without requirements matches nothing.
        let empty = self.labels.is_empty() && self.fields.is_empty();
        let field = |key: &str| match key {
            "metadata.name" => Some(node.name.as_str()),
            // An unknown field counts as an empty text.
            _ => Some(""),
        };
        !empty
            && self.labels.iter().all(|d| d.holds(node.label(&d.key)))
            && self.fields.iter().all(|d| d.holds(field(&d.key)))
    }
}

impl Demand {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        let listed = |list: &[String]| value.is_some_and(|v| list.iter().any(|item| item == v));
        match &self.test {
            Test::In(list) => listed(list),
            Test::NotIn(list) => !listed(list),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Gt(least) => number().is_some_and(|n| n > *least),
            Test::Lt(most) => number().is_some_and(|n| n < *most),
            Test::Never => false,
        }
    }

    fn read(value: &Value, of_field: bool) -> Self {
        let values: Option<Vec<String>> = list(value.get("values"))
            .iter()
            .map(|v| v.as_str().map(str::to_owned))
            .collect();
        let (key, operator) = (text(value, "key"), text(value, "operator"));
        let test = match values {
            Some(values) if of_field => field_test(operator, values),
            Some(values) if is_key(key) && values.iter().all(|v| is_value(v)) => {
                label_test(operator, values)
            }
            _ => Test::Never,
        };
        Self {
            key: key.to_owned(),
            test,
        }
    }
}

fn label_test(operator: &str, values: Vec<String>) -> Test {
    let number = || match values.as_slice() {
        [one] => one.parse::<i64>().ok(),
        _ => None,
    };
    match operator {
        "In" if !values.is_empty() => Test::In(values),
        "NotIn" if !values.is_empty() => Test::NotIn(values),
        "Exists" if values.is_empty() => Test::Exists,
        "DoesNotExist" if values.is_empty() => Test::DoesNotExist,
        "Gt" => number().map_or(Test::Never, Test::Gt),
        "Lt" => number().map_or(Test::Never, Test::Lt),
        _ => Test::Never,
    }
}

/// Whether a label may have this key: a name, after a DNS name and a slash if need be.
fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(is_subdomain) && !name.is_empty() && is_value(name)
}

/// Whether a label may have this value.
fn is_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    let at_ends = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    bytes.len() <= 63
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
        && at_ends(bytes.first())
        && at_ends(bytes.last())
}

/// A field can only be compared with one value.
fn field_test(operator: &str, values: Vec<String>) -> Test {
    match (operator, values.len()) {
        ("In", 1) => Test::In(values),
        ("NotIn", 1) => Test::NotIn(values),
        _ => Test::Never,
    }
}

impl Toleration {
    fn read(value: &Value) -> Self {
        Self {
            key: text(value, "key").to_owned(),
            operator: text(value, "operator").to_owned(),
            value: text(value, "value").to_owned(),
            effect: text(value, "effect").to_owned(),
        }
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator.as_str() {
                "" | "Equal" => self.value == taint.value,
                "Exists" => true,
                _ => false,
            }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list(value: Option<&Value>) -> &[Value] {
    value
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// A value that is not a string can never be a label's.
fn selector(value: Option<&Value>) -> Vec<(String, Option<String>)> {
    let entries = value.and_then(Value::as_object);
    entries
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.as_str().map(str::to_owned)))
        .collect()
}

fn terms(spec: &Map<String, Value>) -> Option<Vec<Term>> {
    let required = spec
        .get("affinity")?
        .get("nodeAffinity")?
        .get("requiredDuringSchedulingIgnoredDuringExecution")
        .filter(|required| !required.is_null())?;
    let demands = |term: &Value, key: &str, of_field: bool| {
        list(term.get(key))
            .iter()
            .map(|demand| Demand::read(demand, of_field))
            .collect()
    };
    let terms = list(required.get("nodeSelectorTerms")).iter();
    Some(
        terms
            .map(|term| Term {
                labels: demands(term, "matchExpressions", false),
                fields: demands(term, "matchFields", true),
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)]
    use super::*;

    fn node(name: &str, labels: &[(&str, &str)]) -> NodeView {
        let mut labels: Vec<_> = labels
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        labels.sort();
        NodeView {
            name: name.into(),
            labels: labels.into(),
            ..NodeView::default()
        }
    }

    fn tainted(taints: &[(&str, &str, &str)]) -> NodeView {
        NodeView {
            taints: taints
                .iter()
                .map(|(key, value, effect)| Taint {
                    key: (*key).into(),
                    value: (*value).into(),
                    effect: (*effect).into(),
                })
                .collect(),
            ..NodeView::default()
        }
    }

    fn eligibility(spec: Value, node: &NodeView) -> Eligibility {
        Placement::from_template(Some(&PodTemplate(json!({"spec": spec})))).eligibility(node)
    }

    fn affinity(terms: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn without_requirements_every_node_is_eligible() {
        let node = node("n", &[]);
        assert_eq!(
            Placement::from_template(None).eligibility(&node),
            Eligibility::Run
        );
        for spec in [
            json!({}),
            json!({"nodeSelector": {}}),
            json!({"nodeSelector": null, "affinity": null, "tolerations": null}),
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": null}}}),
            json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]}}}),
        ] {
            assert_eq!(eligibility(spec.clone(), &node), Eligibility::Run, "{spec}");
        }
    }

    #[test]
    fn every_label_of_the_node_selector_must_be_there() {
        let node = node("n", &[("a", "1"), ("b", "2"), ("e", "")]);
        for (selector, fit) in [
            (json!({"a": "1"}), true),
            (json!({"a": "1", "b": "2"}), true),
            (json!({"e": ""}), true),
            (json!({"a": "2"}), false),
            (json!({"a": "1", "c": "3"}), false),
            (json!({"c": ""}), false),
            (json!({"a": 1}), false),
        ] {
            let expected = if fit {
                Eligibility::Run
            } else {
                Eligibility::Leave
            };
            assert_eq!(
                eligibility(json!({"nodeSelector": selector.clone()}), &node),
                expected,
                "{selector}"
            );
        }
    }

    #[test]
    fn each_operator_of_a_match_expression_holds_as_in_the_scheduler() {
        let node = node(
            "n",
            &[("zone", "a"), ("cores", "8"), ("neg", "-3"), ("word", "x")],
        );
        let cases = [
            ("zone", "In", json!(["a", "b"]), true),
            ("zone", "In", json!(["b"]), false),
            ("none", "In", json!(["a"]), false),
            ("zone", "In", json!([]), false),
            ("zone", "NotIn", json!(["b"]), true),
            ("zone", "NotIn", json!(["a"]), false),
            ("none", "NotIn", json!(["a"]), true),
            ("zone", "NotIn", json!([]), false),
            ("zone", "Exists", json!(null), true),
            ("zone", "Exists", json!([]), true),
            ("none", "Exists", json!([]), false),
            ("zone", "Exists", json!(["a"]), false),
            ("none", "DoesNotExist", json!(null), true),
            ("zone", "DoesNotExist", json!([]), false),
            ("none", "DoesNotExist", json!(["a"]), false),
            ("cores", "Gt", json!(["7"]), true),
            ("cores", "Gt", json!(["8"]), false),
            ("cores", "Lt", json!(["9"]), true),
            ("cores", "Lt", json!(["8"]), false),
            // Neither a label nor a requirement can have a negative number.
            ("neg", "Lt", json!(["2"]), true),
            ("neg", "Lt", json!(["-2"]), false),
            ("neg", "Gt", json!(["-4"]), false),
            ("word", "Gt", json!(["1"]), false),
            ("word", "Lt", json!(["1"]), false),
            ("none", "Gt", json!(["1"]), false),
            ("none", "Lt", json!(["1"]), false),
            ("cores", "Gt", json!(["1.5"]), false),
            ("cores", "Gt", json!(["1", "2"]), false),
            ("cores", "Gt", json!([]), false),
            ("cores", "Gt", json!(["99999999999999999999"]), false),
            ("zone", "in", json!(["a"]), false),
            ("zone", "", json!(["a"]), false),
            ("zone", "In", json!([1]), false),
            ("zone", "NotIn", json!(["b", "b c"]), false),
            ("zone", "NotIn", json!(["b-"]), false),
            ("zone", "NotIn", json!([""]), true),
            ("zone", "NotIn", json!(["x".repeat(63)]), true),
            ("zone", "NotIn", json!(["x".repeat(64)]), false),
            ("example.com/none", "DoesNotExist", json!([]), true),
            ("A.b_c-d", "DoesNotExist", json!([]), true),
            ("", "DoesNotExist", json!([]), false),
            ("-none", "DoesNotExist", json!([]), false),
            ("Example.com/none", "DoesNotExist", json!([]), false),
            ("a/b/none", "DoesNotExist", json!([]), false),
            ("/none", "DoesNotExist", json!([]), false),
            ("a/", "DoesNotExist", json!([]), false),
        ];
        for (key, operator, values, fit) in cases {
            let expression = json!({"key": key, "operator": operator, "values": values});
            let spec = affinity(json!([{"matchExpressions": [expression.clone()]}]));
            let expected = if fit {
                Eligibility::Run
            } else {
                Eligibility::Leave
            };
            assert_eq!(eligibility(spec, &node), expected, "{expression}");
        }
    }

    #[test]
    fn match_fields_support_only_the_name() {
        let node = node("n1", &[]);
        let cases = [
            ("metadata.name", "In", json!(["n1"]), true),
            ("metadata.name", "In", json!(["n2"]), false),
            ("metadata.name", "In", json!(["n1", "n2"]), false),
            ("metadata.name", "In", json!([]), false),
            ("metadata.name", "NotIn", json!(["n2"]), true),
            ("metadata.name", "NotIn", json!(["n1"]), false),
            ("metadata.name", "NotIn", json!(["n2", "n3"]), false),
            ("metadata.name", "Exists", json!([]), false),
            ("spec.x", "In", json!(["n1"]), false),
            ("spec.x", "NotIn", json!(["n1"]), true),
        ];
        for (key, operator, values, fit) in cases {
            let field = json!({"key": key, "operator": operator, "values": values});
            let spec = affinity(json!([{"matchFields": [field.clone()]}]));
            let expected = if fit {
                Eligibility::Run
            } else {
                Eligibility::Leave
            };
            assert_eq!(eligibility(spec, &node), expected, "{field}");
        }
    }

    #[test]
    fn one_term_is_enough_and_all_of_it_must_match() {
        let node = node("n1", &[("a", "1")]);
        let has = |key: &str| json!({"key": key, "operator": "Exists"});
        let named =
            |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
        let broken = json!({"key": "a", "operator": "Near"});
        for (terms, fit) in [
            (json!([]), false),
            (json!(null), false),
            (json!([{}]), false),
            (json!([{"matchExpressions": [], "matchFields": []}]), false),
            (json!([{}, {"matchExpressions": [has("a")]}]), true),
            (
                json!([{"matchExpressions": [has("b")]}, {"matchExpressions": [has("a")]}]),
                true,
            ),
            (json!([{"matchExpressions": [has("a"), has("b")]}]), false),
            (
                json!([{"matchExpressions": [has("a")], "matchFields": [named("n1")]}]),
                true,
            ),
            (
                json!([{"matchExpressions": [has("a")], "matchFields": [named("n2")]}]),
                false,
            ),
            (
                json!([{"matchExpressions": [broken.clone()]}, {"matchExpressions": [has("a")]}]),
                true,
            ),
            (json!([{"matchExpressions": [has("a"), broken]}]), false),
        ] {
            let expected = if fit {
                Eligibility::Run
            } else {
                Eligibility::Leave
            };
            assert_eq!(
                eligibility(affinity(terms.clone()), &node),
                expected,
                "{terms}"
            );
        }
    }

    #[test]
    fn selector_and_affinity_must_both_match() {
        let mut spec =
            affinity(json!([{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]));
        spec["nodeSelector"] = json!({"b": "2"});
        assert_eq!(
            eligibility(spec.clone(), &node("n", &[("a", "1")])),
            Eligibility::Leave
        );
        assert_eq!(
            eligibility(spec.clone(), &node("n", &[("b", "2")])),
            Eligibility::Leave
        );
        assert_eq!(
            eligibility(spec, &node("n", &[("a", "1"), ("b", "2")])),
            Eligibility::Run
        );
    }

    #[test]
    fn tolerations_hold_as_in_the_scheduler() {
        let cases = [
            (json!([]), ("k", "v", "NoSchedule"), Eligibility::Keep),
            (json!([]), ("k", "v", "NoExecute"), Eligibility::Leave),
            (json!([]), ("k", "v", "PreferNoSchedule"), Eligibility::Run),
            (
                json!([{"key": "k", "value": "v"}]),
                ("k", "v", "NoSchedule"),
                Eligibility::Run,
            ),
            (
                json!([{"key": "k", "operator": "Equal", "value": "w"}]),
                ("k", "v", "NoSchedule"),
                Eligibility::Keep,
            ),
            (
                json!([{"key": "k", "operator": "Exists"}]),
                ("k", "v", "NoExecute"),
                Eligibility::Run,
            ),
            (
                json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]),
                ("k", "v", "NoExecute"),
                Eligibility::Leave,
            ),
            (
                json!([{"key": "j", "operator": "Exists"}]),
                ("k", "v", "NoSchedule"),
                Eligibility::Keep,
            ),
            (
                json!([{"operator": "Exists"}]),
                ("k", "v", "NoExecute"),
                Eligibility::Run,
            ),
            (
                json!([{"operator": "Exists", "effect": "NoExecute"}]),
                ("k", "v", "NoSchedule"),
                Eligibility::Keep,
            ),
            (
                json!([{"key": "k", "operator": "Near"}]),
                ("k", "", "NoSchedule"),
                Eligibility::Keep,
            ),
            // The taint manager counts how long a NoExecute taint is tolerated.
            (
                json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 3}]),
                ("k", "v", "NoExecute"),
                Eligibility::Run,
            ),
        ];
        for (tolerations, taint, expected) in cases {
            let spec = json!({"tolerations": tolerations.clone()});
            assert_eq!(
                eligibility(spec, &tainted(&[taint])),
                expected,
                "{tolerations} {taint:?}"
            );
        }
    }

    #[test]
    fn the_taints_of_daemons_are_tolerated() {
        for (key, effect) in DAEMON_TOLERATIONS {
            assert_eq!(
                eligibility(json!({}), &tainted(&[(key, "", effect)])),
                Eligibility::Run,
                "{key}"
            );
        }
        let (key, effect) = HOST_NETWORK_TOLERATION;
        let node = tainted(&[(key, "", effect)]);
        assert_eq!(eligibility(json!({}), &node), Eligibility::Keep);
        assert_eq!(
            eligibility(json!({"hostNetwork": true}), &node),
            Eligibility::Run
        );
    }

    #[test]
    fn a_node_that_is_down_still_counts() {
        for key in DOWN_TAINTS {
            let mut node = tainted(&[(key, "", "NoSchedule"), (key, "", "NoExecute")]);
            assert_eq!(eligibility(json!({}), &node), Eligibility::Down, "{key}");
            let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
            assert_eq!(eligibility(tolerant, &node), Eligibility::Run);
            node.cordoned = true;
            assert_eq!(eligibility(json!({}), &node), Eligibility::Cordoned);
        }
        let both = tainted(&[
            (DOWN_TAINTS[0], "", "NoSchedule"),
            ("other", "", "NoSchedule"),
        ]);
        assert_eq!(eligibility(json!({}), &both), Eligibility::Keep);
    }

    #[test]
    fn a_cordoned_node_keeps_its_pod_unless_it_must_leave() {
        let mut node = tainted(&[("node.kubernetes.io/unschedulable", "", "NoSchedule")]);
        node.cordoned = true;
        assert_eq!(eligibility(json!({}), &node), Eligibility::Cordoned);
        assert_eq!(
            eligibility(json!({"tolerations": [{"operator": "Exists"}]}), &node),
            Eligibility::Run,
            "the template itself tolerates it"
        );
        assert_eq!(
            eligibility(json!({"nodeSelector": {"a": "b"}}), &node),
            Eligibility::Leave
        );
    }

    #[test]
    fn the_worst_taint_decides() {
        let node = tainted(&[("a", "", "NoSchedule"), ("b", "", "NoExecute")]);
        assert_eq!(eligibility(json!({}), &node), Eligibility::Leave);
        assert_eq!(
            eligibility(
                json!({"tolerations": [{"key": "b", "operator": "Exists"}]}),
                &node
            ),
            Eligibility::Keep
        );
        assert_eq!(
            eligibility(
                json!({"tolerations": [{"key": "a", "operator": "Exists"}]}),
                &node
            ),
            Eligibility::Leave
        );
    }
}
