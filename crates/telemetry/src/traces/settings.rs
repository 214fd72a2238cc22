//! The standard environment variables of OpenTelemetry, as far as they are not read by its library.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use axum::http::Uri;

/// The default of `OTEL_EXPORTER_OTLP_TIMEOUT`.
const TIMEOUT: Duration = Duration::from_secs(10);
const PROTOCOL: &str = "http/protobuf";
/// The values of `OTEL_TRACES_SAMPLER` that the library knows. It takes others for its default.
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// Where traces are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The URL that batches of spans are posted to.
    pub endpoint: Uri,
    /// A file with the CAs of the collector.
    pub certificate: Option<PathBuf>,
    /// How long one attempt to send a batch may take.
    pub timeout: Duration,
    /// The name of the service, if it is not the program's.
    pub service: Option<String>,
    /// The name of the host: in a cluster, that of the pod.
    pub host: Option<String>,
}

impl Settings {
    /// Reads the variables. None if none of them names a collector, or one turns traces off.
    ///
    /// # Errors
    /// When one has a value that cannot be followed. The message names it, and leaves the value out: a URL may have a
    /// password.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<Self>> {
        let given = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let of_traces = |name: &str| {
            let names = ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"];
            let names = names.map(|start| format!("{start}{name}"));
            names
                .into_iter()
                .find_map(|name| given(&name).map(|value| (name, value.trim().to_owned())))
        };
        let is = |name: &str, wanted: &str| {
            given(name).is_some_and(|value| value.trim().eq_ignore_ascii_case(wanted))
        };
        let Some((name, url)) = of_traces("ENDPOINT") else {
            return Ok(None);
        };
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let Some(endpoint) = endpoint(&url, !name.contains("TRACES")) else {
            bail!("{name} must be a URL such as http://collector:4318, without a password");
        };
        if let Some((name, _)) = of_traces("PROTOCOL").filter(|(_, value)| value != PROTOCOL) {
            bail!("{name} must be {PROTOCOL}, for which most collectors have the port 4318");
        }
        // The library would leave them out without a word.
        for unsupported in ["CLIENT_CERTIFICATE", "CLIENT_KEY"] {
            if let Some((name, _)) = of_traces(unsupported) {
                bail!("{name} is not supported: remove it");
            }
        }
        let compressed = of_traces("COMPRESSION").filter(|(_, value)| value != "none");
        if let Some((name, _)) = compressed {
            bail!("{name} must be none");
        }
        check_sampler(&given)?;
        let milliseconds = of_traces("TIMEOUT").map(|(name, value)| {
            let milliseconds = value.parse();
            milliseconds.with_context(|| format!("{name} must be a number of milliseconds"))
        });
        let milliseconds = milliseconds.transpose()?;
        Ok(Some(Self {
            endpoint,
            certificate: of_traces("CERTIFICATE").map(|(_, path)| path.into()),
            timeout: milliseconds.map_or(TIMEOUT, Duration::from_millis),
            service: given("OTEL_SERVICE_NAME"),
            host: given("HOSTNAME"),
        }))
    }
}

/// The URL to post to. `is_base` is whether the signal's path is still to be added.
fn endpoint(url: &str, is_base: bool) -> Option<Uri> {
    let uri: Uri = url.parse().ok()?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    if !is_http || uri.host()?.is_empty() || uri.authority()?.as_str().contains('@') {
        return None;
    }
    if !is_base {
        return Some(uri);
    }
    let base = url.trim_end_matches('/');
    format!("{base}/v1/traces").parse().ok()
}

fn check_sampler(given: &impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
    let Some(sampler) = given("OTEL_TRACES_SAMPLER") else {
        return Ok(());
    };
    ensure!(
        SAMPLERS.contains(&&*sampler),
        "OTEL_TRACES_SAMPLER must be one of {}",
        SAMPLERS.join(", ")
    );
    let share = given("OTEL_TRACES_SAMPLER_ARG").and_then(|share| share.parse::<f64>().ok());
    ensure!(
        !sampler.ends_with("ratio") || share.is_some_and(|share| (0.0..=1.0).contains(&share)),
        "OTEL_TRACES_SAMPLER={sampler} needs OTEL_TRACES_SAMPLER_ARG, a number from 0 to 1"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

    fn read(variables: &[(&str, &str)]) -> anyhow::Result<Option<Settings>> {
        Settings::read(|name| {
            let found = variables.iter().find(|(it, _)| *it == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn posted_to(variables: &[(&str, &str)]) -> Option<String> {
        let settings = read(variables).unwrap();
        settings.map(|settings| settings.endpoint.to_string())
    }

    #[test]
    fn nothing_is_sent_unless_a_collector_is_named() {
        let url = (BASE, "http://collector:4318");
        assert_eq!(posted_to(&[]), None);
        assert_eq!(posted_to(&[(BASE, " ")]), None);
        assert_eq!(posted_to(&[("OTEL_SERVICE_NAME", "x")]), None);
        assert_eq!(posted_to(&[url, ("OTEL_SDK_DISABLED", "TRUE")]), None);
        assert_eq!(posted_to(&[url, ("OTEL_TRACES_EXPORTER", "none")]), None);
        assert!(posted_to(&[url, ("OTEL_TRACES_EXPORTER", "otlp")]).is_some());
    }

    #[test]
    fn the_variable_of_traces_goes_first_and_is_taken_as_it_is() {
        let base = (BASE, "http://collector:4318/");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://own:1/x/");
        let of_base = "http://collector:4318/v1/traces";
        assert_eq!(posted_to(&[base]).as_deref(), Some(of_base));
        assert_eq!(posted_to(&[base, own]).as_deref(), Some("https://own:1/x/"));
        let more = [
            base,
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.crt"),
            ("OTEL_SERVICE_NAME", "mine"),
        ];
        let settings = read(&more).unwrap().unwrap();
        assert_eq!(settings.timeout, Duration::from_millis(250));
        assert_eq!(settings.certificate, Some("ca.crt".into()));
        assert_eq!(settings.service.as_deref(), Some("mine"));
    }

    #[test]
    fn what_cannot_be_followed_is_an_error_that_names_the_variable() {
        let base = (BASE, "http://collector:4318");
        for url in [
            "collector:4318",
            "collector",
            "ftp://collector",
            "http://",
            "http://u:secret@collector",
            "http://a b",
        ] {
            let error = read(&[(BASE, url)]).unwrap_err().to_string();
            assert!(
                error.starts_with(BASE) && !error.contains("secret"),
                "{error}"
            );
        }
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "key.pem"),
        ] {
            let error = read(&[base, (name, value)]).unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
        let ratio = ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio");
        for (share, is_right) in [("0.01", true), ("1", true), ("2", false), ("x", false)] {
            let share = ("OTEL_TRACES_SAMPLER_ARG", share);
            assert_eq!(read(&[base, ratio, share]).is_ok(), is_right, "{share:?}");
        }
    }
}
