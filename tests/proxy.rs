//! Tests the binary of the sidecar from the view of the kubelet: start and shutdown.
#![allow(clippy::unwrap_used)]

use std::{process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    time::timeout,
};

/// Longest wait of every step.
const SOON: Duration = Duration::from_secs(10);

/// Returns the command of the binary with these environment variables and no others.
fn program(variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recif-proxy"));
    command.env_clear().envs(variables.iter().copied()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

#[tokio::test]
async fn a_bad_variable_is_named_and_nothing_is_served() {
    for (variable, value) in [("RECIF_TIMEOUT", "soon"), ("RECIF_CONCURRENCY", "-1"), ("RECIF_LISTEN_ADDR", "8888")] {
        let output = timeout(SOON, program(&[(variable, value)]).output()).await.unwrap().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(variable) && text.contains(value) && !text.contains("listening"), "{text}");
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = timeout(SOON, program(&[("RECIF_LISTEN_ADDR", &address)]).output()).await.unwrap().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&address) && text.contains("RECIF_LISTEN_ADDR"), "{text}");
}

#[tokio::test]
async fn it_ends_with_0_when_it_is_told_to_whatever_is_in_flight() {
    for signal in ["-TERM", "-INT"] {
        let workload = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = format!("http://{}", workload.local_addr().unwrap());
        let variables = [("RECIF_LISTEN_ADDR", "127.0.0.1:0"), ("RECIF_UPSTREAM_URL", upstream.as_str())];
        let mut proxy = program(&variables).spawn().unwrap();
        let mut client = TcpStream::connect(address(&mut proxy).await).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let (mut held, _) = timeout(SOON, workload.accept()).await.unwrap().unwrap();
        assert!(held.read(&mut [0; 1024]).await.unwrap() > 0, "a request is in flight");

        let pid = proxy.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
        let status = timeout(SOON, proxy.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(0));
    }
}

#[tokio::test]
async fn the_programs_own_hook_tells_it_that_the_pod_is_going() {
    let workload = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = format!("http://{}", workload.local_addr().unwrap());
    let mut variables =
        vec![("RECIF_LISTEN_ADDR", "127.0.0.1:0"), ("RECIF_UPSTREAM_URL", upstream.as_str()), ("RECIF_KEY", "key")];
    let mut proxy = program(&variables).spawn().unwrap();
    let address = address(&mut proxy).await;
    variables[0].1 = &address;
    let hook = async |variables: &[(&str, &str)]| {
        timeout(SOON, program(variables).arg("lame-duck").output()).await.unwrap().unwrap()
    };
    let reported = hook(&variables).await;
    assert!(reported.status.success(), "{reported:?}");
    let mut client = TcpStream::connect(&address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let (mut held, _) = timeout(SOON, workload.accept()).await.unwrap().unwrap();
    held.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(SOON, client.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.contains("Connection: close\r\n"), "it is a lame duck: {answer}");

    variables[2].1 = "another";
    let refused = hook(&variables).await;
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && text.contains("404") && text.contains("RECIF_KEY"), "{text}");
    assert!(!text.contains("another"), "{text}");
}

/// Returns the address that it logs.
async fn address(proxy: &mut Child) -> String {
    let mut lines = BufReader::new(proxy.stderr.take().unwrap()).lines();
    loop {
        let line = timeout(SOON, lines.next_line()).await.unwrap().unwrap().unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        if line["message"] == "listening" {
            return line["address"].as_str().unwrap().to_owned();
        }
    }
}
