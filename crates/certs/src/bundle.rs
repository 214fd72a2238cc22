//! The `caBundle` of the webhook configurations: reads it back, and writes it.
//!
//! Every write is a server-side apply with the resource version that was read **before** the Secret. So a replica that
//! was suspended cannot overwrite a newer bundle with an old one: its write fails, and it reads again. All entries of a
//! configuration are written in one apply: if a field manager leaves out an entry, its fields in that entry are
//! removed.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::stream::{self, BoxStream, StreamExt};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::authority::{Anchor, Fingerprint};
use super::call::{Call, Error};
use super::drift::{self, Drift};
use super::rotation::Published;
use super::watching;

/// The prefix of the annotations that ask cert-manager's injector for a bundle.
const INJECTED: &str = "cert-manager.io/inject-";

/// A webhook configuration that this program does not create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// `MutatingWebhookConfiguration` or `ValidatingWebhookConfiguration`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The expected entries (`webhooks[]`), without `caBundle`. Differences are reported in [`State`](crate::State).
    pub entries: Vec<Value>,
}

impl Named {
    /// The name, and the expected entries, of a complete configuration.
    pub fn of(configuration: &Value) -> Self {
        let text = |pointer| {
            let text = configuration.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        Self {
            kind: text("/kind"),
            name: text("/metadata/name"),
            entries: entries(configuration).cloned().collect(),
        }
    }
}

/// Where the bundle of trusted CAs is published: the `caBundle` of each entry.
#[derive(Clone, Debug, PartialEq)]
pub enum BundleTarget {
    /// Nowhere, and there are no configurations.
    None,
    /// Nowhere: another program writes it into these configurations, which are only read.
    Foreign(Vec<Named>),
    /// Into configurations that others create; [`Named::of`] makes them of complete objects.
    Patch(Vec<Named>),
    /// Into these configurations, which are applied as a whole. Each is a complete object, `apiVersion` and `kind` included,
    /// without any `caBundle`.
    Own(Vec<Value>),
}

/// Writes the bundle to one target.
pub(crate) struct Writer {
    configurations: Vec<Configuration>,
    /// The field manager.
    manager: String,
    applied: bool,
    /// Another program writes it.
    foreign: bool,
}

struct Configuration {
    api: Api<DynamicObject>,
    resource: ApiResource,
    name: String,
    entries: Vec<Value>,
    /// The whole object, if it is ours.
    own: Option<Value>,
}

/// The configurations as they were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// The CAs that they trust.
    pub(crate) published: Published,
    /// Missing configurations and entries, for users to read.
    pub(crate) missing: Vec<String>,
    /// Their differences beyond the bundle.
    pub(crate) drift: Vec<Drift>,
    live: Vec<Option<DynamicObject>>,
}

/// The trust of one entry.
#[derive(Default)]
struct Trust {
    anchors: Vec<Anchor>,
    stray: bool,
}

impl Writer {
    /// A writer for `target`; `None` if there is nothing to write.
    pub(crate) fn new(client: &Client, target: &BundleTarget, manager: &str) -> Option<Self> {
        let configurations = match target {
            BundleTarget::None => return None,
            BundleTarget::Patch(all) | BundleTarget::Foreign(all) => all
                .iter()
                .map(|named| Configuration::new(client, named.clone(), None))
                .collect(),
            BundleTarget::Own(objects) => objects
                .iter()
                .map(|object| Configuration::new(client, Named::of(object), Some(object.clone())))
                .collect(),
        };
        Some(Self {
            configurations,
            manager: manager.to_owned(),
            applied: false,
            foreign: matches!(target, BundleTarget::Foreign(_)),
        })
    }

    /// Whether this process has not applied its own configurations yet: their content (rules, URL) may have changed
    /// with the program, even if the bundle did not.
    pub(crate) fn must_apply(&self) -> bool {
        !self.applied && self.creates()
    }

    /// Whether another program writes the bundle.
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// Whether it creates configurations that are missing.
    pub(crate) fn creates(&self) -> bool {
        self.configurations.iter().any(|c| c.own.is_some())
    }

