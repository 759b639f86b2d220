//! `Prompt`: what is its own. Its life is that of every reference (`crate::reference`); it refers to nothing.

use crds::{
    Prompt,
    digest::sha256_hex,
    dotprompt::{self, BadFrontmatter},
    flow::FlowDefinition,
};
use serde_json::{Map, Value};

use crate::{
    kind,
    machine::{ActionError, BadTable, Registry},
    ports::World,
    reference::{self, Reference},
};

kind::reference!(Prompt, render version 1);

/// The most of a frontmatter that the status repeats, in bytes of JSON: an object that is much larger than its spec may
/// be more than the API server stores.
const MOST_FRONTMATTER: usize = 64 * 1024;

impl Reference for Prompt {
    fn validate(&self) -> Result<(), ActionError> {
        match problem(&self.spec.content, true) {
            Some(problem) => Err(ActionError::terminal("InvalidSpec", format!("content{problem}"))),
            None => Ok(()),
        }
    }

    fn tell(&mut self, _: &World) {
        let content = &self.spec.content;
        let hash = sha256_hex(content.as_bytes());
        let frontmatter = frontmatter(content).ok().filter(|fields| !fields.is_empty()).map(Value::Object);
        let status = self.status.get_or_insert_default();
        status.content_hash = Some(hash);
        status.frontmatter = frontmatter.filter(|json| json.to_string().len() <= MOST_FRONTMATTER);
    }
}

/// What is wrong with a text, as what follows its name. `whole`: with its template too.
fn problem(content: &str, whole: bool) -> Option<String> {
    if content.trim().is_empty() {
        return Some(" is blank: write what the model is to be told".to_owned());
    }
    if let Err(error) = frontmatter(content) {
        return Some(format!(", {error}"));
    }
    let document = dotprompt::split(content).ok().filter(|_| whole)?;
    dotprompt::judge_template(&document).err().map(|error| format!(", {error}"))
}

/// What is wrong with the prompts that stand in a flow itself, whose texts no Prompt judges.
pub(crate) fn inline_problem(flow: &FlowDefinition, whole: bool) -> Option<String> {
    let inline = flow.prompts.iter().filter_map(|source| source.prompt.as_ref());
    inline.filter_map(|prompt| Some(format!("prompt {:?}{}", prompt.name, problem(&prompt.content, whole)?))).next()
}

/// The fields of a text's frontmatter, if it has any.
fn frontmatter(content: &str) -> Result<Map<String, Value>, BadFrontmatter> {
    dotprompt::fields(dotprompt::split(content)?.frontmatter.unwrap_or_default())
}

/// What an agent is told by a prompt: its template, without the frontmatter, verbatim. It is not filled in: helpers and
/// variables are for flows.
///
/// # Errors
/// As [`Reference::validate`] would find.
pub(crate) fn template(prompt: &Prompt) -> Result<&str, ActionError> {
    let parts = dotprompt::split(&prompt.spec.content);
    parts.map(|parts| parts.template).map_err(|error| ActionError::terminal("InvalidSpec", error.to_string()))
}

/// The actions of a Prompt.
///
/// # Errors
/// A fault in the table of edges or the list of actions.
pub fn registry() -> Result<Registry<Prompt>, BadTable> {
    Registry::new(reference::actions())
}
