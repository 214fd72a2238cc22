//! Where a pod belongs: a pure function of a node and a template.
//!
//! The scheduler does not see these pods, so its rules are applied here: node selector and required
//! node affinity as in `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`, taints and
//! tolerations as in `k8s.io/api/core/v1`, and the built-in `DaemonSet` controller's view of both.

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use crate::observe::node::{NodeView, Taint};
use admission_rules::names::is_subdomain;
use my_operator_kind::template::PodTemplate;

pub(crate) mod rules;

/// Whether a node should have a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eligibility {
    /// The node should have a pod: it is created and updated.
    Run,
    /// The node would be eligible if it were not down: an existing pod stays, counts and is
    /// updated; a missing one is not created.
    Down,
    /// An existing pod stays as it is; none is created, and the node does not count.
    Keep,
    /// The node is cordoned or in maintenance: an existing pod stays and counts; none is created or replaced.
    Cordoned,
    /// The node must not have a pod.
    #[default]
    Leave,
}

impl Eligibility {
    /// Whether a pod belongs on the node, or one that is there stays and counts.
    pub(crate) fn is_in_place(self) -> bool {
        matches!(self, Self::Run | Self::Down | Self::Cordoned)
    }
}

/// Why a node must not have a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Obstacle {
    /// Its labels do not match the node selector.
    NodeSelector,
    /// It matches no term of the required node affinity.
    NodeAffinity,
    /// It has a `NoExecute` taint that the pod does not tolerate.
    Taint,
}

impl Obstacle {
    /// What messages say of it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NodeSelector => "nodeSelector does not match",
            Self::NodeAffinity => "node affinity does not match",
            Self::Taint => "NoExecute taint not tolerated",
        }
    }
}

/// The taints that only say that the node is not Ready. The node lifecycle controller sets them
/// with `NoSchedule` (and with `NoExecute`, which daemons tolerate) within seconds: a node that
/// fell silent must still count as one that should have a pod, or each failure of a node would let
/// a roll-out take down one more.
const DOWN_TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

/// The key of the taint that a cordon leads to.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The tolerations that a daemon needs, as the built-in controller adds them: (key, effect).
const DAEMON_TOLERATIONS: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    (UNSCHEDULABLE, "NoSchedule"),
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
///
/// Every revision has one, also each of up to 100 old ones. So each list is one text, about as long as what a user
/// wrote: a tree of strings would take ten times the memory of many short values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    demands: Demands,
    /// One on each line: `key=value:effect` for an equal value, `key:effect` for any. Without a key or an effect it
    /// is for every one.
    tolerations: Box<str>,
    /// Whether the template itself tolerates cordons, as networking and storage daemons do: their pods come back on
    /// a cordoned node, as those of a `DaemonSet`. The toleration that the operator adds does not count.
    tolerates_cordon: bool,
    /// What admission demands of a node instead, where that differs.
    admitted: Option<Demands>,
}

/// What a pod's spec demands of the labels and the name of a node.
#[derive(Clone, Debug, Default, PartialEq)]
struct Demands {
    /// The demands on labels, one on each line.
    selector: Box<str>,
    /// The terms of the required affinity, with an empty line after each. A node that matches none of them is excluded.
    /// What matches nothing is left out: empty terms, and those with an error. `None` without a required affinity.
    terms: Option<Box<str>>,
}

impl Demands {
    fn from_spec(spec: &Map<String, Value>) -> Self {
        Self {
            selector: selector(spec.get("nodeSelector")),
            terms: terms(spec),
        }
    }

    /// Which of them a node does not meet.
    fn obstacle(&self, node: &NodeView) -> Option<Obstacle> {
        let affine = |terms: &str| {
            let mut terms = terms.split_terminator("\n\n");
            terms.any(|term| fits(term, node))
        };
        if !fits(&self.selector, node) {
            return Some(Obstacle::NodeSelector);
        }
        let is_affine = self.terms.as_deref().is_none_or(affine);
        (!is_affine).then_some(Obstacle::NodeAffinity)
    }

    /// The first of them that a node does not meet, in words.
    fn unmet(&self, node: &NodeView) -> Option<String> {
        let has = |key: &str| match node.label(key) {
            _ if key.starts_with(FIELD) => format!("the node has the name {}", node.name),
            Some(value) => format!("the node has {key}={value}"),
            None => format!("the node has no label {key}"),
        };
        let unmet = |demands: &str, is_selector: bool| {
            let demand = demands.lines().find(|demand| !holds(demand, node))?;
            let mut parts = demand.splitn(3, ' ');
            let mut part = || parts.next().unwrap_or_default();
            let (key, operator, values) = (part(), part(), part());
            let (has, key) = (has(key), key.trim_start_matches(FIELD));
            Some(if is_selector {
                format!("nodeSelector {key}={values}: {has}")
            } else {
                format!("node affinity {key} {operator} [{values}]: {has}")
            })
        };
        if self.obstacle(node)? == Obstacle::NodeSelector {
            return unmet(&self.selector, true);
        }
        let mut terms = self.terms.as_deref()?.split_terminator("\n\n");
        let Some(first) = terms.next() else {
            return Some("the node affinity has no term, and so fits no node".to_owned());
        };
        let unmet = unmet(first, false)?;
        Some(match terms.count() {
            0 => unmet,
            more => format!(
                "none of the {} terms of the node affinity; of the first, {unmet}",
                more + 1
            ),
        })
    }
}

