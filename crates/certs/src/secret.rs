//! The Secret through which all replicas share one CA: a thin layer over `get`, `create` and `update`.
//!
//! Every write has a precondition: a create succeeds for one replica only, and a replace has the resource version that
//! was read.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use futures::stream::BoxStream;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference, Secret};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, Resource};

use super::authority::{Anchor, Authority};
use super::call::{Call, Error};
use super::rotation::{Authorities, Held, Next, Previous};
use super::watching;

/// The keys of the Secret's data.
mod key {
    pub(super) const CURRENT: &str = "ca.crt";
    pub(super) const CURRENT_KEY: &str = "ca.key";
    pub(super) const NEXT: &str = "next.crt";
    pub(super) const NEXT_KEY: &str = "next.key";
    pub(super) const NEXT_PUBLISHED: &str = "next.published-at";
    pub(super) const PREVIOUS: &str = "previous.crt";
    pub(super) const PREVIOUS_DROP: &str = "previous.drop-at";
    pub(super) const ALL: [&str; 7] = [
        CURRENT,
        CURRENT_KEY,
        NEXT,
        NEXT_KEY,
        NEXT_PUBLISHED,
        PREVIOUS,
        PREVIOUS_DROP,
    ];
}

/// The Secret as it was read, and its content.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) held: Held,
    /// The object, for the next write's precondition.
    secret: Option<Secret>,
}

/// The one Secret.
#[derive(Clone)]
pub(crate) struct Store {
    secrets: Api<Secret>,
    namespaces: Api<Namespace>,
    namespace: String,
    name: String,
    manager: String,
    create_namespace: bool,
}

impl Store {
    /// The Secret `name` in `namespace`. If `create_namespace` is set, a missing namespace is created.
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        name: &str,
        manager: &str,
        create_namespace: bool,
    ) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            namespaces: Api::all(client),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            manager: manager.to_owned(),
            create_namespace,
        }
    }

    /// A reference to the Secret for Events, whether or not it exists.
    pub(crate) fn reference(&self, found: Option<&Found>) -> ObjectReference {
        let secret = found.and_then(|found| found.secret.as_ref());
        secret.map_or_else(
            || ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Secret".to_owned()),
                namespace: Some(self.namespace.clone()),
                name: Some(self.name.clone()),
                ..ObjectReference::default()
            },
            |secret| secret.object_ref(&()),
        )
    }

    /// Ticks whenever the Secret may have changed.
    pub(crate) fn changes(&self) -> BoxStream<'static, ()> {
        watching::changes(self.secrets.clone(), &self.name)
    }

    /// Reads the Secret.
    ///
    /// # Errors
    /// When the API server cannot be reached. A missing or invalid Secret is a result, not an error.
    pub(crate) async fn read(&self) -> Result<Found, Error> {
        let secret = self
            .call("get")
            .run(self.secrets.get_opt(&self.name))
            .await?;
        let held = secret.as_ref().map_or(Held::Missing, |secret| {
            from_data(secret.data.as_ref().unwrap_or(&BTreeMap::new()))
        });
        Ok(Found { held, secret })
    }

    /// Replaces `found` with `authorities`, unless another client wrote since.
    ///
    /// # Errors
    /// Another client was faster ([`Error::lost_race`]), or the call failed in another way.
    pub(crate) async fn write(
        &self,
        found: &Found,
        authorities: &Authorities,
    ) -> Result<(), Error> {
        let params = PostParams {
            field_manager: Some(self.manager.clone()),
            ..PostParams::default()
        };
        let data = to_data(authorities);
        let Some(old) = &found.secret else {
            return self.create(&params, data).await;
        };
        // Foreign fields (labels, annotations, further keys) stay as they are.
        let mut secret = old.clone();
        let all = secret.data.get_or_insert_default();
        all.retain(|name, _| !key::ALL.contains(&name.as_str()));
        all.extend(data);
        self.call("update")
            .run(self.secrets.replace(&self.name, &params, &secret))
            .await?;
        Ok(())
    }

    async fn create(
        &self,
        params: &PostParams,
        data: BTreeMap<String, ByteString>,
    ) -> Result<(), Error> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                labels: Some(self.labels()),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            data: Some(data),
            ..Secret::default()
        };
        let create = || {
            self.call("create")
                .run(self.secrets.create(params, &secret))
        };
        match create().await {
            // "Not found" on a create means that the namespace is missing.
            Err(error) if error.is_not_found() && self.create_namespace => {
                self.make_namespace(params).await?;
                create().await?;
            }
            result => {
                result?;
            }
        }
        Ok(())
    }

    async fn make_namespace(&self, params: &PostParams) -> Result<(), Error> {
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(self.namespace.clone()),
                labels: Some(self.labels()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let call = Call {
            verb: "create",
            resource: "namespaces",
            namespace: None,
            name: self.namespace.clone(),
        };
        match call.run(self.namespaces.create(params, &namespace)).await {
            Err(error) if !error.is_already_exists() => Err(error),
            _ => Ok(()),
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let managed_by = "app.kubernetes.io/managed-by".to_owned();
        BTreeMap::from([(managed_by, self.manager.clone())])
    }

    fn call(&self, verb: &'static str) -> Call {
        Call {
            verb,
            resource: "secrets",
            namespace: Some(self.namespace.clone()),
            name: self.name.clone(),
        }
    }
}

fn to_data(authorities: &Authorities) -> BTreeMap<String, ByteString> {
    let mut data = BTreeMap::new();
    let mut put = |name: &str, text: String| {
        data.insert(name.to_owned(), ByteString(text.into_bytes()));
    };
    // Milliseconds: in a test the periods may be seconds, but never less.
    let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Millis, true);
    put(key::CURRENT, authorities.current.certificate_pem());
    put(key::CURRENT_KEY, authorities.current.key_pem());
    if let Some(Next {
        authority,
        published_at,
    }) = &authorities.next
    {
        put(key::NEXT, authority.certificate_pem());
        put(key::NEXT_KEY, authority.key_pem());
        if let Some(at) = published_at {
            put(key::NEXT_PUBLISHED, time(*at));
        }
    }
    if let Some(Previous { anchors, drop_at }) = &authorities.previous {
        put(key::PREVIOUS, anchors.iter().map(Anchor::pem).collect());
        put(key::PREVIOUS_DROP, time(*drop_at));
    }
    data
}

