//! `MCPServer` kind: validation, inputs and rendering. The lifecycle is that of every workload (`crate::workload`), except that
//! in Running the server is also queried for its tools.

mod monitor;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use crds::{HasReferences, MCPServer, Proxy, Traffic, WorkloadPhase, WorkloadStatus, reason};
use machine::{Action, ActionError, Table, TableError};
use meta::{PhasedObject, condition_type};

use self::monitor::{ANSWERS_HTTP, Monitor};
use crate::{
    deps::Deps,
    discovery::{ToolServer as _, Unpublishing},
    flow::{settings_digest, terminal},
    kind::{ControlledKind, Registry},
    ports::{ChildKind, ChildManifest},
    references::{Evaluation, Inputs, ONLY_GATEWAYS, Query, Referable, Resolution, Resolver, Uncallable, Unresolved},
    render::{self, BRIDGE, MCP_SERVER_LABEL, RenderSettings, ServerImages},
    workload::{self, Accept, Deploy, Drain, Recover, Render, RenderedWorkload, Resolve, WorkloadKind, with_policies},
};

/// Condition types that the actions of this kind write.
const CONDITIONS: &[&str] = &[
    condition_type::AVAILABLE,
    condition_type::REFERENCES_RESOLVED,
    condition_type::TOOLS_DISCOVERED,
    condition_type::TOOLS_PUBLISHED,
    condition_type::DEFINITION_CURRENT,
    condition_type::EGRESS_RESTRICTED,
    condition_type::METADATA_REACHABLE,
];

/// Traffic settings of a server: requests are not capped, and a stream may last.
static TRAFFIC: LazyLock<Traffic> = LazyLock::new(Traffic::default);
/// Same settings for a server that only gateways may call.
static IDENTIFIED: LazyLock<Traffic> = LazyLock::new(|| {
    let proxy = Proxy { require_identity: true, ..Proxy::default() };
    Traffic { proxy, ..Traffic::default() }
});

impl ControlledKind for MCPServer {
    const TABLE: Table<WorkloadPhase> = Table { render_version: 1, conditions: CONDITIONS, ..workload::TABLE };
    const CHILDREN: &'static [ChildKind] = ChildKind::ALL;
    const HAS_PODS: bool = true;

    fn registry() -> Result<Registry<Self>, TableError> {
        let actions: Vec<Arc<dyn Action<MCPServer, Deps>>> = vec![
            Arc::new(Accept),
            Arc::new(Unpublishing(Resolve)),
            Arc::new(Unpublishing(Render)),
            Arc::new(Unpublishing(Deploy)),
            Arc::new(Unpublishing(Monitor)),
            Arc::new(Unpublishing(Recover)),
            Arc::new(Drain),
        ];
        Registry::new(Self::TABLE, actions, workload::external_digest)
    }
}

impl Referable for MCPServer {
    fn evaluate(query: &Query<'_>) -> Evaluation {
        query.evaluate_server()
    }

    fn uncallable(&self) -> Option<Uncallable> {
        self.spec.proxy.require_identity.then_some(ONLY_GATEWAYS)
    }
}

impl WorkloadKind for MCPServer {
    const LABEL: &'static str = MCP_SERVER_LABEL;
    // Its program is not ours; calls carry the context of their trace.
    const HAS_TELEMETRY: bool = false;

    fn replicas(&self) -> i32 {
        self.spec.deployment.replicas
    }

    fn traffic(&self) -> &Traffic {
        if self.spec.proxy.require_identity { &IDENTIFIED } else { &TRAFFIC }
    }

    fn egress(&self) -> Option<&[String]> {
        self.spec.deployment.egress.as_deref()
    }

    fn status(&self) -> Option<&WorkloadStatus> {
        self.status.as_ref().map(|status| &status.workload)
    }

    fn status_mut(&mut self) -> &mut WorkloadStatus {
        &mut self.status.get_or_insert_default().workload
    }

