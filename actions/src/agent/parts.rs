//! The objects that an Agent refers to, held for the time of a rendering.

use std::{collections::BTreeMap, sync::Arc};

use crds::{Agent, HasReferences, Model, PluginConfig, Prompt, RefKind, Reference, Tool, ToolSpec, tool::ToolType};
use machine::ActionError;

use crate::{
    deps::Deps,
    discovery::resolve_tool,
    ports::CacheReader,
    prompt,
    references::{self, Resolver},
    render::{AgentParts, ToolSlot},
};

/// What was found of what an Agent refers to.
#[derive(Debug)]
pub(super) struct AgentReferences {
    /// Name of the Tool, the Tool unless it is a builtin, and where the flow or agent is that it calls.
    tools: Vec<(String, Option<Arc<Tool>>, Option<String>)>,
    prompt: Option<Arc<Prompt>>,
    model: Option<(Arc<Model>, Arc<PluginConfig>)>,
    data: BTreeMap<String, String>,
}

impl AgentReferences {
    /// Takes from the caches what may be used.
    pub(super) fn look_up(agent: &Agent, world: &Deps) -> Self {
        let (namespace, spec, views) = (namespace(agent), &agent.spec, &world.cache);
        let lookup = Resolver::new(world, namespace);
        let usable = |kind, name: &str| {
            matches!(lookup.find(&Reference::new(kind, name)), references::Resolution::Resolved(_))
                .then(|| name.to_owned())
        };
        let tools = spec.tools.iter().filter_map(|name| usable(RefKind::Tool, name)).map(|name| {
            let tool = views.tool(namespace, &name);
            let tool = tool.map(|tool| resolve_tool(views.as_ref(), namespace, &tool).unwrap_or(tool));
            let address = tool.as_ref().and_then(|tool| address(&tool.spec, views.as_ref(), namespace));
            (name, tool, address)
        });
        let prompt = spec.prompt_ref.as_ref().and_then(|prompt| usable(RefKind::Prompt, &prompt.name));
        let model = spec.model_ref.as_ref().and_then(|model| usable(RefKind::Model, &model.name));
        let model = model.and_then(|name| views.model(namespace, &name));
        Self {
            tools: tools.collect(),
            prompt: prompt.and_then(|name| views.prompt(namespace, &name)),
            model: model.and_then(|model| {
                let plugin = views.plugin_config(namespace, &model.spec.plugin_config_ref.name)?;
                Some((model, plugin))
            }),
            data: lookup.data(&agent.references()),
        }
    }

    /// Whether the Model of `modelRef` is there.
    pub(super) fn has_model(&self) -> bool {
        self.model.is_some()
    }

    /// As rendering takes it.
    ///
    /// # Errors
    /// A prompt whose frontmatter cannot be told from its template: it would not be Available.
    pub(super) fn parts(&self) -> Result<AgentParts<'_>, ActionError> {
        let tools = self.tools.iter().map(|(name, tool, address)| slot(name, tool.as_deref(), address.as_deref()));
        Ok(AgentParts {
            tools: tools.collect(),
            prompt: self.prompt.as_deref().map(prompt::template).transpose()?,
            model: self.model.as_ref().map(|(model, plugin)| (&model.spec, &plugin.spec)),
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

/// Where the flow or agent is that a tool calls.
pub(crate) fn address(tool: &ToolSpec, views: &dyn CacheReader, namespace: &str) -> Option<String> {
    match tool.tool_type()? {
        ToolType::Flow => {
            let flow = views.flow(namespace, &tool.flow_ref.as_ref()?.name)?;
            flow.status.as_ref()?.endpoint.clone()
        }
        ToolType::Agent => {
            let agent = views.agent(namespace, &tool.agent_ref.as_ref()?.name)?;
            agent.status.as_ref()?.endpoint.clone()
        }
        _ => None,
    }
}

pub(super) fn namespace(agent: &Agent) -> &str {
    agent.metadata.namespace.as_deref().unwrap_or_default()
}
