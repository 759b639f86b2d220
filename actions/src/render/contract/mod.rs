//! Renders the files that the runner reads of flows: the same parts give the same bytes.
//!
//! | file, below `/genkit` (of a set: below `/genkit/flows/<flow>`) | kept in |
//! |---|---|
//! | `prompts/<name>.prompt` | ConfigMap `<flow>-prompts` |
//! | `tools/<name>.json` | ConfigMap `<flow>-tools`, or the Secret of that name when the tool has headers |
//! | `tools/<server>_<tool>.json` | the same, for a tool of a server in `toolServers` |
//! | `config.json` | ConfigMap `<flow>-config` |
//! | `credentials/<key>` (sets only) | the provider's Secret |
//! | `fallbacks/<pluginconfig>/<key>` (sets only) | the Secret of a fallback's provider |
//! | `manifest.json` (sets only) | ConfigMap `<set>-manifest` |
//!
//! In a set the objects are called `<set>-<flow>-…`. One projected volume mounts all files, each of them named: a Pod of an older
//! template keeps exactly its own files, even if `<flow>-prompts` already has others. The credentials of a flow that is not in a
//! set are environment variables.

mod files;
mod flow_files;
mod hash;
mod names;
mod objects;
mod parts;
mod tool_file;

use std::collections::BTreeMap;

pub use names::check_names;
use parts::FlowPlacement;
pub use parts::{Credentials, FlowModel, FlowParts, FlowTool};

use self::flow_files::FlowFiles;
use super::{HeaderVariable, RenderError};

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
    /// [`RenderError`]: content that is too large, or tools that cannot be distinguished.
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
        // The mount is the same for all, and is left out: older builds have hashed the manifest so, and Pods stay.
        contract.content_hash = hash::content_hash(contract.manifest_below("").as_deref(), &contract.flows, data);
        contract
    }

    /// Returns the variables that the headers of tools and providers refer to, each once.
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

    /// Returns the file that names the flows of a set.
    fn manifest(&self) -> Option<String> {
        self.manifest_below(&format!("{}/", files::MOUNT))
    }

    fn manifest_below(&self, root: &str) -> Option<String> {
        let flows = || self.flows.iter().map(|flow| (flow.name.as_str(), flow.entrypoint.as_str()));
        (self.placement == FlowPlacement::InSet).then(|| files::manifest(flows(), root))
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
