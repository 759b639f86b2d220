//! `Agent`: what is its own. Its life is that of every workload (`crate::workload`).

use std::collections::BTreeMap;

use crds::{Agent, RefKind, Reference, Refers, WorkloadStatus, cycle::Node, digest};

use crate::{
    kind,
    machine::{ActionError, BadTable, Registry, condition},
    ports::World,
    references::{Found, Inputs, Lookup},
    render::{self, RenderError, Settings, ToolSlot},
    workload::{self, Rendered, Workload},
};

kind::workload!(Agent, render version 1);

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
        let (namespace, name) = (namespace(self), self.metadata.name.as_deref().unwrap_or_default());
        let lookup = Lookup::new(world, namespace);
        let mut inputs = lookup.inputs(Some(&Node::new(RefKind::Agent, name)), &self.references());
        inputs.add("Settings", Found::Here(settings_digest(&world.settings)));
        inputs
    }

    fn render(&self, world: &World, replicas: Option<i32>) -> Result<Rendered, ActionError> {
        let namespace = namespace(self);
        let lookup = Lookup::new(world, namespace);
        let tools: Vec<_> = self.spec.tools.iter().map(|name| (name, world.views.tool(namespace, name))).collect();
        let usable = |name: &str| matches!(lookup.find(&Reference::new(RefKind::Tool, name)), Found::Here(_));
        let slots: Vec<_> = tools
            .iter()
            .filter(|(name, _)| usable(name))
            .map(|(name, tool)| tool.as_ref().map_or(ToolSlot::Builtin(name), |tool| ToolSlot::Object(tool)))
            .collect();
        let data = lookup.data(&self.references());
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

fn namespace(agent: &Agent) -> &str {
    agent.metadata.namespace.as_deref().unwrap_or_default()
}

fn terminal(error: RenderError) -> ActionError {
    ActionError::terminal(error.reason(), error.to_string())
}
