//! Structured logs on standard error: text for users, JSON for machines.

use std::io::IsTerminal;

use anyhow::Context;
use clap::ValueEnum;
use tracing::Dispatch;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::traces::SpanLayer;

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line, for machines.
    Json,
}

/// Our own crates that log. The first stands for all that begin with it.
const OURS: [&str; 6] = [
    "my_operator",
    "admission_rules",
    "bounded_listener",
    "fenced_lease",
    "wall_clock_controller",
    "webhook_certs",
];

/// Reads a filter. A level alone is that of our own crates: libraries log details for their own developers, so of them
/// only warnings and errors are shown.
///
/// # Errors
/// When the filter is malformed, or has a bare word that is not a level: it would be taken for the name of a module,
/// and silence all others.
pub fn filter(text: &str) -> anyhow::Result<EnvFilter> {
    let (mut levels, mut others) = (Vec::new(), Vec::new());
    for part in text.split(',').map(str::trim) {
        match part.parse::<LevelFilter>() {
            Ok(level) if level > LevelFilter::WARN => {
                levels.push("warn".to_owned());
                levels.extend(OURS.map(|name| format!("{name}={level}")));
            }
            Ok(level) => levels.push(level.to_string()),
            Err(_) if !part.contains('=') => anyhow::bail!("{part:?} is not a log level"),
            Err(_) => others.push(part.to_owned()),
        }
    }
    // Of two for one crate, the last counts.
    levels.append(&mut others);
    let filter = EnvFilter::try_new(levels.join(","));
    filter.with_context(|| format!("{text:?} is not a log filter"))
}

/// Starts logging. `level` is a [`filter`]: `info`, or `info,fenced_lease=debug,hyper=info`. `spans` gets the spans of
/// [`traces`](crate::traces), none of which are logged.
///
/// # Errors
/// When `level` is not a filter.
pub fn start(format: Format, level: &str, spans: Option<SpanLayer>) -> anyhow::Result<()> {
    let filter = filter(level)?;
    // The client logs each failed connection as an error of its own, in addition to ours, which says more. It also logs
    // the whole of an answer that it cannot read, which may contain anything.
    let quiet = "kube_client::client=off".parse();
    let filter = match quiet {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    };
    match spans {
        Some(spans) => beside(spans, format, filter, std::io::stderr),
        None => alone(format, filter, std::io::stderr),
    }
    .init();
    Ok(())
}

/// The log.
fn alone<W>(format: Format, filter: EnvFilter, writer: W) -> Dispatch
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_target(false);
    match format {
        Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).into(),
        Format::Json => builder.json().flatten_event(true).into(),
    }
}

