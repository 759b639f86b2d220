//! Files of one flow.

use std::collections::BTreeMap;

use super::{
    files,
    parts::{Credentials, FlowParts, FlowPlacement, FlowTool},
    tool_file,
};
use crate::render::{
    HeaderFrom, HeaderVariable, RenderError, header_variables, headers as headers_of, plugin_variables,
    sizes::MAX_OBJECT,
};

/// Files of one flow.
#[derive(Debug, Clone)]
pub(super) struct FlowFiles {
    pub(super) name: String,
    pub(super) entrypoint: String,
    /// File name to text, as for the next two fields.
    pub(super) prompts: BTreeMap<String, String>,
    pub(super) plain_tools: BTreeMap<String, String>,
    /// Tools with headers, which may hold credentials.
    pub(super) secret_tools: BTreeMap<String, String>,
    pub(super) config: Option<String>,
    pub(super) credentials: Option<Credentials>,
    /// PluginConfig of a fallback to its credentials that are files.
    pub(super) fallback_credentials: BTreeMap<String, Credentials>,
    pub(super) headers: Vec<HeaderVariable>,
    pub(super) header_values: BTreeMap<String, String>,
}

impl FlowFiles {
    /// Renders the files of a flow whose objects begin with `prefix`.
    pub(super) fn new(flow: &FlowParts, prefix: &str, place: FlowPlacement) -> Result<Self, RenderError> {
        let entrypoint = flow.prompts.first().map(|(name, _)| name.clone()).unwrap_or_default();
        let prompts = flow.prompts.iter().map(|(name, text)| (format!("{name}.prompt"), text.clone())).collect();
        let (mut plain_tools, mut secret_tools) = (BTreeMap::new(), BTreeMap::new());
        let mut seen = BTreeMap::new();
        let mut headers: Vec<HeaderVariable> = Vec::new();
        let mut values = BTreeMap::new();
        for (object, tool) in &flow.tools {
            let name = tool_file::name(object, tool);
            if let Some(other) = seen.insert(name, object) {
                let (one, other, name) = (other.clone(), object.clone(), name.to_owned());
                return Err(RenderError::DuplicateToolName { name, one, other });
            }
            let file = tool_file::tool_file(object, tool);
            let mut folder = &mut plain_tools;
            if let FlowTool::Object { tool, header_values, .. } = tool {
                if tool.spec.needed_approval().is_some() {
                    return Err(RenderError::ApprovalUnsupported(object.clone()));
                }
                if !headers_of(&tool.spec).is_empty() {
                    folder = &mut secret_tools;
                }
                for header in header_variables(&tool.spec) {
                    match headers.iter().find(|known| known.name == header.name) {
                        Some(known) if *known != header => return Err(RenderError::HeaderConflict(header.name)),
                        Some(_) => {}
                        None => headers.push(header),
                    }
                }
                values.extend(header_values.clone());
            }
            folder.insert(format!("{object}.json"), file);
        }
        let mut fallback_credentials = BTreeMap::new();
        if let Some(model) = &flow.model {
            let mut variables = plugin_variables(model.plugin_name(), &model.plugin);
            values.extend(model.header_values.clone());
            for fallback in &model.fallbacks {
                variables.extend(plugin_variables(fallback.plugin_name(), &fallback.plugin));
                values.extend(fallback.header_values.clone());
                let used = fallback.used_credentials();
                match place {
                    FlowPlacement::Alone => {
                        let secrets = fallback.credential_variables();
                        let digest = |key: &str| used.as_ref().and_then(|used| used.values.get(key).cloned());
                        values.extend(secrets.iter().filter_map(|found| match &found.source {
                            HeaderFrom::Secret(_, key) => Some((found.name.clone(), digest(key)?)),
                            _ => None,
                        }));
                        variables.extend(secrets);
                    }
                    FlowPlacement::InSet => {
                        fallback_credentials.extend(used.map(|used| (fallback.plugin_name().to_owned(), used)));
                    }
                }
            }
            for variable in variables {
                match headers.iter().find(|known| known.name == variable.name) {
                    Some(known) if *known != variable => return Err(RenderError::DuplicateVariable(variable.name)),
                    Some(_) => {}
                    None => headers.push(variable),
                }
            }
        }
        let files = Self {
            name: flow.name.clone(),
            config: flow.model.as_ref().map(|model| files::config(model, &entrypoint, &flow.name, place)),
            entrypoint,
            prompts,
            plain_tools,
            secret_tools,
            credentials: flow.model.as_ref().and_then(|model| model.credentials.clone()),
            fallback_credentials,
            headers,
            header_values: values,
        };
        files.check_sizes(prefix)?;
        Ok(files)
    }

    /// Returns an error if an object is larger than the API server stores.
    fn check_sizes(&self, prefix: &str) -> Result<(), RenderError> {
        let config = self.config.as_ref().map_or(0, String::len);
        let sum = |files: &BTreeMap<String, String>| files.iter().map(|(name, text)| name.len() + text.len()).sum();
        for (object, size) in [
            ("ConfigMap", "prompts", sum(&self.prompts)),
            ("ConfigMap", "tools", sum(&self.plain_tools)),
            ("Secret", "tools", sum(&self.secret_tools)),
            ("ConfigMap", "config", config),
        ]
        .map(|(kind, suffix, size): (_, _, usize)| (format!("{kind}/{prefix}-{suffix}"), size))
        {
            if size > MAX_OBJECT {
                return Err(RenderError::ObjectTooLarge { object, size, max: MAX_OBJECT });
            }
        }
        Ok(())
    }
}
