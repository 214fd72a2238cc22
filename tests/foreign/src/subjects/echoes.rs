//! Pscheidl/rust-kubernetes-operator-example: an Echo gets a Deployment.

use serde_json::json;
use simulated_apiserver::{Resource, Server};

use super::{NAMESPACE, Stage, Subject};
use crate::faults::Fault;

pub struct Echoes;

impl Subject for Echoes {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn register(&self, server: &Server) {
        server.register(Resource::custom("example.com", "v1", "Echo", "echoes").without_status());
    }

    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn object(&self) -> (&'static str, &'static str) {
        ("echoes", "a")
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::HeldBack("echoes")]
    }

    fn stages(&self) -> &'static [Stage] {
        &[
            Stage {
                name: "created",
                act: create,
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
        "apiVersion": "example.com/v1", "kind": "Echo", "metadata": {"name": "a", "namespace": NAMESPACE},
        "spec": {"replicas": 2},
    }));
}

fn delete(server: &Server) {
    let _ = server.direct().delete("echoes", NAMESPACE, "a");
}
