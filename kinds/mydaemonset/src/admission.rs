//! The defaults and rules of a `MyDaemonSet`, shared by the webhook and the reconciler.

use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::de::Error as _;
use serde_json::de::StrRead;
use serde_json::{Map, Value};

use super::crd::{Canary, MyDaemonSet, MyDaemonSetSpec, MyDaemonSetStatus, RollingUpdate};
use super::decide::canary::{AUTOMATIC, DEFAULT_NODES, DEFAULT_SOAK, MANUAL, MAX_SOAK};
use super::decide::domains::MAX_ORDER;
use super::decide::placement;
use super::decide::strategy::{
    Amount, DEFAULT_MAX_SURGE, DEFAULT_MAX_UNAVAILABLE, DEFAULT_WINDOW, ON_DELETE, PAUSE,
    ROLLING_UPDATE, UNDO,
};
use super::decide::window;
use super::names::{APP, OUR_PREFIX};
use admission_rules::faults::Fault;
use admission_rules::review;
use admission_rules::rules::{Findings, Rules, Subject};
use my_operator_kind::template::{self, PodTemplate};
use wall_clock_controller::reconcile::write::MANAGED_BY;

/// The name becomes a label value of every pod.
const MAX_NAME_LEN: usize = 63;
const TEMPLATE: &str = "spec.template";
/// The maximum of `spec.revisionHistoryLimit`: each revision may be as large as a spec.
pub(crate) const MAX_HISTORY: i64 = 100;
const ROLLING: &str = "spec.updateStrategy.rollingUpdate";
#[derive(Debug)]
pub(crate) struct MyDaemonSetRules;

impl Rules for MyDaemonSetRules {
    type Object = MyDaemonSet;
    type Spec = MyDaemonSetSpec;
    type Status = MyDaemonSetStatus;

    fn default(spec: &mut Self::Spec) {
        spec.min_ready_seconds.get_or_insert(0);
        spec.revision_history_limit.get_or_insert(10);
        let strategy = spec.update_strategy.get_or_insert_default();
        let type_ = strategy
            .type_
            .get_or_insert_with(|| ROLLING_UPDATE.to_owned());
        if type_ == ROLLING_UPDATE {
            let rolling = strategy.rolling_update.get_or_insert_default();
            rolling
                .max_unavailable
                .get_or_insert(IntOrString::Int(DEFAULT_MAX_UNAVAILABLE.into()));
            rolling
                .max_surge
                .get_or_insert(IntOrString::Int(DEFAULT_MAX_SURGE.into()));
            rolling.partition.get_or_insert(0);
            rolling.paused.get_or_insert(false);
            let auto_pause = rolling.auto_pause.get_or_insert_default();
            auto_pause.enabled.get_or_insert(true);
            auto_pause.window_seconds.get_or_insert(DEFAULT_WINDOW);
            if let Some(canary) = &mut rolling.canary {
                let nodes = IntOrString::Int(DEFAULT_NODES.into());
                canary.nodes.get_or_insert(nodes);
                canary.soak_seconds.get_or_insert(DEFAULT_SOAK);
                canary.promote.get_or_insert_with(|| AUTOMATIC.to_owned());
            }
            rolling.on_failure.get_or_insert_with(|| PAUSE.to_owned());
        }
    }

    fn read(text: &str) -> serde_json::Result<Self::Spec> {
        let (template, rest) =
            template::split(text).ok_or_else(|| serde_json::Error::custom("an unusual spec"))?;
        let spec = review::read(StrRead::new(&rest))?;
        Ok(Self::Spec { template, ..spec })
    }

    fn bulk(spec: &mut Self::Spec) -> Option<&mut Value> {
        spec.template.as_mut().map(|template| &mut template.0)
    }

    fn check(subject: &Subject<'_, Self::Spec>, _now: DateTime<Utc>) -> Findings {
        let spec = subject.spec;
        let mut findings = Findings::default();
        findings.check_name(subject, MAX_NAME_LEN);
        check_image(spec, &mut findings);
        if let Some(template) = &spec.template {
            findings.extend(template::check(TEMPLATE, template, APP));
            check_metadata(template, &mut findings);
            check_pod_spec(template, &mut findings);
        }
        check_strategy(spec, &mut findings);
        for (field, value, least) in [
            ("spec.minReadySeconds", spec.min_ready_seconds, 0),
            (
                "spec.progressDeadlineSeconds",
                spec.progress_deadline_seconds,
                1,
            ),
            ("spec.revisionHistoryLimit", spec.revision_history_limit, 1),
        ] {
            findings.check_number(field, value, least..=i64::MAX);
        }
        let deadline = spec.progress_deadline_seconds.unwrap_or(i32::MAX);
        if deadline >= 1 && deadline <= spec.min_ready_seconds.unwrap_or_default() {
            findings.fault(Fault::invalid(
                "spec.progressDeadlineSeconds",
                deadline,
                "must be greater than minReadySeconds",
            ));
        }
        findings
    }

