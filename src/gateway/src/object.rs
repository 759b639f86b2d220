//! Decodes a workload's custom resource, reduced to the fields that requests need.

use std::time::Duration;

use cluster::ObjectVersion;
use crds::{
    Period, Proxy,
    flow_set::{FlowState, LEFT_OUT},
    reason, why,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use meta::{CommonStatus, condition_type};
use serde::Deserialize;

use super::limits::{CostBudgets, RateLimits, SpecifiedLimit, TokenBudgets};

pub use super::routed_kind::RoutedKind;

/// Routing data of a workload's object. A field that the object lacks has its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Uid of the object.
    pub uid: Box<str>,
    /// Longest wait for the first byte of a response.
    pub timeout: Option<Duration>,
    /// Concurrency cap of one Pod.
    pub concurrency: Option<u32>,
    /// Uid of the workload's Service, as the operator recorded it in the status. Only this Service leads to the
    /// workload's Pods.
    pub service: Option<Box<str>>,
    /// Set if the Pods have the sidecar. Only a sidecar's load reports and refusals are trusted, not those of a
    /// workload.
    pub sidecar: bool,
    /// Paths that need no credential: exact paths, or prefixes that end in `/*`.
    pub anonymous_paths: Box<[Box<str>]>,
    /// Time of the last invocation, as a gateway wrote it.
    pub last_invocation_at: Option<Timestamp>,
    /// Reason why no Pod will become ready, if there is one.
    pub no_pod: Option<NoPod>,
    /// Flows of a FlowSet that its Pods run without, each with the reason.
    pub left_out: Box<[(Box<str>, Box<str>)]>,
    /// Limits of its requests; `None` if it has none.
    pub limits: Option<RateLimits>,
    /// Budgets of tokens; `None` if it has none.
    pub budgets: Option<TokenBudgets>,
    /// Budgets of cost; `None` if it has none, or not yet the prices of its models.
    pub cost: Option<CostBudgets>,
    /// Set if calls of its tools wait for a person, so that the right to approve them is reviewed.
    pub approvals: bool,
    /// Fields that lists of agents show.
    pub listing: Listing,
}

impl Object {
    /// Reports whether anything of it is counted for a limit.
    pub(super) fn has_limits(&self) -> bool {
        self.limits.is_some() || self.has_budget()
    }

    /// Reports whether it has a budget of tokens or cost.
    pub(super) fn has_budget(&self) -> bool {
        self.budgets.is_some() || self.cost.is_some()
    }

    /// Returns the reason why the flow that the rest of a path leads to is not served, if the Pods run without it.
    pub(super) fn left_out(&self, rest: &[u8]) -> Option<&str> {
        let first = rest.strip_prefix(b"/")?.split(|byte| matches!(byte, b'/' | b'?')).next()?;
        let found = self.left_out.iter().find(|(flow, _)| flow.as_bytes() == first);
        found.map(|(_, why)| &**why)
    }
}

/// Fields that lists of agents show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Time of the creation, in seconds since 1970.
    pub created: i64,
    /// Purpose of the agent, in the words of its author; empty if unknown.
    pub description: Box<str>,
    /// Set if the agent does not serve the paths of our runner, such as `/chat`.
    pub speaks_otherwise: bool,
}

/// State in which it is useless to wait for a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoPod {
    /// Sentence that explains the state, as `recif why` prints it.
    pub sentence: Box<str>,
    /// Set if existing Pods may still serve. Those of a failed update do; those of an object that is being deleted do
    /// not.
    pub pods_serve: bool,
    /// Set if a ready Pod would end the state, so that a request is a reason to start one.
    pub ended_by_pods: bool,
}

