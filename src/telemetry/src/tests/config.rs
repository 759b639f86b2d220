//! The environment, variable by variable.

use std::time::Duration;

use crate::{ExportProtocol, Sampler, TelemetryConfig, TelemetryError};

const A_COLLECTOR: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");

fn read(variables: &[(&str, &str)]) -> Result<TelemetryConfig, TelemetryError> {
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    TelemetryConfig::read(&lookup)
}

fn endpoint(variables: &[(&str, &str)]) -> Option<String> {
    read(variables).unwrap().endpoint.map(String::from)
}

#[test]
fn without_variables_nothing_is_exported() {
    assert_eq!(read(&[]).unwrap(), TelemetryConfig::default());
    assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]).unwrap(), TelemetryConfig::default());
    let unused = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_TRACES_SAMPLER", "xray")];
    assert_eq!(read(&unused).unwrap(), TelemetryConfig::default(), "variables for other programs are ignored");
    let all_refused = [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    assert_eq!(read(&all_refused).unwrap(), TelemetryConfig::default());
}

#[test]
fn the_path_of_traces_is_added_to_a_collector_and_not_to_an_address_for_traces() {
    let (all, traces) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    for (variables, expected) in [
        (&[(all, "http://c:4318")][..], "http://c:4318/v1/traces"),
        (&[(all, "https://c/otlp/")][..], "https://c/otlp/v1/traces"),
        (&[(traces, "http://c:4318/x")][..], "http://c:4318/x"),
        (&[(all, "http://c:4318"), (traces, "https://d")][..], "https://d/"),
    ] {
        assert_eq!(endpoint(variables).unwrap(), expected);
    }
}

#[test]
fn each_variable_is_read() {
    let config = read(&[
        A_COLLECTOR,
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20x, x-tenant = a"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
        ("RECIF_OTLP_TOKEN_FILE", "/token"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_TRACES_SAMPLER", "traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "64"),
        ("OTEL_BSP_SCHEDULE_DELAY", "5"),
        ("OTEL_SERVICE_NAME", "own"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team=c,team=a%2Cb,service.name=theirs"),
    ])
    .unwrap();
    assert_eq!(config.protocol, ExportProtocol::Json);
    assert_eq!(config.headers["authorization"], "Bearer x");
    assert_eq!(config.headers["x-tenant"], "a");
    assert_eq!(config.token_file, Some("/token".into()));
    assert!(!format!("{config:?}").contains("Bearer"), "a header is never printed");
    assert_eq!((config.timeout, config.delay), (Duration::from_millis(2500), Duration::from_millis(5)));
    assert!(!config.has_compression && config.captures_content);
    assert_eq!(Some(config.sampler), Sampler::named("traceidratio", 0.25));
    assert_eq!((config.max_queue, config.max_batch), (64, 64));
    let resource = config.resource_of(&[("service.name", "ours".to_owned())]);
    assert_eq!(resource, [("service.name".to_owned(), "ours".to_owned()), ("team".to_owned(), "a,b".to_owned())]);
    let theirs = [A_COLLECTOR, ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "7"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "9")];
    let theirs = read(&theirs).unwrap();
    assert_eq!(theirs.timeout, Duration::from_millis(7), "the one for traces goes first");
}

#[test]
fn content_is_captured_only_when_it_is_asked_for() {
    let name = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
    for (value, expected) in [("", false), ("false", false), ("FALSE", false), ("true", true), (" True ", true)] {
        assert_eq!(read(&[A_COLLECTOR, (name, value)]).unwrap().captures_content, expected, "{value:?}");
    }
    assert!(!read(&[A_COLLECTOR]).unwrap().captures_content);
    assert!(!read(&[(name, "true")]).unwrap().captures_content, "no span holds it without a collector");
}

#[test]
fn what_is_refused_is_told_with_what_to_write_instead() {
    let a_url = "is refused: give a URL such as http://collector:4318";
    for (name, value, expected) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", a_url),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/?key=geheim", a_url),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://ada:geheim@collector:4318", a_url),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "grpc://geheim", a_url),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "grpc is not spoken: use the collector's HTTP port, usually 4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http", "is refused: give http/protobuf or http/json"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "geheim", "is refused: give name=value, separated by commas"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a b=geheim", "is refused: give name=value, separated by commas"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "is refused: give milliseconds, from 1 to 600000"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "is refused: give gzip or none"),
        ("OTEL_TRACES_SAMPLER", "xray", "is refused: give always_on, always_off,"),
        ("OTEL_TRACES_SAMPLER_ARG", "1.5", "is refused: give a number from 0 to 1, such as 0.25"),
        ("OTEL_TRACES_SAMPLER_ARG", "NaN", "is refused: give a number from 0 to 1, such as 0.25"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "65537", "is refused: give a number from 1 to 65536"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096", "is refused: give at most OTEL_BSP_MAX_QUEUE_SIZE"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team", "is refused: give name=value, separated by commas"),
        ("OTEL_SDK_DISABLED", "1", "is refused: give true or false"),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY", "is refused: give true or false"),
    ] {
        let text = read(&[(name, value), A_COLLECTOR]).unwrap_err().to_string();
        assert!(text.starts_with(name) && text.contains(expected), "{text}");
        assert!(!text.contains("geheim"), "{text}");
    }
}
