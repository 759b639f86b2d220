//! Source files of one flow, read but not yet validated.
//!
//! | file | content |
//! |---|---|
//! | `config.json` | [`FlowConfig`] |
//! | `prompts/<name>.prompt` | a [Dotprompt](https://google.github.io/dotprompt/) text |
//! | `tools/<name>.json` | a tool's definition |
//!
//! In a set each flow has these files in a folder of its own, and `manifest.json` names the folders.

use serde::Deserialize;

use super::{
    folder::{Folder, is_name},
    problem::{FlowProblem, line_of},
};
use crate::models::{DefaultModel, Fallback, Plugin};

/// Content of `config.json`. Fields that this runtime does not use are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlowConfig {
    /// Model of every prompt that names none.
    pub(super) default_model: DefaultModel,
    /// Connection to the model's provider.
    pub(super) plugin: Plugin,
    /// Models that answer, in this order, where the model cannot.
    #[serde(default)]
    pub(super) fallbacks: Vec<Fallback>,
    /// Folder with one file per credential; without it credentials are environment variables.
    pub(super) credentials_dir: Option<String>,
    /// Credentials that must exist.
    #[serde(default)]
    pub(super) credential_keys: Vec<String>,
    /// Name of the entry prompt, which the flow's own route serves; optional when there is only one prompt.
    pub(super) entrypoint: Option<String>,
}

/// Named text file.
#[derive(Debug)]
pub(super) struct TextFile {
    /// Name of the file without its suffix.
    pub(super) name: String,
    /// Path of the file, relative to the contract's folder.
    pub(super) file: String,
    /// Content.
    pub(super) text: String,
}

/// All source files of one flow.
#[derive(Debug)]
pub(super) struct FlowSources {
    /// Path of the flow's folder, relative to the contract's; empty for the contract's folder itself.
    pub(super) folder: String,
    /// Parsed `config.json`.
    pub(super) config: FlowConfig,
    /// Text of `config.json`, for line numbers of problems.
    config_text: String,
    /// Prompts, sorted by name.
    pub(super) prompts: Vec<TextFile>,
    /// Tools, sorted by file name.
    pub(super) tools: Vec<TextFile>,
}

impl FlowSources {
    /// Reads the files in `folder`, a path relative to the contract's.
    ///
    /// # Errors
    /// All files that cannot be read.
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

    /// Creates a problem located at a key of `config.json`.
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
