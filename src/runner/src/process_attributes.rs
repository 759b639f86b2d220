//! Attributes of this process for its spans.

use std::env;

use telemetry::TelemetryConfig;
use telemetry::semconv::{K8S_NAMESPACE_NAME, K8S_POD_NAME, RECIF_KIND, RECIF_NAME, SERVICE_NAME};

/// Returns the attributes of this process for its spans.
pub(super) fn process_attributes(
    config: &TelemetryConfig,
    kind: &'static str,
    name: &str,
    namespace: &str,
) -> Vec<(&'static str, String)> {
    let service = config.service_name.clone().unwrap_or_else(|| name.to_owned());
    let mut attributes = vec![
        (SERVICE_NAME, service),
        (K8S_NAMESPACE_NAME, namespace.to_owned()),
        (RECIF_KIND, kind.to_owned()),
        (RECIF_NAME, name.to_owned()),
    ];
    // Kubernetes names the host of a Pod after it.
    let pod = env::var("HOSTNAME").ok().filter(|pod| !pod.is_empty());
    attributes.extend(pod.map(|pod| (K8S_POD_NAME, pod)));
    attributes
}
