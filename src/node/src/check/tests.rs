use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;

fn pod() -> Pod {
    serde_json::from_value(json!({ "metadata": {}, "spec": {
        "initContainers": [{ "name": "proxy", "ports": [{ "name": "http", "containerPort": 21001 }] }],
        "containers": [{ "name": "c", "ports": [{ "name": "agent", "containerPort": 21000 }] }],
    } }))
    .unwrap()
}

fn of_probe(probe: Value) -> Option<Check> {
    let pod = pod();
    Check::of_probe(&pod, &pod.spec.as_ref().unwrap().containers[0], &serde_json::from_value(probe).unwrap())
}

#[test]
fn a_port_is_given_by_number_or_by_name() {
    let get = |port: u16, path: &str| Some(Check::Http { port, path: path.to_owned(), headers: Vec::new() });
    for (probe, expected) in [
        (json!({ "httpGet": { "path": "/x", "port": 80 } }), get(80, "/x")),
        (json!({ "httpGet": { "path": "x", "port": "agent" } }), get(21000, "/x")),
        (json!({ "httpGet": { "port": "http" } }), get(21001, "/")),
        (json!({ "httpGet": { "port": "gone" } }), None),
        (json!({ "httpGet": { "port": "agent", "scheme": "HTTPS" } }), Some(Check::Tcp(21000))),
        (json!({ "tcpSocket": { "port": "agent" } }), Some(Check::Tcp(21000))),
        (json!({ "grpc": { "port": 5 } }), Some(Check::Tcp(5))),
        (json!({ "exec": { "command": ["a", "b"] } }), Some(Check::Exec(vec!["a".into(), "b".into()]))),
        (json!({}), None),
    ] {
        assert_eq!(of_probe(probe.clone()), expected, "{probe}");
    }
}

/// Serves one response to each request, and returns the port and the last request.
async fn server(response: &'static str) -> (u16, tokio::sync::watch::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, requests) = tokio::sync::watch::channel(String::new());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 4096];
            let count = stream.read(&mut buffer).await.unwrap();
            sender.send_replace(String::from_utf8_lossy(&buffer[..count]).into_owned());
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    (port, requests)
}

async fn run(check: Check) -> Result<(), String> {
    let exec = |words: Vec<String>| async move { if words == ["ok"] { Ok(()) } else { Err("exit code 1".to_owned()) } };
    check.run(Duration::from_secs(5), exec).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_response_is_judged_by_its_status() {
    for (response, expected) in [
        ("HTTP/1.1 200 OK\r\n\r\n", Ok(())),
        ("HTTP/1.0 302 Found\r\n\r\n", Ok(())),
        ("HTTP/1.1 204\r\n\r\n", Ok(())),
        ("HTTP/1.1 503 No\r\n\r\n", Err("status 503")),
        ("HTTP/1.1 199 x\r\n\r\n", Err("status 199")),
        ("garbage\n", Err("no HTTP response")),
        ("", Err("no HTTP response")),
    ] {
        let (port, requests) = server(response).await;
        let headers = vec![("X-Key".to_owned(), "k".to_owned()), ("Bad".to_owned(), "a\r\nb".to_owned())];
        let found = run(Check::Http { port, path: "/p?q".to_owned(), headers }).await;
        match expected {
            Ok(()) => assert_eq!(found, Ok(()), "{response}"),
            Err(why) => assert!(found.clone().unwrap_err().contains(why), "{found:?}"),
        }
        let expected = format!(
            "GET /p?q HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: kube-probe/recif-dev\r\nX-Key: k\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(*requests.borrow(), expected);
    }
}

#[tokio::test]
async fn a_connection_or_a_program_may_be_enough() {
    let (port, _requests) = server("").await;
    assert_eq!(run(Check::Tcp(port)).await, Ok(()));
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert!(run(Check::Tcp(free)).await.unwrap_err().starts_with("connect to 127.0.0.1:"));
    assert_eq!(run(Check::Exec(vec!["ok".to_owned()])).await, Ok(()));
    assert_eq!(run(Check::Exec(vec!["no".to_owned()])).await, Err("exit code 1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn no_answer_in_time_is_a_failure() {
    let check = Check::Sleep(Duration::from_secs(10));
    let exec = |_| async { Ok(()) };
    assert!(matches!(check.run(Duration::from_secs(1), exec).await, Err(CheckError::Timeout(_))));
    assert!(check.run(Duration::from_secs(11), exec).await.is_ok());
}