    fn check_limits(spec: &Self::Spec) -> Findings {
        let mut findings = Findings::default();
        let limit = spec.revision_history_limit.filter(|limit| *limit > 0);
        let field = "spec.revisionHistoryLimit";
        findings.check_number(field, limit, 1..=MAX_HISTORY);
        let pod = spec.template.as_ref().and_then(PodTemplate::spec);
        let Some(pod) = pod else {
            return findings;
        };
        let at = format!("{TEMPLATE}.spec");
        if template::given(pod, "activeDeadlineSeconds") {
            findings.fault(Fault::forbidden(
                format!("{at}.activeDeadlineSeconds"),
                "a pod that ends would be made again and again",
            ));
        }
        placement::rules::check_limits(&at, pod, &mut findings);
        findings
    }
}

/// The image that the template itself gives to the container `app`.
fn own_image(template: Option<&PodTemplate>) -> Option<&str> {
    let image = template?.container(APP)?.image();
    (!image.is_empty()).then_some(image)
}

fn check_image(spec: &MyDaemonSetSpec, findings: &mut Findings) {
    let given = spec.image.as_deref().filter(|image| !image.is_empty());
    let own = own_image(spec.template.as_ref());
    match (given, own) {
        (None, Some(_)) => {}
        (None, None) => findings.fault(Fault::required("spec.image", "image is required")),
        (Some(image), own) => {
            template::check_image("spec.image", image, findings);
            if own.is_some() {
                findings.warn(format!(
                    "spec.image: has no effect: the container {APP:?} of spec.template has its own image"
                ));
            }
        }
    }
}

fn check_metadata(template: &PodTemplate, findings: &mut Findings) {
    let lists = [
        ("labels", template.labels()),
        ("annotations", template.annotations()),
    ];
    for (list, entries) in lists {
        for key in entries.into_iter().flat_map(Map::keys) {
            let managed_by = list == "labels" && key == MANAGED_BY;
            if key.starts_with(OUR_PREFIX) || managed_by {
                let field = format!("{TEMPLATE}.metadata.{list}");
                findings.fault(Fault::forbidden(field, "the operator sets it").at_key(key));
            }
        }
    }
}

/// Rejects what only a scheduler could handle: these pods are created with their node.
fn check_pod_spec(template: &PodTemplate, findings: &mut Findings) {
    let Some(spec) = template.spec() else {
        return;
    };
    for (key, why) in [
        (
            "resourceClaims",
            "claims are allocated by the scheduler, and these pods do not pass it",
        ),
        (
            "schedulingGates",
            "a pod that is given its node at birth cannot have gates",
        ),
    ] {
        let empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        if spec.get(key).is_some_and(|v| !v.is_null() && !empty(v)) {
            findings.fault(Fault::forbidden(format!("{TEMPLATE}.spec.{key}"), why));
        }
    }
    placement::rules::check(&format!("{TEMPLATE}.spec"), spec, findings);
    // A pod that ends would be created again and again.
    template::check_restart_policy(format_args!("{TEMPLATE}.spec"), spec, "Always", findings);
    let volumes = spec.get("volumes").and_then(Value::as_array);
    for (i, volume) in volumes.into_iter().flatten().enumerate() {
        for source in ["persistentVolumeClaim", "ephemeral"] {
            if volume.get(source).is_some_and(|v| !v.is_null()) {
                findings.warn(format!(
                    "{TEMPLATE}.spec.volumes[{i}].{source}: every node's pod gets it without a scheduler in the way: a volume that cannot be attached to the node keeps the pod from starting"
                ));
            }
        }
    }
}

fn check_strategy(spec: &MyDaemonSetSpec, findings: &mut Findings) {
    let Some(strategy) = &spec.update_strategy else {
        return;
    };
    let type_ = strategy.type_.as_deref().unwrap_or(ROLLING_UPDATE);
    match (type_, &strategy.rolling_update) {
        (ON_DELETE, Some(_)) => {
            findings.warn(format!("{ROLLING}: has no effect under type OnDelete"));
        }
        (ROLLING_UPDATE, Some(rolling)) => {
            check_rolling(rolling, spec.template.as_ref(), findings);
        }
        (ROLLING_UPDATE | ON_DELETE, None) => {}
        (other, _) => findings.fault(Fault::not_supported(
            "spec.updateStrategy.type",
            other,
            &[ROLLING_UPDATE, ON_DELETE],
        )),
    }
}

