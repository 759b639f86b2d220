//! Restricts what the Pods of a workload connect to, by `egress` of its spec: the rules of its NetworkPolicy, the variable of its
//! runtime, and the conditions that say so.

use std::collections::BTreeMap;

use crds::{
    Agent, Flow, FlowSet, MCPServer,
    egress::{AddressRange, EGRESS_VARIABLE, EgressEntry, EgressHost, EgressList},
    reason,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use machine::ActionError;
use meta::{condition, condition_type};
use serde_json::{Value, json};

use super::kind::{RenderedWorkload, WorkloadKind};
use crate::{
    deps::Deps,
    ports::{CacheReader, ChildManifest},
    render::{
        AGENT_LABEL, EgressRules, FLOW, FLOW_SET, MCP_SERVER_LABEL, RenderSettings, RenderedAddresses,
        rendered_addresses, selector_labels,
    },
};

/// Restriction of a workload whose spec has `egress`.
pub(super) struct EgressRestriction {
    /// Rules of its NetworkPolicy.
    pub(super) rules: EgressRules,
    /// Value of the variable of its runtime.
    list: EgressList,
    /// True if the rules admit a metadata service.
    metadata: bool,
}

/// Returns the entries of the spec.
///
/// # Errors
/// [`ActionError::Terminal`] for an entry that cannot be read.
pub(super) fn entries<K: WorkloadKind>(cr: &K) -> Result<Option<Vec<EgressEntry>>, ActionError> {
    let Some(texts) = cr.egress() else { return Ok(None) };
    let entries: Result<Vec<_>, _> = texts.iter().map(|text| text.parse::<EgressEntry>()).collect();
    entries.map(Some).map_err(|error| ActionError::terminal(reason::INVALID_SPEC, error.to_string()))
}

/// Returns the restriction of a rendered workload; `None` without `egress`.
///
/// # Errors
/// As [`entries`].
pub(super) fn restriction<K: WorkloadKind>(
    cr: &K,
    deps: &Deps,
    rendered: &RenderedWorkload,
) -> Result<Option<EgressRestriction>, ActionError> {
    let Some(listed) = entries(cr)? else { return Ok(None) };
    let name = container_name(K::LABEL);
    let deployment = rendered.running.last().map(|manifest| &manifest.body).unwrap_or(&Value::Null);
    let containers = deployment.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let container = containers.into_iter().flatten().find(|container| container["name"] == name);
    let found = rendered_addresses(&rendered.config, container.unwrap_or(&Value::Null));
    let own: Vec<_> = found.called.iter().filter_map(|(host, port)| entry(host, *port)).collect();
    let namespace = cr.key().namespace;
    let cluster = ClusterNames { cache: deps.cache.as_ref(), settings: &deps.settings, namespace: &namespace };
    let rules = rules(&listed, &found, &cluster);
    let metadata = !found.metadata.is_empty();
    Ok(Some(EgressRestriction { rules, list: EgressList { listed, own }, metadata }))
}

/// Sets the variable of the runtime in the container of a Deployment.
///
/// # Errors
/// [`ActionError::Terminal`]: the spec sets the variable itself.
pub(super) fn set_variable<K: WorkloadKind>(
    deployment: &mut ChildManifest,
    restriction: &EgressRestriction,
) -> Result<(), ActionError> {
    let name = container_name(K::LABEL);
    let containers = deployment.body.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut);
    let Some(container) = containers.into_iter().flatten().find(|container| container["name"] == name) else {
        return Ok(());
    };
    if !container["env"].is_array() {
        container["env"] = json!([]);
    }
    let Some(variables) = container["env"].as_array_mut() else { return Ok(()) };
    if variables.iter().any(|variable| variable["name"] == EGRESS_VARIABLE) {
        let sentence = format!("{EGRESS_VARIABLE} of container {name} comes from egress of the spec: remove it there");
        return Err(ActionError::terminal(reason::INVALID_SPEC, sentence));
    }
    // Texts and lists of them: this cannot fail.
    let list = serde_json::to_string(&restriction.list).unwrap_or_default();
    variables.push(json!({ "name": EGRESS_VARIABLE, "value": list }));
    Ok(())
}