/// The same log, beside a layer for spans: each of the two has a filter of its own, which costs more than one for both.
fn beside<W>(spans: SpanLayer, format: Format, filter: EnvFilter, writer: W) -> Dispatch
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_target(false);
    let lines = match format {
        Format::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(spans)
        .with(lines.with_filter(filter))
        .into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::Arc;

    use axum::http::{Request, Response};
    use futures::FutureExt as _;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use parking_lot::Mutex;
    use prost::Message as _;

    use super::*;
    use crate::traces;

    /// The directives of a filter, the last of each name, in the order of names.
    fn directives(text: &str) -> Vec<String> {
        let shown = filter(text).unwrap().to_string();
        let mut list: Vec<String> = shown.split(',').map(str::to_owned).collect();
        list.sort();
        list
    }

    #[test]
    fn a_level_alone_is_that_of_our_own_crates() {
        let ours = |level: &str| OURS.map(|name| format!("{name}={level}"));
        for (text, level, others) in [
            ("debug", "debug", &["warn"][..]),
            ("info, hyper=debug", "info", &["hyper=debug", "warn"]),
        ] {
            let mut expected: Vec<String> = others.iter().map(|&text| text.to_owned()).collect();
            expected.extend(ours(level));
            expected.sort();
            assert_eq!(directives(text), expected, "{text}");
        }
        assert_eq!(directives("warn"), ["warn"]);
        assert_eq!(directives("off"), ["off"]);
        let one = directives("fenced_lease=trace,info");
        assert!(one.contains(&"fenced_lease=trace".to_owned()), "{one:?}");
        assert!(one.contains(&"my_operator=info".to_owned()), "{one:?}");
        for text in ["hyper", "debug,x", "x=y=z"] {
            assert!(filter(text).is_err(), "{text}");
        }
    }

    /// What is logged of one event within a span, as JSON, by the log alone or beside traces.
    fn logged(spans: Option<SpanLayer>) -> String {
        let lines = Arc::<Mutex<Vec<u8>>>::default();
        let writer = lines.clone();
        let writer = move || Writer(writer.clone());
        let filter = filter("info").unwrap();
        let dispatch = match spans {
            Some(spans) => beside(spans, Format::Json, filter, writer),
            None => alone(Format::Json, filter, writer),
        };
        tracing::dispatcher::with_default(&dispatch, || {
            tracing::trace_span!(target: traces::TARGET, "span", field = "value").in_scope(|| {
                tracing::info!(at = 1, "shown");
                tracing::debug!("not shown");
                tracing::info!(target: "hyper", "not shown either");
            });
        });
        let lines = String::from_utf8(std::mem::take(&mut *lines.lock())).unwrap();
        // All but the time.
        let (_, rest) = lines.split_once("\"level\"").unwrap();
        rest.to_owned()
    }

    struct Writer(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Writer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn the_log_is_the_same_beside_traces() {
        let settings = traces::Settings::read(|name| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://collector:4318".to_owned()),
            "HOSTNAME" => Some("replica-1".to_owned()),
            _ => None,
        });
        let (sender, mut batches) = tokio::sync::mpsc::unbounded_channel();
        let send: traces::Send = Arc::new(move |request: Request<_>| {
            let _ = sender.send(request.into_body());
            async { Ok(Response::default()) }.boxed()
        });
        let settings = settings.unwrap().unwrap();
        let traces = traces::Traces::start(&settings, "service", "1.2.3", send).unwrap();
        let beside = logged(Some(traces.layer()));
        assert_eq!(beside, logged(None));
        assert_eq!(beside.lines().count(), 1, "{beside}");
        assert!(
            beside.contains("shown") && !beside.contains("span"),
            "{beside}"
        );
        traces.end().await;
        let batch = ExportTraceServiceRequest::decode(batches.recv().await.unwrap()).unwrap();
        let [of_service] = &*batch.resource_spans else {
            panic!("{batch:?}");
        };
        let about = format!("{:?}", of_service.resource);
        for value in ["\"service\"", "\"1.2.3\"", "\"replica-1\""] {
            assert!(about.contains(value), "{about}");
        }
        let [span] = &*of_service.scope_spans[0].spans else {
            panic!("{batch:?}");
        };
        assert_eq!(span.name, "span");
        let keys: Vec<_> = span.attributes.iter().map(|one| &*one.key).collect();
        assert_eq!(keys, ["field"]);
        assert!(span.events.is_empty(), "{span:?}");
    }

    #[test]
    fn every_crate_that_logs_is_named() {
        let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        for folder in std::fs::read_dir(crates).unwrap() {
            let file = folder.unwrap().path().join("Cargo.toml");
            let manifest = std::fs::read_to_string(file).unwrap();
            let mut lines = manifest.lines();
            let logs = manifest.lines().any(|line| line.starts_with("tracing"));
            let name = lines.find_map(|line| line.strip_prefix("name = \""));
            let name = name.unwrap().trim_end_matches('"').replace('-', "_");
            assert!(
                !logs || OURS.iter().any(|ours| name.starts_with(ours)),
                "{name}"
            );
        }
    }
}
