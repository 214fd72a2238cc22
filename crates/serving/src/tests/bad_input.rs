//! Bytes on the wire that no API server sends, against a webhook.

use std::io::Write;

use parking_lot::Mutex;

use super::*;

const PATH: &str = "/validate";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        let bytes = self.0.lock();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut text = self.0.lock();
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Sends bytes without TLS; gives what came back until the server closed.
async fn raw(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = server.silent(HERE).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(SOON, read).await.expect("closed");
    answer
}

#[tokio::test]
async fn plain_text_on_the_tls_port_is_closed_counted_and_not_logged() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || writer.clone())
        .finish();
    // The test's runtime has one thread, this one.
    // Without it, a test on another thread without a subscriber may disable these log lines for all threads.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::webhooks().await;
    let answer = raw(&server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    // A TLS alert at most.
    assert!(answer.len() < 16, "{answer:?}");
    server.rejected(Rejection::HandshakeFailed, 1).await;
    // Nor one that goes away without a word: a port probe.
    drop(server.silent(HERE).await.unwrap());
    server.rejected(Rejection::HandshakeFailed, 2).await;
    assert_eq!(log.text(), "");
    server.connect().await.get("/").await;
}

#[tokio::test]
async fn tls_1_1_is_refused_with_an_alert() {
    let mut hello = vec![3, 2]; // the version
    hello.extend([7; 32]); // random
    hello.push(0); // no session
    hello.extend([0, 6, 0xc0, 0x13, 0xc0, 0x0a, 0, 0x2f]); // suites of that time
    hello.extend([1, 0]); // no compression
    hello.extend([0, 12, 0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0]); // P-256, uncompressed
    let extensions = hello.len() - 14;
    let length = hello.len() - extensions - 2;
    hello[extensions - 2..extensions]
        .copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
    let mut record = vec![22, 3, 1];
    record.extend(u16::try_from(hello.len() + 4).unwrap().to_be_bytes());
    record.extend([1, 0]);
    record.extend(u16::try_from(hello.len()).unwrap().to_be_bytes());
    record.extend(hello);
    let server = Server::webhooks().await;
    let answer = raw(&server, &record).await;
    // An alert (21) of two bytes, fatal (2): RFC 8446, 6.
    assert_eq!(answer[0], 21, "{answer:?}");
    assert_eq!(answer[3..6], [0, 2, 2], "{answer:?}");
    server.rejected(Rejection::HandshakeFailed, 1).await;
}

#[tokio::test]
async fn half_a_handshake_that_is_garbage_is_closed() {
    let server = Server::webhooks().await;
    for bytes in [&[22, 3, 1, 0xff, 0xff, 0][..], &[0; 100], &[0xff; 10_000]] {
        let answer = raw(&server, bytes).await;
        assert!(answer.len() < 16, "{answer:?}");
    }
    server.rejected(Rejection::HandshakeFailed, 3).await;
}

fn review() -> String {
    r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1"}}"#
        .to_owned()
}

fn post(headers: &str, body: &str) -> String {
    format!(
        "POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}\r\n{body}"
    )
}

fn whole(body: &str) -> String {
    post(&format!("Content-Length: {}\r\n", body.len()), body)
}

fn chunked(body: &str) -> String {
    let (a, b) = body.split_at(body.len() / 2);
    format!("{:x}\r\n{a}\r\n{:x}\r\n{b}\r\n0\r\n\r\n", a.len(), b.len())
}

