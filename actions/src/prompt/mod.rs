//! `Prompt`: what is its own. Its life is that of every reference (`crate::reference`); it refers to nothing.

pub(crate) mod rejections;

use crds::{Prompt, ReferencePhase, digest::sha256_hex, flow::FlowDefinition};
use machine::{ActionError, Table, TableError};
use serde_json::Value;

use crate::{
    deps::Deps,
    kind::{ControlledKind, Registry},
    reference::{self, ReferenceKind},
};

pub use rejections::{PromptRejections, rejection};

/// The most of a frontmatter that the status repeats, in bytes of JSON: an object that is much larger than its spec may
/// be more than the API server stores.
const MAX_FRONTMATTER: usize = 64 * 1024;

impl ControlledKind for Prompt {
    const TABLE: Table<ReferencePhase> = Table { render_version: 1, ..reference::TABLE };

    fn registry() -> Result<Registry<Self>, TableError> {
        reference::registry()
    }
}

impl ReferenceKind for Prompt {
    fn validate(&self) -> Result<(), ActionError> {
        match problem(&self.spec.content) {
            Some(problem) => Err(ActionError::terminal("InvalidSpec", format!("content{problem}"))),
            None => Ok(()),
        }
    }

    fn report_status(&mut self, _: &Deps) {
        let content = &self.spec.content;
        let hash = sha256_hex(content.as_bytes());
        let frontmatter = dotprompt::syntax(content).ok().filter(|fields| !fields.is_empty()).map(Value::Object);
        let status = self.status.get_or_insert_default();
        status.content_hash = Some(hash);
        status.frontmatter = frontmatter.filter(|json| json.to_string().len() <= MAX_FRONTMATTER);
    }
}

/// What is wrong with a text for every runtime, as what follows its name. What only our runner refuses is said by the flow
/// that runs in it ([`refused`]).
fn problem(content: &str) -> Option<String> {
    if content.trim().is_empty() {
        return Some(" is blank: write what the model is to be told".to_owned());
    }
    dotprompt::syntax(content).err().map(|error| format!(", {error}"))
}

/// What is wrong for every runtime with the prompts that stand in a flow itself, whose texts no Prompt judges.
pub(crate) fn inline_problem(flow: &FlowDefinition) -> Option<String> {
    let inline = flow.prompts.iter().filter_map(|source| source.prompt.as_ref());
    inline.filter_map(|prompt| Some(format!("prompt {:?}{}", prompt.name, problem(&prompt.content)?))).next()
}

/// What an agent takes of a prompt: its template, without the frontmatter, verbatim. It is not filled in: helpers and
/// variables are for flows.
///
/// # Errors
/// As [`ReferenceKind::validate`] would find.
pub(crate) fn template(prompt: &Prompt) -> Result<&str, ActionError> {
    dotprompt::template(&prompt.spec.content).map_err(|error| ActionError::terminal("InvalidSpec", error.to_string()))
}