fn check_rolling(rolling: &RollingUpdate, template: Option<&PodTemplate>, findings: &mut Findings) {
    let partition = format!("{ROLLING}.partition");
    findings.check_number(&partition, rolling.partition, 0..=i64::MAX);
    if let Some(auto_pause) = &rolling.auto_pause {
        for (name, value) in [
            ("maxFailures", auto_pause.max_failures),
            ("windowSeconds", auto_pause.window_seconds),
        ] {
            findings.check_number(&format!("{ROLLING}.autoPause.{name}"), value, 1..=i64::MAX);
        }
    }
    if let Some(canary) = &rolling.canary {
        check_canary(canary, findings);
    }
    check_domains(rolling, findings);
    check_on_failure(rolling, findings);
    let windows = rolling.windows.as_deref().unwrap_or_default();
    window::rules::check(&format!("{ROLLING}.windows"), windows, findings);
    let mut amount = |name: &str, value: &Option<IntOrString>, default: u16| match value {
        None => Some(Amount::Nodes(default.into())),
        Some(value) => Amount::parse(value)
            .map_err(|why| {
                findings.fault(Fault::invalid(
                    format!("{ROLLING}.{name}"),
                    shown(value),
                    why,
                ));
            })
            .ok(),
    };
    let unavailable = amount(
        "maxUnavailable",
        &rolling.max_unavailable,
        DEFAULT_MAX_UNAVAILABLE,
    );
    let surge = amount("maxSurge", &rolling.max_surge, DEFAULT_MAX_SURGE);
    if unavailable.is_some_and(Amount::is_zero) && surge.is_some_and(Amount::is_zero) {
        findings.fault(Fault::invalid(
            format!("{ROLLING}.maxUnavailable"),
            rolling
                .max_unavailable
                .as_ref()
                .map_or(DEFAULT_MAX_UNAVAILABLE.into(), shown),
            "may not be 0 when maxSurge is 0: the roll-out could not replace any pod",
        ));
    }
    if surge.is_some_and(|surge| !surge.is_zero())
        && let Some((container, port)) = template.and_then(host_port)
    {
        findings.fault(Fault::forbidden(
            format!("{ROLLING}.maxSurge"),
            &format!(
                "two pods on one node cannot share a host port: container {container:?} has {port}"
            ),
        ));
    }
}

fn check_canary(canary: &Canary, findings: &mut Findings) {
    let at = format!("{ROLLING}.canary");
    if let Some(nodes) = &canary.nodes {
        let why = match Amount::parse(nodes) {
            Err(why) => Some(why),
            Ok(amount) if amount.is_zero() => Some("must be at least 1 or \"1%\""),
            Ok(_) => None,
        };
        if let Some(why) = why {
            findings.fault(Fault::invalid(format!("{at}.nodes"), shown(nodes), why));
        }
    }
    let soak = format!("{at}.soakSeconds");
    findings.check_number(&soak, canary.soak_seconds, 0..=MAX_SOAK);
    let promote = canary.promote.as_deref().unwrap_or(AUTOMATIC);
    if ![AUTOMATIC, MANUAL].contains(&promote) {
        let field = format!("{at}.promote");
        findings.fault(Fault::not_supported(field, promote, &[AUTOMATIC, MANUAL]));
    }
    if let Some(labels) = &canary.node_selector {
        placement::rules::check_labels(&format!("{at}.nodeSelector"), labels, findings);
    }
}

fn check_domains(rolling: &RollingUpdate, findings: &mut Findings) {
    let at = format!("{ROLLING}.order");
    let order = rolling.order.as_deref().unwrap_or_default();
    match &rolling.topology_key {
        Some(key) => {
            placement::rules::check_key(&format!("{ROLLING}.topologyKey"), key, findings);
        }
        None if order.is_empty() => {}
        None => findings.fault(Fault::forbidden(
            at.as_str(),
            "these are values of the label topologyKey, which is missing",
        )),
    }
    if !findings.check_count(&at, order.len(), MAX_ORDER) {
        return;
    }
    for (i, value) in order.iter().enumerate() {
        let at = format!("{at}[{i}]");
        if order[..i].contains(value) {
            findings.fault(Fault::duplicate(at, value.as_str()));
        } else {
            placement::rules::check_value(&at, value, findings);
        }
    }
}

