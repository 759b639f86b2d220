//! What a runtime reports of calls that wait: headers for the gateway, and metrics.

use std::time::{Duration, Instant};

use crds::pending_calls::PendingCalls;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    Runner,
    approval::{Bank, approve, reject},
};

/// Longest wait for a sweep.
const SOON: Duration = Duration::from_secs(30);

impl Runner {
    /// Posts as the user `ada`.
    async fn post_as_ada(&self, path: &str, body: &Value) -> reqwest::Response {
        let request = self.client.post(self.url(path)).header("x-recif-user", "ada");
        request.body(body.to_string()).send().await.unwrap()
    }
}

/// Returns what a response says of calls that wait.
fn pending(response: &reqwest::Response) -> PendingCalls {
    PendingCalls::read(response.headers()["x-recif-approvals"].as_bytes()).unwrap()
}

fn decision(response: &reqwest::Response) -> Option<&str> {
    response.headers().get("x-recif-approval").map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn responses_say_what_waits_and_what_they_decided_on_and_metrics_what_became_of_it() {
    let bank = Bank::open().await;
    let runner = bank.agent(None).await;
    for (approvals, decided) in
        [(approve("call_1"), "approved=\"call_1\""), (reject("call_1", "no"), "rejected=\"call_1\"")]
    {
        let response = runner.post_as_ada("/chat", &json!({"message": "/tool pay {}"})).await;
        let (waits, now) = (pending(&response), Timestamp::now().as_second());
        assert_eq!((waits.calls, waits.until - waits.since), (1, 60));
        assert!((now - 60..=now).contains(&waits.since), "{waits}");
        assert_eq!(decision(&response), None);
        let asked: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        let task = asked["task"].as_str().unwrap();
        let path = format!("/approvals/{task}");
        let wrong = runner.post_as_ada(&path, &json!({"approvals": []})).await;
        assert_eq!((wrong.status().as_u16(), pending(&wrong).calls, decision(&wrong)), (400, 1, None));
        let response = runner.post_as_ada(&path, &json!({ "approvals": approvals })).await;
        assert_eq!((response.status().as_u16(), pending(&response).calls), (200, 0));
        assert_eq!(decision(&response), Some(&*format!("task=\"{task}\", {decided}")));
    }
    assert_eq!(runner.post_as_ada("/chat", &json!({"message": "/tool hasty {}"})).await.status(), 202);
    let begun = Instant::now();
    loop {
        let (_, metrics) = runner.get("/metrics").await;
        let has = |line: &str| metrics.lines().any(|found| found == line);
        let of = |outcome: &str| has(&format!("recif_runner_approvals_total{{outcome=\"{outcome}\"}} 1"));
        if of("expired") && has("recif_runner_approvals_pending 0") {
            assert!(of("approved") && of("rejected"), "{metrics}");
            break;
        }
        assert!(begun.elapsed() < SOON, "{metrics}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn the_trailer_of_a_stream_says_that_its_turn_waits() {
    let bank = Bank::open().await;
    let runner = bank.agent(None).await;
    let body = json!({"message": "/tool pay {}"}).to_string();
    let request = format!(
        "POST /chat HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\nTE: trailers\r\nConnection: TE\r\n\
         Content-Length: {}\r\n\r\n{body}",
        runner.address,
        body.len()
    );
    let mut io = TcpStream::connect(runner.address).await.unwrap();
    io.write_all(request.as_bytes()).await.unwrap();
    let (mut received, mut text) = (Vec::new(), String::new());
    while !(text.contains("\r\n0\r\n") && text.ends_with("\r\n\r\n")) {
        assert!(io.read_buf(&mut received).await.unwrap() > 0, "{text}");
        text = String::from_utf8(received.clone()).unwrap();
    }
    let (events, trailers) = text.rsplit_once("\r\n0\r\n").unwrap();
    assert!(events.contains("event: approval"), "{events}");
    let waits = trailers.lines().find_map(|line| line.strip_prefix("x-recif-approvals: ")).unwrap();
    assert_eq!(PendingCalls::read(waits.as_bytes()).map(|pending| pending.calls), Some(1), "{waits}");
}

#[tokio::test]
async fn an_agent_whose_tools_ask_no_one_says_nothing_of_calls_that_wait() {
    let runner = Runner::with_tools(json!([{"name": "datetime", "type": "builtin"}])).await;
    let response = runner.post_as_ada("/chat", &json!({"message": "hi"})).await;
    assert_eq!((response.status().as_u16(), response.headers().get("x-recif-approvals")), (200, None));
}