impl Placement {
    /// The requirements of a pod built from this template, with the tolerations that the operator adds.
    pub fn from_template(template: Option<&PodTemplate>) -> Self {
        let spec = template.and_then(PodTemplate::spec);
        let own = list(spec.and_then(|spec| spec.get("tolerations")));
        let added = daemon_tolerations(spec);
        let cordon = Taint {
            key: UNSCHEDULABLE.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        Self {
            tolerates_cordon: tolerates(&tolerations(own), &cordon),
            demands: spec.map(Demands::from_spec).unwrap_or_default(),
            tolerations: tolerations(own.iter().chain(&added)),
            admitted: None,
        }
    }

    /// The requirements of such a pod, given the spec with which the API server would create it: admission may add some, as
    /// PodNodeSelector, a RuntimeClass and webhooks do.
    ///
    /// They only decide where pods are *created*: one that runs was admitted by the rules of its day, and no change of those
    /// may take it away. Added tolerations do not count for that reason: a process that has not asked yet would take the
    /// pods that they let in for misplaced.
    pub(crate) fn admitted(&self, spec: &Map<String, Value>) -> Self {
        let admitted = Demands::from_spec(spec);
        Self {
            admitted: (admitted != self.demands).then_some(admitted),
            ..self.clone()
        }
    }

    /// Whether admission keeps new pods from a node.
    pub(crate) fn is_barred(&self, node: &NodeView) -> bool {
        let admitted = self.admitted.as_ref();
        admitted.is_some_and(|demands| demands.obstacle(node).is_some())
    }

    /// Whether this node should have a pod.
    pub fn eligibility(&self, node: &NodeView) -> Eligibility {
        let untolerated = |effect| self.untolerated(node, effect);
        let is_down = |taint: &Taint| DOWN_TAINTS.contains(&taint.key.as_str());
        if self.obstacle(node).is_some() {
            Eligibility::Leave
        } else if !untolerated("NoSchedule").all(is_down) || self.is_barred(node) {
            Eligibility::Keep
        } else if (node.cordoned || node.in_maintenance) && !self.tolerates_cordon {
            Eligibility::Cordoned
        } else if untolerated("NoSchedule").next().is_some() {
            Eligibility::Down
        } else {
            Eligibility::Run
        }
    }

    /// Why there must be no pod on this node, if so.
    pub(crate) fn obstacle(&self, node: &NodeView) -> Option<Obstacle> {
        let expels = || self.untolerated(node, "NoExecute").next();
        let expelled = || expels().map(|_| Obstacle::Taint);
        self.demands.obstacle(node).or_else(expelled)
    }

    /// What keeps pods off a node, in words: a demand on its labels or its name, or a taint, of those first that drive pods
    /// away.
    pub(crate) fn unmet(&self, node: &NodeView) -> Option<String> {
        let mut taints = ["NoExecute", "NoSchedule"]
            .into_iter()
            .flat_map(|effect| self.untolerated(node, effect));
        let unmet = self.demands.unmet(node);
        unmet.or_else(|| taints.next().map(ToString::to_string))
    }

    fn untolerated<'a>(
        &'a self,
        node: &'a NodeView,
        effect: &'a str,
    ) -> impl Iterator<Item = &'a Taint> {
        let taints = node.taints.iter();
        taints.filter(move |taint| taint.effect == effect && !self.tolerates(taint))
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        tolerates(&self.tolerations, taint)
    }
}

/// Whether a node fits all demands of a text.
fn fits(demands: &str, node: &NodeView) -> bool {
    demands.lines().all(|demand| holds(demand, node))
}

/// Whether a node fits one demand: `key operator value,value`.
fn holds(demand: &str, node: &NodeView) -> bool {
    let mut parts = demand.splitn(3, ' ');
    let mut part = || parts.next().unwrap_or_default();
    let (key, operator, values) = (part(), part(), part());
    let value = match key.strip_prefix(FIELD) {
        None => node.label(key),
        Some(NODE_NAME) => Some(node.name.as_str()),
        // An unknown field counts as an empty text.
        Some(_) => Some(""),
    };
    let listed = || value.is_some_and(|value| values.split(',').any(|listed| listed == value));
    // A value that is not a number is neither greater nor less.
    let order = || {
        let value: i64 = value?.parse().ok()?;
        Some(value.cmp(&values.parse().ok()?))
    };
    match operator {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => order() == Some(Ordering::Greater),
        "Lt" => order() == Some(Ordering::Less),
        _ => false,
    }
}