fn check_on_failure(rolling: &RollingUpdate, findings: &mut Findings) {
    let field = format!("{ROLLING}.onFailure");
    match rolling.on_failure.as_deref() {
        None | Some(PAUSE) => {}
        Some(UNDO) => {
            let auto_pause = rolling.auto_pause.as_ref();
            if auto_pause.and_then(|it| it.enabled) == Some(false) {
                findings.warn(format!(
                    "{field}: has no effect while autoPause.enabled is false: nothing finds that the revision fails"
                ));
            }
        }
        Some(other) => findings.fault(Fault::not_supported(field, other, &[PAUSE, UNDO])),
    }
}

/// The value as written.
fn shown(value: &IntOrString) -> Value {
    match value {
        IntOrString::Int(number) => Value::from(*number),
        IntOrString::String(text) => Value::from(text.as_str()),
    }
}

/// The first host port of the template: (container, port). With hostNetwork every port is one.
fn host_port(template: &PodTemplate) -> Option<(&str, i64)> {
    let host_network = template.spec()?.get("hostNetwork") == Some(&Value::Bool(true));
    let key = if host_network {
        "containerPort"
    } else {
        "hostPort"
    };
    template.containers().find_map(|c| {
        let ports = c.fields.get("ports")?.as_array()?;
        let port = ports
            .iter()
            .find_map(|port| port.get(key)?.as_i64().filter(|port| *port != 0))?;
        Some((c.name(), port))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use admission_rules::rules::{decode, decode_and_validate};
    use my_operator_rounds::large::pointers;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn findings_of(name: &str, spec: &Value) -> Findings {
        judged(name, decode("spec", Some(spec)).unwrap())
    }

    fn judged(name: &str, mut spec: MyDaemonSetSpec) -> Findings {
        MyDaemonSetRules::default(&mut spec);
        let subject = Subject {
            name,
            annotations: &BTreeMap::new(),
            created: None,
            spec: &spec,
        };
        let mut findings = MyDaemonSetRules::check(&subject, DateTime::UNIX_EPOCH);
        findings.extend(MyDaemonSetRules::check_limits(&spec));
        findings
    }

    fn faults(spec: &Value) -> Vec<String> {
        let findings = findings_of("x", spec);
        findings.faults.iter().map(ToString::to_string).collect()
    }

    fn warnings(spec: &Value) -> Vec<String> {
        let findings = findings_of("x", spec);
        assert!(findings.faults.is_empty(), "{spec}: {:?}", findings.faults);
        assert!(findings.warnings.iter().all(|w| w.len() <= 256));
        findings.warnings
    }

    #[test]
    fn what_is_not_kept_of_a_template_changes_no_finding() {
        let good = json!({"image": "r.io/a:1", "minReadySeconds": 3, "updateStrategy": {"rollingUpdate": {
            "maxSurge": 1, "canary": {}}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "hostNetwork": true, "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            "initContainers": [{"name": "i", "image": "r.io/i:1", "env": [{"name": "A", "value": "b\n"}]}],
            "containers": [
                {"name": "b", "image": "r.io/b", "resources": {"limits": {"cpu": 1.5, "memory": "1Gi"}}},
                {"name": "app", "ports": [{"containerPort": 80}], "env": [{"name": "C", "value": "d"}], "tty": true}]}}});
        let read_whole = |text: &str| review::read::<_, MyDaemonSetSpec>(StrRead::new(text));
        let mut random = fastrand::Rng::with_seed(38);
        for _ in 0..3_000 {
            let mut spec = good.clone();
            for _ in 0..random.usize(..4) {
                let places = pointers(&spec);
                let [from, to] = [0; 2].map(|_| &places[random.usize(..places.len())]);
                let value = match random.usize(..9) {
                    0 => Value::Null,
                    1 => json!([]),
                    2 => json!([{}]),
                    3 => json!({"env": []}),
                    4 => "X y".into(),
                    5 => json!(-1.5),
                    _ => spec.pointer(from).unwrap().clone(),
                };
                *spec.pointer_mut(to).unwrap() = value;
            }
            let text = spec.to_string();
            let found = [read_whole(&text), MyDaemonSetRules::read(&text)];
            let [whole, kept] = found.map(|spec| spec.ok().map(|spec| judged("x", spec)));
            assert_eq!(whole, kept, "{text}");
        }
        for bad in [r#""\ud800""#, "1e999", r#"{"\ud800":1}"#, "[1e999]", "tru"] {
            let text = format!(r#"{{"template":{{"spec":{{"containers":[{{"env":{bad}}}]}}}}}}"#);
            assert!(read_whole(&text).is_err() && MyDaemonSetRules::read(&text).is_err());
        }
        // Beside the template, a spec is read as any other.
        let unusual = [r#""\ud800""#, "1e999", r#"{"\ud800":1}"#, "tru", "7", "{}"];
        let unusual = unusual.map(|value| format!(r#""x":{value}"#));
        for member in unusual.iter().map(String::as_str).chain([
            r#""\ud800":1"#,
            r#""a\"b":1"#,
            r#""a\u0000b":1"#,
            r#""image":1"#,
            r#""image":"b:1""#,
            r#""template":null"#,
            r#""template":{}"#,
            r#""\u0074emplate":{}"#,
            r#""updateStrategy":{"x":1e999,"type":"OnDelete"}"#,
        ]) {
            for template in ["", r#","template":{"spec":{"nodeName":"n"}}"#] {
                let text = format!(r#"{{"image":"a:1",{member}{template}}}"#);
                let found = [read_whole(&text), MyDaemonSetRules::read(&text)];
                let [whole, kept] = found.map(|spec| spec.ok().map(|spec| judged("x", spec)));
                // What is not read quickly is read whole.
                assert!(kept.is_none() || kept == whole, "{text}: {kept:?}");
                assert!(kept == whole || member.contains('\\'), "{text}");
            }
        }
        // The reconciler would read another template than the one that was judged.
        for (before, after) in [
            ("", ""),
            (r#""spec":{"#, "}"),
            (r#""spec":{"containers":[{"env":{"#, "}}]}"),
        ] {
            let raw = r#""$serde_json::private::RawValue":"{\"spec\":{\"nodeName\":\"n\"}}""#;
            let text = format!(r#"{{"template":{{{before}{raw}{after}}}}}"#);
            assert!(read_whole(&text).is_ok() && MyDaemonSetRules::read(&text).is_err());
        }
        let kept = MyDaemonSetRules::read(&good.to_string()).unwrap();
        let kept = serde_json::to_string(&kept).unwrap();
        assert!(
            !kept.contains("env") && kept.contains("containerPort"),
            "{kept}"
        );
    }

    #[test]
    fn requirements_on_nodes_are_a_thousand_at_most() {
        let spec = |values: usize| {
            let values = vec!["a"; values];
            json!({"image": "r.io/a:1", "template": {"spec": {
                "nodeSelector": {"a": "b"},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "k", "operator": "In", "values": values}]}]}}},
                "tolerations": [{"operator": "Exists"}]}}})
        };
        // The label, the term, its requirement and the toleration count too.
        assert_eq!(faults(&spec(996)), [""; 0]);
        let message = "spec.template.spec: Forbidden: nodeSelector, the required node affinity and tolerations may have at most 1000 terms, requirements and values together";
        assert_eq!(faults(&spec(997)), [message]);
    }

    #[test]
    fn defaults_fill_in_what_is_missing_and_nothing_else() {
        let full = json!({"minReadySeconds": 0, "revisionHistoryLimit": 10, "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0, "partition": 0, "paused": false,
                "autoPause": {"enabled": true, "windowSeconds": 600}, "onFailure": "Pause"}}});
        let cases = [
            (json!({}), full.clone()),
            (full.clone(), full),
            (
                json!({"image": "", "template": {"spec": {"x": 1}}, "minReadySeconds": 5,
                       "updateStrategy": {"rollingUpdate": {"maxUnavailable": "20%"}}}),
                json!({"image": "", "template": {"spec": {"x": 1}}, "minReadySeconds": 5,
                       "revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate",
                       "rollingUpdate": {"maxUnavailable": "20%", "maxSurge": 0, "partition": 0, "paused": false,
                           "autoPause": {"enabled": true, "windowSeconds": 600}, "onFailure": "Pause"}}}),
            ),
            (
                json!({"updateStrategy": {"rollingUpdate": {"canary": {}}}}),
                json!({"minReadySeconds": 0, "revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate",
                       "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0, "partition": 0, "paused": false,
                           "autoPause": {"enabled": true, "windowSeconds": 600},
                           "onFailure": "Pause", "canary": {"nodes": 1, "soakSeconds": 600, "promote": "Automatic"}}}}),
            ),
            (
                json!({"updateStrategy": {"rollingUpdate": {"windows": [{"schedule": "@daily"}, {"timeZone": "x"}]}}}),
                json!({"minReadySeconds": 0, "revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate",
                       "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0, "partition": 0, "paused": false,
                           "autoPause": {"enabled": true, "windowSeconds": 600}, "onFailure": "Pause",
                           "windows": [{"schedule": "@daily"}, {"timeZone": "x"}]}}}),
            ),
            (
                json!({"updateStrategy": {"type": "OnDelete"}}),
                json!({"minReadySeconds": 0, "revisionHistoryLimit": 10,
                       "updateStrategy": {"type": "OnDelete"}}),
            ),
        ];
        for (before, after) in cases {
            let mut spec: MyDaemonSetSpec = decode("spec", Some(&before)).unwrap();
            MyDaemonSetRules::default(&mut spec);
            assert_eq!(serde_json::to_value(&spec).unwrap(), after);
            let once = spec.clone();
            MyDaemonSetRules::default(&mut spec);
            assert_eq!(spec, once, "a second pass changes nothing");
        }
    }

    #[test]
    fn good_objects_have_neither_fault_nor_warning() {
        let app = |extra: Value| {
            let mut container = json!({"name": "app"});
            container
                .as_object_mut()
                .unwrap()
                .extend(extra.as_object().unwrap().clone());
            json!({"spec": {"containers": [container]}})
        };
        for spec in [
            json!({"image": "nginx:1.29"}),
            json!({"template": app(json!({"image": "nginx:1.29"}))}),
            json!({"image": "", "template": app(json!({"image": "nginx:1.29"}))}),
            json!({"image": "nginx:1.29", "template": app(json!({"ports": [{"hostPort": 80}]}))}),
            json!({"image": "nginx:1.29", "template": app(json!({"ports": [{"containerPort": 80, "hostPort": 0}]})),
                   "updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}),
            json!({"image": "nginx:1.29", "template": {"metadata": {"labels": {"app": "x"}},
                   "spec": {"resourceClaims": [], "schedulingGates": null, "volumes": [{"name": "t", "emptyDir": {}}]}}}),
            json!({"image": "nginx:1.29", "minReadySeconds": 7, "revisionHistoryLimit": 1,
                   "updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%", "partition": 3, "paused": true}}}),
            json!({"image": "nginx:1.29", "updateStrategy": {"type": "OnDelete"}}),
            json!({"image": "nginx:1.29", "updateStrategy": {"rollingUpdate": {"canary": {"nodes": "1%",
                   "nodeSelector": {"example.com/canary": "", "a": "b"}, "soakSeconds": 0, "promote": "Manual"}}}}),
        ] {
            assert_eq!(warnings(&spec), Vec::<String>::new(), "{spec}");
        }
        assert!(
            findings_of(&"x".repeat(63), &json!({"image": "a:1"}))
                .faults
                .is_empty()
        );
    }

    #[test]
    fn every_rule_has_its_sentence() {
        let rolling =
            |rolling: Value| json!({"image": "a:1", "updateStrategy": {"rollingUpdate": rolling}});
        let template = |template: Value| json!({"image": "a:1", "template": template});
        let at = "spec.updateStrategy.rollingUpdate";
        let cases = [
            (json!({}), "spec.image: Required value: image is required".to_owned()),
            (json!({"image": ""}), "spec.image: Required value: image is required".to_owned()),
            (
                json!({"template": {"spec": {"containers": [{"name": "app"}]}}}),
                "spec.image: Required value: image is required".to_owned(),
            ),
            (
                template(json!({"spec": {"nodeName": "n"}})),
                "spec.template.spec.nodeName: Forbidden: the node is not the template's to choose".to_owned(),
            ),
            (
                template(json!({"metadata": {"ownerReferences": []}})),
                "spec.template.metadata.ownerReferences: Forbidden: the operator sets it".to_owned(),
            ),
            (
                template(json!({"metadata": {"labels": {"apps.zhongmingmao.io/revision": "x"}}})),
                "spec.template.metadata.labels[apps.zhongmingmao.io/revision]: Forbidden: the operator sets it".to_owned(),
            ),
            (
                template(json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}})),
                "spec.template.metadata.labels[app.kubernetes.io/managed-by]: Forbidden: the operator sets it".to_owned(),
            ),
            (
                template(json!({"metadata": {"annotations": {"apps.zhongmingmao.io/attempt": "1"}}})),
                "spec.template.metadata.annotations[apps.zhongmingmao.io/attempt]: Forbidden: the operator sets it".to_owned(),
            ),
            (
                template(json!({"spec": {"resourceClaims": [{"name": "gpu"}]}})),
                "spec.template.spec.resourceClaims: Forbidden: claims are allocated by the scheduler, and these pods do not pass it".to_owned(),
            ),
            (
                template(json!({"spec": {"schedulingGates": [{"name": "g"}]}})),
                "spec.template.spec.schedulingGates: Forbidden: a pod that is given its node at birth cannot have gates".to_owned(),
            ),
            (
                template(json!({"spec": {"restartPolicy": "Never"}})),
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"".to_owned(),
            ),
            (
                template(json!({"spec": {"activeDeadlineSeconds": 60}})),
                "spec.template.spec.activeDeadlineSeconds: Forbidden: a pod that ends would be made again and again".to_owned(),
            ),
            (
                template(json!({"spec": {"containers": [{"name": "log", "image": "b:1"}, {"name": "log", "image": "b:1"}]}})),
                "spec.template.spec.containers[1].name: Duplicate value: \"log\"".to_owned(),
            ),
            (
                json!({"image": "a:1", "updateStrategy": {"type": "Recreate"}}),
                "spec.updateStrategy.type: Unsupported value: \"Recreate\": supported values: \"RollingUpdate\", \"OnDelete\"".to_owned(),
            ),
            (
                rolling(json!({"maxUnavailable": -1})),
                format!("{at}.maxUnavailable: Invalid value: -1: must be greater than or equal to 0"),
            ),
            (
                rolling(json!({"maxUnavailable": "101%"})),
                format!("{at}.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%"),
            ),
            (
                rolling(json!({"maxSurge": "5"})),
                format!("{at}.maxSurge: Invalid value: \"5\": must be an integer or a percentage (e.g. \"5%\")"),
            ),
            (
                rolling(json!({"maxSurge": "99999999999999999999%"})),
                format!("{at}.maxSurge: Invalid value: \"99999999999999999999%\": must not be greater than 100%"),
            ),
            (
                rolling(json!({"maxUnavailable": 0})),
                format!("{at}.maxUnavailable: Invalid value: 0: may not be 0 when maxSurge is 0: the roll-out could not replace any pod"),
            ),
            (
                rolling(json!({"maxUnavailable": "0%", "maxSurge": "0%"})),
                format!("{at}.maxUnavailable: Invalid value: \"0%\": may not be 0 when maxSurge is 0: the roll-out could not replace any pod"),
            ),
            (
                rolling(json!({"partition": -2})),
                format!("{at}.partition: Invalid value: -2: must be greater than or equal to 0"),
            ),
            (
                rolling(json!({"windows": [{"schedule": "0 22 * * *", "duration": "4h"}, {"schedule": "@daily"}]})),
                format!("{at}.windows[1].duration: Required value: give for how long the window stays open, such as 4h"),
            ),
            (
                rolling(json!({"onFailure": "Rollback"})),
                format!("{at}.onFailure: Unsupported value: \"Rollback\": supported values: \"Pause\", \"Undo\""),
            ),
            (
                json!({"image": "a:1", "template": {"spec": {"containers": [{"name": "app", "ports": [{"containerPort": 1, "hostPort": 8080}]}]}},
                       "updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}),
                format!("{at}.maxSurge: Forbidden: two pods on one node cannot share a host port: container \"app\" has 8080"),
            ),
            (
                json!({"image": "a:1", "template": {"spec": {"hostNetwork": true, "containers": [{"name": "app", "ports": [{"containerPort": 81}]}]}},
                       "updateStrategy": {"rollingUpdate": {"maxSurge": "1%"}}}),
                format!("{at}.maxSurge: Forbidden: two pods on one node cannot share a host port: container \"app\" has 81"),
            ),
            (
                rolling(json!({"canary": {"nodes": 0}})),
                format!("{at}.canary.nodes: Invalid value: 0: must be at least 1 or \"1%\""),
            ),
            (
                rolling(json!({"canary": {"nodes": "0%"}})),
                format!("{at}.canary.nodes: Invalid value: \"0%\": must be at least 1 or \"1%\""),
            ),
            (
                rolling(json!({"canary": {"nodes": "101%"}})),
                format!("{at}.canary.nodes: Invalid value: \"101%\": must not be greater than 100%"),
            ),
            (
                rolling(json!({"canary": {"soakSeconds": -1}})),
                format!("{at}.canary.soakSeconds: Invalid value: -1: must be greater than or equal to 0"),
            ),
            (
                rolling(json!({"canary": {"soakSeconds": 2_592_001}})),
                format!("{at}.canary.soakSeconds: Invalid value: 2592001: must be less than or equal to 2592000"),
            ),
            (
                rolling(json!({"canary": {"promote": "Never"}})),
                format!("{at}.canary.promote: Unsupported value: \"Never\": supported values: \"Automatic\", \"Manual\""),
            ),
            (
                rolling(json!({"canary": {"nodeSelector": {"a b": "c"}}})),
                format!("{at}.canary.nodeSelector: Invalid value: \"a b\": a label cannot have this key"),
            ),
            (
                rolling(json!({"canary": {"nodeSelector": {"a": "b c"}}})),
                format!("{at}.canary.nodeSelector[a]: Invalid value: \"b c\": a label cannot have this value"),
            ),
            (
                rolling(json!({"topologyKey": "a b"})),
                format!("{at}.topologyKey: Invalid value: \"a b\": a label cannot have this key"),
            ),
            (
                rolling(json!({"topologyKey": "tier", "order": ["a", "b c"]})),
                format!("{at}.order[1]: Invalid value: \"b c\": a label cannot have this value"),
            ),
            (
                rolling(json!({"topologyKey": "tier", "order": ["a", "b", "a"]})),
                format!("{at}.order[2]: Duplicate value: \"a\""),
            ),
            (
                rolling(json!({"topologyKey": "tier", "order": vec!["a"; 101]})),
                format!("{at}.order: Invalid value: 101: must have at most 100 items"),
            ),
            (
                rolling(json!({"order": ["a"]})),
                format!("{at}.order: Forbidden: these are values of the label topologyKey, which is missing"),
            ),
            (
                json!({"image": "a:1", "minReadySeconds": -1}),
                "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0".to_owned(),
            ),
            (
                json!({"image": "a:1", "revisionHistoryLimit": 101}),
                "spec.revisionHistoryLimit: Invalid value: 101: must be less than or equal to 100".to_owned(),
            ),
            (
                json!({"image": "a:1", "revisionHistoryLimit": 0}),
                "spec.revisionHistoryLimit: Invalid value: 0: must be greater than or equal to 1".to_owned(),
            ),
        ];
        for (spec, text) in cases {
            assert_eq!(faults(&spec), [text], "{spec}");
        }
        let long = findings_of(&"x".repeat(64), &json!({"image": "a:1"})).faults;
        assert_eq!(
            long[0].to_string(),
            "metadata.name: Too long: may not be more than 63 bytes"
        );
    }

    #[test]
    fn what_worked_before_a_rule_was_made_still_does() {
        for spec in [
            json!({"image": "a:1", "revisionHistoryLimit": 1_000}),
            json!({"image": "a:1", "template": {"spec": {"activeDeadlineSeconds": 60}}}),
        ] {
            assert_eq!(faults(&spec).len(), 1, "{spec}");
            let stored = spec.to_string();
            let settled = decode_and_validate::<MyDaemonSetRules>(
                "x",
                &BTreeMap::new(),
                &stored,
                DateTime::UNIX_EPOCH,
            );
            assert!(settled.is_ok(), "{settled:?}");
        }
    }

    #[test]
    fn all_faults_come_at_once() {
        let found = faults(&json!({
            "image": "a b", "minReadySeconds": -1, "revisionHistoryLimit": -1,
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": "x", "partition": -1}},
            "template": {"spec": {"nodeName": "n", "containers": [{"name": "b"}]}}}));
        assert_eq!(found.len(), 7, "{found:#?}");
    }

    #[test]
    fn what_has_no_effect_or_may_surprise_is_a_warning() {
        let cases = [
            (json!({"image": "nginx"}), "spec.image"),
            (
                json!({"image": "a:1", "template": {"spec": {"containers": [{"name": "app", "image": "b:1"}]}}}),
                "spec.image: has no effect",
            ),
            (
                json!({"image": "a:1", "updateStrategy": {"type": "OnDelete", "rollingUpdate": {"maxUnavailable": 0}}}),
                "spec.updateStrategy.rollingUpdate: has no effect",
            ),
            (
                json!({"image": "a:1", "updateStrategy": {"rollingUpdate": {"onFailure": "Undo", "autoPause": {"enabled": false}}}}),
                "spec.updateStrategy.rollingUpdate.onFailure: has no effect",
            ),
            (
                json!({"image": "a:1", "template": {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}}),
                "spec.template.spec.volumes[0].persistentVolumeClaim",
            ),
        ];
        for (spec, start) in cases {
            let found = warnings(&spec);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(start), "{found:?}");
        }
    }

    #[test]
    fn a_value_of_another_json_type_is_a_fault_with_its_path() {
        let faults = decode_and_validate::<MyDaemonSetRules>(
            "x",
            &BTreeMap::new(),
            r#"{"image": "a:1", "updateStrategy": {"rollingUpdate": {"partition": "1"}}}"#,
            DateTime::UNIX_EPOCH,
        )
        .unwrap_err();
        assert_eq!(
            faults[0].field,
            "spec.updateStrategy.rollingUpdate.partition"
        );
    }
}
