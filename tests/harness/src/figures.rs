//! Metrics and other plain HTTP pages.

use std::io::Write as _;
use std::time::Duration;

/// The value of a metric, labels included in its name, on a page of metrics.
pub fn figure(page: &str, name: &str) -> Option<u64> {
    let values = page.lines().filter_map(|line| line.strip_prefix(name));
    let mut values = values.filter_map(|rest| rest.strip_prefix(' '));
    values.next()?.parse().ok()
}

/// The status and body of a plain HTTP GET; `None` when nothing answers.
pub fn http_get(address: &str, path: &str) -> Option<(u16, String)> {
    use std::io::Read as _;
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: application/openmetrics-text, */*\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// The most resident memory that a process ever had, in bytes (`VmHWM` of `/proc/PID/status`: proc(5)).
pub fn peak_memory(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kilobytes.parse::<usize>().unwrap() * 1024
}
