//! Renders the tools of an agent as a file, `/recif/tools.json`, where they are too many for the variable `CORAIL_TOOLS`.
//!
//! The variable `CORAIL_TOOLS_FILE` names the file. It is in the ConfigMap with all others: a container of an older Pod that
//! restarts in the middle of a rollout does not find the file and waits to be replaced, instead of serving without its tools.

use crds::Agent;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    RenderError,
    labels::{AGENT_LABEL, child},
    sizes::{MAX_OBJECT, MAX_VARIABLE},
    tools::Tools,
    workload::base64,
};
use crate::ports::{ChildKind, ChildManifest};

/// Variable that names the file.
pub(super) const VARIABLE: &str = "CORAIL_TOOLS_FILE";
/// Key of the file in its ConfigMap or Secret.
pub(super) const KEY: &str = "tools.json";
/// Path of the file in the container.
pub(super) const PATH: &str = "/recif/tools.json";
const MOUNT: &str = "/recif";
/// Most bytes of tools in the variable. Linux takes 128 KiB of one variable, and the tools of servers grow without an edit.
const MAX_BYTES: usize = 96 * 1024;

/// Tools of an agent as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolsFile {
    /// JSON array.
    pub(super) json: String,
    /// True if a tool has headers, which may hold credentials: it is a Secret then, and else a ConfigMap.
    pub(super) is_secret: bool,
}

/// Way by which the tools reach the container.
pub(super) enum ToolsInput {
    /// No tool is there.
    Nothing,
    /// By `CORAIL_TOOLS`.
    Variable {
        /// JSON array.
        json: String,
        /// True if a tool has headers, which may hold credentials.
        is_secret: bool,
    },
    /// By a file.
    File(ToolsFile),
}

/// Returns the variable, or the file if the value would be too large. An agent without `toolServers` keeps the variable for as
/// long as Linux takes it.
///
/// # Errors
/// [`RenderError::ObjectTooLarge`].
pub(super) fn split(agent: &Agent, tools: Tools) -> Result<ToolsInput, RenderError> {
    let Some(json) = tools.json else { return Ok(ToolsInput::Nothing) };
    let is_secret = tools.has_headers;
    let max = if agent.spec.tool_servers.is_empty() { MAX_VARIABLE - "CORAIL_TOOLS=".len() - 1 } else { MAX_BYTES };
    if json.len() <= max {
        return Ok(ToolsInput::Variable { json, is_secret });
    }
    let file = ToolsFile { json, is_secret };
    if file.json.len() > MAX_OBJECT {
        let object = format!("{}/{}", file.kind().as_str(), name(agent));
        return Err(RenderError::ObjectTooLarge { object, size: file.json.len(), max: MAX_OBJECT });
    }
    Ok(ToolsInput::File(file))
}

impl ToolsFile {
    fn kind(&self) -> ChildKind {
        if self.is_secret { ChildKind::Secret } else { ChildKind::ConfigMap }
    }

    /// Returns the ConfigMap or Secret that holds it.
    pub(super) fn child(&self, agent: &Agent) -> ChildManifest {
        let data = match self.is_secret {
            true => json!({ "data": base64(&[(KEY.to_owned(), self.json.clone())].into()) }),
            false => json!({ "data": { KEY: self.json } }),
        };
        child(agent, AGENT_LABEL, self.kind(), name(agent), data)
    }

    /// Returns the volume with the file, and its mount path.
    pub(super) fn volume(&self, agent: &Agent) -> (Value, &'static str) {
        let items = json!([{ "key": KEY, "path": KEY }]);
        let volume = match self.is_secret {
            true => json!({ "name": "recif-tools", "secret": { "secretName": name(agent), "items": items } }),
            false => json!({ "name": "recif-tools", "configMap": { "name": name(agent), "items": items } }),
        };
        (volume, MOUNT)
    }
}

fn name(agent: &Agent) -> String {
    format!("{}-tools", agent.name_any())
}
