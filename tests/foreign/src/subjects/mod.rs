//! What the harness knows of each foreign operator: its kinds, and the life of one object.

mod documents;
mod echoes;
mod shadows;

use serde_json::Value;
use simulated_apiserver::{History, Server};

use crate::faults::Fault;

/// The namespace of the objects, and of the operator's pod.
pub const NAMESPACE: &str = "ns";

/// A step of a life: its name, what is done, and for how many seconds the undisturbed run waits then.
pub struct Stage {
    pub name: &'static str,
    pub act: fn(&Server),
    pub seconds: u64,
}

pub trait Subject: Sync {
    fn name(&self) -> &'static str;
    /// Registers the kinds that its CustomResourceDefinitions define.
    fn register(&self, server: &Server);
    /// The environment variables of the program.
    fn environment(&self) -> &'static [(&'static str, &'static str)];
    /// The plural and the name of the object that the scenario is about.
    fn object(&self) -> (&'static str, &'static str);
    /// Faults besides the general ones.
    fn faults(&self) -> &'static [Fault];
    /// The last one deletes the object.
    fn stages(&self) -> &'static [Stage];
    /// What other programs do, once a second.
    fn others(&self, _server: &Server) {}
    /// Removes from an object what may differ between two runs.
    fn trim(&self, _object: &mut Value) {}
    /// Promises of its own.
    fn judge(&self, _history: &History) -> Vec<String> {
        Vec::new()
    }
}

pub const ALL: &[&dyn Subject] = &[&documents::Documents, &echoes::Echoes, &shadows::Shadows];
