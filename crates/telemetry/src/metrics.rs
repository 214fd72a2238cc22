//! The registry of metrics, the metrics of the process, and the page that shows all.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// A registry with the metrics of the process.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register(
        "my_operator_build",
        "The version of the operator",
        Info::new([("version", env!("CARGO_PKG_VERSION"))]),
    );
    let start_seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64();
    registry.register_collector(Box::new(Process { start_seconds }));
    registry
}

/// A metric whose values are kept elsewhere and read at each scrape: one per value of a label.
pub struct Read {
    /// The metric's name; a counter's without `_total`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// The label.
    pub label: &'static str,
    /// Whether it is a counter.
    pub counts: bool,
    /// Returns (value of the label, value of the metric).
    pub read: Box<dyn Fn() -> Vec<(&'static str, f64)> + Send + Sync>,
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Read")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Collector for Read {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let kind = if self.counts {
            MetricType::Counter
        } else {
            MetricType::Gauge
        };
        let mut family = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        for (value, figure) in (self.read)() {
            let labels = [(self.label, value)];
            let one = family.encode_family(&labels)?;
            if self.counts {
                ConstCounter::new(figure).encode(one)?;
            } else {
                ConstGauge::new(figure).encode(one)?;
            }
        }
        Ok(())
    }
}

/// `GET /metrics`: what is in all registries, whose names must differ. `/` says where they are.
pub fn router<R>(registries: impl Fn() -> R + Clone + Send + Sync + 'static) -> Router
where
    R: IntoIterator<Item = Arc<Mutex<Registry>>>,
{
    Router::new().route("/", get("metrics: /metrics\n")).route(
        "/metrics",
        get(move || {
            let mut registries = registries().into_iter();
            let mut page = String::new();
            let encoded = registries.try_for_each(|one| encode_registry(&mut page, &one.lock()));
            async move {
                match encoded.and_then(|()| encode_eof(&mut page)) {
                    Ok(()) => {
                        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                        ([(header::CONTENT_TYPE, kind)], page).into_response()
                    }
                    Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
                }
            }
        }),
    )
}

/// The `process_*` metrics of every Prometheus client library, read from `/proc`.
#[derive(Debug)]
struct Process {
    start_seconds: f64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: f64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge(
            "process_start_time_seconds",
            "When the process started, in seconds since 1970",
            self.start_seconds,
        )?;
        if let Some(bytes) = resident_bytes() {
            gauge("process_resident_memory_bytes", "Resident memory", bytes)?;
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            let open = i32::try_from(files.count()).unwrap_or(i32::MAX);
            gauge("process_open_fds", "Open files", f64::from(open))?;
        }
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        if let Some(most) = most.and_then(|most| u32::try_from(most).ok()) {
            gauge(
                "process_max_fds",
                "Maximum number of open files",
                most.into(),
            )?;
        }
        if let Some(seconds) = cpu_seconds() {
            let counter = ConstCounter::new(seconds);
            let kind = counter.metric_type();
            let help = "Processor time used, user and system";
            counter.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                help,
                None,
                kind,
            )?)?;
        }
        Ok(())
    }
}

/// Field 2 of `/proc/self/statm` is resident pages (proc(5)).
fn resident_bytes() -> Option<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = statm.split(' ').nth(1)?.parse().ok()?;
    let page = u32::try_from(rustix::param::page_size()).ok()?;
    Some(pages * f64::from(page))
}

/// Fields 14 and 15 of `/proc/self/stat` are user and system ticks (proc(5)), counted after the
/// command in parentheses, which may hold blanks.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    let per_second = u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
    Some((user + system) / f64::from(per_second))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn the_root_says_where_the_metrics_are() {
        let router = router(|| [Arc::new(Mutex::new(registry()))]);
        let get = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            let status = response.status();
            let body = to_bytes(response.into_body(), 100_000).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };
        let (status, line) = get("/").await;
        assert_eq!((status, &*line), (StatusCode::OK, "metrics: /metrics\n"));
        assert!(get("/metrics").await.1.ends_with("# EOF\n"));
    }

    #[test]
    fn the_page_shows_the_process() {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry()).unwrap();
        for name in [
            "process_start_time_seconds ",
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_max_fds ",
            "process_cpu_seconds_total ",
            "my_operator_build_info{version=",
        ] {
            assert!(page.contains(name), "{name} is not in\n{page}");
        }
    }
}
