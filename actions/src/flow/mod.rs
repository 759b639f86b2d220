//! `Flow` kind: validation, inputs and rendering. The lifecycle is that of every workload (`crate::workload`).

mod parts;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crds::{
    Flow, HasReferences, Model, RefKind, Reference, Traffic, WorkloadPhase, WorkloadStatus,
    cycle::Node,
    digest,
    flow::{FlowDefinition, Runtime},
    reason,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use machine::{ActionError, Table, TableError};
use meta::PhasedObject;

use crate::{
    deps::Deps,
    kind::{ControlledKind, Registry},
    ports::{ChildKind, ChildManifest},
    prompt::inline_problem,
    references::{
        AvailableVariables, Evaluation, Inputs, ONLY_GATEWAYS, Query, Referable, Resolution, Resolver, Uncallable,
        Usage, model_setting_problem,
    },
    render::{
        self, FLOW, FLOW_SET, FlowContract, FlowImages, FlowKind, FlowParts, FlowTool, RenderError, RenderSettings,
    },
    runtime_notes::{unknown_providers, unserved_search},
    server_tools::LeftOut,
    unserved_fallbacks::UnservedFallbacks,
    workload::{self, RenderedWorkload, WorkloadKind},
};

pub(crate) use parts::{fallbacks, flow_parts, name_variables_of_set};

impl ControlledKind for Flow {
    const TABLE: Table<WorkloadPhase> = Table { render_version: 2, ..workload::TABLE };
    const CHILDREN: &'static [ChildKind] = ChildKind::ALL;
    const HAS_PODS: bool = true;

    fn registry() -> Result<Registry<Self>, TableError> {
        workload::registry()
    }
}

impl Referable for Flow {
    fn evaluate(query: &Query<'_>) -> Evaluation {
        query.evaluate_workload(query.object::<Self>(), |flow| flow.status.as_ref())
    }

    fn references_for(&self, usage: Usage) -> Vec<Reference> {
        if usage == Usage::Calls { self.references() } else { Vec::new() }
    }

    fn uncallable(&self) -> Option<Uncallable> {
        self.spec.runtime.traffic.proxy.require_identity.then_some(ONLY_GATEWAYS)
    }
}

impl WorkloadKind for Flow {
    const LABEL: &'static str = FLOW.label;

    fn replicas(&self) -> i32 {
        self.spec.runtime.replicas
    }

    fn traffic(&self) -> &Traffic {
        &self.spec.runtime.traffic
    }

    fn status(&self) -> Option<&WorkloadStatus> {
        self.status.as_ref()
    }

    fn status_mut(&mut self) -> &mut WorkloadStatus {
        self.status.get_or_insert_default()
    }

    fn validate(&self, settings: &RenderSettings) -> Result<(), ActionError> {
        let (name, definition) = (self.key().name, &self.spec.definition);
        render::check_names(&name, definition).map_err(terminal)?;
        if let Some(problem) = inline_problem(definition) {
            return Err(ActionError::terminal(reason::INVALID_SPEC, problem));
        }
        let inline = definition.prompts.iter().filter_map(|source| source.prompt.as_ref());
        let prompts = inline.map(|prompt| (prompt.name.clone(), prompt.content.clone())).collect();
        let parts = FlowParts { name, prompts, tools: Vec::new(), model: None, left_out: None };
        rendered(self, &parts, &BTreeMap::new(), settings, None)?.check_pod_security(settings)
    }

    fn inputs(&self, deps: &Deps) -> Inputs {
        let key = self.key();
        let node = Node::new(RefKind::Flow, key.name);
        let mut inputs = Resolver::new(deps, &key.namespace).inputs(Some(&node), &self.references());
        inputs.add("Settings", Resolution::Resolved(settings_digest(&deps.settings)));
        inputs
    }

    fn model_problem(&self, deps: &Deps) -> Option<String> {
        model_problem(deps, &self.key().namespace, FLOW, &self.spec.runtime, &self.spec.definition)
    }

    fn rejection(&self, deps: &Deps) -> Option<String> {
        let key = self.key();
        let parts = flow_parts(deps, &key.namespace, &key.name, &self.spec.definition);
        rejection(deps, FLOW, &self.spec.runtime, &parts, 1)
    }