/// Decodes an object of this kind.
///
/// # Errors
/// The JSON is no such object.
pub(super) fn read(kind: RoutedKind, head: &ObjectVersion, json: &str) -> Result<Object, serde_json::Error> {
    let WireWorkload { metadata, spec, status } = serde_json::from_str(json)?;
    let status = status.unwrap_or_default();
    let left_out = left_out(&status);
    let listing = Listing {
        created: metadata.creation_timestamp.as_ref().map_or(0, |created| created.0.as_second()),
        description: spec.description.unwrap_or_default(),
        speaks_otherwise: spec.protocol.is_some_and(|protocol| &*protocol != "chat"),
    };
    Ok(Object {
        uid: head.uid.as_str().into(),
        // `spec.timeout` of an MCPServer is for the discovery of its tools.
        timeout: spec.timeout.filter(|_| kind != RoutedKind::McpServer).and_then(|timeout| timeout.length()),
        concurrency: spec.scaling.and_then(|scaling| scaling.concurrency),
        service: status.children.into_iter().find(|child| &*child.kind == "Service").map(|child| child.uid),
        sidecar: spec.proxy.enabled,
        anonymous_paths: spec.expose.anonymous_paths,
        last_invocation_at: status.last_invocation_at.as_deref().and_then(|text| text.parse().ok()),
        left_out,
        limits: RateLimits::read(&spec.limits),
        // An MCP server has no model.
        budgets: TokenBudgets::read(&spec.limits).filter(|_| kind != RoutedKind::McpServer),
        cost: CostBudgets::read(&spec.limits, status.prices.as_deref()),
        approvals: status.approvals,
        listing,
        no_pod: no_pod(kind, head, metadata, &status.common),
    })
}

fn left_out(status: &WireWorkloadStatus) -> Box<[(Box<str>, Box<str>)]> {
    let inputs = status.common.inputs.as_ref().filter(|_| status.common.phase.as_deref() == Some("Running"));
    let is_out = |flow: &&FlowState| {
        let pinned = inputs.and_then(|inputs| inputs.get(&format!("flow/{}", flow.name)));
        pinned.is_some_and(|pinned| pinned == LEFT_OUT)
    };
    let why = |flow: &FlowState| format!("flow {:?} is not served: {}", flow.name, flow.message);
    status.flows.iter().filter(is_out).map(|flow| (flow.name.as_str().into(), why(flow).into())).collect()
}

fn no_pod(kind: RoutedKind, head: &ObjectVersion, metadata: WireWorkloadMeta, status: &CommonStatus) -> Option<NoPod> {
    let deleting = metadata.deletion_timestamp.is_some() || status.phase.as_deref() == Some("Terminating");
    let ended = matches!(status.phase.as_deref(), Some("Failed" | "Terminated"));
    // The only waiting state that a user has to end.
    let missing = status.condition(condition_type::REFERENCES_RESOLVED).is_some_and(|condition| {
        condition.status == "False"
            && matches!(condition.reason.as_str(), reason::MISSING_DEPENDENCY | reason::REFERENCE_CYCLE)
    });
    if !deleting && !ended && !missing {
        return None;
    }
    let metadata = ObjectMeta {
        name: Some(head.key.name.clone()),
        namespace: Some(head.key.namespace.clone()),
        generation: metadata.generation,
        finalizers: metadata.finalizers,
        deletion_timestamp: metadata.deletion_timestamp,
        ..ObjectMeta::default()
    };
    let sentence = why::why(kind.name(), &metadata, Some(status)).sentence.into();
    Some(NoPod { sentence, pods_serve: !deleting, ended_by_pods: !deleting && crds::is_ended_by_ready_pods(status) })
}

