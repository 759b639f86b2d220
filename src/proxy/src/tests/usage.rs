//! Tests that the usage which an image of others reports is counted by its sidecar.

use serde_json::Value;
use tokio::net::TcpSocket;

use super::*;

/// Returns the request of the control plane.
fn question() -> String {
    let key = crds::usage::usage_key("key").unwrap();
    let target = "/_recif/usage?instance=&after=0";
    format!("GET {target} HTTP/1.1\r\nHost: a\r\nX-Recif-Key: {key}\r\nConnection: close\r\n\r\n")
}

/// Lets the workload send this to a request of a user, and waits until the client has it.
async fn serve(proxy: &mut TestProxy, user: &str, answer: &str) {
    let request = format!("GET /x HTTP/1.1\r\nHost: h\r\nX-Recif-User: {user}\r\nConnection: close\r\n\r\n");
    let (mut client, mut workload, _) = proxy.request(request.as_bytes()).await;
    workload.write_all(answer.as_bytes()).await.unwrap();
    let mut received = String::new();
    timeout(SOON, client.read_to_string(&mut received)).await.unwrap().unwrap();
    assert!(received.starts_with("HTTP/1.1 200 "), "{received}");
}

#[tokio::test]
async fn what_the_responses_of_an_image_report_is_told_to_the_control_plane() {
    let mut proxy = TestProxy::start(&[("RECIF_KIND", "Agent")]).await;
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n";
    let stream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n";
    serve(&mut proxy, "ada", &format!("{head}x-recif-usage: in=7, out=5, model=\"p/m\"\r\n\r\n")).await;
    serve(&mut proxy, "ada", &format!("{stream}X-Recif-Usage: in=3, out=1, model=\"p/m\"\r\n\r\n")).await;
    serve(&mut proxy, "ben", &format!("{head}\r\n")).await;

    let answer = proxy.answer(question().as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let report: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let [cell] = &report["cells"].as_array().unwrap()[..] else { panic!("{report}") };
    let names = ["caller", "provider", "model"].map(|name| cell["key"][name].as_str().unwrap());
    assert_eq!(names, ["ada", "p", "m"], "{report}");
    let numbers = ["calls", "input", "output"].map(|name| cell["totals"][name].as_u64().unwrap());
    assert_eq!(numbers, [2, 10, 6], "{report}");

    let mut server = TestProxy::start(&[("RECIF_KIND", "MCPServer")]).await;
    serve(&mut server, "ada", &format!("{head}x-recif-usage: in=7, out=5\r\n\r\n")).await;
    assert!(server.answer(question().as_bytes()).await.starts_with("HTTP/1.1 404 "), "it has no model");
}

#[tokio::test]
async fn a_runner_that_counts_by_itself_is_asked() {
    let mut proxy = TestProxy::start(&[("RECIF_KIND", "Agent")]).await;
    let counts = "x-recif-usage: in=7, out=5\r\nx-recif-spent: day=20784, run=\"5\", all=12\r\n";
    serve(&mut proxy, "ada", &format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{counts}\r\n")).await;
    serve(&mut proxy, "ada", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nx-recif-usage: in=7, out=5\r\n\r\n").await;
    let (mut client, mut workload, head) = proxy.request(question().as_bytes()).await;
    assert!(head.starts_with("GET /_recif/usage?"), "{head}");
    let body = r#"{"instance":"7","revision":1,"cells":[]}"#;
    let answer = format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}");
    workload.write_all(answer.as_bytes()).await.unwrap();
    drop(workload);
    let mut received = String::new();
    timeout(SOON, client.read_to_string(&mut received)).await.unwrap().unwrap();
    assert!(received.ends_with(body), "{received}");
}

#[tokio::test]
async fn an_image_that_answers_any_path_with_json_is_counted_all_the_same() {
    let mut proxy = TestProxy::start(&[("RECIF_KIND", "Agent")]).await;
    let (mut client, mut workload, _) = proxy.request(question().as_bytes()).await;
    let answer = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"status\":\"ok\"}";
    workload.write_all(answer).await.unwrap();
    drop(workload);
    let mut received = String::new();
    timeout(SOON, client.read_to_string(&mut received)).await.unwrap().unwrap();
    assert!(received.starts_with("HTTP/1.1 404 "), "{received}");
    serve(&mut proxy, "ada", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nx-recif-usage: in=7, out=5\r\n\r\n").await;
    let report = proxy.answer(question().as_bytes()).await;
    assert!(report.starts_with("HTTP/1.1 200 ") && report.contains("\"input\":7"), "{report}");
}

#[tokio::test]
async fn a_workload_that_does_not_respond_is_not_taken_for_one_that_does_not_count() {
    // Bound, but not listening.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let starting = TestProxy::before(socket.local_addr().unwrap(), &[("RECIF_KIND", "Agent")]).await;
    let answer = starting.answer(question().as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");

    let mut busy = TestProxy::start(&[("RECIF_KIND", "Agent")]).await;
    let (mut client, _workload, _) = busy.request(question().as_bytes()).await;
    let mut answer = String::new();
    timeout(SOON, client.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");

    for (begun, status) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 404 "),
        ("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"instance\":", "HTTP/1.1 503 "),
    ] {
        let (mut client, mut workload, _) = busy.request(question().as_bytes()).await;
        workload.write_all(begun.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(SOON, client.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with(status), "its connection stays open after {begun}: {answer}");
    }
}
