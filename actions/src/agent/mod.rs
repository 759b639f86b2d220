//! `Agent`: what is its own. Its life is that of every workload (`crate::workload`).

mod inputs;

use std::collections::BTreeMap;

use crds::{Agent, MachineStatus, WorkloadPhase, WorkloadStatus, digest};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{
    machine::{ActionError, BadTable, Edge, Machine, Registry, condition},
    ports::World,
    render::{self, RenderError, Settings, ToolSlot},
    workload::{self, Inputs, Rendered, Workload},
};

impl Machine for Agent {
    type Phase = WorkloadPhase;
    type World = World;

    const KIND: &'static str = "Agent";
    const FINALIZER: Option<&'static str> = Some(crds::FINALIZER);
    const RENDER_VERSION: i64 = 1;
    const EDGES: &'static [Edge<WorkloadPhase>] = workload::EDGES;
    const NOT_BY_TIME: &'static [&'static str] = workload::NOT_BY_TIME;
    const CONDITIONS: &'static [&'static str] = workload::CONDITIONS;
    const AVAILABLE_BY_PHASE: bool = false;

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
    fn machine(&self) -> Option<&MachineStatus> {
        self.status.as_ref().map(|status| &status.machine)
    }
    fn machine_mut(&mut self) -> &mut MachineStatus {
        &mut self.status.get_or_insert_default().machine
    }
    fn status_json(&self) -> Value {
        let mut json = serde_json::to_value(&self.status).unwrap_or_default();
        if let Some(status) = &self.status {
            status.machine.restore_verbatim(&mut json);
        }
        json
    }
    fn spec_digest(&self) -> String {
        self.spec.digest()
    }
    fn same_spec(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
    fn content_hash(&self) -> Option<&str> {
        self.status.as_ref()?.content_hash.as_deref()
    }
}

impl Workload for Agent {
    const LABEL: &'static str = render::AGENT_LABEL;

    fn replicas(&self) -> i32 {
        self.spec.replicas
    }

    fn status(&self) -> Option<&WorkloadStatus> {
        self.status.as_ref()
    }

    fn status_mut(&mut self) -> &mut WorkloadStatus {
        self.status.get_or_insert_default()
    }

    fn validate(&self, settings: &Settings) -> Result<(), ActionError> {
        let config = render::agent_config(self, &[], &BTreeMap::new(), settings).map_err(terminal)?;
        render::agent_workload_children(self, &config, Some(self.spec.replicas)).map_err(terminal)?;
        Ok(())
    }

    fn inputs(&self, world: &World) -> Inputs {
        inputs::look_up(self, world)
    }

    fn render(&self, world: &World, replicas: Option<i32>) -> Result<Rendered, ActionError> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let tools: Vec<_> = self.spec.tools.iter().map(|name| (name, world.views.tool(namespace, name))).collect();
        let slots: Vec<_> = tools
            .iter()
            .filter_map(|(name, tool)| match tool {
                Some(tool) => inputs::is_usable(tool).then_some(ToolSlot::Object(tool)),
                None => render::is_builtin_tool(name).then_some(ToolSlot::Builtin(name)),
            })
            .collect();
        let data = inputs::data_digests(self, world);
        let config = render::agent_config(self, &slots, &data, &world.settings).map_err(terminal)?;
        let running = render::agent_workload_children(self, &config, replicas).map_err(terminal)?;
        let knowledge = (!self.spec.knowledge_bases.is_empty()).then(|| match config.knowledge_bases_missing_dsn {
            false => condition("KnowledgeBasesConfigured", true, "Configured", ""),
            true => condition(
                "KnowledgeBasesConfigured",
                false,
                "MissingDatabaseUrl",
                "the operator has no DATABASE_URL, so the agent runs without its knowledge bases",
            ),
        });
        Ok(Rendered {
            config: render::agent_config_children(self, &config),
            content_hash: config.content_hash,
            running: Vec::from(running),
            overlay: self.spec.pod_template.is_some(),
            conditions: Vec::from_iter(knowledge),
        })
    }

    fn endpoint(&self, settings: &Settings) -> String {
        render::endpoint(self, render::AGENT_PORT, settings)
    }
}

/// The actions of an Agent.
///
/// # Errors
/// A fault in the table of edges or the list of actions.
pub fn registry() -> Result<Registry<Agent>, BadTable> {
    Registry::new(workload::actions())
}

/// The digest of what an Agent uses of the operator's settings.
fn settings_digest(settings: &Settings) -> String {
    digest::digest(&serde_json::json!({
        "namespace": settings.operator_namespace,
        "domain": settings.cluster_domain,
        "database": settings.database_url,
        "ollama": settings.ollama_base_url,
    }))
}

fn terminal(error: RenderError) -> ActionError {
    ActionError::terminal(error.reason(), error.to_string())
}
