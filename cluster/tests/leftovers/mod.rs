//! What a cluster may leave behind: processes and a directory.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The command lines of the processes that mention this directory: every component does, and so does the watchdog.
pub(crate) fn processes(directory: &Path) -> Vec<String> {
    let output = Command::new("ps")
        .args(["-A", "-ww", "-o", "pid=,args="])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let directory = directory.display().to_string();
    text.lines()
        .filter(|line| line.contains(&directory))
        .map(str::to_owned)
        .collect()
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
