//! Tests malformed requests and requests that two servers could parse differently (request smuggling): sidecar and gateway
//! refuse them and never forward them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{interval, timeout},
};

use super::traffic::{await_response, send_request, targets_of};
use crate::{
    client::ClientTarget,
    manifests::workload,
    namespace::Namespace,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    bad_requests_are_refused_and_never_passed_on,
    what_a_server_could_take_for_more_stays_behind,
);

/// Longest wait for the response and the end of the connection. The head of a request may take 10 s.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Placeholder for the prefix of the workload's paths.
const AT: &str = "@";

/// Invalid request lines, each sent with a valid Host.
const LINES: &[&str] = &[
    "GET @/seen HTTP/1.2",
    "GET @/seen HTTP/2.0",
    "GET @/seen http/1.1",
    "GET @/seen",
    "get @/seen HTTP/1.1",
    "GE(T @/seen HTTP/1.1",
    "GET  @/seen HTTP/1.1",
    "GET @/seen  HTTP/1.1",
    "GET seen HTTP/1.1",
    "GET @/seen#part HTTP/1.1",
    "GET @/se\x7fen HTTP/1.1",
    "GET @/se\0en HTTP/1.1",
    "GET @/seen\n HTTP/1.1",
    "CONNECT seen:80 HTTP/1.1",
    "GET http://elsewhere.example@/seen HTTP/1.1",
    "GET @/seen/../seen HTTP/1.1",
    "GET @/./seen HTTP/1.1",
    "GET @/seen/%2e%2E/seen HTTP/1.1",
    "GET @/seen/.%2e/x HTTP/1.1",
    "GET @/seen/..%2fseen HTTP/1.1",
];

/// Header lines that make a request invalid, each after a valid request line and Host.
const HEADERS: &[&str] = &[
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "Content-Length: 5\r\nContent-Length: 6\r\n",
    "Content-Length: 5, 6\r\n",
    "Transfer-Encoding: chunked, gzip\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    "Content-Length: +5\r\n",
    "Content-Length: -5\r\n",
    "Content-Length: 0x5\r\n",
    "Content-Length: 5 5\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "Content-Length:\r\n",
    "X-Folded: a\r\n b\r\n",
    "X-Bare: a\rb\r\n",
    "X-Bare: a\nX-Next: b\r\n",
    "X-Nul: a\0b\r\n",
    "X-Space : a\r\n",
    " X-First: a\r\n",
    "X-No-Colon\r\n",
    ": no name\r\n",
    "Host: second.example\r\n",
    "Connection: close, Host\r\n",
    "Connection: Content-Length\r\nContent-Length: 0\r\n",
    "Connection: Transfer-Encoding\r\n",
    "Connection: X-Forwarded-For\r\nX-Forwarded-For: 192.0.2.1\r\n",
    "Connection: Authorization\r\n",
];

/// Invalid chunked bodies.
const CHUNKS: &[&str] = &[
    "x\r\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "-5\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    "5\nhello\r\n0\r\n\r\n",
    "5\r\nhello!\r\n0\r\n\r\n",
    "ffffffffffffffffffff\r\n",
    "\r\n",
];

async fn bad_requests_are_refused_and_never_passed_on(ns: Namespace) -> Result<()> {
    ns.start(&workload("strict", json!({}))).await?;
    let targets = targets_of(&ns, "strict").await?;
    for target in &targets {
        await_response(&ns, target).await?;
    }
    let before = completed(&ns, &targets[0]).await?;
    let sent = targets.clone();
    let inside = ns.env.netns().await?;
    let failures = inside.run(async move {
        let all = sent.iter().flat_map(|target| {
            let cases = cases(target).into_iter().map(move |(bytes, expected)| check_response(target, bytes, expected));
            cases.map(futures::FutureExt::boxed).chain([futures::FutureExt::boxed(slow(target))])
        });
        let failed = join_all(all).await.into_iter().filter_map(Result::err);
        Ok(failed.map(|error| format!("{error:#}")).collect::<Vec<_>>())
    });
    let failures = failures.await?;
    ensure!(failures.is_empty(), "{} bad requests were not refused:\n    {}", failures.len(), failures.join("\n    "));
    for target in &targets {
        await_response(&ns, target).await?;
    }
    // The requests of the last `await_response` calls are the only ones that have reached the workload.
    let after = completed(&ns, &targets[0]).await?;
    ensure!(after == before + targets.len() as u64, "the workload got {} requests more", after - before);
    Ok(())
}

/// Header lines that a proxy must not forward, each with its line end.
const LEFT_OUT: &[&str] = &[
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAABAAAAIAAAAB\r\n",
    "Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAABAAAAIAAAAB\r\n",
    "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n",
    "X_Recif_User: smuggled\r\nX-Recif_User: smuggled\r\nX_Forwarded_For: smuggled\r\n",
    "Trailer: X-Recif-User\r\n",
];