/// Returns the conditions on a restriction; without `enforced` the operator makes no policies.
pub(super) fn conditions(restriction: &EgressRestriction, enforced: bool) -> Vec<Condition> {
    let restricted = match enforced {
        true => condition(
            condition_type::EGRESS_RESTRICTED,
            true,
            "PolicyApplied",
            "a NetworkPolicy restricts what the Pods connect to; recif doctor tells whether the network enforces it",
        ),
        false => condition(
            condition_type::EGRESS_RESTRICTED,
            false,
            "PoliciesOff",
            "the operator runs with --network-policies=false, so only the runtime holds to egress, its cli tools do not",
        ),
    };
    let metadata = (restriction.metadata && enforced).then(|| {
        condition(
            condition_type::METADATA_REACHABLE,
            true,
            "CloudCredentials",
            "credentials of the model come from the metadata service, so cli tools reach it too: give the model a Secret \
             with credentials to close it",
        )
    });
    [restricted].into_iter().chain(metadata).collect()
}

/// Returns the name of the container, which the label of the kind ends with.
fn container_name(label: &str) -> &str {
    label.rsplit('/').next().unwrap_or(label)
}

/// Returns the entry of a host and port of the configuration, if that is one to which the runtime can connect.
fn entry(host: &str, port: u16) -> Option<EgressEntry> {
    let text = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    text.parse().ok()
}

/// Names of the cluster's Services, as the Pods of a namespace resolve them.
struct ClusterNames<'a> {
    cache: &'a dyn CacheReader,
    settings: &'a RenderSettings,
    namespace: &'a str,
}

impl ClusterNames<'_> {
    /// Returns the name and the namespace of the Service that a host is.
    fn service<'n>(&self, host: &'n str) -> Option<(&'n str, String)> {
        let below = format!(".svc.{}", self.settings.cluster_domain);
        if let Some(inner) = host.strip_suffix(below.as_str()).or_else(|| host.strip_suffix(".svc")) {
            // The name of a Pod of a headless Service stands before that of the Service.
            let (service, namespace) = inner.rsplit_once('.')?;
            return Some((service.rsplit('.').next().unwrap_or(service), namespace.to_owned()));
        }
        match host.split_once('.') {
            None => Some((host, self.namespace.to_owned())),
            Some((service, namespace)) if self.cache.namespace_labels(namespace).is_some() => {
                Some((service, namespace.to_owned()))
            }
            Some(_) => None,
        }
    }

    /// Returns the labels of the Pods behind a Service, if it is that of a workload of ours.
    fn pods(&self, namespace: &str, service: &str) -> Option<BTreeMap<String, String>> {
        let cache = self.cache;
        let label = if cache.get::<Agent>(namespace, service).is_some() {
            AGENT_LABEL
        } else if cache.get::<Flow>(namespace, service).is_some() {
            FLOW.label
        } else if cache.get::<FlowSet>(namespace, service).is_some() {
            FLOW_SET.label
        } else if cache.get::<MCPServer>(namespace, service).is_some() {
            MCP_SERVER_LABEL
        } else {
            return None;
        };
        Some(selector_labels(label, service))
    }
}

/// Reports whether the name of a Service in a namespace may be one of the Internet too: where there is a namespace `dev`, `web.dev`
/// is either.
fn may_be_public(host: &str) -> bool {
    host.split_once('.').is_some_and(|(_, rest)| !rest.contains('.'))
}

fn rules(listed: &[EgressEntry], found: &RenderedAddresses, cluster: &ClusterNames<'_>) -> EgressRules {
    let mut rules = EgressRules::default();
    for entry in listed {
        let (name, port) = match &entry.host {
            EgressHost::Range(range) => {
                rules.ranges.entry(entry.port).or_default().insert(*range);
                continue;
            }
            EgressHost::Name(name) => (name.clone(), entry.port),
            // Any name below it is in the same namespace.
            EgressHost::Below(parent) => (format!("any.{parent}"), entry.port),
        };
        let service = cluster.service(&name);
        if service.is_none() || may_be_public(&name) {
            rules.public.extend([port]);
        }
        rules.namespaces.extend(service.map(|(_, namespace)| namespace));
    }
    for (host, port) in found.called.iter().chain(&found.others).filter(|(host, _)| host != "localhost") {
        if let Ok(range) = host.parse::<AddressRange>() {
            rules.ranges.entry(*port).or_default().insert(range);
            continue;
        }
        let Some((service, namespace)) = cluster.service(host) else {
            rules.public.extend([*port]);
            continue;
        };
        match cluster.pods(&namespace, service) {
            Some(labels) => rules.pods.extend([(namespace, labels)]),
            None => {
                rules.public.extend(may_be_public(host).then_some(*port));
                rules.namespaces.extend([namespace]);
            }
        }
    }
    if found.providers {
        rules.public.extend([443]);
    }
    for (address, port) in &found.metadata {
        rules.ranges.entry(*port).or_default().extend(address.parse::<AddressRange>());
    }
    rules
}
