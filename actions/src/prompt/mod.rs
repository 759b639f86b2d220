//! `Prompt` kind: validation and status. The lifecycle is that of every reference (`crate::reference`); a Prompt refers to
//! nothing.

pub(crate) mod rejections;

use crds::{Prompt, ReferencePhase, digest, digest::sha256_hex, flow::FlowDefinition, reason};
use machine::{ActionError, Table, TableError};
use serde_json::Value;

use crate::{
    deps::Deps,
    kind::{ControlledKind, Registry},
    reference::{self, ReferenceKind},
    references::{Evaluation, Query, Referable},
};

pub use rejections::{PromptRejections, rejection};

/// Largest frontmatter that the status repeats, in bytes of JSON: an object that is much larger than its spec may be more than
/// the API server stores.
const MAX_FRONTMATTER: usize = 64 * 1024;

impl ControlledKind for Prompt {
    const TABLE: Table<ReferencePhase> = Table { render_version: 1, ..reference::TABLE };

    fn registry() -> Result<Registry<Self>, TableError> {
        reference::registry()
    }
}

impl Referable for Prompt {
    fn evaluate(query: &Query<'_>) -> Evaluation {
        query.evaluate_reference(query.object::<Self>(), |prompt| digest::sha256_hex(prompt.spec.content.as_bytes()))
    }
}

impl ReferenceKind for Prompt {
    fn validate(&self) -> Result<(), ActionError> {
        match problem(&self.spec.content) {
            Some(problem) => Err(ActionError::terminal(reason::INVALID_SPEC, format!("content{problem}"))),
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

/// Returns what is wrong with a text for every runtime, as the part of a sentence that follows its name. A text that only our
/// runner refuses is reported by the flow that runs in it ([`rejection`]).
fn problem(content: &str) -> Option<String> {
    if content.trim().is_empty() {
        return Some(" is blank: write the text for the model".to_owned());
    }
    dotprompt::syntax(content).err().map(|error| format!(", {error}"))
}

/// Returns the first problem, for every runtime, of the prompts that are inline in a flow: no Prompt object validates those
/// texts.
pub(crate) fn inline_problem(flow: &FlowDefinition) -> Option<String> {
    let inline = flow.prompts.iter().filter_map(|source| source.prompt.as_ref());
    inline.filter_map(|prompt| Some(format!("prompt {:?}{}", prompt.name, problem(&prompt.content)?))).next()
}

/// Returns the part of a prompt that an agent uses: its template, without the frontmatter, verbatim. It is not rendered: helpers
/// and variables are for flows.
///
/// # Errors
/// A frontmatter that does not end, which [`ReferenceKind::validate`] reports too.
pub(crate) fn template(prompt: &Prompt) -> Result<&str, ActionError> {
    dotprompt::template(&prompt.spec.content)
        .map_err(|error| ActionError::terminal(reason::INVALID_SPEC, error.to_string()))
}
