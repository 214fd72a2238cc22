//! Who gets a connection, and for how long.

use super::*;

#[tokio::test]
async fn requests_are_answered_one_after_another_on_one_connection() {
    let server = Server::start(Limits::default()).await;
    let mut client = server.connect().await;
    for _ in 0..3 {
        let answer = client.get("/").await;
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }
    assert_eq!(
        client.stream.get_ref().1.alpn_protocol(),
        Some(&b"http/1.1"[..])
    );
    assert_eq!((server.counters.accepted(), server.counters.open()), (1, 1));
    drop(client);
    eventually(|| server.counters.open() == 0).await;
}

#[tokio::test]
async fn a_peer_that_sends_its_head_too_slowly_is_cut_and_counted() {
    let limits = Limits {
        first_request: Duration::from_millis(200),
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: loc").await;
    client.closed().await;
    server.rejected(Rejection::FirstRequestTimeout, 1).await;
}

#[tokio::test]
async fn a_connection_that_asked_in_time_lives_on_until_it_is_idle_for_too_long() {
    let limits = Limits {
        first_request: Duration::from_millis(300),
        idle: Duration::from_millis(900),
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut client = server.connect().await;
    client.get("/").await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    client.get("/").await;
    client.closed().await;
    assert_eq!(server.counters.rejected(Rejection::FirstRequestTimeout), 0);
}

#[tokio::test]
async fn a_silent_peer_blocks_no_other() {
    let server = Server::start(Limits::default()).await;
    let _silent = silent_peers(&server).await;
    server.connect().await.get("/").await;
    let cut = server.counters.rejected(Rejection::HandshakeTimeout);
    assert_eq!(
        cut, 0,
        "answered while the silent ones were still waited for"
    );
}

#[tokio::test]
async fn a_silent_peer_is_cut() {
    let limits = Limits {
        handshake: Duration::from_millis(300),
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut silent = silent_peers(&server).await;
    server.rejected(Rejection::HandshakeTimeout, 20).await;
    let n = silent[0].read(&mut [0; 1]).await.unwrap();
    assert_eq!(n, 0);
}

/// Connections on which nothing is ever said.
async fn silent_peers(server: &Server) -> Vec<TcpStream> {
    let peers = (0..20).map(|_| TcpStream::connect(server.address));
    futures::future::try_join_all(peers).await.unwrap()
}

#[tokio::test]
async fn without_a_certificate_handshakes_fail_and_are_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut server = Server::start(Limits::default()).await;
    server.address = listener.local_addr().unwrap();
    let (shutdown, counters) = (Shutdown::default(), server.counters.clone());
    let tls = tls_config(Arc::new(ServedCertificate::default()), None).unwrap();
    let task = serve(
        listener,
        tls,
        router(&Arc::default()),
        Limits::default(),
        shutdown,
        counters,
    );
    let task = tokio::spawn(task);
    assert!(server.try_connect(HERE).await.is_err());
    server.rejected(Rejection::HandshakeFailed, 1).await;
    task.abort();
}

#[tokio::test]
async fn a_new_certificate_is_for_new_handshakes_and_old_connections_go_on() {
    let server = Server::start(Limits::default()).await;
    let mut old = server.connect().await;
    old.get("/").await;
    let first = old.leaf();
    let second = server.new_leaf();
    assert_ne!(first, second);
    let mut new = server.connect().await;
    assert_eq!(new.leaf(), second);
    assert!(new.get("/").await.starts_with("http/1.1 200"));
    assert!(old.get("/").await.starts_with("http/1.1 200"));
    assert_eq!(old.leaf(), first);
}

#[tokio::test]
async fn the_plain_listener_answers_and_stops() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let task = tokio::spawn(serve_plain(listener, router(&Arc::default()), stop.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("hello"), "{answer}");
    stop.cancel();
    tokio::time::timeout(SOON, task)
        .await
        .expect("ends")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_full_listener_closes_an_idle_connection_of_the_largest_source_for_a_newcomer() {
    let limits = Limits {
        connections: 3,
        fair_chance: Duration::ZERO,
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut busy = server.connect().await;
    let endless = "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n";
    busy.send(endless).await;
    let mut idle = server.connect().await;
    idle.get("/").await;
    let mut newest = server.connect().await;
    newest.send(endless).await;
    eventually(|| server.endless.load(Ordering::Relaxed) == 2).await;
    let mut newcomer = server.try_connect(ELSEWHERE).await.unwrap();
    assert!(newcomer.get("/").await.starts_with("http/1.1 200"));
    idle.closed().await;
    assert_eq!(server.counters.rejected(Rejection::Evicted), 1);
    // Busy ones are not closed for a newcomer of their own address.
    assert!(server.try_connect(HERE).await.is_err());
    server.rejected(Rejection::OverCapacity, 1).await;
    drop(busy);
    eventually(|| server.counters.open() == 2).await;
    server.connect().await.get("/").await;
    assert_eq!(server.counters.rejected(Rejection::OverCapacity), 1);
}

#[tokio::test]
async fn one_address_cannot_keep_another_out() {
    let limits = Limits {
        connections_per_source: 3,
        fair_chance: SOON,
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(server.silent(ELSEWHERE).await.unwrap());
    }
    server.rejected(Rejection::PerAddress, 7).await;
    assert_eq!(server.counters.open(), 3);
    for _ in 0..5 {
        let mut client = server.connect().await;
        assert!(client.get("/").await.starts_with("http/1.1 200"));
        drop(client);
        eventually(|| server.counters.open() == 3).await;
    }
    assert_eq!(server.counters.rejected(Rejection::PerAddress), 7);
}

#[tokio::test]
async fn silent_peers_cannot_keep_out_an_honest_one_behind_the_same_address() {
    let limits = Limits {
        connections_per_source: 3,
        fair_chance: Duration::ZERO,
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut silent = Vec::new();
    for n in 1..=3 {
        silent.push(server.silent(HERE).await.unwrap());
        eventually(|| server.counters.accepted() == n).await;
    }
    let mut client = server.connect().await;
    assert!(client.get("/").await.starts_with("http/1.1 200"));
    assert_eq!(server.counters.rejected(Rejection::PerAddress), 1);
    assert_eq!(silent[2].read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn trusted_connections_of_one_address_are_limited_too() {
    let limits = Limits {
        connections_per_source: 4,
        fair_chance: Duration::ZERO,
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut first = server.connect().await;
    first.get("/").await;
    let mut others = Vec::new();
    for _ in 0..10 {
        let mut client = server.connect().await;
        assert!(client.get("/").await.starts_with("http/1.1 200"));
        others.push(client);
    }
    eventually(|| server.counters.open() == 4).await;
    assert_eq!(server.counters.rejected(Rejection::PerAddress), 7);
    // The connection that was there before all others.
    assert!(first.get("/").await.starts_with("http/1.1 200"));
}

#[tokio::test]
async fn peers_that_reset_hold_up_no_other() {
    let server = Server::start(Limits::default()).await;
    for _ in 0..200 {
        let stream = server.silent(HERE).await.unwrap();
        // Closing with no time to linger sends a reset.
        stream.set_zero_linger().unwrap();
    }
    assert!(
        server
            .connect()
            .await
            .get("/")
            .await
            .starts_with("http/1.1 200")
    );
    eventually(|| server.counters.open() == 0).await;
}

/// As an API server does after a restart of the webhook: --max-mutating-requests-inflight.
#[tokio::test]
async fn two_hundred_connections_at_once_from_one_address_are_all_served() {
    let server = Server::start(Limits::default()).await;
    let clients = (0..200).map(async |_| {
        let mut client = server.connect().await;
        assert!(client.get("/").await.starts_with("http/1.1 200"));
        client
    });
    let clients = futures::future::join_all(clients).await;
    assert_eq!(server.counters.open(), 200);
    drop(clients);
    for (reason, name) in Rejection::ALL {
        assert_eq!(server.counters.rejected(reason), 0, "{name}");
    }
}
