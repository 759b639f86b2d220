//! Tests of a sidecar on a developer's machine, to which a browser can connect too.

use super::*;

const LOCAL: &[(&str, &str)] = &[("RECIF_LOCAL", "true")];

#[tokio::test]
async fn what_a_web_page_sends_reaches_neither_the_workload_nor_the_sidecar() {
    let mut proxy = TestProxy::start(LOCAL).await;
    for fields in [
        "Host: evil.example",
        "Host: localhost\r\nOrigin: http://evil.example",
        "Host: localhost\r\nOrigin: null",
        "Host: localhost\r\nSec-Fetch-Site: same-site",
        "Host: localhost\r\nSec-Fetch-Site: cross-site",
    ] {
        for path in ["/chat", "/metrics", "/_recif/inflight", "/readyz"] {
            let request = format!("GET {path} HTTP/1.1\r\n{fields}\r\nConnection: close\r\n\r\n");
            let answer = proxy.answer(request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{path} {fields}: {answer}");
            assert!(answer.contains("x-recif-reason: foreign-origin\r\n"), "{path} {fields}: {answer}");
        }
    }
    assert!(proxy.accepted.try_recv().is_err(), "no connection reached the workload");
}

#[tokio::test]
async fn programs_of_the_machine_are_served() {
    let mut proxy = TestProxy::start(LOCAL).await;
    let (mut client, mut workload, head) = proxy.request(b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:21004\r\n\r\n").await;
    assert!(head.starts_with("GET /x HTTP/1.1\r\n"), "{head}");
    workload.write_all(OK).await.unwrap();
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 200 "));
    // The questions of gateway and scaler, and the hook of this program.
    let question = http1::get_request("/_recif/inflight", &[("Connection", "close")]);
    assert!(proxy.answer(&question).await.starts_with("HTTP/1.1 200 "));
    let variables: Vec<(&str, String)> =
        vec![("RECIF_LISTEN_ADDR", proxy.address.to_string()), ("RECIF_KEY", "key".to_owned())];
    let config =
        ProxyConfig::read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()));
    crate::hook::lame_duck(&config.unwrap()).await.unwrap();
}
