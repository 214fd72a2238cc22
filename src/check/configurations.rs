//! The webhook configurations: whether they are there, and how they call the webhooks.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fetch::{Cluster, Fetched, Resource};
use super::installation::{Installation, LABEL, is_labelled};
use super::report::Finding;
use crate::manifests::{self, ClientConfig, NAMESPACE_NAME};
use webhook_certs::drift;

const CHECK: &str = "webhook-configuration";
const RESTORE: &str = "kubectl apply -k config/webhook, or apply your chart again";
const GROUP: &str = "admissionregistration.k8s.io";
/// Plural and kind, in the order of `manifests::configurations`.
const KINDS: [(&str, &str); 2] = [
    (
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
    ),
    (
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
    ),
];

/// What was found of one of the two.
pub(super) struct Configuration {
    pub(super) finding: Finding,
    /// Its entries.
    pub(super) entries: Vec<Value>,
    /// Whether cert-manager writes the `caBundle`.
    pub(super) injected: bool,
    /// The finding on one of a second installation, if there is one.
    pub(super) second: Option<Finding>,
}

/// The mutating and the validating configuration of this installation.
pub(super) async fn read(cluster: &Cluster, installed: &Installation) -> [Configuration; 2] {
    // Those of a second installation need not have our label.
    let [mutating, validating] = list(cluster, "").await;
    let [first, second] = manifests::configurations(
        &installed.kinds,
        &installed.names,
        &ClientConfig::Service,
        &installed.namespaces,
    );
    let judge = |kind, expected: &Value, found: Fetched<Vec<Value>>| {
        let second = found
            .as_ref()
            .ok()
            .and_then(|all| second_installation(kind, expected, all, installed));
        let mut judged = judge(
            kind,
            expected,
            found,
            installed.namespace(),
            installed.own_configurations,
        );
        judged.second = second;
        judged
    };
    [
        judge(KINDS[0].1, &first, mutating),
        judge(KINDS[1].1, &second, validating),
    ]
}

/// The entries of all configurations with our label.
pub(super) async fn entries(cluster: &Cluster) -> Fetched<Vec<Value>> {
    let [mutating, validating] = list(cluster, LABEL).await;
    let all = mutating?.into_iter().chain(validating?);
    let entries = all.map(|mut it| it["webhooks"].take());
    let entries = entries.filter_map(|it| it.as_array().cloned());
    Ok(entries.flatten().collect())
}

/// All mutating and all validating configurations with that label.
async fn list(cluster: &Cluster, label: &str) -> [Fetched<Vec<Value>>; 2] {
    let [mutating, validating] = KINDS.map(|(plural, _)| {
        let resource = Resource::cluster(GROUP, "v1", plural);
        cluster.list(resource, label)
    });
    let (mutating, validating) = tokio::join!(mutating, validating);
    [mutating, validating]
}

/// Reports that there is no configuration.
fn none(namespace: &str, own: bool) -> Finding {
    if own {
        let text = format!("none with label {LABEL} calls namespace {namespace}");
        Finding::failed(CHECK, text).action(RESTORE)
    } else {
        let text = format!("none has our webhooks and calls namespace {namespace}");
        let action = format!("kubectl -n {namespace} describe clusterserviceversions");
        Finding::failed(CHECK, text).action(action)
    }
}

fn judge(
    kind: &str,
    expected: &Value,
    found: Fetched<Vec<Value>>,
    namespace: &str,
    own: bool,
) -> Configuration {
    let absent = |finding: Finding| Configuration {
        finding: finding.about(kind),
        entries: Vec::new(),
        injected: false,
        second: None,
    };
    let mut all = match found {
        Ok(all) => all,
        Err(unread) => return absent(unread.finding(CHECK)),
    };
    // Another program does not give its configurations our label.
    all.retain(|it| !own || is_labelled(it));
    let is_ours = |entry: &Value| own || has(expected, &entry["name"]);
    let Some(live) = ours(&all, namespace, is_ours) else {
        return absent(none(namespace, own));
    };
    let entries = live["webhooks"].as_array().cloned().unwrap_or_default();
    let expected = &of_program(expected, &live);
    let annotations = live["metadata"]["annotations"].as_object();
    let mut annotations = annotations.into_iter().flatten();
    Configuration {
        finding: compare(expected, &entries, namespace).about(kind),
        injected: annotations.any(|(key, _)| key.starts_with("cert-manager.io/inject-")),
        entries,
        second: None,
    }
}