    /// Reads the bundles of the configurations.
    ///
    /// # Errors
    /// When the API server cannot be reached. A missing configuration is a part of the result.
    pub(crate) async fn read(&self) -> Result<Snapshot, Error> {
        let mut snapshot = Snapshot::default();
        let mut trusts = Vec::new();
        let read = self.configurations.iter().map(|configuration| {
            let call = configuration.call("get");
            call.run(configuration.api.get_opt(&configuration.name))
        });
        let all = futures::future::try_join_all(read).await?;
        for (configuration, live) in self.configurations.iter().zip(all) {
            trusts.extend(configuration.trusts(live.as_ref(), &mut snapshot.missing));
            let found = live.as_ref().and_then(|live| live.data.get("webhooks"));
            if let Some(found) = found.and_then(Value::as_array) {
                snapshot
                    .drift
                    .extend(drift::compare(&configuration.entries, found));
            }
            snapshot.live.push(live);
        }
        snapshot.published = combine(&trusts);
        Ok(snapshot)
    }

    /// Writes `bundle` into every configuration that was read with another one. Returns whether there was one.
    ///
    /// # Errors
    /// A configuration has changed since it was read ([`Error::lost_race`]). Any other rejection by the API server. A
    /// missing configuration is not an error here: the snapshot reports it.
    pub(crate) async fn publish(
        &mut self,
        read: &Snapshot,
        bundle: &[Anchor],
    ) -> Result<bool, Error> {
        let mut wrote = false;
        let all = self.must_apply();
        let wanted = fingerprints(bundle);
        let encoded = encode(bundle);
        for (configuration, live) in self.configurations.iter().zip(&read.live) {
            let trusts = configuration.trusts(live.as_ref(), &mut Vec::new());
            let differs = trusts
                .iter()
                .any(|t| t.stray || fingerprints(&t.anchors) != wanted);
            if !differs && !all {
                continue;
            }
            let Some(object) = configuration.object(live.as_ref(), &encoded) else {
                continue;
            };
            let manager = if configuration.own.is_some() {
                self.manager.clone()
            } else {
                format!("{}-ca-bundle", self.manager)
            };
            let params = PatchParams::apply(&manager).force();
            let patch = Patch::Apply(&object);
            let answer = configuration
                .api
                .patch(&configuration.name, &params, &patch);
            configuration.call("patch").run(answer).await?;
            wrote = true;
        }
        self.applied = true;
        Ok(wrote)
    }

    /// Ticks whenever one of the configurations may have changed. Watch errors are not ticks: the caller polls anyway.
    pub(crate) fn changes(&self) -> BoxStream<'static, ()> {
        stream::select_all(self.configurations.iter().map(Configuration::changes)).boxed()
    }
}

impl Configuration {
    fn new(client: &Client, named: Named, own: Option<Value>) -> Self {
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", &named.kind);
        let resource = ApiResource::from_gvk(&kind);
        Self {
            api: Api::all_with(client.clone(), &resource),
            resource,
            name: named.name,
            entries: named.entries,
            own,
        }
    }

    fn call(&self, verb: &'static str) -> Call {
        let resource = match self.resource.kind.as_str() {
            "MutatingWebhookConfiguration" => "mutatingwebhookconfigurations",
            _ => "validatingwebhookconfigurations",
        };
        Call {
            verb,
            resource,
            namespace: None,
            name: self.name.clone(),
        }
    }

    /// The CAs that each entry trusts. A missing entry trusts none.
    fn trusts(&self, live: Option<&DynamicObject>, missing: &mut Vec<String>) -> Vec<Trust> {
        let kind = &self.resource.kind;
        let Some(live) = live else {
            missing.push(format!("{kind} {} does not exist", self.name));
            return vec![Trust::default()];
        };
        let mut trusts: Vec<_> = entries(&live.data).map(Trust::of).collect();
        for expected in self.entries.iter().map(name) {
            if !entries(&live.data).any(|entry| name(entry) == expected) {
                missing.push(format!("{kind} {} has no entry {expected}", self.name));
                trusts.push(Trust::default());
            }
        }
        trusts
    }

