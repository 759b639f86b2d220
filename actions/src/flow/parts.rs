//! Parts of a flow: everything it refers to, from the informer caches. References that are not found are left out.

use std::{collections::BTreeMap, sync::Arc};

use crds::{
    Flow, Model, ModelSpec, PluginConfig, Prompt, Tool,
    digest::sha256_hex,
    flow::FlowDefinition,
    tool::{ToolType, is_builtin},
};

use crate::{
    deps::Deps,
    discovery::resolve_tool,
    ports::{ChildKind, ChildRef},
    render::{
        AGENT_PORT, Credentials, FlowModel, FlowParts, FlowTool, HeaderFrom, HeaderVariable, endpoint_of,
        header_variables, plugin_variables,
    },
    server_tools::{ListedTool, name_variables, server_tools},
    tool::{described, with_protocol},
};

/// Collects the parts of the flow called `name`.
pub(crate) fn flow_parts(deps: &Deps, namespace: &str, name: &str, definition: &FlowDefinition) -> FlowParts {
    let text = |source: &crds::flow::PromptSource| match (&source.prompt_ref, &source.prompt) {
        (Some(named), _) => deps.cache.get::<Prompt>(namespace, &named.name).map(|prompt| prompt.spec.content.clone()),
        (None, inline) => inline.as_ref().map(|prompt| prompt.content.clone()),
    };
    let prompts = definition.prompts.iter().filter_map(|source| Some((source.name().to_owned(), text(source)?)));
    let object = |tool: Arc<Tool>| FlowTool::Object {
        url: url(deps, namespace, &tool),
        header_values: header_values(deps, namespace, header_variables(&tool.spec)),
        tool,
    };
    let tools = definition.tools.iter().filter_map(|named| {
        let tool = match deps.cache.get::<Tool>(namespace, &named.name) {
            None => is_builtin(&named.name).then_some(FlowTool::Builtin),
            Some(tool) => tool.spec.enabled.then(|| {
                let tool = resolve_tool(deps.cache.as_ref(), namespace, &tool).unwrap_or(tool);
                let tool = described(deps.cache.as_ref(), namespace, tool);
                object(with_protocol(deps.cache.as_ref(), namespace, tool))
            }),
        };
        Some((named.name.clone(), tool?))
    });
    let mut tools: Vec<_> = tools.collect();
    let listed = tools.iter().map(|(name, tool)| match tool {
        FlowTool::Object { tool, .. } => ListedTool::Object(name, &tool.spec.name),
        FlowTool::Builtin => ListedTool::Builtin(name),
    });
    let mut of_servers = server_tools(deps.cache.as_ref(), namespace, &definition.tool_servers, listed);
    name_variables(of_servers.tools.iter_mut().map(|(_, tool)| tool));
    tools.extend(of_servers.tools.into_iter().map(|(name, tool)| (name, object(tool))));
    FlowParts {
        name: name.to_owned(),
        prompts: prompts.collect(),
        tools,
        model: model(deps, namespace, definition),
        left_out: of_servers.left_out,
    }
}

/// Gives the variables with the headers of servers names that hold for all flows of a set, which run in the same container.
pub(crate) fn name_variables_of_set(flows: &mut [FlowParts]) {
    let tools = flows.iter_mut().flat_map(|flow| &mut flow.tools);
    name_variables(tools.filter_map(|(_, tool)| match tool {
        FlowTool::Object { tool, .. } => Some(tool),
        FlowTool::Builtin => None,
    }));
}

/// Returns the URL of the flow or agent that a tool calls.
fn url(deps: &Deps, namespace: &str, tool: &Tool) -> Option<String> {
    let spec = &tool.spec;
    match spec.tool_type()? {
        ToolType::Flow => {
            let flow = deps.cache.get::<Flow>(namespace, &spec.flow_ref.as_ref()?.name)?;
            let name = flow.metadata.name.as_deref().unwrap_or_default();
            Some(endpoint_of(namespace, name, flow.spec.runtime.port, &deps.settings))
        }
        ToolType::Agent => match &spec.agent_ref {
            Some(asked) => {
                let namespace = asked.namespace().unwrap_or(namespace);
                Some(endpoint_of(namespace, &asked.name, AGENT_PORT, &deps.settings))
            }
            None => spec.endpoint.clone(),
        },
        _ => None,
    }
}

/// Returns, for each header value that is in no file, its variable and the digest of the value.
fn header_values(deps: &Deps, namespace: &str, variables: Vec<HeaderVariable>) -> BTreeMap<String, String> {
    let digest = |from: &HeaderFrom| match from {
        HeaderFrom::Secret(name, key) => data(deps, ChildKind::Secret, namespace, name)?.remove(key),
        HeaderFrom::ConfigMap(name, key) => data(deps, ChildKind::ConfigMap, namespace, name)?.remove(key),
        HeaderFrom::Text(text) => Some(sha256_hex(text.as_bytes())),
    };
    variables.into_iter().filter_map(|found| Some((found.name.clone(), digest(&found.source)?))).collect()
}

fn model(deps: &Deps, namespace: &str, definition: &FlowDefinition) -> Option<FlowModel> {
    let model: ModelSpec = match (&definition.model_ref, &definition.model_spec) {
        (Some(named), _) => deps.cache.get::<Model>(namespace, &named.name)?.spec.clone(),
        (None, inline) => inline.clone()?,
    };
    let fallbacks = fallbacks(deps, namespace, &model);
    Some(FlowModel { fallbacks, ..alone(deps, namespace, model)? })
}

/// Returns the models that stand in for this one.
pub(crate) fn fallbacks(deps: &Deps, namespace: &str, model: &ModelSpec) -> Vec<FlowModel> {
    let found = model.fallback_refs.iter().filter_map(|named| deps.cache.get::<Model>(namespace, &named.name));
    found.filter_map(|model| alone(deps, namespace, model.spec.clone())).collect()
}

/// Returns a model without its fallbacks.
fn alone(deps: &Deps, namespace: &str, model: ModelSpec) -> Option<FlowModel> {
    let plugin = deps.cache.get::<PluginConfig>(namespace, &model.plugin_config_ref.name)?.spec.clone();
    let credentials = plugin.credentials_ref.as_ref().map(|named| {
        let mut values = data(deps, ChildKind::Secret, namespace, &named.name).unwrap_or_default();
        if !plugin.credential_keys.is_empty() {
            values.retain(|key, _| plugin.credential_keys.contains(key));
        }
        Credentials { secret: named.name.clone(), values }
    });
    let variables = plugin_variables(&model.plugin_config_ref.name, &plugin);
    let header_values = header_values(deps, namespace, variables);
    Some(FlowModel { model, plugin, credentials, header_values, fallbacks: Vec::new() })
}

/// Returns the data of a Secret or ConfigMap: each key with the digest of its value.
fn data(deps: &Deps, kind: ChildKind, namespace: &str, name: &str) -> Option<BTreeMap<String, String>> {
    let child = ChildRef { kind, namespace: namespace.to_owned(), name: name.to_owned() };
    Some(deps.cache.child(&child)?.data.clone())
}