fn from_data(data: &BTreeMap<String, ByteString>) -> Held {
    let text = |name: &str| {
        data.get(name)
            .and_then(|bytes| std::str::from_utf8(&bytes.0).ok())
    };
    let time = |name: &str| {
        let at = DateTime::parse_from_rfc3339(text(name)?).ok()?;
        Some(at.with_timezone(&Utc))
    };
    let pair = |certificate: &str, key: &str| match (text(certificate), text(key)) {
        (Some(pem), Some(key_pem)) => Authority::from_pem(pem, key_pem)
            .map(Arc::new)
            .map_err(|error| format!("{certificate} and {key}: {error}")),
        (None, _) => Err(format!("{certificate} is missing or no text")),
        (_, None) => Err(format!("{key} is missing or no text")),
    };
    let current = match pair(key::CURRENT, key::CURRENT_KEY) {
        Ok(current) => current,
        Err(fault) => {
            let all: Vec<u8> = [key::CURRENT, key::NEXT, key::PREVIOUS]
                .iter()
                .filter_map(|name| data.get(*name))
                .flat_map(|bytes| bytes.0.iter().copied().chain([b'\n']))
                .collect();
            return Held::Garbage {
                fault,
                readable: Anchor::read_all(&all),
            };
        }
    };
    // A next CA that cannot be read has never signed anything: the change starts again without it.
    let next = pair(key::NEXT, key::NEXT_KEY).ok().map(|authority| Next {
        authority,
        published_at: time(key::NEXT_PUBLISHED),
    });
    let previous = data.get(key::PREVIOUS).map(|bytes| Previous {
        anchors: Anchor::read_all(&bytes.0),
        // Without a readable time it stays for half the lifetime of the CA that followed it: longer than the lifetime
        // of any leaf, and over before the next rotation begins.
        drop_at: time(key::PREVIOUS_DROP).unwrap_or_else(|| half_life(current.anchor())),
    });
    Held::Authorities(Authorities {
        current,
        next,
        previous,
    })
}

