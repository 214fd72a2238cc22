//! The registry of metrics, the metrics of the process, and the page that shows all.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
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

/// `GET /metrics`: what is in all registries, whose names must differ; in OpenMetrics for a client that asks for it, else in
/// the older text format. `/` says where they are.
pub fn router<R>(registries: impl Fn() -> R + Clone + Send + Sync + 'static) -> Router
where
    R: IntoIterator<Item = Arc<Mutex<Registry>>>,
{
    Router::new().route("/", get("metrics: /metrics\n")).route(
        "/metrics",
        get(move |headers: HeaderMap| {
            let is_openmetrics = wants_openmetrics(&headers);
            let mut registries = registries().into_iter();
            let mut page = String::new();
            let encoded = registries.try_for_each(|one| encode_registry(&mut page, &one.lock()));
            async move {
                match encoded.and_then(|()| encode_eof(&mut page)) {
                    Ok(()) if is_openmetrics => {
                        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                        ([(header::CONTENT_TYPE, kind)], page).into_response()
                    }
                    Ok(()) => {
                        let kind = "text/plain; version=0.0.4; charset=utf-8";
                        ([(header::CONTENT_TYPE, kind)], text_format(&page)).into_response()
                    }
                    Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
                }
            }
        }),
    )
}

/// Whether the client takes OpenMetrics rather than the text format 0.0.4: of the types that it accepts, the one with the
/// greatest weight that is either of the two. As with client_golang (`NegotiateIncludingOpenMetrics` in
/// github.com/prometheus/common/expfmt), a client that names neither gets the text format.
fn wants_openmetrics(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let accepted = accepted.filter_map(|value| value.to_str().ok());
    let mut best = (0.0, false);
    for (weight, is_openmetrics) in accepted
        .flat_map(|it| it.split(','))
        .filter_map(accepted_type)
    {
        if weight > best.0 {
            best = (weight, is_openmetrics);
        }
    }
    best.1
}

/// The weight of a type in `Accept`, and whether it is OpenMetrics; `None` for a type that is not served.
fn accepted_type(text: &str) -> Option<(f32, bool)> {
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next()?.to_ascii_lowercase();
    let (mut weight, mut version) = (1.0, "");
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name.trim_end() {
            "q" => weight = value.trim_start().parse().ok()?,
            "version" => version = value.trim_start().trim_matches('"'),
            _ => {}
        }
    }
    match (kind.as_str(), version) {
        ("application/openmetrics-text", "" | "0.0.1" | "1.0.0") => Some((weight, true)),
        ("text/plain", "" | "0.0.4") => Some((weight, false)),
        _ => None,
    }
}

/// A page of OpenMetrics in the text format 0.0.4, which names the series of a counter where OpenMetrics names its family,
/// and has neither units nor the type info.
fn text_format(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut help = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // Its name depends on the type, which is next.
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            let (end, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            text.extend(["# HELP ", name, end, " ", help, "\n"]);
            text.extend(["# TYPE ", name, end, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            text.extend([line, "\n"]);
        }
    }
    text
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
        let request = Request::get("/").body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = to_bytes(response.into_body(), 100_000).await.unwrap();
        assert_eq!(&*body, b"metrics: /metrics\n");
    }

    #[tokio::test]
    async fn a_client_gets_the_format_that_it_asks_for() {
        let router = router(|| [Arc::new(Mutex::new(registry()))]);
        // What Prometheus 3 sends.
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, is_openmetrics) in [
            (prometheus, true),
            ("application/openmetrics-text", true),
            ("Application/OpenMetrics-Text; version=\"1.0.0\"", true),
            ("text/plain;version=0.0.4", false),
            ("text/plain", false),
            ("text/plain;q=0.5,application/openmetrics-text;q=0.4", false),
            ("text/plain;q=0.4, application/openmetrics-text;q=0.5", true),
            ("application/openmetrics-text;version=2.0.0", false),
            ("application/openmetrics-text;q=0", false),
            ("*/*", false),
            ("", false),
        ] {
            let request = Request::get("/metrics").header("accept", accept);
            let request = request.body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            let kind = response.headers()["content-type"].to_str().unwrap();
            let expected = if is_openmetrics {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            } else {
                "text/plain; version=0.0.4; charset=utf-8"
            };
            assert_eq!(kind, expected, "{accept}");
            let body = to_bytes(response.into_body(), 100_000).await.unwrap();
            let page = String::from_utf8(body.to_vec()).unwrap();
            assert_eq!(page.ends_with("# EOF\n"), is_openmetrics, "{page}");
        }
        let request = Request::get("/metrics").body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    }

    #[test]
    fn the_text_format_names_series_and_has_only_its_own_types() {
        let page = "# HELP a_build The version.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
            # HELP b_seconds Time.\n# TYPE b_seconds counter\n# UNIT b_seconds seconds\nb_seconds_total 2.5\n\
            # HELP c Number.\n# TYPE c gauge\nc{x=\"# HELP\"} 1\n# EOF\n";
        let expected = "# HELP a_build_info The version.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
            # HELP b_seconds_total Time.\n# TYPE b_seconds_total counter\nb_seconds_total 2.5\n\
            # HELP c Number.\n# TYPE c gauge\nc{x=\"# HELP\"} 1\n";
        assert_eq!(text_format(page), expected);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry()).unwrap();
        let text = text_format(&page);
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (_, kind) = line.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
        }
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
