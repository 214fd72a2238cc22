//! Faults that last: shown by the probes, logged when they appear or change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What does not work now, by its source. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Health {
    problems: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Health {
    /// The source works.
    pub fn well(&self, source: &str) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if !problems.is_empty() && problems.remove(source).is_some() {
            tracing::info!(source, "works again");
        }
    }

    /// The source does not work, and why.
    pub fn ill(&self, source: &str, problem: &str) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if problems.get(source).is_none_or(|known| known != problem) {
            tracing::warn!(source, "{problem}");
            problems.insert(source.to_owned(), problem.to_owned());
        }
    }

    /// Shows a problem that its source logs itself, or that there is none.
    pub fn show(&self, source: &str, problem: Option<&str>) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        match problem {
            Some(problem) => problems.insert(source.to_owned(), problem.to_owned()),
            None => problems.remove(source),
        };
    }

    /// What does not work now: (source, problem).
    pub fn problems(&self) -> Vec<(String, String)> {
        let problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        problems
            .iter()
            .map(|(s, p)| (s.clone(), p.clone()))
            .collect()
    }
}