fn half_life(anchor: &Anchor) -> DateTime<Utc> {
    anchor.not_before() + (anchor.not_after() - anchor.not_before()) / 2
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use chrono::TimeDelta;

    use super::*;

    fn start() -> DateTime<Utc> {
        "2026-01-01T00:00:00.123Z".parse().unwrap()
    }

    fn authority() -> Arc<Authority> {
        Arc::new(Authority::generate(start(), TimeDelta::days(365)).unwrap())
    }

    fn everything() -> Authorities {
        Authorities {
            current: authority(),
            next: Some(Next {
                authority: authority(),
                published_at: Some(start()),
            }),
            previous: Some(Previous {
                anchors: vec![authority().anchor().clone(), authority().anchor().clone()],
                drop_at: start() + TimeDelta::days(7),
            }),
        }
    }

    fn read(data: &BTreeMap<String, ByteString>) -> Authorities {
        match from_data(data) {
            Held::Authorities(authorities) => authorities,
            held => panic!("{held:?}"),
        }
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        let all = everything();
        let alone = Authorities {
            next: None,
            previous: None,
            ..all.clone()
        };
        let unmarked = Next {
            published_at: None,
            ..all.next.clone().unwrap()
        };
        let unmarked = Authorities {
            next: Some(unmarked),
            ..alone.clone()
        };
        for written in [all, alone, unmarked] {
            let back = read(&to_data(&written));
            assert_eq!(back.bundle(), written.bundle());
            assert_eq!(back.current.key_pem(), written.current.key_pem());
            assert_eq!(back.previous, written.previous);
            let published_at = |a: &Authorities| a.next.as_ref().map(|next| next.published_at);
            assert_eq!(published_at(&back), published_at(&written));
        }
    }

    #[test]
    fn a_current_ca_that_cannot_sign_is_garbage_and_what_can_be_read_is_kept() {
        let all = everything();
        let good = to_data(&all);
        let mut no_key = good.clone();
        no_key.remove(key::CURRENT_KEY);
        let mut wrong_key = good.clone();
        wrong_key.insert(key::CURRENT_KEY.to_owned(), good[key::NEXT_KEY].clone());
        let mut binary = good.clone();
        binary.insert(key::CURRENT_KEY.to_owned(), ByteString(vec![0xff, 0xfe]));
        for (data, words) in [
            (no_key, "ca.key is missing"),
            (wrong_key, "does not belong"),
            (binary, "ca.key is missing or no text"),
        ] {
            let Held::Garbage { fault, readable } = from_data(&data) else {
                panic!()
            };
            assert!(fault.contains(words), "{fault}");
            assert_eq!(readable.len(), 4);
        }
        let Held::Garbage { fault, readable } = from_data(&BTreeMap::new()) else {
            panic!()
        };
        assert!(fault.contains("ca.crt is missing"), "{fault}");
        assert!(readable.is_empty());
    }

    #[test]
    fn unreadable_next_ca_counts_as_absent() {
        let mut data = to_data(&everything());
        data.insert(key::NEXT_KEY.to_owned(), ByteString(b"nothing".to_vec()));
        assert!(read(&data).next.is_none());
    }

    #[test]
    fn unreadable_drop_time_becomes_a_late_one_before_the_next_change() {
        let mut data = to_data(&everything());
        data.insert(key::PREVIOUS_DROP.to_owned(), ByteString(b"soon".to_vec()));
        let drop_at = read(&data).previous.unwrap().drop_at;
        assert!(drop_at > start() + TimeDelta::days(100), "{drop_at}");
        assert!(drop_at < start() + TimeDelta::days(240), "{drop_at}");
    }
}
