//! Compiles the text of a prompt into an endpoint.
//!
//! The frontmatter takes precedence over the flow: it may name another model of the flow's provider, add to the
//! generation config, select tools, and bound the number of tool turns.

use std::{collections::BTreeMap, sync::Arc};

use crds::provider;
use dotprompt::{OutputFormat, Prompt};

use super::{
    contract::{FlowSources, TextFile},
    endpoint::{ChatMessage, PromptEndpoint},
    folder::Folder,
    output::JsonOutput,
    problem::{FlowProblem, line_of},
};
use crate::{
    Lookup,
    models::{self, FallbackSources, Http, Model, ModelRef},
    tools::Toolbox,
    turn::TOOL_TURNS,
};

/// Returns the canonical name of the API that a plugin of this name speaks, if it is a known one.
fn protocol(name: &str) -> Option<&'static str> {
    provider::provider(name).and_then(|found| found.names.first().copied())
}

/// Compiler for the prompts of one flow.
pub(super) struct PromptCompiler<'a> {
    pub(super) files: &'a FlowSources,
    /// Lookup of credentials by name.
    pub(super) credentials: Arc<Lookup>,
    /// Lookup of the variables of fallbacks, by name.
    pub(super) environment: Arc<Lookup>,
    /// Contract folder, with the files of their credentials.
    pub(super) folder: &'a Folder,
    pub(super) http: &'a Http,
    /// All tools of the flow.
    pub(super) tools: Toolbox,
    /// Name of each tool, by the name of its file.
    pub(super) tool_names: BTreeMap<String, String>,
}

impl PromptCompiler<'_> {
    /// Compiles the prompt in `text`.
    ///
    /// # Errors
    /// All problems of the prompt.
    pub(super) fn compile(&self, text: &TextFile) -> Result<PromptEndpoint, Vec<FlowProblem>> {
        let in_line = |part: &str, problem: String| FlowProblem {
            file: text.file.clone(),
            line: line_of(&text.text, part),
            text: problem,
        };
        let prompts = self.files.prompts.iter().map(|prompt| (prompt.name.as_str(), prompt.text.as_str())).collect();
        let prompt = Prompt::parse_among(&text.name, &prompts)
            .map_err(|error| vec![FlowProblem { file: text.file.clone(), line: error.line, text: error.message }])?;
        let meta = prompt.metadata();
        let mut problems = Vec::new();

        let model = self.model(meta.model.as_deref()).map_err(|problem| {
            problems.push(match &meta.model {
                Some(model) => in_line(model, problem),
                None => self.files.in_config("plugin", problem),
            });
        });
        let tools = self.tools(meta.tools.as_deref(), |name, problem| problems.push(in_line(name, problem)));
        let output = match meta.output_format {
            OutputFormat::Text => Ok(None),
            OutputFormat::Json => JsonOutput::new(meta.output_schema.clone()).map(Some),
        };
        let output = output
            .map_err(|problem| problems.push(in_line("output:", format!("the output schema is wrong: {problem}"))));
        let tool_turns = meta.max_turns.map_or(TOOL_TURNS, |turns| TOOL_TURNS.min(turns as usize));
        let config = Arc::new(meta.config.clone());
        let message = ChatMessage {
            is_variable: match &meta.input_schema {
                Some(schema) => schema["properties"].get("message").is_some(),
                None => prompt.uses_variable("message"),
            },
            in_template: prompt.uses_variable("message"),
        };
        match (model, output) {
            (Ok(model), Ok(output)) if problems.is_empty() => {
                Ok(PromptEndpoint { prompt, model, config, tools, output, tool_turns, message })
            }
            _ => Err(problems),
        }
    }

    /// Opens the model that the frontmatter names, otherwise the flow's own.
    fn model(&self, named: Option<&str>) -> Result<Arc<dyn Model>, String> {
        let config = &self.files.config;
        let plugin = config.plugin.type_.as_str();
        let is_own = |provider| {
            provider == config.default_model.provider
                || protocol(provider).is_some_and(|one| protocol(plugin) == Some(one))
        };
        let base_url = config.plugin.base_url()?;
        let id = match named.and_then(|named| named.split_once('/')) {
            Some((provider, id)) if is_own(provider) => id,
            // A proxy for many providers (`baseUrl`) has model ids with slashes; a provider's own API has no model of
            // another provider.
            Some((provider, _)) if base_url.is_none() && protocol(provider).is_some() => {
                return Err(format!("the flow has a plugin for {plugin}, not for {provider}"));
            }
            _ => named.unwrap_or(&config.default_model.model),
        };
        let reference = ModelRef {
            credential_keys: config.credential_keys.clone(),
            ..config.plugin.reference(id, &config.default_model.config)?
        };
        let folder = |named: &str| Some(self.folder.path(&self.folder.resolve(&self.files.folder, named)?));
        let own = FallbackSources { variables: &*self.environment, folder: &folder };
        models::open_chain(&reference, &config.fallbacks, &*self.credentials, own, self.http)
    }

    /// Returns the tools called `names`, by their own name or their file's; all tools when the prompt selects none.
    fn tools(&self, names: Option<&[String]>, mut wrong: impl FnMut(&str, String)) -> Toolbox {
        let Some(names) = names else { return self.tools.clone() };
        let mut chosen = Vec::with_capacity(names.len());
        for name in names {
            let found = self.tool_names.iter().find(|(file, inside)| name == *file || name == *inside);
            match found {
                Some((_, inside)) => chosen.push(inside),
                None => {
                    let known: Vec<_> = self.tool_names.values().map(String::as_str).collect();
                    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                    wrong(name, format!("the flow has no tool `{name}`; it has: {known}"));
                }
            }
        }
        self.tools.filtered(|tool| chosen.contains(&&tool.name))
    }
}
