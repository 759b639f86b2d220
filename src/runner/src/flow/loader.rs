//! Loads flows: validates the source files of a flow and compiles them, or reports all of their problems.
//!
//! Loading does not stop at the first problem: prompts, tools, model, credentials and entry prompt are each validated
//! independently.

use std::{collections::BTreeMap, sync::Arc};

use crds::egress::EGRESS_VARIABLE;
use serde::de::IgnoredAny;

use super::{
    compile::PromptCompiler,
    contract::{FlowSources, TextFile},
    endpoint::Flow,
    folder::{Folder, is_name},
    manifest::MANIFEST,
    problem::FlowProblem,
    table::reserved,
};
use crate::{
    Lookup,
    metrics::RunnerMetrics,
    models::{self, Http},
    secret_values::SecretValues,
    tools::{CallableTool, Toolbox},
};

/// Loader of all flows of a process.
pub(super) struct FlowLoader<'a> {
    folder: &'a Folder,
    environment: Arc<Lookup>,
    http: Http,
    /// Values that no span may hold, if spans hold content.
    secrets: Option<SecretValues>,
    /// Empty toolbox; the toolboxes of the flows share its HTTP connections.
    tools: Toolbox,
}

impl<'a> FlowLoader<'a> {
    /// Creates a loader for the flows in `folder`; `environment` looks up credentials that are not files.
    pub(super) fn new(folder: &'a Folder, environment: Arc<Lookup>, metrics: RunnerMetrics) -> Self {
        let secrets = metrics.secrets.clone();
        let http = Http::counting(metrics.usage.clone()).noting(secrets.clone());
        let tools = Toolbox::new(Vec::new(), environment.clone(), metrics);
        Self { folder, environment, http, secrets, tools }
    }

    /// Loads the flow that is served alone, called `name`.
    ///
    /// # Errors
    /// All problems.
    pub(super) fn load_single(&self, files: &FlowSources, name: Option<&str>) -> Result<Flow, Vec<FlowProblem>> {
        let mut problems = Vec::new();
        if let Some(name) = name {
            let wrong = |text| FlowProblem::new("RECIF_FLOW_NAME", text);
            problems.extend(reserved(name).map(wrong));
            if !is_name(name) {
                problems.push(wrong(format!("{name:?} cannot be a route: use letters, digits and `-`")));
            }
        }
        for prompt in &files.prompts {
            problems.extend(reserved(&prompt.name).map(|text| FlowProblem::new(&*prompt.file, text)));
        }
        self.load(files, entry_prompt(files, None, &mut problems), problems)
    }

    /// Loads a flow of a set; `entrypoint` is the manifest's.
    ///
    /// # Errors
    /// All problems.
    pub(super) fn load_member(&self, files: &FlowSources, entrypoint: Option<&str>) -> Result<Flow, Vec<FlowProblem>> {
        let mut problems = Vec::new();
        let entry = entry_prompt(files, entrypoint, &mut problems);
        self.load(files, entry, problems)
    }

    fn load(
        &self,
        files: &FlowSources,
        entry: Option<&str>,
        mut problems: Vec<FlowProblem>,
    ) -> Result<Flow, Vec<FlowProblem>> {
        let credentials = self.credentials(files, &mut problems);
        let (tools, named) = tools(files, &mut problems);
        // The flow's credentials are for its model: headers of tools can refer only to environment variables.
        let tools = self.tools.with_tools(tools, self.environment.clone());
        let (environment, folder) = (self.environment.clone(), self.folder);
        let shared =
            PromptCompiler { files, credentials, environment, folder, http: &self.http, tools, tool_names: named };
        let mut prompts = Vec::new();
        for text in &files.prompts {
            match shared.compile(text) {
                Ok(endpoint) => prompts.push((text.name.clone(), Arc::new(endpoint))),
                // Prompts that share a model which cannot be opened report the same problem: it is listed once.
                Err(found) => {
                    problems.extend(found.into_iter().filter(|one| !problems.contains(one)).collect::<Vec<_>>());
                }
            }
        }
        let found = entry.and_then(|entry| prompts.iter().find(|(name, _)| name == entry));
        match found.map(|(_, endpoint)| endpoint.clone()) {
            Some(entry) if problems.is_empty() => Ok(Flow { entry, prompts }),
            _ => Err(problems),
        }
    }

