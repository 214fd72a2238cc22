//! kube-rs/controller-rs: a Document is hidden when its spec says so; an Event is published first, once per hide.

use serde_json::json;
use simulated_apiserver::{Resource, Server};

use super::{NAMESPACE, Stage, Subject};
use crate::faults::Fault;

pub struct Documents;

impl Subject for Documents {
    fn name(&self) -> &'static str {
        "controller-rs"
    }

    fn register(&self, server: &Server) {
        server.register(Resource::custom("kube.rs", "v1", "Document", "documents"));
    }

    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        &[("RUST_LOG", "info,kube=debug")]
    }

    fn object(&self) -> (&'static str, &'static str) {
        ("documents", "a")
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::HeldBack("documents")]
    }

    fn stages(&self) -> &'static [Stage] {
        &[
            Stage {
                name: "created",
                act: create,
                seconds: 60,
            },
            Stage {
                name: "hidden",
                act: hide,
                seconds: 60,
            },
            Stage {
                name: "deleted",
                act: delete,
                seconds: 60,
            },
        ]
    }
}

fn create(server: &Server) {
    let _ = server.direct().create(json!({
        "apiVersion": "kube.rs/v1", "kind": "Document", "metadata": {"name": "a", "namespace": NAMESPACE},
        "spec": {"title": "A", "hide": false, "content": "text"},
    }));
}

fn hide(server: &Server) {
    let _ = server.direct().patch(
        "documents",
        NAMESPACE,
        "a",
        &json!({"spec": {"hide": true}}),
    );
}

fn delete(server: &Server) {
    let _ = server.direct().delete("documents", NAMESPACE, "a");
}
