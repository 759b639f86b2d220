//! `Prompt`: what is its own. Its life is that of every reference (`crate::reference`); it refers to nothing.

pub mod frontmatter;

use crds::{Prompt, digest::sha256_hex};
use serde_json::Value;

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
        if self.spec.content.trim().is_empty() {
            return Err(ActionError::terminal("InvalidSpec", "content is blank: write what the model is to be told"));
        }
        match frontmatter::read(&self.spec.content) {
            Ok(_) => Ok(()),
            Err(error) => Err(ActionError::terminal("InvalidSpec", format!("content, {error}"))),
        }
    }

    fn tell(&mut self, _: &World) {
        let content = &self.spec.content;
        let hash = sha256_hex(content.as_bytes());
        let frontmatter = frontmatter::read(content).ok().flatten().map(Value::Object);
        let status = self.status.get_or_insert_default();
        status.content_hash = Some(hash);
        status.frontmatter = frontmatter.filter(|json| json.to_string().len() <= MOST_FRONTMATTER);
    }
}

/// What an agent is told by a prompt: its template, without the frontmatter, verbatim. It is not filled in: helpers and
/// variables are for flows.
///
/// # Errors
/// As [`Reference::validate`] would find.
pub(crate) fn template(prompt: &Prompt) -> Result<&str, ActionError> {
    let parts = frontmatter::split(&prompt.spec.content);
    parts.map(|(_, template)| template).map_err(|error| ActionError::terminal("InvalidSpec", error.to_string()))
}

/// The actions of a Prompt.
///
/// # Errors
/// A fault in the table of edges or the list of actions.
pub fn registry() -> Result<Registry<Prompt>, BadTable> {
    Registry::new(reference::actions())
}