    /// Returns the lookup of the flow's credentials: its folder first, then the environment.
    fn credentials(&self, files: &FlowSources, problems: &mut Vec<FlowProblem>) -> Arc<Lookup> {
        let environment = self.environment.clone();
        let config = &files.config;
        let folder = match &config.credentials_dir {
            None => None,
            Some(named) => {
                let folder = self.folder.resolve(&files.folder, named);
                if folder.is_none() {
                    problems.push(files.in_config("credentialsDir", "it leads out of the contract's folder"));
                }
                folder
            }
        };
        let lookup: Arc<Lookup> = match &folder {
            None => environment,
            Some(folder) => {
                if let Some(secrets) = &self.secrets {
                    secrets.add_folder(&self.folder.path(folder));
                }
                let directory = models::directory(self.folder.path(folder));
                Arc::new(move |name: &str| {
                    // A Secret of a PluginConfig must not replace the list of the flow's addresses.
                    let own = if name == EGRESS_VARIABLE { None } else { directory(name) };
                    own.or_else(|| environment(name))
                })
            }
        };
        for key in &config.credential_keys {
            // A key that no model uses may hold binary data, so the file need only exist.
            let there = match &folder {
                Some(folder) => !key.contains('/') && self.folder.has(&format!("{folder}/{key}")),
                None => lookup(key).is_some(),
            };
            if !there {
                let text = format!("the credential `{key}` is missing; put it into the Secret under that key");
                problems.push(match &folder {
                    Some(folder) => FlowProblem::new(format!("{folder}/{key}"), text),
                    None => files.in_config("credentialKeys", text),
                });
            }
        }
        lookup
    }
}

/// Returns the name of the entry prompt; `named` is the manifest's.
fn entry_prompt<'a>(
    files: &'a FlowSources,
    named: Option<&'a str>,
    problems: &mut Vec<FlowProblem>,
) -> Option<&'a str> {
    let names = || files.prompts.iter().map(|prompt| prompt.name.as_str()).collect::<Vec<_>>().join(", ");
    let wrong = |text: String| match named {
        Some(_) => FlowProblem::new(MANIFEST, text),
        None => files.in_config("entrypoint", text),
    };
    match named.or(files.config.entrypoint.as_deref()) {
        Some(entry) if files.prompts.iter().any(|prompt| prompt.name == entry) => Some(entry),
        Some(entry) => {
            problems.push(wrong(format!("the entrypoint {entry:?} is not one of its prompts: {}", names())));
            None
        }
        None if files.prompts.len() == 1 => Some(&files.prompts[0].name),
        None => {
            problems.push(wrong(format!("`entrypoint` is missing; name one of its prompts: {}", names())));
            None
        }
    }
}

/// Reads the tools, and maps the name of each tool's file to the name of the tool.
fn tools(files: &FlowSources, problems: &mut Vec<FlowProblem>) -> (Vec<CallableTool>, BTreeMap<String, String>) {
    let mut tools: Vec<CallableTool> = Vec::new();
    let mut named = BTreeMap::new();
    for TextFile { name, file, text } in &files.tools {
        // Syntax is checked first: that error has a line number.
        let read = serde_json::from_str::<IgnoredAny>(text)
            .map_err(|error| FlowProblem::json(&**file, &error))
            .and_then(|_| CallableTool::read_contract(text).map_err(|problem| FlowProblem::new(&**file, problem)));
        match read {
            Ok(tool) if tools.iter().any(|other| other.name == tool.name) => {
                let text = format!("another file describes a tool `{}`, too", tool.name);
                problems.push(FlowProblem::new(&**file, text));
            }
            Ok(tool) => {
                named.insert(name.clone(), tool.name.clone());
                tools.push(tool);
            }
            Err(problem) => problems.push(problem),
        }
    }
    (tools, named)
}
