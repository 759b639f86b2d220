//! `Agent` kind: validation, inputs and rendering. The lifecycle is that of every workload (`crate::workload`).

mod approval;
mod exposed;
mod image;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crds::{
    Agent, HasReferences, Model, RefKind, Reference, Tool, Traffic, WorkloadPhase, WorkloadStatus, cycle::Node, digest,
    reason,
};
use machine::{ActionError, Table, TableError};
use meta::{condition, condition_type};
use parts::{AgentReferences, namespace};

use crate::{
    deps::Deps,
    kind::{ControlledKind, Registry},
    ports::{ChildKind, ChildManifest},
    references::{
        self, AvailableVariables, Evaluation, Inputs, ONLY_GATEWAYS, PLAIN_HTTP, Query, Referable, Resolver,
        Uncallable, Usage, model_setting_problem,
    },
    render::{self, AGENT, AgentImages, AgentParts, RenderError, RenderSettings},
    runtime_notes::unknown_providers,
    server_tools::LeftOut,
    workload::{self, RenderedWorkload, WorkloadKind},
};

impl ControlledKind for Agent {
    const TABLE: Table<WorkloadPhase> = Table { render_version: 4, ..workload::TABLE };
    const CHILDREN: &'static [ChildKind] = ChildKind::ALL;
    const HAS_PODS: bool = true;

    fn registry() -> Result<Registry<Self>, TableError> {
        workload::registry()
    }
}

impl Referable for Agent {
    fn evaluate(query: &Query<'_>) -> Evaluation {
        let agent = query.object::<Self>();
        let refusal = agent.as_ref().and_then(|agent| query.refusal(agent.spec.allowed_namespaces.as_ref()));
        refusal.unwrap_or_else(|| query.evaluate_workload(agent, |agent| agent.status.as_ref()))
    }

    fn references_for(&self, usage: Usage) -> Vec<Reference> {
        if usage == Usage::Calls { self.references() } else { Vec::new() }
    }

    fn uncallable(&self) -> Option<Uncallable> {
        let only_gateways = self.spec.traffic.proxy.require_identity.then_some(ONLY_GATEWAYS);
        only_gateways.or_else(|| self.spec.speaks_plain_http().then_some(PLAIN_HTTP))
    }
}

impl WorkloadKind for Agent {
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

    fn validate(&self, settings: &RenderSettings) -> Result<(), ActionError> {
        let config = render::agent_config(self, &AgentParts::default(), settings).map_err(terminal)?;
        let images =
            AgentImages { agent: image::of_container(self, settings), proxy: settings.proxy_image.as_str().into() };
        let running = render::agent_workload_children(self, &config, images, None).map_err(terminal)?;
        let overlay = self.spec.pod_template.is_some();
        render::check_pod_security(&running, overlay, settings.pod_security).map_err(terminal)
    }

    fn inputs(&self, deps: &Deps) -> Inputs {
        let (namespace, name) = (namespace(self), self.metadata.name.as_deref().unwrap_or_default());
        let lookup = Resolver::new(deps, namespace);
        let mut inputs = lookup.inputs(Some(&Node::new(RefKind::Agent, name)), &self.references());
        inputs.add("Settings", references::Resolution::Resolved(settings_digest(&deps.settings, namespace)));
        // Most agents have no approval, and the look-up of all references is not cheap.
        let may_ask = approval::may_ask(&self.spec, |tool| deps.cache.get::<Tool>(namespace, tool));
        let is_asking = may_ask && AgentReferences::look_up(self, deps).asking_tools().next().is_some();
        let is_known = image::is_known_runner(self, &deps.settings);
        let by_image = is_asking.then_some(if is_known { "the runner" } else { "an image that may not" });
        if let Some(asks) = approval::asks(self).or(by_image) {
            inputs.add("Asks", references::Resolution::Resolved(asks.to_owned()));
        }
        // An edit of the replicas alone renders nothing, and several Pods may not be allowed.
        if is_asking {
            let pods = if approval::may_have_several_pods(self) { "several" } else { "one" };
            inputs.add("Replicas", references::Resolution::Resolved(pods.to_owned()));
        }
        inputs
    }

    fn model_problem(&self, deps: &Deps) -> Option<String> {
        let spec = &self.spec;
        if image::of_container(self, &deps.settings) != deps.settings.runner_image {
            return None;
        }
        let (cache, namespace) = (deps.cache.as_ref(), namespace(self));
        let given = AvailableVariables::of(cache, namespace, &spec.env, &spec.env_from, spec.pod_template.as_ref());
        match &spec.model_ref {
            None => given.provider_problem(&spec.model_type),
            Some(named) => {
                let model = cache.get::<Model>(namespace, &named.name)?;
                let may_have = |tool: &str| AgentReferences::look_up(self, deps).may_have_tool(spec, tool);
                let setting = || model_setting_problem(cache, namespace, Some(&named.name), &model.spec, &may_have);
                given.model_problem(cache, namespace, &model.spec).or_else(setting)
            }
        }
    }