    /// The object to apply; None if there is no entry for a bundle.
    fn object(&self, live: Option<&DynamicObject>, bundle: &str) -> Option<Value> {
        let mut object = if let Some(own) = &self.own {
            let mut own = own.clone();
            if !bundle.is_empty() {
                for entry in own.get_mut("webhooks")?.as_array_mut()? {
                    entry["clientConfig"]["caBundle"] = bundle.into();
                }
            }
            own
        } else {
            let webhooks: Vec<_> = entries(&live?.data)
                .map(|entry| json!({"name": name(entry), "clientConfig": {"caBundle": bundle}}))
                .collect();
            if webhooks.is_empty() {
                return None;
            }
            json!({
                "apiVersion": self.resource.api_version,
                "kind": self.resource.kind,
                "metadata": {"name": self.name},
                "webhooks": webhooks,
            })
        };
        if let Some(version) = live.and_then(ResourceExt::resource_version) {
            object["metadata"]["resourceVersion"] = version.into();
        }
        Some(object)
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        watching::changes(self.api.clone(), &self.name)
    }
}

impl Snapshot {
    /// The entries with a bundle by which the API server does not trust a certificate. `trusts` says whether a bundle
    /// does.
    pub(crate) fn distrusting(&self, trusts: impl Fn(&[Anchor]) -> bool) -> Vec<&str> {
        let mut names = Vec::new();
        for live in self.live.iter().flatten() {
            let mut annotations = live.annotations().keys();
            let injected = annotations.any(|key| key.starts_with(INJECTED));
            for entry in entries(&live.data) {
                let Trust { anchors, stray } = Trust::of(entry);
                let distrusts = if anchors.is_empty() && !stray {
                    // Without a bundle the API server trusts its system's CAs, which are unknown here. But if a bundle
                    // is about to be injected, they do not count.
                    injected
                } else {
                    !trusts(&anchors)
                };
                if distrusts {
                    names.push(name(entry));
                }
            }
        }
        names
    }
}

impl Trust {
    fn of(entry: &Value) -> Self {
        let encoded = entry
            .pointer("/clientConfig/caBundle")
            .and_then(Value::as_str);
        let Ok(pem) = BASE64.decode(encoded.unwrap_or_default()) else {
            return Self {
                anchors: Vec::new(),
                stray: true,
            };
        };
        let anchors = Anchor::read_all(&pem);
        let all_read = CertificateDer::pem_slice_iter(&pem).all(|der| {
            der.is_ok_and(|der| {
                anchors
                    .iter()
                    .any(|a| a.fingerprint() == Fingerprint::new(&der))
            })
        });
        Self {
            anchors,
            stray: !all_read,
        }
    }
}

fn combine(trusts: &[Trust]) -> Published {
    let everywhere = trusts
        .iter()
        .map(|trust| fingerprints(&trust.anchors))
        .reduce(|all, some| all.intersection(&some).copied().collect())
        .unwrap_or_default();
    let mut anywhere: Vec<Anchor> = Vec::new();
    for anchor in trusts.iter().flat_map(|trust| &trust.anchors) {
        if !anywhere.contains(anchor) {
            anywhere.push(anchor.clone());
        }
    }
    Published {
        everywhere,
        anywhere,
        stray: trusts.iter().any(|trust| trust.stray),
    }
}

fn fingerprints(anchors: &[Anchor]) -> BTreeSet<Fingerprint> {
    anchors.iter().map(Anchor::fingerprint).collect()
}

fn encode(bundle: &[Anchor]) -> String {
    BASE64.encode(bundle.iter().map(Anchor::pem).collect::<String>())
}

fn entries(object: &Value) -> impl Iterator<Item = &Value> {
    object
        .get("webhooks")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn name(entry: &Value) -> &str {
    entry
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}