    fn render(&self, deps: &Deps, replicas: Option<i32>) -> Result<RenderedWorkload, ActionError> {
        let key = self.key();
        let mut parts = flow_parts(deps, &key.namespace, &key.name, &self.spec.definition);
        let mut unserved = UnservedFallbacks::default();
        leave_out(&mut parts, &mut unserved, deps, &key.namespace, &self.spec.runtime);
        let data = Resolver::new(deps, &key.namespace).data(&self.spec.runtime.references());
        let mut rendered = rendered(self, &parts, &data, &deps.settings, replicas)?;
        rendered.conditions.extend(unserved.condition());
        workload::with_policies(self, deps, rendered)
    }

    fn images(&self, settings: &RenderSettings) -> BTreeMap<String, String> {
        offered_images(self, FLOW, &self.spec.runtime, settings)
    }

    fn network_policy(&self) -> ChildManifest {
        render::network_policy(self, Self::LABEL, self.spec.runtime.port)
    }

    fn disruption_budget(&self) -> ChildManifest {
        render::disruption_budget(self, Self::LABEL)
    }

    fn pod_template(&self) -> Option<&serde_json::Value> {
        self.spec.runtime.pod_template.as_ref()
    }

    fn endpoint(&self, settings: &RenderSettings) -> String {
        render::endpoint(self, self.spec.runtime.port, settings)
    }
}

/// Reports whether the container runs the operator's own runner image.
fn runs_own_runner(runtime: &Runtime, settings: &RenderSettings) -> bool {
    let image = runtime.image.as_deref().unwrap_or_default();
    image.is_empty() || image == settings.runner_image
}

/// Returns the reason why our runner would refuse the prompts of a flow; `flows` is the number of flows that are evaluated together.
/// A container whose image, command or arguments the overlay sets is not evaluated.
pub(crate) fn rejection(
    deps: &Deps,
    kind: FlowKind,
    runtime: &Runtime,
    parts: &FlowParts,
    flows: usize,
) -> Option<String> {
    let containers = runtime.pod_template.as_ref().and_then(|overlay| overlay.pointer("/spec/containers")?.as_array());
    let replaced = containers.into_iter().flatten().any(|container| {
        container["name"] == kind.name && ["image", "command", "args"].iter().any(|key| container.get(key).is_some())
    });
    let judged = runs_own_runner(runtime, &deps.settings) && !replaced;
    judged
        .then(|| deps.prompt_rejections.rejection(&parts.prompts, flows))
        .flatten()
        .map(|sentence| sentence.to_string())
}

/// Returns the reason why a flow could never answer in our runner, as far as provider, credentials and settings of its model tell.
pub(crate) fn model_problem(
    deps: &Deps,
    namespace: &str,
    kind: FlowKind,
    runtime: &Runtime,
    definition: &FlowDefinition,
) -> Option<String> {
    if !runs_own_runner(runtime, &deps.settings) {
        return None;
    }
    let cache = deps.cache.as_ref();
    let model = match (&definition.model_ref, &definition.model_spec) {
        (Some(named), _) => cache.get::<Model>(namespace, &named.name)?.spec.clone(),
        (None, inline) => inline.clone()?,
    };
    let given = AvailableVariables::of(cache, namespace, &runtime.env, &[], runtime.pod_template.as_ref());
    let given = if kind.name == FLOW_SET.name { given.of_set() } else { given };
    let name = definition.model_ref.as_ref().map(|named| named.name.as_str());
    // Which tools a prompt has, its own text says.
    let setting = || model_setting_problem(cache, namespace, name, &model, &|_| true);
    given.model_problem(cache, namespace, &model).or_else(setting)
}

/// Notes what Récif's runner leaves out of a flow: a web search without a service, and the fallbacks that are removed here.
pub(crate) fn leave_out(
    parts: &mut FlowParts,
    unserved: &mut UnservedFallbacks,
    deps: &Deps,
    namespace: &str,
    runtime: &Runtime,
) {
    if !runs_own_runner(runtime, &deps.settings) {
        return;
    }
    let cache = deps.cache.as_ref();
    let given = AvailableVariables::of(cache, namespace, &runtime.env, &[], runtime.pod_template.as_ref());
    let tools = parts.tools.iter().map(|(name, tool)| match tool {
        FlowTool::Object { tool, .. } => (name.as_str(), Some(&**tool)),
        FlowTool::Builtin => (name.as_str(), None),
    });
    let sentence = unserved_search(tools, &given);
    LeftOut::add_unserved(&mut parts.left_out, sentence);
    if let Some(model) = &mut parts.model {
        unserved.remove_from(&mut model.fallbacks, &model.model.plugin_config_ref.name, &model.plugin);
    }
}

/// Returns the condition on providers of models that only the image of these flows can know.
pub(crate) fn understood(flows: &[FlowParts], runtime: &Runtime, settings: &RenderSettings) -> Option<Condition> {
    if runs_own_runner(runtime, settings) {
        return None;
    }
    let models = flows.iter().filter_map(|flow| flow.model.as_ref());
    let all = models.flat_map(|model| std::iter::once(model).chain(&model.fallbacks));
    let types = all.map(|model| model.plugin.type_.as_str());
    unknown_providers(runtime.image.as_deref().unwrap_or_default(), "config.json", types)
}

fn rendered(
    flow: &Flow,
    parts: &FlowParts,
    data: &BTreeMap<String, String>,
    settings: &RenderSettings,
    replicas: Option<i32>,
) -> Result<RenderedWorkload, ActionError> {
    let contract = FlowContract::of_flow(parts, data).map_err(terminal)?;
    let model = parts.model.as_ref().map(|model| format!("{}/{}", model.plugin.type_, model.model.model));
    let rendered = rendered_contract(flow, FLOW, &flow.spec.runtime, contract, settings, replicas)?;
    let left_out = parts.left_out.as_ref().map(LeftOut::condition);
    let understood = understood(std::slice::from_ref(parts), &flow.spec.runtime, settings);
    let conditions = left_out.into_iter().chain(understood).collect();
    Ok(RenderedWorkload { model, conditions, ..rendered })
}

/// Renders the children of a Flow or FlowSet whose Pods read the files of this contract.
pub(crate) fn rendered_contract<K: WorkloadKind + Resource<DynamicType = ()>>(
    cr: &K,
    kind: FlowKind,
    runtime: &Runtime,
    contract: FlowContract,
    settings: &RenderSettings,
    replicas: Option<i32>,
) -> Result<RenderedWorkload, ActionError> {
    let runner = match runtime.image.as_deref().filter(|name| !name.is_empty()) {
        Some(named) => named.to_owned(),
        None => cr.pinned_image(kind.name, &settings.runner_image),
    };
    let proxy = cr.proxy_image(settings);
    let images = FlowImages { runner: &runner, proxy: cr.pinned_proxy(&proxy) };
    let running = render::flow_workload_children(cr, kind, runtime, &contract, images, replicas);
    Ok(RenderedWorkload {
        config: render::flow_config_children(cr, kind, runtime, &contract),
        running: Vec::from(running.map_err(terminal)?),
        content_hash: contract.content_hash,
        overlay: runtime.pod_template.is_some(),
        model: None,
        approvals: false,
        conditions: Vec::new(),
    })
}

/// Returns the containers whose image comes from the operator, with the image of its current settings: that of the runner
/// unless the spec names one, and that of the sidecar.
pub(crate) fn offered_images<K: WorkloadKind>(
    cr: &K,
    kind: FlowKind,
    runtime: &Runtime,
    settings: &RenderSettings,
) -> BTreeMap<String, String> {
    let is_named = runtime.image.as_deref().is_some_and(|image| !image.is_empty());
    let runner = (!is_named).then(|| (kind.name.to_owned(), settings.runner_image.clone()));
    runner.into_iter().chain(cr.offered_proxy(settings)).collect()
}

/// Returns the digest of those settings of the operator that flows use; not of the image, which is pinned.
pub(crate) fn settings_digest(settings: &RenderSettings) -> String {
    digest::digest(&serde_json::json!({ "domain": settings.cluster_domain }))
}

pub(crate) fn terminal(error: RenderError) -> ActionError {
    ActionError::terminal(error.reason(), error.to_string())
}
