//! Variables of this process that Pods get, too.

use std::collections::BTreeMap;

use crate::config::{ExportProtocol, TelemetryConfig, TelemetryError};

/// Variables that are handed on as they are. Headers and certificates are not: a key would reach every namespace.
const HANDED: [&str; 15] = [
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_EXPORTER_OTLP_COMPRESSION",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SDK_DISABLED",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
];
/// Variable with the encoding. SDKs of others default to gRPC, which the collector's HTTP port does not speak.
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";

/// Returns the variables of OpenTelemetry that Pods get from the operator, whose own `lookup` reads; none without a collector.
///
/// # Errors
/// The first variable that is refused.
pub fn pod_variables(lookup: &dyn Fn(&str) -> Option<String>) -> Result<BTreeMap<String, String>, TelemetryError> {
    let config = TelemetryConfig::read(lookup)?;
    if config.endpoint.is_none() {
        return Ok(BTreeMap::new());
    }
    let value = |name: &str| lookup(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let handed = HANDED.into_iter().filter_map(|name| value(name).map(|value| (name.to_owned(), value)));
    let mut variables: BTreeMap<_, _> = handed.collect();
    let protocol = match config.protocol {
        ExportProtocol::Protobuf => "http/protobuf",
        ExportProtocol::Json => "http/json",
    };
    variables.insert(PROTOCOL.to_owned(), protocol.to_owned());
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_get_the_collector_and_no_key() {
        let lookup = |name: &str| {
            let value = match name {
                "OTEL_EXPORTER_OTLP_ENDPOINT" => "http://collector:4318",
                "OTEL_EXPORTER_OTLP_HEADERS" => "authorization=geheim",
                "OTEL_EXPORTER_OTLP_CERTIFICATE" => "/ca.pem",
                "OTEL_SERVICE_NAME" => "operator",
                "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" => "true",
                "OTEL_TRACES_SAMPLER" => " always_on ",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let found = pod_variables(&lookup).unwrap();
        let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            found,
            [
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
                ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"),
                ("OTEL_TRACES_SAMPLER", "always_on"),
            ]
        );
        assert_eq!(pod_variables(&|_| None), Ok(BTreeMap::new()));
        assert!(pod_variables(&|name| name.ends_with("_ENDPOINT").then(|| "x".to_owned())).is_err());
    }
}