/// What the key of a demand on a field begins with. No label has it.
const FIELD: char = '@';
/// The one field of a node that `matchFields` can select by.
const NODE_NAME: &str = "metadata.name";

/// One requirement as a line. `None`: what the API server would call invalid, including keys and values that no label can
/// have.
fn line(demand: &Value, of_field: bool) -> Option<String> {
    let values = list(demand.get("values")).iter().map(Value::as_str);
    let values: Vec<&str> = values.collect::<Option<_>>()?;
    let (key, operator) = (text(demand, "key"), text(demand, "operator"));
    if of_field {
        // A field can only be compared with one value.
        let [value] = values[..] else {
            return None;
        };
        let key = if key == NODE_NAME { key } else { "" };
        // No node has another name, and no other field has a value.
        let value = if value.is_empty() || is_subdomain(value) {
            value
        } else {
            "?"
        };
        let is_valid = matches!(operator, "In" | "NotIn");
        return is_valid.then(|| format!("{FIELD}{key} {operator} {value}\n"));
    }
    let is_valid = match operator {
        "In" | "NotIn" => !values.is_empty(),
        "Exists" | "DoesNotExist" => values.is_empty(),
        "Gt" | "Lt" => values.len() == 1 && values[0].parse::<i64>().is_ok(),
        _ => false,
    };
    let is_valid = is_valid && is_key(key) && values.iter().all(|value| is_value(value));
    is_valid.then(|| format!("{key} {operator} {}\n", values.join(",")))
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

/// Whether one of the tolerations is for this taint.
fn tolerates(tolerations: &str, taint: &Taint) -> bool {
    tolerations.lines().any(|toleration| {
        let (what, effect) = toleration.split_once(':').unwrap_or((toleration, ""));
        let (key, value) = match what.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (what, None),
        };
        (effect.is_empty() || effect == taint.effect)
            && (key.is_empty() || key == taint.key)
            && value.is_none_or(|value| value == taint.value)
    })
}

/// The tolerations as text. Those that no taint can match are left out.
fn tolerations<'a>(list: impl IntoIterator<Item = &'a Value>) -> Box<str> {
    let mut all = String::new();
    for toleration in list {
        let part = |name| text(toleration, name);
        let (key, effect) = (part("key"), part("effect"));
        let value = match part("operator") {
            "" | "Equal" => Some(part("value")),
            "Exists" => None,
            _ => continue,
        };
        let separates = |text: &str| text.contains(['=', ':', '\n', '\r']);
        if [key, effect, value.unwrap_or_default()]
            .into_iter()
            .any(separates)
        {
            continue;
        }
        all.push_str(key);
        if let Some(value) = value {
            all.extend(["=", value]);
        }
        all.extend([":", effect, "\n"]);
    }
    all.into()
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

/// A value that is not a string can never be a label's, nor can a text with a separator of [`holds`].
fn selector(value: Option<&Value>) -> Box<str> {
    let separates = |text: &str| text.contains([FIELD, ' ', ',', '\n', '\r']);
    let entries = value.and_then(Value::as_object);
    let mut demands = String::new();
    for (key, value) in entries.into_iter().flatten() {
        match value.as_str() {
            Some(value) if !separates(key) && !separates(value) => {
                demands.extend([key.as_str(), " In ", value, "\n"]);
            }
            _ => demands.push_str("? Never\n"),
        }
    }
    demands.into()
}

/// The required node affinity; `None` without one.
fn required(spec: &Map<String, Value>) -> Option<&Value> {
    spec.get("affinity")?
        .get("nodeAffinity")?
        .get("requiredDuringSchedulingIgnoredDuringExecution")
        .filter(|required| !required.is_null())
}

/// The terms of the required node affinity.
fn node_selector_terms(spec: &Map<String, Value>) -> &[Value] {
    list(required(spec).and_then(|required| required.get("nodeSelectorTerms")))
}

fn terms(spec: &Map<String, Value>) -> Option<Box<str>> {
    required(spec)?;
    let mut terms = String::new();
    for term in node_selector_terms(spec) {
        let labels = list(term.get("matchExpressions")).iter();
        let fields = list(term.get("matchFields")).iter();
        let labels = labels.map(|label| line(label, false));
        let all: Option<String> = labels
            .chain(fields.map(|field| line(field, true)))
            .collect();
        if let Some(all) = all.filter(|all| !all.is_empty()) {
            terms.extend([&all, "\n"]);
        }
    }
    Some(terms.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)]
    use super::*;

    fn node(name: &str, labels: &[(&str, &str)]) -> NodeView {
        NodeView {
            name: name.into(),
            labels: labels.iter().copied().collect(),
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
