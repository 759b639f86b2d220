//! Renders the files that the runner reads of flows: the same parts give the same bytes.
//!
//! | file, below `/genkit` (of a set: below `/genkit/flows/<flow>`) | kept in |
//! |---|---|
//! | `prompts/<name>.prompt` | ConfigMap `<flow>-prompts` |
//! | `tools/<name>.json` | ConfigMap `<flow>-tools`, or the Secret of that name when the tool has headers |
//! | `config.json` | ConfigMap `<flow>-config` |
//! | `credentials/<key>` (sets only) | the provider's Secret |
//! | `manifest.json` (sets only) | ConfigMap `<set>-manifest` |
//!
//! In a set the objects are called `<set>-<flow>-…`. One projected volume mounts all files, each of them named: a Pod of an older
//! template keeps exactly its own files, even if `<flow>-prompts` already has others. The credentials of a flow that is not in a
//! set are environment variables.

mod files;
mod hash;
mod names;
mod objects;
mod tool_file;

use std::{collections::BTreeMap, sync::Arc};

use crds::{ModelSpec, PluginConfigSpec, Tool};

pub use names::check_names;

use super::{HeaderVariable, RenderError, env::MAX_OBJECT, header_variables};

/// Flow with everything it refers to. Missing references are left out.
#[derive(Debug, Clone)]
pub struct FlowParts {
    /// Name of the flow.
    pub name: String,
    /// Name and text of each prompt, in the order of the spec: the first one is the entry prompt.
    pub prompts: Vec<(String, String)>,
    /// Name and content of each tool, in the order of the spec.
    pub tools: Vec<(String, FlowTool)>,
    /// Model; `None` only if no Pod will read the result.
    pub model: Option<FlowModel>,
}

/// Tool of a flow.
#[derive(Debug, Clone)]
pub enum FlowTool {
    /// An enabled Tool.
    Object {
        /// The Tool.
        tool: Arc<Tool>,
        /// Address of the flow or agent that it calls.
        url: Option<String>,
        /// Variable to SHA-256 (hex) of the header's value.
        header_values: BTreeMap<String, String>,
    },
    /// A builtin, for which there is no Tool.
    Builtin,
}

/// Model of a flow, and how it is reached.
#[derive(Debug, Clone)]
pub struct FlowModel {
    /// Model.
    pub model: ModelSpec,
    /// Provider of the model.
    pub plugin: PluginConfigSpec,
    /// Credentials of the provider, if it has any.
    pub credentials: Option<Credentials>,
}

/// Secret with credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Name of the Secret.
    pub secret: String,
    /// Key to SHA-256 (hex) of its value, for the keys that are used.
    pub values: BTreeMap<String, String>,
}

/// Placement of a flow: in Pods of its own, or in those of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowPlacement {
    Alone,
    InSet,
}

/// Files of one flow.
#[derive(Debug, Clone)]
struct FlowFiles {
    name: String,
    entrypoint: String,
    /// File name to text, as for the next two fields.
    prompts: BTreeMap<String, String>,
    plain_tools: BTreeMap<String, String>,
    /// Tools with headers, which may hold credentials.
    secret_tools: BTreeMap<String, String>,
    config: Option<String>,
    credentials: Option<Credentials>,
    headers: Vec<HeaderVariable>,
    header_values: BTreeMap<String, String>,
}

/// Everything that the Pods of a Flow or FlowSet read.
#[derive(Debug, Clone)]
pub struct FlowContract {
    /// Name of the Flow or FlowSet.
    name: String,
    placement: FlowPlacement,
    flows: Vec<FlowFiles>,
    /// SHA-256 (hex) of all files and data.
    pub content_hash: String,
}

impl FlowContract {
    /// Renders the files of a Flow. `data` holds the digest of each Secret and ConfigMap that its environment refers to.
    ///
    /// # Errors
    /// [`RenderError`]: content that is too large, or tools that cannot be told apart.
    pub fn of_flow(flow: &FlowParts, data: &BTreeMap<String, String>) -> Result<Self, RenderError> {
        let files = FlowFiles::new(flow, &flow.name, FlowPlacement::Alone)?;
        Ok(Self::new(&flow.name, FlowPlacement::Alone, vec![files], data))
    }

    /// Renders the files of a FlowSet with these flows, in the order of the spec.
    ///
    /// # Errors
    /// As [`FlowContract::of_flow`], naming the flow.
    pub fn of_set(name: &str, flows: &[FlowParts], data: &BTreeMap<String, String>) -> Result<Self, RenderError> {
        let files = flows.iter().map(|flow| member(name, flow)).collect::<Result<Vec<_>, _>>()?;
        let mut sources: BTreeMap<&str, &HeaderVariable> = BTreeMap::new();
        for header in files.iter().flat_map(|flow| &flow.headers) {
            let first = sources.entry(header.name.as_str()).or_insert(header);
            if *first != header {
                return Err(RenderError::HeaderConflict(header.name.clone()));
            }
        }
        Ok(Self::new(name, FlowPlacement::InSet, files, data))
    }

    fn new(name: &str, place: FlowPlacement, flows: Vec<FlowFiles>, data: &BTreeMap<String, String>) -> Self {
        let mut contract = Self { name: name.to_owned(), placement: place, flows, content_hash: String::new() };
        contract.content_hash = hash::content_hash(&contract, data);
        contract
    }

    /// Returns the variables that the tools' headers refer to, each once.
    pub(super) fn headers(&self) -> Vec<&HeaderVariable> {
        let found: BTreeMap<_, _> =
            self.flows.iter().flat_map(|flow| &flow.headers).map(|header| (&header.name, header)).collect();
        found.into_values().collect()
    }

    /// Returns the Secrets whose keys become variables of the container.
    pub(super) fn env_from(&self) -> impl Iterator<Item = &str> {
        let alone = self.flows.iter().filter(|_| self.placement == FlowPlacement::Alone);
        alone.filter_map(|flow| flow.credentials.as_ref()).map(|credentials| credentials.secret.as_str())
    }

    fn manifest(&self) -> Option<String> {
        let flows = || self.flows.iter().map(|flow| (flow.name.as_str(), flow.entrypoint.as_str()));
        (self.placement == FlowPlacement::InSet).then(|| files::manifest(flows()))
    }
}

/// Checks that a flow of the set `set` can be rendered.
///
/// # Errors
/// As [`FlowContract::of_set`].
pub fn check_member(set: &str, flow: &FlowParts) -> Result<(), RenderError> {
    FlowFiles::new(flow, &format!("{set}-{}", flow.name), FlowPlacement::InSet).map(drop)
}

fn member(set: &str, flow: &FlowParts) -> Result<FlowFiles, RenderError> {
    FlowFiles::new(flow, &format!("{set}-{}", flow.name), FlowPlacement::InSet)
        .map_err(|error| RenderError::InFlow { flow: flow.name.clone(), error: Box::new(error) })
}

impl FlowFiles {
    /// Renders the files of a flow whose objects begin with `prefix`.
    fn new(flow: &FlowParts, prefix: &str, place: FlowPlacement) -> Result<Self, RenderError> {
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
                if !crate::render::headers(&tool.spec).is_empty() {
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
        let files = Self {
            name: flow.name.clone(),
            config: flow.model.as_ref().map(|model| files::config(model, &entrypoint, &flow.name, place)),
            entrypoint,
            prompts,
            plain_tools,
            secret_tools,
            credentials: flow.model.as_ref().and_then(|model| model.credentials.clone()),
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
