//! Every request of the controller fails in every way, each in a run of its own on the simulated API server.

use std::time::Duration;

use serde_json::json;
use simulated_apiserver::{Decision, Options, Server, Site, Status};
use starter::Naming;

type Fault = fn() -> Decision;

const FAULTS: [Fault; 4] = [
    || Decision::Lost,
    || Decision::Unanswered,
    || Decision::LostThenLate(Duration::from_secs(30)),
    || Decision::Answer(Status::too_many_requests(Duration::from_secs(1))),
];

/// Two virtual minutes, in which one request may fail. Returns the controller's requests, and what is wrong in the end.
async fn simulate(naming: Naming, fault: Option<(Site, Fault)>) -> (Vec<Site>, Option<String>) {
    let server = Server::new(Options::default());
    server.on(move |site: &Site| match &fault {
        Some((at, decide)) if at == site => decide(),
        _ => Decision::Forward,
    });
    let task = tokio::spawn(starter::run(server.client("starter"), naming));
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"run": "yes"}},
    });
    server.direct().create(config).unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    task.abort();
    let pods = server.direct().list("pods", "default");
    let names: Vec<&str> = pods
        .iter()
        .filter_map(|pod| pod["metadata"]["name"].as_str())
        .collect();
    let config = server.direct().get("ConfigMap", "default", "a").unwrap();
    let recorded = config["data"]["pod"].as_str();
    let is_right = names.len() == 1 && recorded == Some(names[0]);
    let wrong = (!is_right).then(|| format!("pods {names:?}, recorded {recorded:?}"));
    let requests = server.history().requests.into_iter();
    (requests.map(|request| request.site).collect(), wrong)
}

fn run(naming: Naming, fault: Option<(Site, Fault)>) -> (Vec<Site>, Option<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(simulate(naming, fault))
}

/// One run for each request and each fault. Returns those that end wrong.
fn wrong_runs(naming: Naming) -> Vec<String> {
    let (sites, wrong) = run(naming, None);
    assert_eq!(wrong, None, "without a fault");
    let mut found = Vec::new();
    for site in sites {
        for fault in FAULTS {
            if let (_, Some(wrong)) = run(naming, Some((site.clone(), fault))) {
                found.push(format!("{:?} at {site}: {wrong}", fault()));
            }
        }
    }
    found
}

#[test]
fn the_planted_bug_is_found() {
    let found = wrong_runs(Naming::Generated);
    let place = "unanswered at starter: create pods default/a- #0: ";
    assert!(found.iter().any(|run| run.starts_with(place)), "{found:#?}");
}

#[test]
fn the_repaired_controller_starts_one_pod_whatever_fails() {
    assert_eq!(wrong_runs(Naming::Fixed), Vec::<String>::new());
}
