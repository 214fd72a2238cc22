use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::api::PostParams;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::{Decision, Site, Status, Verb};

/// A server on which the first create gets that fault.
fn with_fault(fault: fn() -> Decision) -> Server {
    let server = server();
    server.on(move |site: &Site| {
        if site.user == "test" && site.verb == Verb::Create && site.nth == 0 {
            fault()
        } else {
            Decision::Forward
        }
    });
    server
}

async fn create(server: &Server) -> kube::Result<ConfigMap> {
    config_maps(server)
        .create(&PostParams::default(), &typed(config_map("a")))
        .await
}

fn is_there(server: &Server) -> bool {
    server.direct().get("ConfigMap", "default", "a").is_some()
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_is_not_carried_out() {
    let server = with_fault(|| Decision::Lost);
    assert!(matches!(
        create(&server).await,
        Err(kube::Error::Service(_))
    ));
    assert!(!is_there(&server));
    // The site is reached for the second time.
    create(&server).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_request_is_carried_out() {
    let server = with_fault(|| Decision::Unanswered);
    create(&server).await.unwrap_err();
    assert!(is_there(&server));
}

#[tokio::test(start_paused = true)]
async fn a_late_request_outlives_its_caller() {
    let server = with_fault(|| Decision::Late(Duration::from_secs(40)));
    timeout(Duration::from_secs(20), create(&server))
        .await
        .unwrap_err();
    assert!(!is_there(&server));
    sleep(Duration::from_secs(21)).await;
    assert!(is_there(&server));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_is_answered_in_the_end() {
    let server = with_fault(|| Decision::Delayed(Duration::from_secs(4)));
    let before = Instant::now();
    create(&server).await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn a_silent_request_is_never_answered() {
    let server = with_fault(|| Decision::Silent);
    timeout(Duration::from_secs(60 * 60), create(&server))
        .await
        .unwrap_err();
    assert!(!is_there(&server));
}

#[tokio::test(start_paused = true)]
async fn answers_can_be_anything() {
    let server = with_fault(|| Decision::Answer(Status::too_many_requests(Duration::from_secs(7))));
    assert_eq!(failure(create(&server).await).0, 429);
    assert!(!is_there(&server));
    let server = with_fault(|| Decision::FailedThoughDone(Status::timeout()));
    assert_eq!(failure(create(&server).await).0, 504);
    assert!(is_there(&server));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_write_can_come_between() {
    let server = with_fault(|| {
        Decision::Meanwhile(Box::new(|server| {
            server.direct().create(config_map("a")).unwrap();
        }))
    });
    assert_eq!(failure(create(&server).await).1, "AlreadyExists");
}

#[tokio::test(start_paused = true)]
async fn a_crash_calls_back_and_never_answers() {
    static CRASHED: AtomicBool = AtomicBool::new(false);
    let server =
        with_fault(|| Decision::CrashAfter(Box::new(|_| CRASHED.store(true, Ordering::Relaxed))));
    timeout(Duration::from_secs(20), create(&server))
        .await
        .unwrap_err();
    assert!(CRASHED.load(Ordering::Relaxed) && is_there(&server));
}

#[tokio::test(start_paused = true)]
async fn the_history_shows_requests_and_versions() {
    let server = with_fault(|| Decision::Lost);
    create(&server).await.unwrap_err();
    create(&server).await.unwrap();
    let history = server.history();
    let requests: Vec<_> = history
        .requests
        .iter()
        .map(|r| (r.site.nth, r.decision, r.code))
        .collect();
    assert_eq!(requests, [(0, "lost", None), (1, "forward", Some(201))]);
    let last = history.versions.last().unwrap();
    assert_eq!((last.name.as_str(), last.by.as_str()), ("a", "test"));
    let mut text = Vec::new();
    history.write(&mut text).unwrap();
    let lines = String::from_utf8(text).unwrap();
    for line in lines.lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
}
