//! Objects that an Agent refers to, looked up in the informer caches and held for one rendering.

use std::{collections::BTreeMap, sync::Arc};

use crds::{
    Agent, Flow, HasReferences, Model, PluginConfig, Prompt, RefKind, Reference, Tool, ToolSpec, agent::AgentSpec,
    approval::Approval, tool::ToolType,
};
use machine::ActionError;

use super::image;
use crate::{
    deps::Deps,
    discovery::resolve_tool,
    flow::fallbacks,
    ports::CacheReader,
    prompt,
    references::{self, AvailableVariables, Resolver},
    render::{AgentParts, FlowModel, ToolSlot},
    runtime_notes::unserved_search,
    server_tools::{LeftOut, ListedTool, name_variables, server_tools},
    tool::{described, with_protocol},
    unserved_fallbacks::UnservedFallbacks,
};

/// References of an Agent that were found.
#[derive(Debug)]
pub(super) struct AgentReferences {
    /// For each tool: name, Tool unless it is a builtin, and endpoint of the flow or agent that it calls.
    tools: Vec<(String, Option<Arc<Tool>>, Option<String>)>,
    prompt: Option<Arc<Prompt>>,
    model: Option<(Arc<Model>, Arc<PluginConfig>)>,
    fallbacks: Vec<FlowModel>,
    data: BTreeMap<String, String>,
    /// Tools that it goes without.
    pub(super) left_out: Option<LeftOut>,
    /// Fallbacks that it goes without.
    pub(super) unserved: UnservedFallbacks,
}

impl AgentReferences {
    /// Looks up in the informer caches those references that may be used.
    pub(super) fn look_up(agent: &Agent, deps: &Deps) -> Self {
        let (namespace, spec, cache) = (namespace(agent), &agent.spec, &deps.cache);
        let lookup = Resolver::new(deps, namespace);
        let usable = |kind, name: &str| {
            matches!(lookup.find(&Reference::new(kind, name)), references::Resolution::Resolved(_))
                .then(|| name.to_owned())
        };
        let tools = spec.tools.iter().filter_map(|name| usable(RefKind::Tool, name)).map(|name| {
            let tool = cache.get::<Tool>(namespace, &name);
            let tool = tool.map(|tool| resolve_tool(cache.as_ref(), namespace, &tool).unwrap_or(tool));
            let tool = tool.map(|tool| described(cache.as_ref(), namespace, tool));
            let tool = tool.map(|tool| with_protocol(cache.as_ref(), namespace, tool));
            let address = tool.as_ref().and_then(|tool| address(&tool.spec, cache.as_ref(), namespace));
            (name, tool, address)
        });
        let mut tools: Vec<_> = tools.collect();
        let listed = tools.iter().filter_map(|(name, tool, _)| match tool {
            Some(tool) => tool.spec.enabled.then(|| ListedTool::Object(name, &tool.spec.name)),
            None => Some(ListedTool::Builtin(name)),
        });
        let mut of_servers = server_tools(cache.as_ref(), namespace, &spec.tool_servers, listed);
        name_variables(of_servers.tools.iter_mut().map(|(_, tool)| tool));
        tools.extend(of_servers.tools.into_iter().map(|(name, tool)| (name, Some(tool), None)));
        let prompt = spec.prompt_ref.as_ref().and_then(|prompt| usable(RefKind::Prompt, &prompt.name));
        let model = spec.model_ref.as_ref().and_then(|model| usable(RefKind::Model, &model.name));
        let model = model.and_then(|name| cache.get::<Model>(namespace, &name));
        let mut fallbacks = model.as_ref().map(|model| fallbacks(deps, namespace, &model.spec)).unwrap_or_default();
        let model = model.and_then(|model| {
            let plugin = cache.get::<PluginConfig>(namespace, &model.spec.plugin_config_ref.name)?;
            Some((model, plugin))
        });
        let (mut left_out, mut unserved) = (of_servers.left_out, UnservedFallbacks::default());
        if image::is_runner(agent, &deps.settings) {
            let given = AvailableVariables::of(
                cache.as_ref(),
                namespace,
                &spec.env,
                &spec.env_from,
                spec.pod_template.as_ref(),
            );
            let named = tools.iter().map(|(name, tool, _)| (name.as_str(), tool.as_deref()));
            LeftOut::add_unserved(&mut left_out, unserved_search(named, &given));
            if let Some((model, plugin)) = &model {
                unserved.remove_from(&mut fallbacks, &model.spec.plugin_config_ref.name, &plugin.spec);
            }
        }
        Self {
            tools,
            left_out,
            unserved,
            prompt: prompt.and_then(|name| cache.get::<Prompt>(namespace, &name)),
            model,
            fallbacks,
            data: lookup.data(&agent.references()),
        }
    }

