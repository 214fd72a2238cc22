//! `/healthz` and `/readyz`: named gates, in the form that the API server's own probes have.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::routing::get;
use parking_lot::{Mutex, MutexGuard};

/// Further lines of the verbose page.
pub type Notes = Arc<dyn Fn() -> Vec<Note> + Send + Sync>;

/// A line of the verbose page that does not make the process unready.
pub enum Note {
    /// A lasting problem: (source, problem).
    Fault(String, String),
    /// Information: (subject, text).
    Remark(&'static str, String),
}

/// A gate's name, and the reason if it is closed.
pub(crate) type GateState = (&'static str, Option<String>);

/// The gates of `/readyz`. Cheap to clone.
#[derive(Clone, Default)]
pub struct Gates {
    gates: Arc<Mutex<Vec<GateState>>>,
}

/// One named gate.
#[derive(Clone)]
pub struct Gate {
    name: &'static str,
    gates: Gates,
}

impl Gates {
    /// Adds a gate, closed for that reason.
    pub fn add(&self, name: &'static str, reason: &str) -> Gate {
        let gate = Gate {
            name,
            gates: self.clone(),
        };
        gate.close(reason);
        gate
    }

    /// Whether every gate is open.
    pub fn ready(&self) -> bool {
        self.list().iter().all(|(_, closed)| closed.is_none())
    }

    /// Every gate, in the order in which they were added.
    pub fn list(&self) -> Vec<GateState> {
        let gates = self.gates.lock();
        gates.clone()
    }
}

impl Gate {
    /// Opens the gate.
    pub fn open(&self) {
        self.set(None);
    }

    /// Closes the gate, for that reason.
    pub fn close(&self, reason: &str) {
        self.set(Some(reason.to_owned()));
    }

    /// Whether the gate is open.
    pub fn is_open(&self) -> bool {
        let gates = self.gates.list();
        gates
            .iter()
            .any(|(name, closed)| *name == self.name && closed.is_none())
    }

    fn set(&self, closed: Option<String>) {
        let mut gates = self.gates.gates.lock();
        match gates.iter_mut().find(|(name, _)| *name == self.name) {
            Some((_, state)) => *state = closed,
            None => gates.push((self.name, closed)),
        }
    }
}

/// A heartbeat of the worker threads, since the probes are answered on another thread.
#[derive(Clone, Debug)]
pub struct Heartbeat(Arc<Mutex<Instant>>);

impl Heartbeat {
    const EVERY: Duration = Duration::from_secs(1);
    /// Far longer than any overload lasts: only threads that are stuck for good justify a restart.
    const DEAD_AFTER: Duration = Duration::from_mins(1);

    /// Starts a heartbeat on the caller's runtime, until that ends.
    pub fn start() -> Self {
        let this = Self(Arc::new(Mutex::new(Instant::now())));
        let beating = this.clone();
        tokio::spawn(async move {
            loop {
                *beating.lock() = Instant::now();
                tokio::time::sleep(Self::EVERY).await;
            }
        });
        this
    }

    fn lock(&self) -> MutexGuard<'_, Instant> {
        self.0.lock()
    }

    /// How long ago the last heartbeat was, if that is too long.
    fn silent(&self, now: Instant) -> Option<Duration> {
        let silent = now.saturating_duration_since(*self.lock());
        (silent > Self::DEAD_AFTER).then_some(silent)
    }
}

/// `GET /healthz` is 200 while the process works; `GET /readyz` is 200 when every gate is open,
/// and with `?verbose`, or when it is not, a line per gate.
pub fn router(gates: Gates, notes: Notes, heartbeat: Heartbeat) -> Router {
    Router::new()
        .route("/healthz", get(healthz).with_state(heartbeat))
        .route("/readyz", get(readyz).with_state((gates, notes)))
}

async fn healthz(State(heartbeat): State<Heartbeat>) -> (StatusCode, String) {
    match heartbeat.silent(Instant::now()) {
        None => (StatusCode::OK, "ok".to_owned()),
        Some(silent) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!(
                "the worker threads have not run for {} s\n",
                silent.as_secs()
            ),
        ),
    }
}

async fn readyz(
    State((gates, notes)): State<(Gates, Notes)>,
    RawQuery(query): RawQuery,
) -> (StatusCode, String) {
    let verbose = query.is_some_and(|query| {
        query
            .split('&')
            .any(|part| part == "verbose" || part.starts_with("verbose="))
    });
    let list = gates.list();
    let ready = list.iter().all(|(_, closed)| closed.is_none());
    if ready && !verbose {
        return (StatusCode::OK, "ok".to_owned());
    }
    let mut page = String::new();
    for (name, closed) in list {
        let _ = match closed {
            None => writeln!(page, "[+]{name} ok"),
            Some(reason) => writeln!(page, "[-]{name} failed: {reason}"),
        };
    }
    for note in notes() {
        let _ = match note {
            Note::Fault(source, problem) => writeln!(page, "[!]{source}: {problem}"),
            Note::Remark(about, what) => writeln!(page, "[i]{about}: {what}"),
        };
    }
    let _ = writeln!(
        page,
        "readyz check {}",
        if ready { "passed" } else { "failed" }
    );
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, page)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    async fn get(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_missing_heartbeat_is_noticed_after_a_minute() {
        let heartbeat = Heartbeat::start();
        let last = *heartbeat.lock();
        assert_eq!(heartbeat.silent(last + Heartbeat::DEAD_AFTER), None);
        let later = last + Heartbeat::DEAD_AFTER + Duration::from_secs(5);
        assert_eq!(heartbeat.silent(later), Some(Duration::from_secs(65)));
    }

    #[tokio::test]
    async fn readiness_names_each_gate() {
        let gates = Gates::default();
        let first = gates.add("api-server", "not reached yet");
        let second = gates.add("certificate", "not signed yet");
        let notes: Notes = Arc::new(|| vec![Note::Fault("ats".into(), "no CRD".into())]);
        let router = router(gates, notes, Heartbeat::start());
        assert_eq!(
            get(&router, "/healthz").await,
            (StatusCode::OK, "ok".into())
        );
        first.open();
        let (status, page) = get(&router, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            page,
            "[+]api-server ok\n[-]certificate failed: not signed yet\n[!]ats: no CRD\nreadyz check failed\n"
        );
        second.open();
        assert_eq!(get(&router, "/readyz").await, (StatusCode::OK, "ok".into()));
        let (status, page) = get(&router, "/readyz?verbose").await;
        assert_eq!(status, StatusCode::OK);
        assert!(page.contains("[!]ats: no CRD"), "{page}");
    }
}
