//! The semantics through kube's client, each by itself.
#![allow(clippy::unwrap_used, clippy::panic)]

mod apply;
mod deletion;
mod faults;
mod kubelet;
mod objects;
mod watches;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use serde_json::{Value, json};

use crate::{Options, Server};

pub(crate) fn server() -> Server {
    Server::new(Options::default())
}

pub(crate) fn pods(server: &Server) -> Api<Pod> {
    Api::default_namespaced(server.client("test"))
}

pub(crate) fn config_maps(server: &Server) -> Api<ConfigMap> {
    Api::default_namespaced(server.client("test"))
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    })
}

/// An object as its Rust type.
pub(crate) fn typed<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// Code, reason and message of a failed call.
pub(crate) fn failure<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String, String) {
    match result {
        Err(kube::Error::Api(status)) => {
            (status.code, status.reason.clone(), status.message.clone())
        }
        other => panic!("no answer of the API: {other:?}"),
    }
}
