//! What a pass knows of the child with the desired name: what the cache has, then what its own
//! calls answer.

use std::sync::Arc;

use serde_json::Value;

use super::decide::{FailedWrite, Found};
use super::view::ChildView;
use wall_clock_controller::reconcile::Error;

pub(crate) struct KnownChild {
    child: Option<Arc<ChildView>>,
    /// `child` is the API server's answer to a read or write of this pass.
    live: bool,
    /// The child before its conflicting list was replaced, until the write that this was for
    /// succeeds: the two are one change, and the list is replaced once.
    before_list: Option<Arc<ChildView>>,
    /// The last write, if it failed.
    failed: Option<(FailedWrite, Error)>,
}

impl KnownChild {
    /// What the cache has.
    pub(crate) fn cached(child: Option<Arc<ChildView>>) -> Self {
        Self {
            child,
            live: false,
            before_list: None,
            failed: None,
        }
    }

    pub(crate) fn child(&self) -> Option<&Arc<ChildView>> {
        self.child.as_ref()
    }

    pub(crate) fn found(&self) -> Found<'_> {
        let live = self.live;
        match &self.child {
            Some(child) => Found::There { child, live },
            None if live => Found::Absent,
            None => Found::Unknown,
        }
    }

    pub(crate) fn failed(&self) -> Option<&FailedWrite> {
        self.failed.as_ref().map(|(failed, _)| failed)
    }

    /// The error of the last write, if it failed.
    pub(crate) fn into_error(self) -> Option<Error> {
        self.failed.map(|(_, error)| error)
    }

    /// A live read gave this answer.
    pub(crate) fn was_read(&mut self, child: Option<ChildView>) {
        self.child = child.map(Arc::new);
        self.live = true;
        if self.child.is_some() {
            // A child that was created meanwhile explains why ours was not.
            self.failed = None;
        } else if let Some((failed, _)) = &mut self.failed {
            failed.name_may_be_taken = false;
        }
    }

    /// A write succeeded. Returns the child before it.
    pub(crate) fn was_written(&mut self, after: ChildView) -> Option<Arc<ChildView>> {
        let before = self.child.replace(Arc::new(after));
        self.live = true;
        self.before_list.take().or(before)
    }

    /// A write failed. `list_patch` reads from the error what may make up for it.
    pub(crate) fn write_failed(
        &mut self,
        error: Error,
        list_patch: impl FnOnce(&Error) -> Option<Value>,
    ) {
        let is_present = self.child.is_some();
        let may_replace = is_present && self.before_list.is_none();
        let code = error.status().map(|status| status.code);
        let failed = FailedWrite {
            list_patch: may_replace.then(|| list_patch(&error)).flatten(),
            name_may_be_taken: !is_present && matches!(code, Some(409 | 422)),
            refusal: error.refusal().map(str::to_owned),
        };
        self.failed = Some((failed, error));
    }

    /// The conflicting list was replaced, with this result; `None` if the API server rejected that.
    pub(crate) fn list_was_replaced(&mut self, child: Option<ChildView>) {
        if let Some(child) = child {
            self.before_list = self.child.replace(Arc::new(child));
            self.live = true;
            self.failed = None;
        } else if let Some((failed, _)) = &mut self.failed {
            failed.list_patch = None;
        }
    }
}