    /// Reports whether the Model of `modelRef` and its PluginConfig were found.
    pub(super) fn has_model(&self) -> bool {
        self.model.is_some()
    }

    /// Reports whether Models stand in for that of `modelRef`.
    pub(super) fn has_fallbacks(&self) -> bool {
        !self.fallbacks.is_empty()
    }

    /// Reports whether the runtime may offer the model a tool of this name; true if it may offer none, where no choice counts.
    pub(super) fn may_have_tool(&self, spec: &AgentSpec, name: &str) -> bool {
        let names = self.tools.iter().filter_map(|(listed, tool, _)| match tool {
            None => Some(listed.as_str()),
            Some(tool) => tool.spec.enabled.then_some(tool.spec.name.as_str()),
        });
        let names: Vec<&str> = names.collect();
        // The tool of a knowledge base has this prefix.
        let is_search = !spec.knowledge_bases.is_empty() && name.starts_with("search_");
        names.is_empty() || names.contains(&name) || is_search
    }

    /// Returns the tools whose calls a person has to approve, by their names in the spec.
    pub(super) fn asking_tools(&self) -> impl Iterator<Item = (&str, &Approval)> {
        self.tools.iter().filter_map(|(name, tool, _)| {
            let tool = tool.as_deref().filter(|tool| tool.spec.enabled)?;
            Some((name.as_str(), tool.spec.needed_approval()?))
        })
    }

    /// Returns the providers of the Model of `modelRef` and of those that stand in for it.
    pub(super) fn providers(&self) -> impl Iterator<Item = &str> {
        let first = self.model.iter().map(|(_, plugin)| plugin.spec.type_.as_str());
        first.chain(self.fallbacks.iter().map(|fallback| fallback.plugin.type_.as_str()))
    }

    /// Returns the parts as the rendering takes them.
    ///
    /// # Errors
    /// The prompt's frontmatter cannot be split from its template; such a Prompt would not be Available.
    pub(super) fn parts(&self) -> Result<AgentParts<'_>, ActionError> {
        let tools = self.tools.iter().map(|(name, tool, address)| slot(name, tool.as_deref(), address.as_deref()));
        Ok(AgentParts {
            tools: tools.collect(),
            prompt: self.prompt.as_deref().map(prompt::template).transpose()?,
            model: self.model.as_ref().map(|(model, plugin)| (&model.spec, &plugin.spec)),
            fallbacks: &self.fallbacks,
            is_own_image: false,
            data: self.data.clone(),
        })
    }
}

fn slot<'a>(name: &'a str, tool: Option<&'a Tool>, address: Option<&'a str>) -> ToolSlot<'a> {
    match (tool, address) {
        (None, _) => ToolSlot::Builtin(name),
        (Some(tool), None) => ToolSlot::Object(tool),
        (Some(tool), Some(address)) => ToolSlot::Caller(tool, address),
    }
}

/// Returns the endpoint of the flow or agent that a tool calls, from that workload's status.
pub(crate) fn address(tool: &ToolSpec, cache: &dyn CacheReader, namespace: &str) -> Option<String> {
    match tool.tool_type()? {
        ToolType::Flow => {
            let flow = cache.get::<Flow>(namespace, &tool.flow_ref.as_ref()?.name)?;
            flow.status.as_ref()?.endpoint.clone()
        }
        ToolType::Agent => {
            let asked = tool.agent_ref.as_ref()?;
            let agent = cache.get::<Agent>(asked.namespace().unwrap_or(namespace), &asked.name)?;
            agent.status.as_ref()?.endpoint.clone()
        }
        _ => None,
    }
}

pub(super) fn namespace(agent: &Agent) -> &str {
    agent.metadata.namespace.as_deref().unwrap_or_default()
}
