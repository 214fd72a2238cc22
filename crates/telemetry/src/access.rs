//! Authorization of scrapes, as in controller-runtime's `WithAuthenticationAndAuthorization`. A client may read the
//! metrics if the API server knows its bearer token (a TokenReview) and allows it to `get` the path `/metrics` (a
//! SubjectAccessReview).
//!
//! Verdicts are cached for a short time: scrapes put no load on the API server, and a revoked token is soon rejected.
//! Tokens are not stored; the cache is keyed by their hashes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// TTL of a positive verdict, as in controller-runtime: the upper bound on how long a revoked token keeps working.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
/// TTL of a negative verdict, short so that a permission just granted takes effect soon.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How many verdicts are cached.
const MAX_VERDICTS: usize = 1000;
/// How long the API server may take. Prometheus gives a scrape 10 s.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How many reviews are in flight at a time. A client that makes up tokens must not delay this process's other
/// requests, such as those for its lease.
const MAX_REVIEWS: usize = 8;

/// The API server's verdict on a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The token's user may read the metrics.
    Allowed,
    /// The token is invalid.
    Unknown,
    /// The token's user, of that name, may not read them.
    Forbidden(String),
}

/// Asks the API server about a token. The error is a log line without the token.
pub type Ask = Arc<dyn Fn(String) -> BoxFuture<'static, Result<Verdict, String>> + Send + Sync>;

/// A review in flight, shared by all requests with the same token. The error is already logged.
type Review = BoxFuture<'static, Result<Verdict, ()>>;

/// The SHA-256 of a token.
type Key = [u8; 32];

/// Admits the requests that may read the metrics.
pub struct Access {
    ask: Ask,
    state: Mutex<State>,
    turns: Semaphore,
    /// The last review failed. Logged once, not for each scrape.
    failing: AtomicBool,
}

#[derive(Default)]
struct State {
    verdicts: Verdicts,
    asking: HashMap<Key, WeakShared<Review>>,
}

/// Passes to `router` only the requests that `ask` allows.
pub fn guard(router: Router, ask: Ask) -> Router {
    let access = Arc::new(Access::new(ask));
    router.layer(from_fn(move |request: Request, next: Next| {
        let access = access.clone();
        async move {
            match access.refusal(request.headers()).await {
                None => next.run(request).await,
                Some(refusal) => refusal,
            }
        }
    }))
}

impl Access {
    fn new(ask: Ask) -> Self {
        Self {
            ask,
            state: Mutex::default(),
            turns: Semaphore::new(MAX_REVIEWS),
            failing: AtomicBool::new(false),
        }
    }

