//! Server-side apply.

use std::sync::Arc;

use serde_json::Value;

use crate::patch;
use crate::status::Status;
use crate::store::Stored;
use crate::write::Write;

impl Write<'_> {
    /// Applies an object. Returns it, and whether it is new.
    pub(crate) fn apply(
        &mut self,
        object: Value,
        _manager: &str,
        _force: bool,
    ) -> Result<(Arc<Stored>, bool), Status> {
        if self.store.get(&self.key).is_none() {
            return Ok((self.create(object)?, true));
        }
        let resource = self.resource;
        let stored = self.update(|old| Ok(patch::strategic(resource, &old.value, &object)))?;
        Ok((stored, false))
    }
}