#[derive(Deserialize)]
struct WireWorkload {
    metadata: WireWorkloadMeta,
    #[serde(default)]
    spec: WireWorkloadSpec,
    #[serde(default)]
    status: Option<WireWorkloadStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireWorkloadMeta {
    #[serde(default)]
    generation: Option<i64>,
    #[serde(default)]
    finalizers: Option<Vec<String>>,
    #[serde(default)]
    creation_timestamp: Option<Time>,
    #[serde(default)]
    deletion_timestamp: Option<Time>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireWorkloadSpec {
    timeout: Option<Period>,
    scaling: Option<WireScaling>,
    proxy: Proxy,
    expose: WireExpose,
    description: Option<Box<str>>,
    protocol: Option<Box<str>>,
    limits: Vec<SpecifiedLimit>,
}

#[derive(Deserialize)]
struct WireScaling {
    #[serde(default)]
    concurrency: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireExpose {
    anonymous_paths: Box<[Box<str>]>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireWorkloadStatus {
    #[serde(flatten)]
    common: CommonStatus,
    #[serde(default)]
    last_invocation_at: Option<String>,
    #[serde(default)]
    children: Vec<StatusChild>,
    #[serde(default)]
    flows: Vec<FlowState>,
    #[serde(default)]
    prices: Option<Box<str>>,
    #[serde(default)]
    approvals: bool,
}

#[derive(Deserialize)]
struct StatusChild {
    #[serde(default)]
    kind: Box<str>,
    #[serde(default)]
    uid: Box<str>,
}

#[cfg(test)]
pub(super) mod testing {
    use super::{Listing, Object};

    /// Creates an object that sets none of the fields that requests need, but has a Service.
    pub(crate) fn object() -> Object {
        Object {
            uid: "u".into(),
            timeout: None,
            concurrency: None,
            service: Some("s".into()),
            sidecar: true,
            anonymous_paths: Box::default(),
            last_invocation_at: None,
            no_pod: None,
            left_out: Box::default(),
            limits: None,
            budgets: None,
            cost: None,
            approvals: false,
            listing: Listing::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::decode::object_version;

    use super::*;

    fn object(spec: &str, status: &str, metadata: &str) -> Object {
        let json = format!(
            r#"{{"metadata":{{"name":"a","namespace":"ns","uid":"u","resourceVersion":"7","generation":1{metadata}}},
            "spec":{{"name":"A","framework":"corail"{spec}}},"status":{{"observedGeneration":1{status}}}}}"#
        );
        read(RoutedKind::Agent, &object_version(&json).unwrap(), &json).unwrap()
    }

    #[test]
    fn what_requests_need_is_kept_and_everything_may_be_missing() {
        let bare = object("", "", "");
        assert_eq!((bare.timeout, bare.concurrency, bare.no_pod.clone(), bare.sidecar), (None, None, None, true));
        let full = object(
            r#","timeout":"90s","scaling":{"concurrency":8},"expose":{"anonymousPaths":["/a","/b/*"]}"#,
            r#","phase":"Running","lastInvocationAt":"2026-01-02T03:04:05Z","children":[
                {"kind":"ConfigMap","name":"a","uid":"c"},{"kind":"Service","name":"a","uid":"s"}]"#,
            "",
        );
        assert_eq!((full.timeout, full.concurrency), (Some(Duration::from_secs(90)), Some(8)));
        assert_eq!((full.anonymous_paths.len(), full.no_pod), (2, None));
        assert!(object("", r#","approvals":true"#, "").approvals && !bare.approvals);
        assert_eq!((full.service.as_deref(), bare.service), (Some("s"), None));
        assert!(!object(r#","proxy":{"enabled":false}"#, "", "").sidecar);
        assert_eq!(full.last_invocation_at.unwrap().to_string(), "2026-01-02T03:04:05Z");
    }

    #[test]
    fn an_mcp_server_has_no_budgets() {
        let json = r#"{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"7"},
            "spec":{"limits":[{"per":"caller","requestsPerMinute":10,"tokensPerDay":5}]}}"#;
        let read = |kind| read(kind, &object_version(json).unwrap(), json).unwrap();
        let (server, flow) = (read(RoutedKind::McpServer), read(RoutedKind::Flow));
        assert!(server.limits.is_some() && server.budgets.is_none());
        assert!(flow.limits == server.limits && flow.budgets.is_some());
        assert_eq!((object("", "", "").limits, object(r#","limits":[]"#, "", "").budgets), (None, None));
        let cost = r#","limits":[{"per":"caller","costPerDay":"2.5"}]"#;
        assert!(
            object(cost, r#","prices":"EUR, a/b 1 2 3 4""#, "")
                .cost
                .is_some_and(|cost| cost.budgets.per_caller.is_some())
        );
        assert_eq!(object(cost, "", "").cost, None, "there are no prices yet");
    }

    #[test]
    fn what_lists_show_may_be_missing_or_null() {
        assert_eq!(object("", "", "").listing, Listing::default());
        assert_eq!(object(r#","description":null,"protocol":null"#, "", "").listing, Listing::default());
        let spec = r#","description":"Sells kettles.","protocol":"a2a""#;
        let listing = object(spec, "", r#","creationTimestamp":"1970-01-01T00:01:00Z""#).listing;
        let expected = Listing { created: 60, description: "Sells kettles.".into(), speaks_otherwise: true };
        assert_eq!(listing, expected);
        assert!(!object(r#","protocol":"chat""#, "", "").listing.speaks_otherwise);
    }

    #[test]
    fn the_time_of_a_server_is_for_its_discovery() {
        let json =
            r#"{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"7"},"spec":{"timeout":"5s"}}"#;
        let timeout = |kind| read(kind, &object_version(json).unwrap(), json).unwrap().timeout;
        assert_eq!((timeout(RoutedKind::McpServer), timeout(RoutedKind::Flow)), (None, Some(Duration::from_secs(5))));
    }

    #[test]
    fn a_flow_that_a_set_runs_without_is_told_with_its_reason() {
        let flows = r#","inputs":{"flow/a":"served","flow/b":"left out"},"flows":[
            {"name":"a","ready":true,"phase":"Running","message":""},
            {"name":"b","ready":false,"phase":"Resolving","message":"prompt \"p\" not found"}]"#;
        let running = object("", &format!(r#","phase":"Running"{flows}"#), "");
        let why = Some("flow \"b\" is not served: prompt \"p\" not found");
        for (rest, expected) in [("/b", why), ("/b?x", why), ("/b/x", why), ("/bb", None), ("/a", None), ("", None)] {
            assert_eq!(running.left_out(rest.as_bytes()), expected, "{rest}");
        }
        let resolving = object("", &format!(r#","phase":"Resolving"{flows}"#), "");
        assert_eq!(resolving.left_out(b"/b"), None, "the Pods of before may still serve it");
    }

    #[test]
    fn no_request_waits_for_a_pod_that_does_not_come() {
        let missing = r#","phase":"Resolving","conditions":[{"type":"ReferencesResolved","status":"False",
            "reason":"MissingDependency","message":"Tool/t is missing","lastTransitionTime":"2026-01-01T00:00:00Z"}]"#;
        for (status, metadata, pods_serve) in [
            (r#","phase":"Failed""#, "", true),
            (r#","phase":"Terminated""#, "", true),
            (missing, "", true),
            (r#","phase":"Terminating""#, "", false),
            (r#","phase":"Running""#, r#","deletionTimestamp":"2026-01-01T00:00:00Z""#, false),
        ] {
            let halt = object("", status, metadata).no_pod.unwrap();
            assert_eq!(halt.pods_serve, pods_serve, "{status}");
            assert!(halt.sentence.starts_with("Agent ns/a "), "{}", halt.sentence);
        }
        for (reason, by_pods) in [("Unhealthy", true), ("InvalidSpec", false)] {
            let failed = format!(
                r#","phase":"Failed","failure":{{"reason":"{reason}","message":"m","count":1,
                "since":"2026-01-01T00:00:00Z"}}"#
            );
            assert_eq!(object("", &failed, "").no_pod.unwrap().ended_by_pods, by_pods, "{reason}");
        }
        for phase in ["Pending", "Resolving", "Rendering", "Deploying", "Running"] {
            assert_eq!(object("", &format!(r#","phase":"{phase}""#), "").no_pod, None, "{phase}");
        }
    }
}
