//! Lasting problems: shown by the probes, logged when they appear or change.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Resource;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;

use super::metrics::Metrics;

/// The current problems, by source. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Health {
    problems: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Health {
    /// Clears the problem of a source that works.
    pub fn clear(&self, source: &str) {
        let mut problems = self.problems.lock();
        if !problems.is_empty() && problems.remove(source).is_some() {
            tracing::info!(source, "works again");
        }
    }

    /// Reports why a source does not work.
    pub fn report(&self, source: &str, problem: &str) {
        let mut problems = self.problems.lock();
        if problems.get(source).is_none_or(|known| known != problem) {
            tracing::warn!(source, "{problem}");
            problems.insert(source.to_owned(), problem.to_owned());
        }
    }

    /// Sets or clears a problem that its source logs itself.
    pub fn show(&self, source: &str, problem: Option<&str>) {
        let mut problems = self.problems.lock();
        match problem {
            Some(problem) => problems.insert(source.to_owned(), problem.to_owned()),
            None => problems.remove(source),
        };
    }

    /// The current problems: (source, problem).
    pub fn problems(&self) -> Vec<(String, String)> {
        let problems = self.problems.lock();
        problems
            .iter()
            .map(|(s, p)| (s.clone(), p.clone()))
            .collect()
    }
}

/// Where watches report whether they work: for the probes, and as a metric.
#[derive(Clone, Debug)]
pub struct WatchHealth {
    health: Health,
    metrics: Metrics,
}

impl WatchHealth {
    pub(super) fn new(health: Health, metrics: Metrics) -> Self {
        Self { health, metrics }
    }

    /// The health of one watch, in a namespace or in all of them.
    pub(super) fn of_watch<K>(self, namespace: Option<&str>) -> OneWatch
    where
        K: Resource<DynamicType = ()>,
    {
        let (plural, group) = (K::plural(&()), K::group(&()));
        let resource = match &*group {
            "" => plural.into_owned(),
            group => format!("{plural}.{group}"),
        };
        OneWatch {
            failing: self
                .metrics
                .watch_failing(&resource, namespace.unwrap_or_default()),
            source: match namespace {
                Some(namespace) => format!("{resource}/{namespace}"),
                None => resource,
            },
            health: self.health,
            is_failing: false,
        }
    }
}

/// Whether one watch works.
#[derive(Debug)]
pub(super) struct OneWatch {
    source: String,
    health: Health,
    /// How many watches of this resource in this namespace fail. Several kinds watch pods, under one source.
    failing: Gauge,
    is_failing: bool,
}

impl OneWatch {
    /// The watch works. Its source does when all watches under it work.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_failing) && self.failing.dec() == 1 {
            self.health.clear(&self.source);
        }
    }

    /// Reports why the watch does not work.
    pub(super) fn report(&mut self, problem: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            self.failing.inc();
        }
        self.health.report(&self.source, problem);
    }
}

impl Drop for OneWatch {
    fn drop(&mut self) {
        // The watch ended with the process, or with the term of its leader. That does not mean that it works, so nothing is logged.
        if self.is_failing && self.failing.dec() == 1 {
            self.health.show(&self.source, None);
        }
    }
}
