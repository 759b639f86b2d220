//! `Agent`: what is its own. Its life is that of every workload (`crate::workload`).

mod exposed;
mod parts;

use std::collections::BTreeMap;

use crds::{Agent, RefKind, Refers, Traffic, WorkloadPhase, WorkloadStatus, cycle::Node, digest};
use machine::{ActionError, BadTable, Table};
use meta::condition;
use parts::{Found, namespace};

use crate::{
    deps::World,
    kind::{ControlledKind, Registry},
    ports::Manifest,
    references::{self, Given, Inputs, Lookup},
    render::{self, AgentParts, RenderError, Settings},
    workload::{self, Rendered, Workload},
};

impl ControlledKind for Agent {
    const TABLE: Table<WorkloadPhase> = Table { render_version: 3, ..workload::TABLE };

    fn registry() -> Result<Registry<Self>, BadTable> {
        workload::registry()
    }
}

impl Workload for Agent {
    const LABEL: &'static str = render::AGENT_LABEL;
    const READS_FILES: bool = false;

    fn replicas(&self) -> i32 {
        self.spec.replicas
    }

    fn traffic(&self) -> &Traffic {
        &self.spec.traffic
    }

    fn status(&self) -> Option<&WorkloadStatus> {
        self.status.as_ref()
    }

    fn status_mut(&mut self) -> &mut WorkloadStatus {
        self.status.get_or_insert_default()
    }

    fn validate(&self, settings: &Settings) -> Result<(), ActionError> {
        let config = render::agent_config(self, &AgentParts::default(), settings).map_err(terminal)?;
        let proxy = settings.proxy_image.as_str().into();
        let running = render::agent_workload_children(self, &config, proxy, None).map_err(terminal)?;
        let overlay = self.spec.pod_template.is_some();
        render::check_pod_security(&running, overlay, settings.pod_security).map_err(terminal)
    }

    fn inputs(&self, world: &World) -> Inputs {
        let (namespace, name) = (namespace(self), self.metadata.name.as_deref().unwrap_or_default());
        let lookup = Lookup::new(world, namespace);
        let mut inputs = lookup.inputs(Some(&Node::new(RefKind::Agent, name)), &self.references());
        inputs.add("Settings", references::Found::Here(settings_digest(&world.settings, namespace)));
        inputs
    }

    fn never_answers(&self, world: &World) -> Option<String> {
        let spec = &self.spec;
        if spec.image != world.settings.runner_image {
            return None;
        }
        let (views, namespace) = (world.views.as_ref(), namespace(self));
        let mut given = Given::of(views, namespace, &spec.env, &spec.env_from, spec.pod_template.as_ref());
        match &spec.model_ref {
            None => given.lacks(&spec.model_type),
            Some(named) => {
                let model = views.model(namespace, &named.name)?;
                let config = &model.spec.plugin_config_ref.name;
                given.lacks_of(views, namespace, config, &views.plugin_config(namespace, config)?.spec)
            }
        }
    }

    fn render(&self, world: &World, replicas: Option<i32>) -> Result<Rendered, ActionError> {
        let found = Found::look_up(self, world);
        let config = render::agent_config(self, &found.parts()?, &world.settings).map_err(terminal)?;
        let image = self.proxy_image(&world.settings);
        let running = render::agent_workload_children(self, &config, self.pinned_proxy(&image), replicas);
        let knowledge = (!self.spec.knowledge_bases.is_empty()).then(|| match config.knowledge_bases_missing_dsn {
            false => condition("KnowledgeBasesConfigured", true, "Configured", ""),
            true => condition(
                "KnowledgeBasesConfigured",
                false,
                "MissingDatabaseUrl",
                "the operator has no DATABASE_URL for this namespace, so the agent runs without its knowledge bases",
            ),
        });
        let (type_, id) = (config.plain.get("CORAIL_MODEL_TYPE"), config.plain.get("CORAIL_MODEL_ID"));
        let model = type_.zip(id).map(|(type_, id)| format!("{type_}/{id}"));
        let rendered = Rendered {
            model: model.filter(|_| self.spec.model_ref.is_none() || found.has_model()),
            config: render::agent_config_children(self, &config),
            content_hash: config.content_hash,
            running: Vec::from(running.map_err(terminal)?),
            overlay: self.spec.pod_template.is_some(),
            conditions: Vec::from_iter(knowledge),
        };
        Ok(workload::with_policy(self, world, rendered))
    }

    fn exposed(&self, world: &World) -> Option<String> {
        exposed::exposed(self, world)
    }

    fn images(&self, settings: &Settings) -> BTreeMap<String, String> {
        self.offered_proxy(settings).into_iter().collect()
    }

    fn network_policy(&self) -> Manifest {
        render::network_policy(self, Self::LABEL, self.spec.port)
    }

    fn pod_template(&self) -> Option<&serde_json::Value> {
        self.spec.pod_template.as_ref()
    }

    fn endpoint(&self, settings: &Settings) -> String {
        render::endpoint(self, render::AGENT_PORT, settings)
    }
}

/// The digest of what an Agent of this namespace uses of the operator's settings.
pub(crate) fn settings_digest(settings: &Settings, namespace: &str) -> String {
    digest::digest(&serde_json::json!({
        "namespace": settings.operator_namespace,
        "domain": settings.cluster_domain,
        "database": settings.database_of(namespace),
        "ollama": settings.ollama_base_url,
    }))
}

fn terminal(error: RenderError) -> ActionError {
    ActionError::terminal(error.reason(), error.to_string())
}
