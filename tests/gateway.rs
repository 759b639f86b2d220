//! Tests the process of the gateway from the view of the kubelet.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tokio::{process::Command, time::timeout};

/// Longest wait for the end of the process.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_bad_variable_of_opentelemetry_is_named_and_nothing_is_served() {
    for (variable, value, expected) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:canary@collector:4318", "a URL such as http://collector:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "the collector's HTTP port"),
        ("OTEL_TRACES_SAMPLER", "sometimes", "parentbased_always_on"),
    ] {
        let mut gateway = Command::new(env!("CARGO_BIN_EXE_recif"));
        gateway.args(["gateway", "--auth", "none", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        gateway.env_clear().env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318").env(variable, value);
        let output = timeout(SOON, gateway.kill_on_drop(true).output()).await.unwrap().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(variable) && text.contains(expected) && !text.contains("canary"), "{text}");
    }
}