    /// The rejection of a request with these headers, unless it is allowed.
    async fn refusal(self: &Arc<Self>, headers: &HeaderMap) -> Option<Response> {
        let verdict = match bearer_token(headers) {
            Some(token) => self.verdict(token).await,
            None => Ok(Verdict::Unknown),
        };
        let (status, line) = match verdict {
            Ok(Verdict::Allowed) => return None,
            Ok(Verdict::Unknown) => (
                StatusCode::UNAUTHORIZED,
                "a valid bearer token is required\n".to_owned(),
            ),
            Ok(Verdict::Forbidden(user)) => (
                StatusCode::FORBIDDEN,
                // Escaped, so that any name stays on one line.
                format!("{} may not get /metrics\n", user.escape_debug()),
            ),
            Err(()) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the API server does not say whether this is allowed\n".to_owned(),
            ),
        };
        let mut response = (status, line).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let scheme = header::HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        Some(response)
    }

    /// The cached verdict, or that of a review, which all concurrent requests with the same token share.
    async fn verdict(self: &Arc<Self>, token: &str) -> Result<Verdict, ()> {
        let key: Key = Sha256::digest(token).into();
        let review = {
            let mut state = self.state();
            if let Some(verdict) = state.verdicts.get(&key, Instant::now()) {
                return Ok(verdict.clone());
            }
            match state.asking.get(&key).and_then(WeakShared::upgrade) {
                Some(review) => review,
                None => self.start_review(&mut state, key, token.to_owned()),
            }
        };
        review.await
    }

    fn start_review(
        self: &Arc<Self>,
        state: &mut State,
        key: Key,
        token: String,
    ) -> Shared<Review> {
        let access = self.clone();
        let review = async move {
            let asked = async {
                let _turn = access.turns.acquire().await;
                (access.ask)(token).await
            };
            let answer = timeout(TIMEOUT, asked).await;
            let answer =
                answer.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
            access.log(&answer);
            let answer = answer.map_err(drop);
            let mut state = access.state();
            state.asking.remove(&key);
            if let Ok(verdict) = &answer {
                state.verdicts.put(key, verdict.clone(), Instant::now());
            }
            answer
        };
        let review = review.boxed().shared();
        // Drops reviews whose clients have all disconnected.
        state.asking.retain(|_, other| other.upgrade().is_some());
        state
            .asking
            .extend(review.downgrade().map(|weak| (key, weak)));
        review
    }

    fn log(&self, answer: &Result<Verdict, String>) {
        let failed_before = self.failing.swap(answer.is_err(), Ordering::Relaxed);
        match answer {
            Err(problem) if !failed_before => {
                tracing::warn!(problem, "cannot check who may read the metrics");
            }
            Ok(_) if failed_before => {
                tracing::info!("metrics authorization works again");
            }
            Ok(Verdict::Forbidden(user)) => {
                tracing::info!(
                    user,
                    "rejected a request for the metrics: the caller may not get /metrics"
                );
            }
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The token of `Authorization: Bearer TOKEN`. A request with two such headers has no token: a proxy may have checked
/// either of them.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim_start();
    let whole = !token.is_empty() && !token.contains([' ', '\t']);
    (scheme.eq_ignore_ascii_case("bearer") && whole).then_some(token)
}

/// A cache of verdicts with a TTL, and at most [`MAX_VERDICTS`] entries.
#[derive(Debug, Default)]
struct Verdicts {
    kept: HashMap<Key, Kept>,
}

#[derive(Debug)]
struct Kept {
    verdict: Verdict,
    until: Instant,
}

impl Kept {
    fn new(verdict: Verdict, now: Instant) -> Self {
        let time = match verdict {
            Verdict::Allowed => ALLOWED_FOR,
            Verdict::Unknown | Verdict::Forbidden(_) => REFUSED_FOR,
        };
        let until = now + time;
        Self { verdict, until }
    }

    fn holds(&self, now: Instant) -> bool {
        now < self.until
    }
}

impl Verdicts {
    fn get(&self, key: &Key, now: Instant) -> Option<&Verdict> {
        let kept = self.kept.get(key).filter(|kept| kept.holds(now))?;
        Some(&kept.verdict)
    }

    /// When the cache is full, a negative verdict is evicted first, so that a client that tries out tokens does not
    /// evict the good ones.
    fn put(&mut self, key: Key, verdict: Verdict, now: Instant) {
        if self.kept.len() >= MAX_VERDICTS {
            self.kept.retain(|_, kept| kept.holds(now));
        }
        if self.kept.len() >= MAX_VERDICTS && !self.kept.contains_key(&key) {
            let rank = |kept: &Kept| (kept.verdict == Verdict::Allowed, kept.until);
            let first = self.kept.iter().min_by_key(|(_, kept)| rank(kept));
            if let Some(key) = first.map(|(key, _)| *key) {
                self.kept.remove(&key);
            }
        }
        self.kept.insert(key, Kept::new(verdict, now));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::AtomicUsize;

    use axum::body::{Body, to_bytes};
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    /// Knows the tokens "good" and "known", is down for "down", and never answers "silent".
    #[derive(Clone, Default)]
    struct ApiServer {
        asked: Arc<AtomicUsize>,
        revoked: Arc<AtomicBool>,
        away: Arc<AtomicBool>,
    }

    impl ApiServer {
        fn asked(&self) -> usize {
            self.asked.load(Ordering::SeqCst)
        }

        fn guarded(&self) -> Router {
            let this = self.clone();
            let ask: Ask = Arc::new(move |token| {
                let this = this.clone();
                async move {
                    this.asked.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    if this.away.load(Ordering::SeqCst) {
                        return Err("connection refused".to_owned());
                    }
                    match token.as_str() {
                        "good" if !this.revoked.load(Ordering::SeqCst) => Ok(Verdict::Allowed),
                        "known" => Ok(Verdict::Forbidden("some\none".to_owned())),
                        "down" => Err("connection refused".to_owned()),
                        "silent" => std::future::pending().await,
                        _ => Ok(Verdict::Unknown),
                    }
                }
                .boxed()
            });
            guard(
                Router::new().route("/metrics", get(|| async { "figures" })),
                ask,
            )
        }
    }

    async fn scrape(router: &Router, path: &str, authorization: &[&str]) -> (u16, String) {
        let mut request = Request::get(path);
        for value in authorization {
            request = request.header(header::AUTHORIZATION, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn with(router: &Router, token: &str) -> u16 {
        scrape(router, "/metrics", &[&format!("Bearer {token}")])
            .await
            .0
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_authorized_client_gets_an_answer() {
        let server = ApiServer::default();
        let router = server.guarded();
        for path in ["/metrics", "/", "/other"] {
            assert_eq!(scrape(&router, path, &[]).await.0, 401, "{path}");
        }
        assert_eq!(server.asked(), 0);
        assert_eq!(with(&router, "bad").await, 401);
        let (status, page) = scrape(&router, "/metrics", &["Bearer known"]).await;
        assert_eq!(
            (status, page.as_str()),
            (403, "some\\none may not get /metrics\n")
        );
        let (status, page) = scrape(&router, "/metrics", &["bearer good"]).await;
        assert_eq!((status, page.as_str()), (200, "figures"));
        assert_eq!(scrape(&router, "/other", &["Bearer good"]).await.0, 404);
        assert_eq!(server.asked(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_without_a_bearer_token_causes_no_review() {
        let server = ApiServer::default();
        let router = server.guarded();
        let odd: [&[&str]; 7] = [
            &["good"],
            &["Bearer"],
            &["Bearer "],
            &["Bearer good x"],
            &["Basic good"],
            &["Bearer good", "Bearer good"],
            &["Bearer g\u{f6}d"],
        ];
        for authorization in odd {
            let (status, _) = scrape(&router, "/metrics", authorization).await;
            assert_eq!(status, 401, "{authorization:?}");
        }
        assert_eq!(server.asked(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_scrapes_with_one_token_share_a_review() {
        let server = ApiServer::default();
        let router = server.guarded();
        let scrapes = (0..50).map(|_| with(&router, "good"));
        let statuses = futures::future::join_all(scrapes).await;
        assert_eq!(statuses, vec![200; 50]);
        assert_eq!(server.asked(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_disconnects_does_not_cancel_a_shared_review() {
        let server = ApiServer::default();
        let router = server.guarded();
        let hasty = timeout(Duration::from_millis(10), with(&router, "good"));
        let (hasty, patient) = tokio::join!(hasty, with(&router, "good"));
        assert!(hasty.is_err());
        assert_eq!((patient, server.asked()), (200, 1));
        // If it was the only one, no later request waits for its review.
        let alone = timeout(Duration::from_millis(10), with(&router, "bad"));
        assert!(alone.await.is_err());
        assert_eq!(with(&router, "bad").await, 401);
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_is_cached_for_its_ttl_and_a_revoked_token_rejected_after_it() {
        let server = ApiServer::default();
        let router = server.guarded();
        assert_eq!(with(&router, "good").await, 200);
        server.revoked.store(true, Ordering::SeqCst);
        let given = Instant::now();
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(with(&router, "good").await, 200);
        tokio::time::sleep_until(given + ALLOWED_FOR).await;
        assert_eq!(with(&router, "good").await, 401);
        server.revoked.store(false, Ordering::SeqCst);
        assert_eq!(with(&router, "good").await, 401);
        tokio::time::sleep(REFUSED_FOR).await;
        assert_eq!(with(&router, "good").await, 200);
        assert_eq!(server.asked(), 3);
    }

    /// What docs and dashboards rely on: a revoked token is refused after a minute at the latest, however often
    /// it is used, and a right that was just given counts after 10 s at the latest.
    #[tokio::test(start_paused = true)]
    async fn use_does_not_extend_the_ttl_of_a_verdict() {
        let second = Duration::from_secs(1);
        let server = ApiServer::default();
        let router = server.guarded();
        let count = |statuses: &[u16], status| statuses.iter().filter(|s| **s == status).count();

        assert_eq!(with(&router, "good").await, 200);
        // The answer came now. The token is revoked right after it, and its owner goes on to scrape.
        server.revoked.store(true, Ordering::SeqCst);
        let mut statuses = Vec::new();
        for _ in 0..600 {
            tokio::time::sleep(second / 10).await;
            statuses.push(with(&router, "good").await);
        }
        // Use does not extend the TTL: 59.9 s after the answer the verdict is valid, after 60 s it is not.
        assert_eq!((count(&statuses, 200), statuses[599]), (599, 401));
        assert_eq!(server.asked(), 2);

        // Rejected without another review, until that verdict expires, too.
        server.revoked.store(false, Ordering::SeqCst);
        let mut statuses = Vec::new();
        for _ in 0..100 {
            tokio::time::sleep(second / 10).await;
            statuses.push(with(&router, "good").await);
        }
        assert_eq!((count(&statuses, 401), statuses[99]), (99, 200));
        assert_eq!(server.asked(), 3);

        // Each token has its own verdict, and a known user without permission is rejected for as long.
        assert_eq!(with(&router, "known").await, 403);
        tokio::time::sleep(REFUSED_FOR.saturating_sub(second / 10)).await;
        assert_eq!(with(&router, "known").await, 403);
        assert_eq!((with(&router, "good").await, server.asked()), (200, 4));
        tokio::time::sleep(second / 10).await;
        assert_eq!((with(&router, "known").await, server.asked()), (403, 5));
    }

    /// An expired verdict is not used, even if the API server does not answer.
    #[tokio::test(start_paused = true)]
    async fn an_expired_verdict_is_not_used_while_the_api_server_is_down() {
        let server = ApiServer::default();
        let router = server.guarded();
        assert_eq!(with(&router, "good").await, 200);
        server.away.store(true, Ordering::SeqCst);
        tokio::time::sleep(ALLOWED_FOR.saturating_sub(Duration::from_millis(1))).await;
        assert_eq!(with(&router, "good").await, 200);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(with(&router, "good").await, 503);
        server.revoked.store(true, Ordering::SeqCst);
        server.away.store(false, Ordering::SeqCst);
        assert_eq!(with(&router, "good").await, 401);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_times_out_and_is_asked_again() {
        let server = ApiServer::default();
        let router = server.guarded();
        for asked in 1..=2 {
            let start = Instant::now();
            let (status, page) = scrape(&router, "/metrics", &["Bearer silent"]).await;
            assert_eq!(status, 503);
            assert_eq!(page.lines().count(), 1, "{page}");
            assert!(start.elapsed() <= TIMEOUT + Duration::from_millis(10));
            assert_eq!(server.asked(), asked);
        }
        assert_eq!(with(&router, "down").await, 503);
        assert_eq!(with(&router, "good").await, 200);
    }

    #[test]
    fn verdicts_are_bounded_and_negative_ones_are_evicted_first() {
        let now = Instant::now();
        let key = |n: usize| -> Key { Sha256::digest(n.to_be_bytes()).into() };
        let mut verdicts = Verdicts::default();
        for n in 0..10 {
            verdicts.put(key(n), Verdict::Allowed, now);
        }
        for n in 10..5 * MAX_VERDICTS {
            verdicts.put(key(n), Verdict::Unknown, now);
            assert!(verdicts.kept.len() <= MAX_VERDICTS);
        }
        for n in 0..10 {
            assert_eq!(verdicts.get(&key(n), now), Some(&Verdict::Allowed));
        }
        // Expired verdicts are evicted before valid ones.
        let later = now + REFUSED_FOR;
        verdicts.put(key(0), Verdict::Unknown, later);
        assert_eq!(verdicts.kept.len(), 10);
        assert_eq!(verdicts.get(&key(0), later), Some(&Verdict::Unknown));
        // Only positive ones: the oldest is evicted.
        for n in 0..2 * MAX_VERDICTS {
            let at = later + Duration::from_millis(n as u64);
            verdicts.put(key(n), Verdict::Allowed, at);
        }
        assert_eq!(verdicts.kept.len(), MAX_VERDICTS);
        assert!(verdicts.get(&key(MAX_VERDICTS - 1), later).is_none());
        assert!(verdicts.get(&key(2 * MAX_VERDICTS - 1), later).is_some());
    }
}
