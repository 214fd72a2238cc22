//! Draining and stopping.

use super::*;

#[tokio::test]
async fn while_draining_answers_say_close_and_new_connections_are_still_served() {
    let server = Server::start(Limits::default()).await;
    let mut old = server.connect().await;
    old.get("/").await;
    server.shutdown.draining.cancel();
    // An idle connection is not closed under its owner's feet.
    let answer = old.get("/").await;
    assert!(answer.contains("connection: close"), "{answer}");
    old.closed().await;
    let answer = server.connect().await.get("/").await;
    assert!(
        answer.starts_with("http/1.1 200") && answer.contains("connection: close"),
        "{answer}"
    );
}

#[tokio::test]
async fn at_the_stop_what_is_in_work_is_finished_and_idle_connections_are_closed() {
    let server = Server::start(Limits::default()).await;
    let mut idle = server.connect().await;
    idle.get("/").await;
    let mut fresh = server.connect().await;
    let mut busy = server.connect().await;
    busy.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.shutdown.draining.cancel();
    server.shutdown.stop.cancel();
    idle.closed().await;
    fresh.closed().await;
    let answer = busy.answer().await;
    assert!(
        answer.ends_with("slow") && answer.contains("connection: close"),
        "{answer}"
    );
    tokio::time::timeout(SOON, server.task)
        .await
        .expect("ends")
        .unwrap()
        .unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
    assert_eq!(server.counters.open(), 0);
}

#[tokio::test]
async fn what_does_not_finish_is_cut_at_the_end_of_the_drain_time() {
    let limits = Limits {
        drain: Duration::from_millis(100),
        ..Limits::default()
    };
    let server = Server::start(limits).await;
    let mut busy = server.connect().await;
    busy.send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.shutdown.stop.cancel();
    tokio::time::timeout(SOON, server.task)
        .await
        .expect("ends")
        .unwrap()
        .unwrap();
    busy.closed().await;
}

#[tokio::test]
async fn when_the_future_is_dropped_every_connection_and_the_thread_end() {
    let server = Server::start(Limits::default()).await;
    let mut busy = server.connect().await;
    busy.send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut silent = server.silent(HERE).await.unwrap();
    eventually(|| server.counters.open() == 2).await;
    server.task.abort();
    busy.closed().await;
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert!(TcpStream::connect(server.address).await.is_err());
    // The thread held them, too.
    eventually(|| Arc::strong_count(&server.counters) == 1).await;
    assert_eq!(server.counters.open(), 0);
}
