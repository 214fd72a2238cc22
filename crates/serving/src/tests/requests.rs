//! Bodies, work, and requests that are rejected with `Retry-After`.

use super::*;

#[tokio::test]
async fn a_body_that_announces_too_much_is_refused_unread() {
    let server = Server::start(Limits::default()).await;
    let mut client = server.connect().await;
    let length = Limits::default().body_bytes + 1;
    client
        .send(&format!(
            "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        ))
        .await;
    let answer = client.answer().await;
    assert!(answer.starts_with("http/1.1 413"), "{answer}");
    assert!(
        answer.ends_with("{\"error\":\"the body is too large\"}\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_body_that_grows_too_large_is_refused() {
    let limits = Limits {
        body_bytes: 1000,
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut client = server.connect().await;
    let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000));
    client
        .send("POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    client.send(&chunk).await;
    client.send(&chunk).await;
    let answer = client.answer().await;
    assert!(answer.starts_with("http/1.1 413"), "{answer}");
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_read() {
    let server = Server::start(Limits::default()).await;
    let mut client = server.connect().await;
    let length = Limits::default().body_bytes;
    client
        .send(&format!(
            "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        ))
        .await;
    client.send(&"x".repeat(length)).await;
    let answer = client.answer().await;
    assert!(answer.ends_with(&length.to_string()), "{answer}");
}

#[tokio::test]
async fn a_body_that_trickles_is_cut_at_its_total_deadline() {
    let limits = Limits {
        body: Duration::from_millis(300),
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut client = server.connect().await;
    client.send(&posted("Content-Length: 100", "")).await;
    let trickle = async {
        // Until the server has closed its side.
        while client.stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(250), trickle).await;
    let answer = client.answer().await;
    assert!(answer.starts_with("http/1.1 408"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert_eq!(
        line(&answer),
        r#"{"error":"the body did not come in time"}"#
    );
    client.closed().await;
    server.rejected(Rejection::BodyTimeout, 1).await;
}

#[tokio::test]
async fn a_panicking_handler_answers_500_is_counted_and_harms_nothing_else() {
    // Every body is large: the next one needs the turn of the last.
    let limits = Limits {
        large: 0,
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut client = server.connect().await;
    for times in 1..=3 {
        let request = "POST /panic HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx";
        client.send(request).await;
        let answer = client.answer().await;
        assert!(answer.starts_with("http/1.1 500"), "{answer}");
        assert_eq!(line(&answer), r#"{"error":"internal error"}"#);
        assert_eq!(server.counters.panics(), times);
    }
    assert!(client.get("/").await.starts_with("http/1.1 200"));
}

#[tokio::test]
async fn a_large_body_is_answered_with_retry_after_while_others_hold_the_memory() {
    const LARGE: usize = 256 * 1024;
    let limits = Limits {
        // A quarter of it is for one address.
        bodies_bytes: 4 * LARGE,
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let announced = format!("Content-Length: {LARGE}");
    // These only announce.
    let mut announcing = Vec::new();
    for _ in 0..10 {
        let mut client = server.connect().await;
        client.send(&posted(&announced, "")).await;
        announcing.push(client);
    }
    let mut holding = server.connect().await;
    holding
        .send(&posted(&announced, &"x".repeat(LARGE - 1)))
        .await;
    let mut client = server.connect().await;
    let large = posted(&announced, &"x".repeat(LARGE));
    let mut answer = String::new();
    // The one that holds may not have been read yet.
    while !answer.starts_with("http/1.1 429") {
        client.send(&large).await;
        answer = client.answer().await;
    }
    too_many(&answer, "too many large requests at once");
    // An ordinary one is still read, on the same connection.
    client.send(&posted("Content-Length: 3", "abc")).await;
    assert_eq!(line(&client.answer().await), "3");
    holding.send("x").await;
    assert_eq!(line(&holding.answer().await), LARGE.to_string());
    client.send(&large).await;
    assert_eq!(line(&client.answer().await), LARGE.to_string());
}

/// As 4 MiB + 1 byte each and 64 MiB in all, at a sixteenth.
#[tokio::test]
async fn slow_large_bodies_do_not_block_reviews_of_others() {
    let limits = Limits {
        bodies_bytes: 4 << 20,
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let body = "x".repeat((256 << 10) + 1);
    let mut slow = Vec::new();
    // All of the memory, a quarter of it for each address, and more than that.
    for n in 0..32 {
        let from = Ipv4Addr::new(127, 0, 0, 2 + n % 5);
        let mut client = server.try_connect(from).await.unwrap();
        client.send(&posted("Content-Length: 524288", &body)).await;
        slow.push(client);
    }
    let mut honest = server.connect().await;
    let review = posted("Content-Length: 65536", &"x".repeat(64 << 10));
    for _ in 0..20 {
        honest.send(&review).await;
        assert_eq!(line(&honest.answer().await), "65536");
    }
}

#[tokio::test]
async fn a_peer_that_does_not_take_its_answer_is_cut_and_counted() {
    let limits = Limits {
        write: Duration::from_millis(200),
        // A quarter is more than the answer.
        answers_bytes: 1 << 30,
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut deaf = server.connect().await;
    deaf.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await;
    server.rejected(Rejection::WriteTimeout, 1).await;
    eventually(|| server.counters.open() == 0).await;
}

#[tokio::test]
async fn a_source_gets_no_further_answer_beyond_its_part_of_the_memory() {
    let server = Server::start(Limits {
        answers_bytes: 5 * (64 << 20),
        ..Limits::default()
    })
    .await;
    let request = "GET /large HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut deaf = server.connect().await;
    deaf.send(request).await;
    // Its first byte has come, so the answer is there.
    deaf.stream.read_u8().await.unwrap();
    let mut second = server.connect().await;
    second.send(request).await;
    too_many(
        &second.answer().await,
        "too many large answers that were not read",
    );
    assert_eq!(server.counters.rejected(Rejection::AnswerMemory), 1);
    // Small answers are free.
    assert!(second.get("/").await.starts_with("http/1.1 200"));
    drop(deaf);
}

fn posted(header: &str, body: &str) -> String {
    format!("POST /length HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n{body}")
}

fn line(answer: &str) -> &str {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    body.trim_end()
}

fn too_many(answer: &str, message: &str) {
    assert!(answer.starts_with("http/1.1 429"), "{answer}");
    assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    assert!(!answer.contains("connection: close"), "{answer}");
    assert_eq!(line(answer), format!("{{\"error\":\"{message}\"}}"));
}
