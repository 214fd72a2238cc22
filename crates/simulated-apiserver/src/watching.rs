//! How tests disturb lists and watches.

use std::time::Duration;

use crate::server::Server;
use crate::status::Status;
use crate::watch::{self, Rule, Target};

/// Injects faults into some lists and watches.
pub struct Watching<'a> {
    server: &'a Server,
    target: Target,
}

impl Server {
    /// The lists and watches of a target.
    pub fn watches(&self, target: Target) -> Watching<'_> {
        Watching {
            server: self,
            target,
        }
    }
}

impl Watching<'_> {
    fn set(&self, rule: Rule) {
        let mut state = self.server.state();
        state.watches.rules.push((self.target.clone(), rule));
        state.watches.wake_all();
    }

    fn unset(&self, which: impl Fn(&Rule) -> bool) {
        let mut state = self.server.state();
        let rules = &mut state.watches.rules;
        rules.retain(|(target, rule)| *target != self.target || !which(rule));
        state.watches.wake_all();
    }

    fn end(&self, ending: watch::Ending) {
        self.server.state().watches.end(&self.target, ending);
    }

    /// Delivers nothing until [`Self::release`], so that caches become stale. Watches that open meanwhile wait as well.
    pub fn hold(&self) {
        self.set(Rule::Held);
    }

    /// Ends [`Self::hold`] of the same target.
    pub fn release(&self) {
        self.unset(|rule| matches!(rule, Rule::Held));
    }

    /// Delays every change, until [`Self::undelay`].
    pub fn delay(&self, by: Duration) {
        self.undelay();
        self.set(Rule::Delayed(by));
    }

    /// Ends [`Self::delay`] of the same target.
    pub fn undelay(&self) {
        self.unset(|rule| matches!(rule, Rule::Delayed(_)));
    }

    /// Answers lists and new watches with this Status, until [`Self::allow`].
    pub fn refuse(&self, status: Status) {
        self.allow();
        self.set(Rule::Refused(status));
    }

    /// Ends [`Self::refuse`] of the same target.
    pub fn allow(&self) {
        self.unset(|rule| matches!(rule, Rule::Refused(_)));
    }

    /// Answers lists as at that resourceVersion, like an API server that lags, until [`Self::fresh_lists`].
    pub fn stale_lists(&self, version: u64) {
        self.fresh_lists();
        self.set(Rule::Stale(version));
    }

    /// Ends [`Self::stale_lists`] of the same target.
    pub fn fresh_lists(&self) {
        self.unset(|rule| matches!(rule, Rule::Stale(_)));
    }

    /// Ends the open watches, as the API server does when it restarts.
    pub fn cut(&self) {
        self.end(watch::Ending::Closed);
    }

    /// Breaks the connections of the open watches.
    pub fn reset(&self) {
        self.end(watch::Ending::Reset);
    }

    /// Ends the open watches with an event of 410.
    pub fn gone(&self) {
        self.end(watch::Ending::Gone);
    }

    /// The open watches stay open and deliver nothing more: no event, no bookmark, no end.
    pub fn silence(&self) {
        self.server.state().watches.silence(&self.target);
    }

    /// How many watches are open.
    pub fn count(&self) -> usize {
        self.server.state().watches.count(&self.target)
    }
}