fn is_review(answer: &str) {
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert!(answer.contains(r#""uid":"u-1""#), "{answer}");
}

#[tokio::test]
async fn a_chunked_body_is_read() {
    let server = Server::webhooks().await;
    let mut client = server.connect().await;
    let body = chunked(&review());
    for _ in 0..2 {
        let request = post("Transfer-Encoding: chunked\r\n", &body);
        client.send(&request).await;
        is_review(&client.answer().await);
    }
}

#[tokio::test]
async fn a_truncated_body_ends_the_connection() {
    let server = Server::webhooks().await;
    for request in [
        post("Content-Length: 100\r\n", "{"),
        post("Transfer-Encoding: chunked\r\n", "5\r\n{"),
    ] {
        let mut client = server.connect().await;
        client.send(&request).await;
        client.stream.shutdown().await.unwrap();
        let answer = client.rest().await;
        assert!(
            answer.is_empty() || answer.starts_with("http/1.1 400"),
            "{answer}"
        );
    }
    eventually(|| server.counters.open() == 0).await;
}

#[tokio::test]
async fn malformed_chunked_body_gets_400_and_ends_the_connection() {
    let server = Server::webhooks().await;
    for body in ["x\r\n", "-1\r\n", "fffffffffffffffff\r\n", "1\r\nab\r\n"] {
        let mut client = server.connect().await;
        client
            .send(&post("Transfer-Encoding: chunked\r\n", body))
            .await;
        let answer = client.rest().await;
        assert!(answer.starts_with("http/1.1 400"), "{body:?}: {answer}");
        let line = "{\"error\":\"the body is broken or did not come to its end\"}\n";
        assert!(answer.ends_with(line), "{body:?}: {answer}");
    }
    server.rejected(Rejection::BodyBroken, 4).await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = Server::webhooks().await;
    let mut client = server.connect().await;
    let mut requests = String::new();
    for n in 0..50 {
        requests += &whole(&review().replace("u-1", &format!("u-1-{n}")));
        requests += "GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n";
    }
    client.send(&requests).await;
    for n in 0..50 {
        let answer = client.answer().await;
        assert!(answer.contains(&format!(r#""uid":"u-1-{n}""#)), "{answer}");
        let answer = client.answer().await;
        assert!(answer.starts_with("http/1.1 404"), "{answer}");
    }
}

#[tokio::test]
async fn http_1_0_is_answered_and_closed() {
    let server = Server::webhooks().await;
    let mut client = server.connect().await;
    let request = whole(&review()).replace("HTTP/1.1", "HTTP/1.0");
    client.send(&request).await;
    let answer = client.rest().await;
    assert!(answer.starts_with("http/1.0 200"), "{answer}");
    assert!(answer.contains(r#""uid":"u-1""#), "{answer}");
}

/// Heads that are refused, and with what.
#[tokio::test]
async fn a_bad_head_is_the_peers_fault_and_ends_the_connection() {
    let server = Server::webhooks().await;
    let long = "x".repeat(20_000);
    let many = "a: b\r\n".repeat(1000);
    for (head, status) in [
        (format!("GET / HTTP/1.1\r\nlong: {long}\r\n\r\n"), "431"),
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), "431"),
        ("G@T / HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("\0\x01\x02 / HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), "400"),
        ("GET /\u{7f} HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\na b: c\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\na: b\0\r\n\r\n".to_owned(), "400"),
        (post("Content-Length: -1\r\n", ""), "400"),
        (post("Content-Length: 1e3\r\n", ""), "400"),
        (
            post("Content-Length: 99999999999999999999999\r\n", ""),
            "400",
        ),
        (post("Content-Length: 18446744073709551615\r\n", ""), "4"),
        (post("Content-Length: 9223372036854775807\r\n", ""), "413"),
        (
            post("Content-Length: 1\r\nContent-Length: 2\r\n", ""),
            "400",
        ),
        (post("Transfer-Encoding: gzip\r\n", ""), "400"),
        (post("Transfer-Encoding: chunked, gzip\r\n", ""), "400"),
    ] {
        let mut client = server.connect().await;
        // It may be refused before it is all sent.
        let _ = client.stream.write_all(head.as_bytes()).await;
        let answer = client.rest().await;
        let head = &head[..head.len().min(200)];
        assert!(
            answer.starts_with(&format!("http/1.1 {status}")),
            "{head:?}: {answer:?}"
        );
    }
    eventually(|| server.counters.open() == 0).await;
}

#[tokio::test]
async fn http_2_is_not_spoken() {
    let server = Server::webhooks().await;
    let mut client = server.connect().await;
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    let answer = client.rest().await;
    assert!(
        answer.is_empty() || answer.starts_with("http/1.1 400"),
        "{answer}"
    );
}

/// RFC 9112, 6.3: the transfer encoding decides. What would be the rest of a body by the other count
/// must not be taken for a request.
#[tokio::test]
async fn transfer_encoding_wins_over_content_length() {
    let server = Server::webhooks().await;
    let body = chunked(&review());
    for headers in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
    ] {
        let mut client = server.connect().await;
        client.send(&post(headers, &body)).await;
        is_review(&client.answer().await);
    }
}

#[tokio::test]
async fn method_other_than_post_gets_405() {
    let server = Server::webhooks().await;
    let mut client = server.connect().await;
    for method in ["GET", "PUT", "DELETE", "TRACE", "BREW"] {
        let request = format!("{method} {PATH} HTTP/1.1\r\nHost: x\r\n\r\n");
        client.send(&request).await;
        let answer = client.answer().await;
        assert!(answer.starts_with("http/1.1 405"), "{method}: {answer}");
    }
}