async fn what_a_server_could_take_for_more_stays_behind(ns: Namespace) -> Result<()> {
    ns.start(&workload("literal", json!({}))).await?;
    for target in targets_of(&ns, "literal").await? {
        await_response(&ns, &target).await?;
        for fields in LEFT_OUT {
            let target = ClientTarget { headers: format!("{}{fields}", target.headers), ..target.clone() };
            let answer = send_request(&ns, &target, "GET", "/seen").await?;
            let seen = answer.text.to_lowercase();
            let found = ["upgrade", "h2c", "http2", "smuggled", "\"trailer\""].iter().find(|word| seen.contains(*word));
            ensure!(answer.status == 200 && found.is_none(), "through the {}: {found:?} of {fields:?}", target.route);
        }
        let ClientTarget { address, prefix, headers, route: way } = target;
        let inside = ns.env.netns().await?;
        let answer = inside.run(async move {
            let mut io = TcpStream::connect(address).await?;
            let chunks = "2\r\n{}\r\n0\r\nX-Recif-User: smuggled\r\nX-Pad: 1\r\n\r\n";
            let head = format!("POST {prefix}/seen HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\n");
            io.write_all(format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}").as_bytes()).await?;
            read_to_close(&mut io).await
        });
        let answer = answer.await?;
        ensure!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("smuggled"), "through the {way}: trailers");
    }
    Ok(())
}

/// Returns how many requests the workload has answered, once it counts none as in flight: it counts a request after the response has been
/// sent.
async fn completed(ns: &Namespace, target: &ClientTarget) -> Result<u64> {
    poll(TIMEOUT, "nothing in flight", || async {
        let stats = send_request(ns, target, "GET", "/stats").await?;
        let stats: Value = serde_json::from_str(&stats.text).with_context(|| format!("{stats:?}"))?;
        ensure!(stats["inFlight"] == 0, "{stats}");
        stats["completed"].as_u64().context("no count").map(Some)
    })
    .await
}

/// Returns every bad request with the status codes that are expected for it.
fn cases(target: &ClientTarget) -> Vec<(Vec<u8>, &'static [u16])> {
    let ClientTarget { address, prefix, headers, .. } = target;
    let host = format!("Host: {address}\r\n{headers}");
    let line = "GET @/seen HTTP/1.1";
    let with = |line: &str, host: &str, rest: &str| format!("{line}\r\n{host}{rest}").replace(AT, prefix).into_bytes();
    let mut cases: Vec<(Vec<u8>, &[u16])> = Vec::new();
    for line in LINES {
        // 505 is the status for a wrong version, 405 that for CONNECT.
        cases.push((with(line, &host, "\r\n"), &[400, 405, 505]));
    }
    for bad in HEADERS {
        cases.push((with(line, &host, &format!("{bad}\r\nhello")), &[400]));
    }
    for chunks in CHUNKS {
        let rest = format!("Transfer-Encoding: chunked\r\n\r\n{chunks}");
        cases.push((with("POST @/chat HTTP/1.1", &host, &rest), &[400]));
    }
    cases.push((with(line, headers, "\r\n"), &[400]));
    cases.push((with(line, &host, &format!("X-Large: {}\r\n\r\n", "a".repeat(70_000))), &[431]));
    cases.push((with(line, &host, &format!("{}\r\n", "X-Many: a\r\n".repeat(8_000))), &[431]));
    cases
}

/// Sends a request and checks that it is refused with exactly one response, and that the connection is closed.
async fn check_response(target: &ClientTarget, bytes: Vec<u8>, expected: &[u16]) -> Result<()> {
    let shown = || {
        // The token must not appear in the output.
        let text = String::from_utf8_lossy(&bytes).replace(target.headers.as_str(), "");
        format!("through the {}: {:?}", target.route, text.chars().take(160).collect::<String>())
    };
    let mut io = TcpStream::connect(target.address).await?;
    let (mut reading, mut writing) = io.split();
    // A server that refuses a large head need not read all of it.
    let write = async { drop(writing.write_all(&bytes).await) };
    let ((), answer) = tokio::join!(write, read_to_close(&mut reading));
    let answer = answer.with_context(shown)?;
    check_refusal(&answer, expected).with_context(shown)
}

/// Sends one byte per second.
async fn slow(target: &ClientTarget) -> Result<()> {
    let mut io = TcpStream::connect(target.address).await?;
    let (mut reading, mut writing) = io.split();
    let write = async {
        let mut seconds = interval(Duration::from_secs(1));
        for byte in format!("GET {}/seen HTTP/1.1\r\nHost: slow.example\r\n\r\n", target.prefix).bytes() {
            seconds.tick().await;
            if writing.write_all(&[byte]).await.is_err() {
                break;
            }
        }
        std::future::pending().await
    };
    let answer = tokio::select! {
        answer = read_to_close(&mut reading) => answer,
        () = write => return Ok(()),
    };
    let shown = || format!("through the {}: a byte a second", target.route);
    check_refusal(&answer.with_context(shown)?, &[408]).with_context(shown)
}

/// Reads until the connection is closed or reset.
async fn read_to_close(io: &mut (impl tokio::io::AsyncRead + Unpin)) -> Result<String> {
    let mut bytes = Vec::new();
    let ended = timeout(TIMEOUT, io.read_to_end(&mut bytes)).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    ensure!(ended.is_ok(), "the connection is still open after {text:?}");
    Ok(text)
}

fn check_refusal(answer: &str, expected: &[u16]) -> Result<()> {
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    ensure!(status.is_some_and(|status| expected.contains(&status)), "answered with {answer:?}");
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let reason = serde_json::from_str::<Value>(body).map(|body| body["reason"].clone()).unwrap_or_default();
    ensure!(reason.is_string(), "something else than one answer: {answer:?}");
    Ok(())
}
