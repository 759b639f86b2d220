//! From a flow's files to a flow that can answer, or to everything that is wrong with them.
//!
//! Nothing stops at the first problem: prompts, tools, model, credentials and entry are each judged on their own.

use std::{collections::BTreeMap, sync::Arc};

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
    tools::{CallableTool, Toolbox},
};

/// What all flows of a process share.
pub(super) struct FlowLoader<'a> {
    folder: &'a Folder,
    environment: Arc<Lookup>,
    http: Http,
    /// None; those of the flows share its connections.
    tools: Toolbox,
}

impl<'a> FlowLoader<'a> {
    /// A judge of the flows in `folder`; `environment` finds credentials that are not files.
    pub(super) fn new(folder: &'a Folder, environment: Arc<Lookup>, metrics: RunnerMetrics) -> Self {
        let tools = Toolbox::new(Vec::new(), environment.clone(), metrics);
        Self { folder, environment, http: Http::default(), tools }
    }

    /// The flow that is served alone, called `name`.
    ///
    /// # Errors
    /// All that is wrong.
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

    /// A flow of a set; `entrypoint` is what the manifest says.
    ///
    /// # Errors
    /// All that is wrong.
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
        // The credentials are the model's: no header refers to them.
        let tools = self.tools.with_tools(tools, self.environment.clone());
        let shared = PromptCompiler { files, credentials, http: &self.http, tools, tool_names: named };
        let mut prompts = Vec::new();
        for text in &files.prompts {
            match shared.compile(text) {
                Ok(endpoint) => prompts.push((text.name.clone(), Arc::new(endpoint))),
                // Prompts that use one model that cannot be opened all say so.
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

    /// Where the flow's credentials are: its folder, then the environment.
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
                let directory = models::directory(self.folder.path(folder));
                Arc::new(move |name: &str| directory(name).or_else(|| environment(name)))
            }
        };
        for key in &config.credential_keys {
            // Keys that no model asks for may hold anything, so a file need only be there.
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

/// The prompt that is the flow; `named` is what the manifest says.
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
            problems.push(wrong(format!("there is no `entrypoint`; name one of its prompts: {}", names())));
            None
        }
    }
}

/// The tools, and the name of each by that of its file.
fn tools(files: &FlowSources, problems: &mut Vec<FlowProblem>) -> (Vec<CallableTool>, BTreeMap<String, String>) {
    let mut tools: Vec<CallableTool> = Vec::new();
    let mut named = BTreeMap::new();
    for TextFile { name, file, text } in &files.tools {
        // Syntax first: that error has a line.
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
