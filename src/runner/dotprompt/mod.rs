//! Dotprompt: turns a `.prompt` text and an input into messages for a model.
//!
//! A text is a frontmatter (YAML: model, configuration, the schemas of input and output, tools) and a Handlebars
//! template. What it must mean is what [google/dotprompt](https://google.github.io/dotprompt/reference/) makes of it;
//! Nothing here does I/O: a prompt is parsed once, so that every
//! mistake in it is found before anything is served, and rendered for each request.
//!
//! What differs from the reference, on purpose:
//!
//! | reference | here |
//! |---|---|
//! | a broken or unclosed frontmatter is logged and the whole text becomes the template | an error with the line |
//! | a frontmatter without lines, or at the end of the text, is none | it is one |
//! | defaults of the frontmatter are left to the caller, nothing is validated | merged, then validated |
//! | a type error in a key is passed on | an error with the line |
//! | markers such as `<<<dotprompt:role:system>>>` in an input make messages | only those of helpers and templates do |
//! | any role | system, user and model; others are errors |
//! | a section is a part that is pending | no part: nothing here fills sections |
//! | `media` without a url is a part with the url `undefined` | an error |
//! | a helper with a wrong number of arguments prints nonsense or fails when rendering | an error when parsing |
//! | two lists or objects are never `ifEquals` | they are if their content is equal |
//! | `output.format` may be anything, is unset by default | text or json; json by default if there is a schema |
//! | the top-level type `any` stays, which is not JSON Schema | it is left out |
//! | a description in a key ends at a parenthesis in it | it does not |
//! | objects keep the order of their keys | keys are sorted |
//! | integers beyond 2^53 lose digits | they do not |
//! | context variables (`@state`, `@metadata`) | none |
//!
//! And what the parser (the `handlebars` crate) does not read, each an error when parsing: `{{^name}}` blocks (write
//! `{{#unless name}}`), `{{.}}` (write `{{this}}`), `{{#a.b}}` without a helper, `{{~! comment ~}}`, and partials
//! that include themselves.

mod adapt;
mod frontmatter;
mod helpers;
mod input;
mod javascript;
mod messages;
mod picoschema;
mod template;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jsonschema::Validator;
use serde_json::{Map, Value};

use template::Template;

/// Who says a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runner) enum Role {
    /// Instructions for the model.
    System,
    /// The user.
    User,
    /// The model.
    Model,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::runner) enum Part {
    /// Text, verbatim; never only white space.
    Text(String),
    /// An image, a sound or another file.
    Media {
        /// Where it is: a `data:` or an `https:` URL, as the prompt or the input has it; not checked.
        url: String,
        /// Its media type, such as `image/png`, if the prompt says it.
        content_type: Option<String>,
    },
}

/// A message for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::runner) struct RenderedMessage {
    /// Who says it.
    pub(in crate::runner) role: Role,
    /// What it holds, in order; never empty in what was rendered.
    pub(in crate::runner) parts: Vec<Part>,
}

/// What a model's answer should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runner) enum OutputFormat {
    /// Text.
    Text,
    /// One JSON document.
    Json,
}

/// What a frontmatter says.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::runner) struct Metadata {
    /// The model's name, if the prompt asks for one.
    pub(in crate::runner) model: Option<String>,
    /// The model's configuration (`temperature`, …), not checked.
    pub(in crate::runner) config: Map<String, Value>,
    /// Names of the tools that the model may call.
    pub(in crate::runner) tools: Vec<String>,
    /// Most turns of tool calls, at least 1.
    pub(in crate::runner) max_turns: Option<u32>,
    /// Variables that an input need not have.
    pub(in crate::runner) input_default: Map<String, Value>,
    /// The JSON Schema of the input.
    pub(in crate::runner) input_schema: Option<Value>,
    /// What the answer should be; JSON if there is a schema and nothing else is said.
    pub(in crate::runner) output_format: OutputFormat,
    /// The JSON Schema of the answer.
    pub(in crate::runner) output_schema: Option<Value>,
}

/// A prompt that can be rendered.
#[derive(Debug)]
pub(in crate::runner) struct Prompt {
    name: String,
    metadata: Arc<Metadata>,
    validator: Option<Validator>,
    template: Template,
}

/// What a prompt becomes with an input.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::runner) struct Rendered {
    /// The conversation to send, oldest message first.
    pub(in crate::runner) messages: Vec<RenderedMessage>,
    /// What the frontmatter says about the call: model, configuration, tools, output.
    pub(in crate::runner) metadata: Arc<Metadata>,
}

/// A text is not a prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub(in crate::runner) struct PromptError {
    /// The line in the text, from 1, where it is known.
    pub(in crate::runner) line: Option<usize>,
    /// What is wrong and what to do.
    pub(in crate::runner) message: String,
}

impl PromptError {
    fn at(line: usize, message: impl Into<String>) -> Self {
        Self { line: Some(line), message: message.into() }
    }
}

/// A prompt cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::runner) enum RenderError {
    /// The input is wrong: the caller's mistake. It quotes no value of the input.
    #[error("{0}")]
    Input(String),
    /// The template cannot be rendered with this input: the prompt's mistake.
    #[error("prompt `{prompt}`: {message}")]
    Template {
        /// The prompt's name.
        prompt: String,
        /// What is wrong.
        message: String,
    },
}

impl Prompt {
    /// Reads the prompt `name`, which uses no partials.
    ///
    /// # Errors
    /// What is wrong with the text.
    #[cfg(test)]
    pub(in crate::runner) fn parse(name: &str, text: &str) -> Result<Self, PromptError> {
        Self::parse_with(name, text, &BTreeMap::new())
    }

    /// Reads the prompt `name`, which may use `partials`: templates by name, `{{> name}}`.
    ///
    /// # Errors
    /// What is wrong with the text, or with a partial; then the line is not known and the text says which.
    pub(in crate::runner) fn parse_with(
        name: &str,
        text: &str,
        partials: &BTreeMap<String, String>,
    ) -> Result<Self, PromptError> {
        let document = frontmatter::split(text)?;
        let metadata = frontmatter::read(document.frontmatter.unwrap_or_default())?;
        let validator = metadata.input_schema.as_ref().map(input::validator).transpose();
        let validator = validator.map_err(|message| PromptError { line: None, message })?;
        let template = Template::parse(document.template, document.lines_before, partials)?;
        Ok(Self { name: name.to_owned(), metadata: Arc::new(metadata), validator, template })
    }

    /// What its frontmatter says.
    pub(in crate::runner) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The messages for `input`, an object with the template's variables (or null: none), after the conversation
    /// `history`, oldest message first.
    ///
    /// # Errors
    /// An input that is not what the schema says, or a template that fails with it.
    pub(in crate::runner) fn render(
        &self,
        input: &Value,
        history: &[RenderedMessage],
    ) -> Result<Rendered, RenderError> {
        let variables = input::merge(input, &self.metadata.input_default, self.validator.as_ref());
        let printed = self.template.render(variables.map_err(RenderError::Input)?);
        let messages = printed.and_then(|printed| messages::to_messages(&printed, history));
        let messages = messages.map_err(|message| RenderError::Template { prompt: self.name.clone(), message })?;
        Ok(Rendered { messages, metadata: self.metadata.clone() })
    }
}

/// The template in `text`, without its frontmatter.
pub(in crate::runner) fn template_of(text: &str) -> &str {
    frontmatter::split(text).map_or(text, |document| document.template)
}
