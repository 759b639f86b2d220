//! The files of one flow, read but not yet judged.
//!
//! | file | what it holds |
//! |---|---|
//! | `config.json` | [`FlowConfig`] |
//! | `prompts/<name>.prompt` | a Dotprompt text |
//! | `tools/<name>.json` | a tool's definition |
//!
//! In a set each flow has them in a folder of its own, and `manifest.json` names the folders.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    folder::{Folder, is_name},
    problem::{FlowProblem, line_of},
};

/// `config.json`. What it holds besides is for others.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlowConfig {
    /// The model of every prompt that names none.
    pub(super) default_model: DefaultModel,
    /// How the model is reached.
    pub(super) plugin: Plugin,
    /// The folder with one file per credential; without it they are environment variables.
    pub(super) credentials_dir: Option<String>,
    /// The credentials that must be there.
    #[serde(default)]
    pub(super) credential_keys: Vec<String>,
    /// The prompt that is the flow; the only one when unset.
    pub(super) entrypoint: Option<String>,
}

/// A model and its settings.
#[derive(Debug, Deserialize)]
pub(super) struct DefaultModel {
    /// Who provides it.
    pub(super) provider: String,
    /// Its name there.
    pub(super) model: String,
    /// Generation config of every request.
    #[serde(default)]
    pub(super) config: Map<String, Value>,
}

/// A provider's settings.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plugin {
    /// Which API the provider speaks.
    #[serde(rename = "type")]
    pub(super) type_: String,
    /// Which of the provider's public addresses, where it has one for each region.
    pub(super) region: Option<String>,
    /// Settings of that API, for example `baseURL`.
    #[serde(default)]
    pub(super) extra_config: Map<String, Value>,
}

/// A text file with a name.
#[derive(Debug)]
pub(super) struct TextFile {
    /// The file's name without its suffix.
    pub(super) name: String,
    /// The file, below the contract's folder.
    pub(super) file: String,
    /// What it holds.
    pub(super) text: String,
}

/// All files of one flow.
#[derive(Debug)]
pub(super) struct FlowSources {
    /// The flow's folder, below the contract's; empty when it is that one.
    pub(super) folder: String,
    /// `config.json`.
    pub(super) config: FlowConfig,
    /// The same as text, to find lines in.
    config_text: String,
    /// The prompts, by name.
    pub(super) prompts: Vec<TextFile>,
    /// The tools, by name.
    pub(super) tools: Vec<TextFile>,
}

impl FlowSources {
    /// Reads the files in `folder`, a path below the contract's.
    ///
    /// # Errors
    /// Everything that cannot be read.
    pub(super) fn read(contract: &Folder, folder: &str) -> Result<Self, Vec<FlowProblem>> {
        let mut problems = Vec::new();
        let config_file = join(folder, "config.json");
        let parse = |text: String| match serde_json::from_str(&text) {
            Ok(config) => Ok((config, text)),
            Err(error) => Err(FlowProblem::json(&*config_file, &error)),
        };
        let config = contract.read(&config_file).and_then(parse).map_err(|problem| problems.push(problem));
        let prompts = texts(contract, &join(folder, "prompts"), ".prompt", &mut problems);
        let tools = texts(contract, &join(folder, "tools"), ".json", &mut problems);
        if prompts.is_empty() && problems.is_empty() {
            problems.push(FlowProblem::new(join(folder, "prompts"), "it has no `.prompt` file; a flow needs one"));
        }
        match config {
            Ok((config, config_text)) if problems.is_empty() => {
                Ok(Self { folder: folder.into(), config, config_text, prompts, tools })
            }
            _ => Err(problems),
        }
    }

    /// A problem of a key of `config.json`.
    pub(super) fn in_config(&self, key: &str, text: impl Into<String>) -> FlowProblem {
        let line = line_of(&self.config_text, &format!("\"{key}\""));
        FlowProblem { file: join(&self.folder, "config.json"), line, text: text.into() }
    }
}

fn join(folder: &str, file: &str) -> String {
    if folder.is_empty() { file.into() } else { format!("{folder}/{file}") }
}

fn texts(contract: &Folder, folder: &str, suffix: &str, problems: &mut Vec<FlowProblem>) -> Vec<TextFile> {
    let names = contract.list(folder, suffix).unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    });
    let mut texts = Vec::with_capacity(names.len());
    for name in names {
        let file = format!("{folder}/{name}{suffix}");
        if !is_name(&name) {
            problems
                .push(FlowProblem::new(file, "its name must be letters, digits, `-`, `_` and `.`, the first not `.`"));
            continue;
        }
        match contract.read(&file) {
            Ok(text) => texts.push(TextFile { name, file, text }),
            Err(problem) => problems.push(problem),
        }
    }
    texts
}
