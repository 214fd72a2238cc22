//! What a kind brings to the sweep: its scenarios, how its pods run, its promises, its mutants.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::TimeDelta;
use futures::future::BoxFuture;
use my_operator_rounds::{Budget, lengths};
use serde_json::Value;
use simulated_apiserver::{History, Run, Server, Site};

use super::cluster::Cluster;
use super::faults::Fault;
use super::mutants::Mutant;

/// A kind under the sweep. `at/mod.rs` is the smallest complete example.
pub trait Subject: Sync {
    /// Its name, as `--kinds` takes it.
    fn kind(&self) -> &'static str;

    /// The object that the scenarios are about: plural and name.
    fn object(&self) -> (&'static str, &'static str);

    /// The resources that its reconciler watches. A fault holds back each of them, so that one cache is behind the others.
    fn watched(&self) -> &'static [&'static str];

    /// What the faults are put into.
    fn scenarios(&self) -> &'static [Scenario];

    /// The nodes of the cluster.
    fn nodes(&self) -> &'static [&'static str] {
        &["node-1"]
    }

    /// Starts other controllers that the kind depends on.
    fn surround(&self, _server: &Server) {}

    /// How old the nodes are when the scenario begins.
    fn age_of_nodes(&self) -> TimeDelta {
        TimeDelta::zero()
    }

    /// How a pod runs.
    fn run(&self, pod: &Value) -> Run;

    /// The object is where the scenario leads to. [`Self::settle`] later the run ends.
    fn is_settled(&self, cluster: &Cluster, special: Special) -> bool;

    /// How long a run goes on once the object is settled: longer than every fault lasts.
    fn settle(&self) -> Duration {
        Duration::from_secs(75)
    }

    /// Its own acts of a foreign client, each of which happens right before a call: [`Fault::Own`].
    fn meddlings(&self) -> &'static [&'static str] {
        &[]
    }

    /// Does what one of [`Self::meddlings`] says.
    fn meddle(&self, _which: &str, _cluster: &Cluster, _site: &Site) {}

    /// What a foreign client creates in place of an object of the operator that it deleted.
    fn replacement(&self, object: Value) -> Value;

    /// Whether the scenario ends as without the fault.
    fn keeps_the_end(&self, fault: Fault, _site: &Site) -> bool {
        !fault.is_a_foreign_hand() || fault == Fault::EditBefore
    }

    /// How many pods more than without a fault may be made: as long as the operator does not see that an object is gone or
    /// suspended, it makes the pod again that something else deletes.
    fn wasted_pods(&self) -> usize {
        6
    }

    /// Whether the fault is put there into scenarios of that kind.
    fn applies(&self, _fault: Fault, _site: &Site, _special: Special) -> bool {
        true
    }

    /// By how many changes the lists of an API server that lags are behind.
    fn lag(&self) -> u64 {
        2
    }

    /// Judges the history of a run.
    fn judge(&self, seen: &Seen<'_>) -> Judged;

    /// What the runs must have led to at least once: rare branches, by what they show.
    fn rare(&self) -> &'static [&'static str];

    /// Programs with a bug, each of which must be caught.
    fn mutants(&self) -> &'static [Mutant];

    /// How many of its runs with a fault at a call there are.
    fn runs(&self) -> Budget {
        lengths::swept_faults()
    }

    /// How many runs there are with several faults at random.
    fn random_runs(&self) -> u64 {
        lengths::random_faults()
    }

    /// Every fault.
    fn faults(&self) -> Vec<Fault> {
        let held = self.watched().iter().map(|plural| Fault::HeldBack(plural));
        let own = self.meddlings().iter().map(|which| Fault::Own(which));
        let general = Fault::GENERAL.iter().copied();
        general.chain(held).chain(own).collect()
    }
}

/// What a judge sees of a run.
pub struct Seen<'a> {
    pub history: &'a History,
    /// The faults that befell the first operator.
    pub faults: &'a [Fault],
    /// The calls that they befell.
    pub sites: &'a [&'a Site],
    pub special: Special,
    /// When processes of operators started, in virtual time.
    pub starts: &'a [(&'static str, Duration)],
    /// The page of metrics at the end, where one operator is left and the object is where the scenario leads to.
    pub figures: Option<&'a str>,
}

/// What a judge says of a run.
pub struct Judged {
    /// The sentence of each promise that was broken.
    pub broken: Vec<String>,
    /// What two runs of a scenario must have in common at their end.
    pub outcome: String,
    /// The end may differ from that of the undisturbed run: the operator cannot know better.
    pub end_may_differ: bool,
    /// The branches that the run led to; see [`Subject::rare`].
    pub marks: BTreeSet<String>,
    /// How much longer it may take, since the operator could not know what it had to.
    pub patience: Duration,
}

/// A life of an object. Its steps wait for what they need, so that a fault may delay them.
pub struct Scenario {
    pub name: &'static str,
    /// What is special about it.
    pub special: Special,
    pub script: fn(&Cluster) -> BoxFuture<'_, ()>,
}

/// What is special about a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Nothing,
    /// Two operators work at once, of which the first meets the faults.
    TwoOperators,
    /// The pod goes before a disturbed operator may have seen its end: then the result may be Unknown.
    EndMayBeMissed,
    /// The API server forgets how the pod went: only a disturbed operator may see it, and knows the result.
    EndMayBeSeen,
    /// Something is in the way until shortly before the deadline: a disturbed operator may miss it.
    DeadlineIsNear,
    /// Objects that have nothing to do with each other: trouble with one delays no other.
    Neighbours,
    /// The clock is set.
    ClockIsSet,
    /// The object does not reach what its spec says: something is in the way until a person acts.
    StaysHeld,
}

/// `name(Special) = |cluster| { .. };`, as often as you like: the scenarios of a kind.
macro_rules! scenarios {
    ($($(#[$meta:meta])* $name:ident $(($special:ident))? = |$cluster:ident| $script:block;)+) => {
        /// Every scenario.
        const SCENARIOS: &[$crate::sweep::subject::Scenario] = &[$(
            $crate::sweep::subject::Scenario {
                name: stringify!($name),
                special: $crate::sweep::subject::special!($($special)?),
                script: |$cluster| futures::FutureExt::boxed(async move $script),
            },
        )+];
    };
}

macro_rules! special {
    () => {
        $crate::sweep::subject::Special::Nothing
    };
    ($special:ident) => {
        $crate::sweep::subject::Special::$special
    };
}

pub(crate) use {scenarios, special};