/// The finding on a configuration that has our webhooks and calls another operator for the same namespaces.
fn second_installation(
    kind: &str,
    expected: &Value,
    all: &[Value],
    installed: &Installation,
) -> Option<Finding> {
    let is_ours = |entry: &Value| has(expected, &entry["name"]);
    let calls =
        |entry: &Value| entry["clientConfig"]["service"]["namespace"] == installed.namespace();
    let entries = all.iter().filter_map(|it| it["webhooks"].as_array());
    // As in [`ours`]: where no entry calls the Service, those that call a URL are of this installation.
    let is_inside = entries
        .flatten()
        .any(|entry| is_ours(entry) && calls(entry));
    let is_first = |entry: &Value| {
        if is_inside {
            calls(entry)
        } else {
            entry["clientConfig"]["url"].is_string()
        }
    };
    let overlaps = |entry: &Value| {
        let (ours, theirs) = (&installed.namespaces, selected(entry));
        ours.is_empty() || theirs.is_empty() || theirs.iter().any(|it| ours.contains(it))
    };
    let is_second = |entry: &&Value| is_ours(entry) && !is_first(entry) && overlaps(entry);
    let mut found = all.iter().filter_map(|it| {
        let mut entries = it["webhooks"].as_array()?.iter();
        Some((text(&it["metadata"]["name"]), entries.find(is_second)?))
    });
    let (name, entry) = found.next()?;
    let config = &entry["clientConfig"];
    let place = match config["url"].as_str() {
        Some(url) => format!("at {}", origin(url)),
        None => format!("in namespace {}", text(&config["service"]["namespace"])),
    };
    let message = format!(
        "{kind} {name} calls an operator {place} for the same objects: a second installation"
    );
    let action = "remove one of the two, or give each its own namespaces (--namespace)";
    Some(Finding::warning(CHECK, message).action(action))
}

/// The namespaces that an entry selects by their names; none for all.
pub(super) fn selected(entry: &Value) -> Vec<String> {
    let selector = entry["namespaceSelector"]["matchExpressions"].as_array();
    let mut terms = selector.into_iter().flatten();
    let named = terms.find(|term| term["key"] == NAMESPACE_NAME && term["operator"] == "In");
    let values = named.and_then(|term| term["values"].as_array());
    let values = values.into_iter().flatten().filter_map(Value::as_str);
    values.map(str::to_owned).collect()
}

/// What the program that created the configuration can say: OLM's type has no `matchConditions`.
fn of_program(expected: &Value, live: &Value) -> Value {
    let mut expected = expected.clone();
    if !is_labelled(live) {
        let entries = expected["webhooks"].as_array_mut().into_iter().flatten();
        for entry in entries.filter_map(Value::as_object_mut) {
            entry.remove("matchConditions");
        }
    }
    expected
}

/// Whether a configuration has an entry of that name.
fn has(configuration: &Value, name: &Value) -> bool {
    let entries = configuration["webhooks"].as_array();
    entries.is_some_and(|entries| entries.iter().any(|entry| entry["name"] == *name))
}

/// The one that calls a Service of the namespace, with the entries of others that do so too: OLM creates one for each
/// webhook, and other operators may share the namespace. Else the one that calls a URL.
fn ours(all: &[Value], namespace: &str, is_ours: impl Fn(&Value) -> bool) -> Option<Value> {
    let of = |it: &Value| -> Vec<Value> {
        let entries = it["webhooks"].as_array().into_iter().flatten();
        entries.filter(|entry| is_ours(entry)).cloned().collect()
    };
    let calls = |entry: &Value| entry["clientConfig"]["service"]["namespace"] == namespace;
    let url = |entry: &Value| entry["clientConfig"]["url"].is_string();
    let mut own = all.iter().filter(|it| of(it).iter().any(calls));
    let first = own.next();
    let mut found = first
        .or_else(|| all.iter().find(|it| of(it).iter().any(url)))?
        .clone();
    let mut entries = of(&found);
    entries.extend(own.flat_map(of));
    found["webhooks"] = entries.into();
    Some(found)
}

