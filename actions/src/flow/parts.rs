//! Parts of a flow: everything it refers to, from the informer caches. References that are not found are left out.

use std::collections::BTreeMap;

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
    render::{AGENT_PORT, Credentials, FlowModel, FlowParts, FlowTool, HeaderFrom, endpoint_of, header_variables},
    tool::described,
};

/// Collects the parts of the flow called `name`.
pub(crate) fn flow_parts(deps: &Deps, namespace: &str, name: &str, definition: &FlowDefinition) -> FlowParts {
    let text = |source: &crds::flow::PromptSource| match (&source.prompt_ref, &source.prompt) {
        (Some(named), _) => deps.cache.get::<Prompt>(namespace, &named.name).map(|prompt| prompt.spec.content.clone()),
        (None, inline) => inline.as_ref().map(|prompt| prompt.content.clone()),
    };
    let prompts = definition.prompts.iter().filter_map(|source| Some((source.name().to_owned(), text(source)?)));
    let tools = definition.tools.iter().filter_map(|named| {
        let tool = match deps.cache.get::<Tool>(namespace, &named.name) {
            None => is_builtin(&named.name).then_some(FlowTool::Builtin),
            Some(tool) => tool.spec.enabled.then(|| {
                let tool = resolve_tool(deps.cache.as_ref(), namespace, &tool).unwrap_or(tool);
                let tool = described(deps.cache.as_ref(), namespace, tool);
                FlowTool::Object {
                    url: url(deps, namespace, &tool),
                    header_values: header_values(deps, namespace, &tool),
                    tool,
                }
            }),
        };
        Some((named.name.clone(), tool?))
    });
    FlowParts {
        name: name.to_owned(),
        prompts: prompts.collect(),
        tools: tools.collect(),
        model: model(deps, namespace, definition),
    }
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
        ToolType::Agent => Some(endpoint_of(namespace, &spec.agent_ref.as_ref()?.name, AGENT_PORT, &deps.settings)),
        _ => None,
    }
}

/// Returns, for each header value that is in no file, its variable and the digest of the value.
fn header_values(deps: &Deps, namespace: &str, tool: &Tool) -> BTreeMap<String, String> {
    let variables = header_variables(&tool.spec).into_iter();
    let digest = |from: &HeaderFrom| match from {
        HeaderFrom::Secret(name, key) => data(deps, ChildKind::Secret, namespace, name)?.remove(key),
        HeaderFrom::ConfigMap(name, key) => data(deps, ChildKind::ConfigMap, namespace, name)?.remove(key),
        HeaderFrom::Text(text) => Some(sha256_hex(text.as_bytes())),
    };
    variables.filter_map(|found| Some((found.name.clone(), digest(&found.source)?))).collect()
}

fn model(deps: &Deps, namespace: &str, definition: &FlowDefinition) -> Option<FlowModel> {
    let model: ModelSpec = match (&definition.model_ref, &definition.model_spec) {
        (Some(named), _) => deps.cache.get::<Model>(namespace, &named.name)?.spec.clone(),
        (None, inline) => inline.clone()?,
    };
    let plugin = deps.cache.get::<PluginConfig>(namespace, &model.plugin_config_ref.name)?.spec.clone();
    let credentials = plugin.credentials_ref.as_ref().map(|named| {
        let mut values = data(deps, ChildKind::Secret, namespace, &named.name).unwrap_or_default();
        if !plugin.credential_keys.is_empty() {
            values.retain(|key, _| plugin.credential_keys.contains(key));
        }
        Credentials { secret: named.name.clone(), values }
    });
    Some(FlowModel { model, plugin, credentials })
}

/// Returns the data of a Secret or ConfigMap: each key with the digest of its value.
fn data(deps: &Deps, kind: ChildKind, namespace: &str, name: &str) -> Option<BTreeMap<String, String>> {
    let child = ChildRef { kind, namespace: namespace.to_owned(), name: name.to_owned() };
    Some(deps.cache.child(&child)?.data.clone())
}
