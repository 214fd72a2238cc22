//! The log of the fake kubelet.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use k8s_openapi::jiff::Timestamp;

use crate::error::Error;

/// The log of the fake kubelet.
#[derive(Debug)]
pub(super) struct Log(pub(super) File);

impl Log {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(path);
        file.map(Self).map_err(Error::file("write", path))
    }

    pub(super) fn line(&mut self, text: &str) {
        // The disk is full, or the directory is gone: there is nowhere else to report that.
        let _ = writeln!(self.0, "{} {text}", Timestamp::now());
    }
}
