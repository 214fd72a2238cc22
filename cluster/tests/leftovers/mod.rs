//! What a cluster may leave behind: processes and a directory.

use std::path::Path;
use std::time::{Duration, Instant};

/// The command lines of the processes that mention this directory: every component does, and so does the watchdog.
pub(crate) fn processes(directory: &Path) -> Vec<String> {
    let directory = directory.display().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    // A process may end while it is looked at.
    let commands = entries.filter_map(|entry| {
        let pid = entry.file_name().into_string().ok()?;
        let arguments = std::fs::read(entry.path().join("cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        Some(format!("{pid} {arguments}"))
    });
    commands.filter(|line| line.contains(&directory)).collect()
}

/// Panics unless nothing is left within a few seconds.
pub(crate) fn assert_nothing_left(directory: &Path) {
    assert!(directory.is_absolute(), "{}", directory.display());
    let begin = Instant::now();
    loop {
        let processes = processes(directory);
        if processes.is_empty() && !directory.exists() {
            return;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "left behind: {processes:#?}, directory {} exists: {}",
            directory.display(),
            directory.exists()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
