//! Prometheus itself, on the alerts of `config/components/prometheus`, in a fraction of their time.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, Utc};
use hyper::Request;
use kube::{Client, Config};
use my_operator_cluster::{Cluster, Process, free_ports};
use serde_json::{Value, json};

use crate::harness::{alerts, wait_for};

/// By how much the alerts' `for` and ranges are shorter than in use, and what Prometheus does is more frequent: it scrapes
/// every second, not every 30.
const SPEED: u32 = 30;
const INTERVAL: Duration = Duration::from_secs(1);

/// A running Prometheus.
pub(super) struct Prometheus {
    process: Process,
    client: Client,
    rules: Value,
    folder: PathBuf,
    targets: Mutex<Vec<Value>>,
}

impl Prometheus {
    /// Starts the `prometheus` of the PATH, with the alerts and no targets.
    pub(super) async fn start(cluster: &Cluster) -> Self {
        let folder = cluster.directory().join("prometheus");
        std::fs::create_dir(&folder).unwrap();
        let put = |name: &str, file: &Value| {
            // JSON is YAML.
            std::fs::write(folder.join(name), file.to_string()).unwrap();
        };
        let rules = quickened(alerts::groups());
        put("rules.json", &rules);
        put("targets.json", &json!([]));
        let interval = format!("{}s", INTERVAL.as_secs());
        let found = json!([{"files": ["targets.json"], "refresh_interval": interval}]);
        let config = json!({
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": ["rules.json"],
            "scrape_configs": [{"job_name": "my-operator", "file_sd_configs": found}],
        });
        put("prometheus.json", &config);
        let [port] = free_ports().unwrap();
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new("prometheus");
        command.current_dir(&folder).args([
            "--config.file=prometheus.json".to_owned(),
            "--storage.tsdb.path=data".to_owned(),
            format!("--web.listen-address={address}"),
        ]);
        let process = cluster.spawn("prometheus", &mut command);
        let process = process.unwrap_or_else(|error| {
            panic!("{error}: `make ci-tools` installs Debian's prometheus")
        });
        let url = format!("http://{address}").parse().unwrap();
        let this = Self {
            process,
            client: Client::try_from(Config::new(url)).unwrap(),
            rules,
            folder,
            targets: Mutex::default(),
        };
        wait_for("Prometheus to answer", async || {
            assert!(this.process.is_running(), "{}", this.process.log_tail(20));
            this.try_ask("query?query=1").await.ok()
        })
        .await;
        this
    }

    /// Scrapes a replica from now on. What is scraped gets these labels, as a pod's metrics do.
    pub(super) fn scrape(&self, metrics: &str, namespace: &str, pod: &str) {
        let target = json!({"targets": [metrics], "labels": {"namespace": namespace, "pod": pod}});
        let mut targets = self.targets.lock().unwrap();
        targets.push(target);
        let fresh = self.folder.join("targets.new");
        std::fs::write(&fresh, Value::from(targets.clone()).to_string()).unwrap();
        std::fs::rename(fresh, self.folder.join("targets.json")).unwrap();
    }

    /// The names of the alerts.
    pub(super) fn alerts(&self) -> Vec<String> {
        let rules = self.rules["groups"][0]["rules"].as_array().unwrap();
        let name = |rule: &Value| rule["alert"].as_str().unwrap().to_owned();
        rules.iter().map(name).collect()
    }

    /// For how long the fault lasts at least when an alert fires: its `for`, and the ranges of its expression.
    pub(super) fn window(&self, alert: &str) -> Duration {
        let rules = self.rules["groups"][0]["rules"].as_array().unwrap();
        let rule = rules.iter().find(|rule| rule["alert"] == alert).unwrap();
        let pending = rule["for"].as_str().map_or(0, milliseconds);
        let ranges = rule["expr"].as_str().unwrap().split('[').skip(1);
        let ranges = ranges.filter_map(|rest| rest.split_once(']'));
        let longest = ranges.map(|(range, _)| milliseconds(range)).max();
        Duration::from_millis(pending + longest.unwrap_or(0))
    }

    /// The labels of each alert that fires now.
    pub(super) async fn firing(&self) -> Vec<Value> {
        let data = self.try_ask("alerts").await.unwrap();
        let alerts = data["alerts"].as_array().unwrap().iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"].clone()).collect()
    }

    /// The series of an expression from an instant until now, each with its values, one for each interval.
    pub(super) async fn series(&self, expression: &str, from: DateTime<Utc>) -> Vec<Value> {
        let expression = expression.replace("$__rate_interval", "15s");
        let expression = expression.replace("$__range", "10m");
        let path = format!(
            "query_range?query={}&start={}&end={}&step={}",
            encoded(&expression),
            from.timestamp(),
            Utc::now().timestamp(),
            INTERVAL.as_secs()
        );
        let data = self.try_ask(&path).await;
        let data = data.unwrap_or_else(|error| panic!("{expression}: {error}"));
        data["result"].as_array().unwrap().clone()
    }

    async fn try_ask(&self, path: &str) -> kube::Result<Value> {
        let request = Request::get(format!("/api/v1/{path}"));
        let request = request.body(Vec::new()).unwrap();
        let mut answer: Value = self.client.request(request).await?;
        Ok(answer["data"].take())
    }
}

fn quickened(mut rules: Value) -> Value {
    for rule in rules["groups"][0]["rules"].as_array_mut().unwrap() {
        if let Some(pending) = rule["for"].as_str() {
            rule["for"] = quick(pending).into();
        }
        let expression = rule["expr"].as_str().unwrap();
        let mut parts = expression.split('[');
        let mut quickened = parts.next().unwrap().to_owned();
        for part in parts {
            let (range, rest) = part.split_once(']').unwrap();
            write!(quickened, "[{}]{rest}", quick(range)).unwrap();
        }
        rule["expr"] = quickened.into();
    }
    rules
}

fn quick(duration: &str) -> String {
    let short = milliseconds(duration) / u64::from(SPEED);
    format!("{short}ms")
}

/// A duration in one of Prometheus' units.
fn milliseconds(duration: &str) -> u64 {
    let number = duration.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let unit = match &duration[number.len()..] {
        "ms" => 1,
        "m" => 60_000,
        "h" => 3_600_000,
        other => panic!("{duration}: {other}"),
    };
    number.parse::<u64>().unwrap() * unit
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").unwrap();
        }
        encoded
    })
}