    fn validate(&self, settings: &RenderSettings) -> Result<(), ActionError> {
        if !matches!(self.spec.transport_type.as_str(), "stdio" | "http") {
            let message = format!("transportType {:?} is unknown: use stdio or http", self.spec.transport_type);
            return Err(ActionError::terminal(reason::INVALID_SPEC, message));
        }
        rendered(self, &BTreeMap::new(), settings, None)?.check_pod_security(settings)
    }

    fn inputs(&self, deps: &Deps) -> Inputs {
        let key = self.key();
        let mut inputs = Resolver::new(deps, &key.namespace).inputs(None, &self.references());
        inputs.add("Settings", Resolution::Resolved(settings_digest(&deps.settings)));
        inputs
    }

    fn render(&self, deps: &Deps, replicas: Option<i32>) -> Result<RenderedWorkload, ActionError> {
        let key = self.key();
        let data = Resolver::new(deps, &key.namespace).data(&self.references());
        with_policies(self, deps, rendered(self, &data, &deps.settings, replicas)?)
    }

    fn images(&self, settings: &RenderSettings) -> BTreeMap<String, String> {
        let bridge = self.spec.is_stdio().then(|| (BRIDGE.to_owned(), settings.proxy_image.clone()));
        self.offered_proxy(settings).into_iter().chain(bridge).collect()
    }

    fn network_policy(&self) -> ChildManifest {
        render::network_policy(self, Self::LABEL, self.spec.container_port())
    }

    fn disruption_budget(&self) -> ChildManifest {
        render::disruption_budget(self, Self::LABEL)
    }

    fn pod_template(&self) -> Option<&serde_json::Value> {
        self.spec.deployment.pod_template.as_ref()
    }

    fn endpoint(&self, settings: &RenderSettings) -> String {
        render::endpoint(self, self.spec.deployment.port, settings) + self.spec.path()
    }

    /// Returns the reason why the server is not ready. It is ready only after it has answered once: a program that cannot start,
    /// or speaks something else than MCP, is not ready.
    fn unready(&self) -> Option<Unresolved> {
        let condition = |type_: &str| self.common().and_then(|status| status.condition(type_));
        let is_true = |type_: &str| condition(type_).is_some_and(|found| found.status == "True");
        let is_known = self.tools_status().is_some_and(|status| status.tools_digest.is_some());
        // For a server that was ready before, the Pods alone decide.
        if is_known || is_true(condition_type::TOOLS_DISCOVERED) || is_true(condition_type::READY) {
            return None;
        }
        let Some(found) = condition(condition_type::TOOLS_DISCOVERED) else {
            let sentence = "it has not answered yet: listing its tools".to_owned();
            return Some(Unresolved { reason: "NotDiscovered", sentence, needs_user: false });
        };
        let reason = reason::DISCOVERY_FAILURES.iter().copied().find(|reason| *reason == found.reason)?;
        // A failure of the operator to connect is not counted: the callers of the server may be able and allowed to.
        let unheard = matches!(reason, reason::SERVER_UNREACHABLE | reason::ADDRESS_DENIED)
            && !found.message.starts_with(ANSWERS_HTTP);
        (!unheard).then(|| Unresolved { reason, sentence: found.message.clone(), needs_user: true })
    }
}

fn rendered(
    server: &MCPServer,
    data: &BTreeMap<String, String>,
    settings: &RenderSettings,
    replicas: Option<i32>,
) -> Result<RenderedWorkload, ActionError> {
    let content_hash = render::mcp_server_hash(data);
    let (bridge, proxy) = (server.pinned_image(BRIDGE, &settings.proxy_image), server.proxy_image(settings));
    let images = ServerImages { bridge: &bridge, proxy: server.pinned_proxy(&proxy) };
    let running = render::mcp_server_workload_children(server, server.traffic(), &content_hash, images, replicas);
    Ok(RenderedWorkload {
        config: render::mcp_server_config_children(server),
        running: Vec::from(running.map_err(terminal)?),
        content_hash,
        overlay: server.spec.deployment.pod_template.is_some(),
        model: None,
        approvals: false,
        conditions: Vec::new(),
    })
}