fn compare(expected: &Value, live: &[Value], namespace: &str) -> Finding {
    let expected = expected["webhooks"].as_array().into_iter().flatten();
    let expected: Vec<Value> = expected
        .map(|entry| {
            let mut entry = entry.clone();
            let found = live.iter().find(|it| it["name"] == entry["name"]);
            reach(&mut entry, found, namespace);
            entry
        })
        .collect();
    let names: BTreeSet<&str> = live.iter().map(|entry| text(&entry["name"])).collect();
    let missing = expected.iter().map(|entry| text(&entry["name"]));
    let missing: Vec<&str> = missing.filter(|name| !names.contains(name)).collect();
    if !missing.is_empty() {
        let text = format!("has no entry {}", missing.join(", "));
        return Finding::failed(CHECK, text).action(RESTORE);
    }
    match drift::note(&drift::compare(&expected, live)) {
        Some(note) => Finding::warning(CHECK, note),
        None => Finding::passed(
            CHECK,
            format!("{} entries, as this version expects", live.len()),
        ),
    }
}

/// Sets how the entry is reached: an installation may have a Service of another name, or a URL.
fn reach(entry: &mut Value, live: Option<&Value>, namespace: &str) {
    let path = entry["clientConfig"]["service"]["path"].clone();
    let Some(config) = live.map(|live| &live["clientConfig"]) else {
        return;
    };
    if let Some(url) = config["url"].as_str() {
        let url = format!("{}{}", origin(url), text(&path));
        entry["clientConfig"] = json!({ "url": url });
    } else {
        let service = &mut entry["clientConfig"]["service"];
        service["namespace"] = namespace.into();
        for field in ["name", "port"] {
            service[field] = config["service"][field].clone();
        }
    }
}

