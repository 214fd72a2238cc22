//! What a process uses, as the system counts it.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// Processor time of all threads of a process so far.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let mut total = Duration::ZERO;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // The first figure is nanoseconds on a processor (Documentation/scheduler/sched-stats).
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        let nanoseconds = text.split(' ').next().context("an empty schedstat")?;
        total += Duration::from_nanos(nanoseconds.parse()?);
    }
    Ok(total)
}

/// Resident memory of a process in bytes.
pub(crate) fn memory(pid: u32) -> Result<f64> {
    status(pid, "VmRSS:")
}

/// The most resident memory that a process has had so far, in bytes.
pub(crate) fn peak_memory(pid: u32) -> Result<f64> {
    status(pid, "VmHWM:")
}

/// A size in the status of a process, in bytes.
fn status(pid: u32, field: &'static str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kibibytes.context(field)?.parse::<f64>()? * 1024.0)
}
