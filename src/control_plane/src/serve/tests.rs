use axum::{body::Body, routing::get};
use bytes::Bytes;
use futures::stream;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
};

use super::*;
use crate::stream_body::{self, BodyChunk};

async fn start(router: Router, unread: Duration) -> (std::net::SocketAddr, CancellationToken) {
    bounded(router, (MAX_CONNECTIONS, unread)).await
}

async fn bounded(router: Router, bounds: (usize, Duration)) -> (std::net::SocketAddr, CancellationToken) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    tokio::spawn(run_bounded(listener, None, router, stop.clone(), bounds));
    (address, stop)
}

/// Sends a request as raw text and returns all bytes until the end of the connection.
async fn answer(address: std::net::SocketAddr, asked: &'static str) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(asked.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Sends a message when it is dropped.
struct DropNotifier(mpsc::Sender<()>);

impl Drop for DropNotifier {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_dropped() {
    let (held, mut gone) = mpsc::channel(1);
    let endless = move || {
        let held = DropNotifier(held.clone());
        let piece = |held| async { Some((Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 4096])), held)) };
        async move { Body::from_stream(stream::unfold(held, piece)) }
    };
    let (address, stop) = start(Router::new().route("/", get(endless)), Duration::from_millis(300)).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    let dropped = timeout(Duration::from_secs(60), gone.recv()).await;
    assert_eq!(dropped, Ok(Some(())), "the server still sends");
    stop.cancel();
}

#[tokio::test]
async fn further_connections_wait_until_one_ends() {
    let (address, stop) = bounded(Router::new().route("/", get(|| async { "here" })), (2, WRITE_TIMEOUT)).await;
    let (first, second) = (TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap());
    let asked = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let third = tokio::spawn(answer(address, asked));
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!third.is_finished(), "it is not taken yet");
    drop(first);
    assert!(timeout(Duration::from_secs(60), third).await.unwrap().unwrap().ends_with("here"));
    drop(second);
    stop.cancel();
}

#[tokio::test]
async fn what_is_under_way_ends_before_the_process() {
    let (reached, mut is_reached) = mpsc::channel(1);
    let (go, may) = tokio::sync::watch::channel(false);
    let slow = move || {
        let (mut may, reached) = (may.clone(), reached.clone());
        async move {
            reached.send(()).await.unwrap();
            may.wait_for(|may| *may).await.unwrap();
            "done"
        }
    };
    let (address, stop) = start(Router::new().route("/", get(slow)), WRITE_TIMEOUT).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    is_reached.recv().await.unwrap();
    stop.cancel();
    go.send(true).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("done"), "{answer}");
}

/// Returns a streamed response of three chunks, without a length.
async fn three() -> axum::response::Response {
    stream_body::response(Box::pin(stream::iter(["one ", "two ", "three"].map(|data| BodyChunk::new(data.as_bytes())))))
}

#[tokio::test]
async fn an_answer_without_a_length_comes_in_chunks_to_those_who_know_them() {
    let (address, stop) = start(Router::new().route("/", get(three)), WRITE_TIMEOUT).await;
    let newer = answer(address, "GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let (head, body) = newer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    for field in ["connection: close", "transfer-encoding: chunked", "date: "] {
        assert!(head.lines().any(|line| line.starts_with(field)), "{field} is not in {head}");
    }
    assert!(!head.contains("content-length"), "{head}");
    assert_eq!(body, "4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n");
    let older = answer(address, "GET / HTTP/1.0\r\n\r\n").await;
    let (head, body) = older.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("transfer-encoding"), "{head}");
    assert_eq!(body, "one two three");
    stop.cancel();
}

#[tokio::test]
async fn a_connection_goes_on_after_a_head_request() {
    let (address, stop) = start(Router::new().route("/", get(three)), WRITE_TIMEOUT).await;
    let asked = "HEAD / HTTP/1.1\r\nHost: h\r\n\r\nHEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let both = answer(address, asked).await;
    assert_eq!(both.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{both}");
    assert!(!both.contains("three"), "{both}");
    stop.cancel();
}

#[tokio::test]
async fn answers_to_what_was_asked_before_come_first() {
    let long = "x".repeat(8 << 20);
    let length = long.len();
    let router = Router::new().route("/", get(three)).route("/long", get(|| async { long }));
    let (address, stop) = start(router, WRITE_TIMEOUT).await;
    let asked = "GET /long HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let both = answer(address, asked).await;
    let (_, rest) = both.split_once("\r\n\r\n").unwrap();
    let (first, second) = rest.split_at(length);
    assert!(first.bytes().all(|byte| byte == b'x'), "something is between");
    assert!(second.starts_with("HTTP/1.1 200 OK\r\n") && second.ends_with("three\r\n0\r\n\r\n"), "{second}");
    stop.cancel();
}

/// Starts a server whose streamed response never ends, with chunks of so many bytes and a pause before each. Returns a client
/// that has read the head's beginning, and a receiver that reports the drop of the stream.
async fn without_end(
    size: usize,
    pause: Duration,
    unread: Duration,
) -> (TcpStream, mpsc::Receiver<()>, CancellationToken) {
    let (held, gone) = mpsc::channel(1);
    let endless = move || {
        let pieces = stream::unfold(DropNotifier(held.clone()), move |held| async move {
            sleep(pause).await;
            Some((BodyChunk::new(&vec![b'x'; size]), held))
        });
        async move { stream_body::response(Box::pin(pieces)) }
    };
    let (address, stop) = start(Router::new().route("/", get(endless)), unread).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    client.read_exact(&mut [0; 17]).await.unwrap();
    (client, gone, stop)
}

#[tokio::test]
async fn an_answer_without_end_ends_with_its_client() {
    let (mut client, mut gone, stop) = without_end(1, Duration::from_secs(3600), WRITE_TIMEOUT).await;
    // The second request is not answered.
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    drop(client);
    let dropped = timeout(Duration::from_secs(60), gone.recv()).await;
    assert_eq!(dropped, Ok(Some(())), "the server goes on");
    stop.cancel();
}

#[tokio::test]
async fn an_answer_without_end_is_not_kept_for_a_client_that_reads_nothing() {
    let (client, mut gone, stop) = without_end(4096, Duration::ZERO, Duration::from_millis(300)).await;
    let dropped = timeout(Duration::from_secs(60), gone.recv()).await;
    assert_eq!(dropped, Ok(Some(())), "the server still sends");
    drop(client);
    stop.cancel();
}