    fn render(&self, deps: &Deps, replicas: Option<i32>) -> Result<RenderedWorkload, ActionError> {
        let found = AgentReferences::look_up(self, deps);
        let asking = found.asking_tools().next().map(|(tool, _)| tool);
        if let Some(sentence) = approval::unsupported(self, found.asking_tools(), &deps.settings) {
            return Err(ActionError::terminal(reason::APPROVAL_UNSUPPORTED, sentence));
        }
        let parts = AgentParts { is_own_image: !image::is_runner(self, &deps.settings), ..found.parts()? };
        let config = render::agent_config(self, &parts, &deps.settings).map_err(terminal)?;
        let is_stored = config.plain.get("CORAIL_STORAGE").is_some_and(|storage| storage == "postgresql");
        let durable = asking.map(|tool| approval::durability(self, tool, is_stored)).transpose()?.flatten();
        let proxy = self.proxy_image(&deps.settings);
        let agent = image::of_container(self, &deps.settings);
        let images = AgentImages { agent, proxy: self.pinned_proxy(&proxy) };
        let running = render::agent_workload_children(self, &config, images, replicas);
        let knowledge = (!self.spec.knowledge_bases.is_empty()).then(|| match config.knowledge_bases_missing_dsn {
            false => condition(condition_type::KNOWLEDGE_BASES_CONFIGURED, true, "Configured", ""),
            true => condition(
                condition_type::KNOWLEDGE_BASES_CONFIGURED,
                false,
                reason::MISSING_DATABASE_URL,
                "the operator has no DATABASE_URL for this namespace, so the agent runs without its knowledge bases",
            ),
        });
        let is_own_image = !image::is_runner(self, &deps.settings);
        let written = self.spec.model_ref.is_none().then_some(self.spec.model_type.as_str());
        let providers = written.into_iter().chain(found.providers());
        let understood = is_own_image.then(|| unknown_providers(agent, "its environment", providers)).flatten();
        let left_out = found.left_out.as_ref().map(LeftOut::condition).into_iter().chain(found.unserved.condition());
        let (type_, id) = (config.plain.get("CORAIL_MODEL_TYPE"), config.plain.get("CORAIL_MODEL_ID"));
        let model = type_.zip(id).map(|(type_, id)| format!("{type_}/{id}"));
        let model = model.filter(|_| self.spec.model_ref.is_none() || found.has_model());
        // The scaler writes it: it stays for as long as there are fallbacks for the model that it names.
        let status = self.status.as_ref().filter(|status| found.has_fallbacks() && status.model == model);
        let fell_back = status.and_then(|status| status.machine.condition(condition_type::MODEL_FALLBACK).cloned());
        let rendered = RenderedWorkload {
            model,
            approvals: asking.is_some(),
            config: render::agent_config_children(self, &config),
            content_hash: config.content_hash,
            running: Vec::from(running.map_err(terminal)?),
            overlay: self.spec.pod_template.is_some(),
            conditions: knowledge
                .into_iter()
                .chain(left_out)
                .chain(understood)
                .chain(fell_back)
                .chain(durable)
                .collect(),
        };
        workload::with_policies(self, deps, rendered)
    }

    fn exposed_credentials(&self, deps: &Deps) -> Option<String> {
        exposed::exposed_credentials(self, deps)
    }

    fn images(&self, settings: &RenderSettings) -> BTreeMap<String, String> {
        let agent = image::offered(self, settings).map(|image| (AGENT.to_owned(), image.to_owned()));
        agent.into_iter().chain(self.offered_proxy(settings)).collect()
    }

    fn operator_images(&self, settings: &RenderSettings) -> BTreeSet<String> {
        let agent = image::of_operator(self, settings).map(|_| AGENT.to_owned());
        agent.into_iter().chain(self.offered_proxy(settings).map(|(name, _)| name)).collect()
    }

    fn network_policy(&self) -> ChildManifest {
        render::network_policy(self, Self::LABEL, self.spec.port)
    }

    fn disruption_budget(&self) -> ChildManifest {
        render::disruption_budget(self, Self::LABEL)
    }

    fn pod_template(&self) -> Option<&serde_json::Value> {
        self.spec.pod_template.as_ref()
    }

    fn endpoint(&self, settings: &RenderSettings) -> String {
        render::endpoint(self, render::AGENT_PORT, settings)
    }
}

/// Returns the digest of those settings of the operator that an Agent of this namespace uses.
pub(crate) fn settings_digest(settings: &RenderSettings, namespace: &str) -> String {
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