/// `https://host:port` of a URL.
pub(super) fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/').map_or(url.len(), |at| host + at);
    &url[..end]
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Configuration {
    /// Whether nothing could be read of it.
    pub(super) fn is_unread(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::check::installation::Outside;
    use crate::check::report::Level;
    use crate::kinds;
    use crate::manifests::Names;

    fn judged(change: impl Fn(&mut Value)) -> Configuration {
        let kinds = kinds::by_default();
        let made =
            |names: &Names| manifests::configurations(&kinds, names, &ClientConfig::Service, &[]);
        let [_, mut live] = made(&Names::new("release", "own"));
        live["metadata"]["name"] = "release-validating".into();
        let [_, expected] = made(&Names::default());
        change(&mut live);
        judge("Kind", &expected, Ok(vec![live]), "own", true)
    }

    #[test]
    fn a_configuration_of_another_name_is_found_and_compared() {
        let good = judged(|_| ());
        assert_eq!(good.finding.level, Level::Passed, "{:?}", good.finding);
        let url = judged(|it| {
            for entry in it["webhooks"].as_array_mut().unwrap() {
                let path = entry["clientConfig"]["service"]["path"].as_str().unwrap();
                let url = format!("https://127.0.0.1:9443{path}");
                entry["clientConfig"] = json!({ "url": url });
            }
        });
        assert_eq!(url.finding.level, Level::Passed, "{:?}", url.finding);
    }

    #[test]
    fn configurations_of_olm_are_compared_as_one_without_match_conditions() {
        let made = |name: &str, namespace: &str| {
            json!({
                "metadata": {"name": format!("{name}-x7k2p"), "labels": {"olm.managed": "true"}},
                "webhooks": [{"name": name, "clientConfig": {"service": {"namespace": namespace}}}],
            })
        };
        let mut all = vec![made("a", "other"), made("b", "own"), made("c", "own")];
        // Of another operator in the same namespace.
        all.push(made("d", "own"));
        let webhooks = json!({"webhooks": [{"name": "a"}, {"name": "b"}, {"name": "c"}]});
        let found = ours(&all, "own", |entry| has(&webhooks, &entry["name"])).unwrap();
        let names: Vec<&str> = found["webhooks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| text(&it["name"]))
            .collect();
        assert_eq!(names, ["b", "c"]);
        let expected =
            json!({"webhooks": [{"name": "b", "matchConditions": [{"name": "changed"}]}]});
        assert_eq!(
            of_program(&expected, &found),
            json!({"webhooks": [{"name": "b"}]})
        );
        let labelled = json!({"metadata": {"labels": {"app.kubernetes.io/name": "my-operator"}}});
        assert_eq!(of_program(&expected, &labelled), expected);
    }

    #[test]
    fn a_second_installation_for_the_same_namespaces_is_reported() {
        let kinds = kinds::by_default();
        let made = |name: &str, namespace: &str, reach: &ClientConfig, of: &[&str]| {
            let of: Vec<String> = of.iter().map(|&it| it.to_owned()).collect();
            let [_, mut made] =
                manifests::configurations(&kinds, &Names::new(name, namespace), reach, &of);
            // As another program creates it.
            made["metadata"]["labels"] = Value::Null;
            made
        };
        let service = ClientConfig::Service;
        let url = ClientConfig::Url("https://127.0.0.1:9443".to_owned());
        let [_, expected] = manifests::configurations(&kinds, &Names::default(), &service, &[]);
        let found = |all: &[Value], of: &[&str]| {
            let outside = Outside {
                sign: String::new(),
                kinds: Vec::new(),
                namespaces: of.iter().map(|&it| it.to_owned()).collect(),
                webhooks: true,
            };
            let installed = Installation::outside("own", outside);
            second_installation("Kind", &expected, all, &installed).map(|finding| finding.message)
        };
        let own = made("a", "own", &service, &[]);
        assert_eq!(found(std::slice::from_ref(&own), &[]), None);
        assert_eq!(found(&[made("a", "own", &url, &[])], &[]), None);
        let other = made("b", "other", &service, &[]);
        let name = text(&other["metadata"]["name"]);
        let expected = format!(
            "Kind {name} calls an operator in namespace other for the same objects: a second installation"
        );
        assert_eq!(
            found(&[own.clone(), other.clone()], &[]),
            Some(expected.clone())
        );
        assert_eq!(found(&[other], &["x"]), Some(expected));
        let outside = found(&[own.clone(), made("c", "c", &url, &[])], &[]).unwrap();
        assert!(
            outside.contains("at https://127.0.0.1:9443 for"),
            "{outside}"
        );
        // Each has namespaces of its own.
        let other = made("b", "other", &service, &["y"]);
        assert_eq!(found(&[own.clone(), other.clone()], &["x"]), None);
        assert!(found(&[own, other], &["x", "y"]).is_some());
        // A policy engine has rules for the same kinds under names of its own.
        let mut policy = made("p", "policies", &service, &[]);
        for entry in policy["webhooks"].as_array_mut().unwrap() {
            entry["name"] = "validate.policies.example".into();
        }
        assert_eq!(found(&[policy], &[]), None);
    }

    #[test]
    fn missing_entries_fail_and_other_differences_warn() {
        let gone = judged(|it| {
            it["webhooks"].as_array_mut().unwrap().remove(0);
        });
        assert_eq!(gone.finding.level, Level::Failed);
        assert!(
            gone.finding
                .message
                .contains("has no entry vmydaemonset.kb.io")
        );
        let ignored = judged(|it| it["webhooks"][0]["failurePolicy"] = "Ignore".into());
        assert_eq!(ignored.finding.level, Level::Warning);
        assert!(ignored.finding.message.contains("failurePolicy"));
        let elsewhere = judged(|it| {
            for entry in it["webhooks"].as_array_mut().unwrap() {
                entry["clientConfig"]["service"]["namespace"] = "other".into();
            }
        });
        assert_eq!(elsewhere.finding.level, Level::Failed);
        assert!(elsewhere.finding.message.contains("calls namespace own"));
    }
}
