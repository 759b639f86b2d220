//! Attributes of the processes of the platform: gateway and operator.

use crate::config::TelemetryConfig;
use crate::semconv::{
    K8S_NAMESPACE_NAME, K8S_POD_NAME, RECIF_KIND, SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION,
};

impl TelemetryConfig {
    /// Returns the attributes of this process of the platform, which is the `gateway` or the `operator`.
    pub fn platform_attributes(
        &self,
        part: &'static str,
        instance: &str,
        namespace: &str,
    ) -> Vec<(&'static str, String)> {
        let service = self.service_name.clone().unwrap_or_else(|| format!("recif-{part}"));
        let mut attributes = vec![
            (SERVICE_NAME, service),
            (SERVICE_VERSION, env!("CARGO_PKG_VERSION").to_owned()),
            (SERVICE_INSTANCE_ID, instance.to_owned()),
            (K8S_NAMESPACE_NAME, namespace.to_owned()),
            (RECIF_KIND, part.to_owned()),
        ];
        // The hostname of a Pod is its name.
        attributes.extend(std::env::var("HOSTNAME").ok().filter(|pod| !pod.is_empty()).map(|pod| (K8S_POD_NAME, pod)));
        attributes
    }
}
