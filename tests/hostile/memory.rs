//! What reviews of megabytes cost the server in memory, whatever their shape.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use my_operator_rounds::lengths;

use super::honest::{answer, connect};
use super::server::Server;

/// So many reviews come at once.
const AT_ONCE: u8 = 8;
/// Bytes of each.
const SIZE: usize = 5_000_000;
/// What the largest reviews may add to the peak: as much as all bodies together may hold.
const MAX_GROWTH: usize = 64 << 20;

/// The uid of every review, and the name of its user.
const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";
const USER: &str = "jane";

/// So many times `unit`, in which `#` becomes a number, as fill these bytes.
fn many(unit: &str, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes);
    for n in 0.. {
        let next = unit.replace('#', &format!("{n:x}"));
        if text.len() + next.len() > bytes {
            break;
        }
        text.push_str(&next);
    }
    text.pop();
    text
}

/// Objects that are all of one thing, in so many bytes.
fn objects(bytes: usize) -> Vec<(&'static str, String)> {
    let spec = r#""spec":{"schedule":"now","command":"true"}"#;
    vec![
        (
            "annotations",
            format!(
                r#"{{"metadata":{{"name":"a","annotations":{{{}}}}},{spec}}}"#,
                many(r#""key-#":"","#, bytes)
            ),
        ),
        (
            "labels",
            format!(
                r#"{{"metadata":{{"name":"a","labels":{{{}}}}},{spec}}}"#,
                many(r#""key-#":"","#, bytes)
            ),
        ),
        (
            "members of the spec",
            format!(
                r#"{{"metadata":{{"name":"a"}},"spec":{{{}}}}}"#,
                many(r##""#":1,"##, bytes)
            ),
        ),
        (
            "objects in the spec",
            format!(
                r#"{{"metadata":{{"name":"a"}},"spec":{{"template":{{"x":[{}]}}}}}}"#,
                many(r#"{"a":1},"#, bytes)
            ),
        ),
        (
            "one long name",
            format!(
                r#"{{"metadata":{{"name":"{}"}},{spec}}}"#,
                "\\u0061".repeat(bytes / 6)
            ),
        ),
    ]
}

/// The request of a review of these objects.
fn request(verb: &str, operation: &str, objects: &[String]) -> Vec<u8> {
    post(verb, &review(operation, objects))
}

fn review(operation: &str, objects: &[String]) -> String {
    let group = "cnat.programming-kubernetes.info";
    let null = "null".to_owned();
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": UID,
            "kind": {"group": group, "version": "v1alpha1", "kind": "At"},
            "operation": operation,
            "userInfo": {"username": USER},
            "object": "OBJECT",
            "oldObject": "OLD",
        },
    })
    .to_string();
    for (place, object) in [
        ("\"OBJECT\"", &objects[0]),
        ("\"OLD\"", objects.get(1).unwrap_or(&null)),
    ] {
        review = review.replacen(place, object, 1);
    }
    review
}

/// The request that sends a review.
fn post(verb: &str, review: &str) -> Vec<u8> {
    let length = review.len();
    format!(
        "POST /{verb}-cnat-programming-kubernetes-info-v1alpha1-at HTTP/1.1\r\nHost: x\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{review}"
    )
    .into_bytes()
}

/// Sends the request from eight addresses at once, each until it is answered, and returns the reviews.
async fn send_to(server: &Server, request: &'static [u8]) -> Vec<Value> {
    let mut calls = JoinSet::new();
    for peer in 1..=AT_ONCE {
        let (address, tls) = (server.address, server.tls.clone());
        calls.spawn(async move {
            let from = Ipv4Addr::new(127, 0, 2, peer);
            // As an API server does after a 429 with Retry-After.
            for _ in 0..30 {
                let mut connection = connect(address, &tls, from).await.unwrap();
                connection.write_all(request).await.unwrap();
                connection.flush().await.unwrap();
                let text = answer(&mut connection).await.unwrap();
                let (head, body) = text.split_once("\r\n\r\n").unwrap();
                if head.starts_with("HTTP/1.1 200") {
                    return serde_json::from_str(body).unwrap();
                }
                // Too many at once, or too slow on a busy machine.
                let again = ["HTTP/1.1 429", "HTTP/1.1 408"];
                assert!(again.iter().any(|code| head.starts_with(code)), "{text}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            panic!("never answered");
        });
    }
    calls.join_all().await
}

#[test]
fn the_largest_reviews_add_no_more_memory_than_all_bodies_may() {
    let _turn = super::turn();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut found = String::new();
    let mut largest = 0;
    for verb in ["mutate", "validate"] {
        for both in [true, false].into_iter().take(lengths::large_reviews()) {
            let size = if both { SIZE / 2 } else { SIZE };
            for (shape, object) in objects(size).into_iter().take(2 * lengths::large_reviews()) {
                // A server of its own: what an earlier one freed would be used again.
                let server = Server::start();
                let (operation, objects) = if both {
                    ("UPDATE", vec![object.clone(), object])
                } else {
                    ("CREATE", vec![object])
                };
                // One small review first: the first one of all is expensive.
                let small = r#"{"metadata":{"name":"a"},"spec":{}}"#.to_owned();
                let small = request(verb, "CREATE", &[small]).leak();
                runtime.block_on(send_to(&server, small));
                let before = server.peak();
                let large = request(verb, operation, &objects).leak();
                let reviews = runtime.block_on(send_to(&server, large));
                let growth = server.peak() - before;
                largest = largest.max(growth);
                let allowed = reviews[0]["response"]["allowed"].as_bool();
                writeln!(
                    found,
                    "{verb} {operation} {shape}: +{} MiB, allowed: {allowed:?}",
                    growth >> 20
                )
                .unwrap();
            }
        }
    }
    eprint!("{found}");
    assert!(largest <= MAX_GROWTH, "{found}");
}

/// Texts of a review that could come back in its answer, each of 8 MB.
fn echoes() -> [(&'static str, Vec<u8>); 2] {
    let object =
        r#"{"metadata":{"name":"a"},"spec":{"schedule":"now","command":"true"}}"#.to_owned();
    let review = review("CREATE", &[object]);
    let large = "a".repeat(8_000_000);
    let swollen = |verb, text: &str| post(verb, &review.replace(text, &large));
    [
        ("uid", swollen("validate", UID)),
        ("user name", swollen("mutate", USER)),
    ]
}

/// The most that the kernel has held for connections of the server: bytes that came and were not read, and bytes that were
/// sent and not acknowledged. Without what it needs to manage them.
#[derive(Debug, Default)]
struct KernelBuffers {
    unread: usize,
    unsent: usize,
}

impl KernelBuffers {
    /// Looks again (`/proc/net/tcp`, Linux's Documentation/networking/proc_net_tcp.rst).
    fn look(&mut self, server: &Server) {
        let port = format!(":{:04X}", server.address.port());
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let (mut unread, mut unsent) = (0, 0);
        for socket in sockets.lines().skip(1) {
            let fields: Vec<&str> = socket.split_whitespace().collect();
            let (address, queues) = (fields[1], fields[4]);
            if address.ends_with(&port) {
                let (sent, received) = queues.split_once(':').unwrap();
                unsent += usize::from_str_radix(sent, 16).unwrap();
                unread += usize::from_str_radix(received, 16).unwrap();
            }
        }
        self.unread = self.unread.max(unread);
        self.unsent = self.unsent.max(unsent);
    }
}

#[test]
fn texts_of_megabytes_around_the_objects_add_little_memory() {
    let _turn = super::turn();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (shape, request) in echoes() {
        let server = Server::start();
        let before = server.peak();
        let request: &'static [u8] = request.leak();
        let mut kernel = KernelBuffers::default();
        runtime.block_on(async {
            let mut calls = JoinSet::new();
            for _ in 0..30 {
                let (address, tls) = (server.address, server.tls.clone());
                calls.spawn(async move {
                    let from = Ipv4Addr::new(127, 0, 2, 1);
                    let mut connection = connect(address, &tls, from).await.unwrap();
                    // Cut by the server, if it has no memory for the body in time.
                    let _ = connection.write_all(request).await;
                    let _ = connection.flush().await;
                    // Its first byte has come, so the answer is there.
                    let _ = connection.read_u8().await;
                    connection
                });
            }
            let mut calls = std::pin::pin!(calls.join_all());
            let pause = Duration::from_millis(10);
            while tokio::time::timeout(pause, &mut calls).await.is_err() {
                kernel.look(&server);
            }
        });
        let growth = server.peak() - before;
        eprintln!("{shape}: +{} MiB, {kernel:?}", growth >> 20);
        // One address holds a quarter of that at a time. But bodies come and go, and the allocator keeps what is freed for
        // some milliseconds.
        assert!(growth <= MAX_GROWTH, "{shape}: +{} MiB", growth >> 20);
    }
}
