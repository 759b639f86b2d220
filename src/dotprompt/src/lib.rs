//! Parses and renders Dotprompt: a `.prompt` text and an input become messages for a model. The operator and the runner read
//! texts with this one parser, so that the one refuses exactly what the other refuses, at the same line.
//!
//! A text is validated in two steps. [`syntax`] accepts what any reader of Dotprompt accepts: a frontmatter that is YAML, and a
//! template whose tags and blocks end. [`Prompt::parse_among`] begins with the same check and is our reader: the keys of the
//! frontmatter, Picoschema, helpers, partials, bounds.
//!
//! A text is a frontmatter (YAML: model, configuration, the schemas of input and output, tools) and a
//! [Handlebars](https://handlebarsjs.com) template. Its meaning is defined by
//! [google/dotprompt](https://google.github.io/dotprompt/reference/), the reference; `tests::differential` compares the two on the
//! same prompts. Nothing here does I/O: a prompt is parsed once, so that its mistakes are found before anything is served, and
//! rendered for each request.
//!
//! Intended differences from the reference (npm `dotprompt` 1.1.2):
//!
//! | reference | here |
//! |---|---|
//! | a frontmatter that is broken, or does not end, becomes part of the template | an error with the line |
//! | a frontmatter without lines, or at the end of the text, is none | it is one |
//! | a key of the wrong type is passed on, `output.format` may be anything | an error with the line |
//! | defaults of the frontmatter are left to the caller, inputs are not validated | merged, then validated |
//! | the type `any` at the top of a schema stays, which is not JSON Schema | it is left out |
//! | a description in a key ends at a parenthesis in it | it does not |
//! | a marker such as `<<<dotprompt:role:system>>>` in an input makes a message | only those of helpers and templates do |
//! | any role; a wrong marker swallows what follows | system, user and model; others are errors |
//! | `media` without a url is a part with the url `undefined` | an error |
//! | a section is a part that is pending | no part: nothing here fills sections |
//! | a helper with a wrong number of arguments prints nonsense | an error when parsing |
//! | a partial that is missing is an error where it is printed | an error when parsing |
//! | two lists or objects are never `ifEquals` | they are if their content is equal |
//! | two numbers side by side are added: `{{a}}{{b}}` | they are printed |
//! | objects have the order of their keys, numbers first | keys are sorted |
//! | integers beyond 2^53 lose digits | they do not |
//! | an input may be a string or a list | an error with the line: inputs are objects, whose fields are the variables |
//! | context variables (`@metadata`, those of the caller) | none |
//!
//! Further differences come with the parser, the `handlebars` crate. Errors when parsing: `{{^name}}` blocks (write
//! `{{#unless name}}`), `{{.}}` (write `{{this}}`), `{{> "name"}}` (write `{{> name}}`), `{{#a.b}}` without a helper (write `{{#if a.b}}`),
//! `{{~! comment ~}}`, raw blocks of values, and partials that use themselves. `list.0` is allowed beside `list.[0]`. A `~`
//! beside a comment or at a tag that is alone in its line may take more white space, and white space at the very end is kept.

mod adapt;
mod blocks;
mod document;
mod error;
mod frontmatter;
mod helpers;
mod input;
mod javascript;
mod messages;
mod partials;
mod picoschema;
mod template;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jsonschema::Validator;
use serde_json::{Map, Value};

use document::{Document, fields, split};
pub use error::{PromptError, RenderError};
pub use frontmatter::{Metadata, OutputFormat};
pub use messages::{Part, RenderedMessage, Role};
use template::PromptTemplate;

/// Cost of a byte of text without tags, by measurement: 113 ns in a build of profile dist.
const COST_WITHOUT_TAGS: u64 = 128;

/// Parsed prompt, which can be rendered.
#[derive(Debug)]
pub struct Prompt {
    name: String,
    metadata: Arc<Metadata>,
    validator: Option<Validator>,
    template: PromptTemplate,
}

/// Result of rendering a prompt with an input.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedPrompt {
    /// Conversation to send, oldest message first.
    pub messages: Vec<RenderedMessage>,
    /// Fields of the frontmatter for the call: model, configuration, tools, output.
    pub metadata: Arc<Metadata>,
}

impl Prompt {
    /// Parses the prompt `name`, which uses no partials.
    ///
    /// # Errors
    /// The first error in the text.
    pub fn parse(name: &str, text: &str) -> Result<Self, PromptError> {
        Self::parse_with(name, text, &BTreeMap::new())
    }

    /// Parses the prompt `name` of a flow whose prompts these are, texts by name: any of them is a partial, `{{> name}}`, of the
    /// others.
    ///
    /// # Errors
    /// Same as [`Prompt::parse_with`].
    pub fn parse_among(name: &str, prompts: &BTreeMap<&str, &str>) -> Result<Self, PromptError> {
        let text = prompts.get(name).copied().unwrap_or_default();
        Self::parse_with(name, text, &partials::included(name, prompts))
    }

    /// Estimates the cost of [`Prompt::parse_among`]: for the text and each that it includes the number of its tags and
    /// [`COST_WITHOUT_TAGS`] more, times its length, a nanosecond or two each.
    pub fn cost(name: &str, prompts: &BTreeMap<&str, &str>) -> u64 {
        let one = |text: &str| (text.matches("{{").count() as u64 + COST_WITHOUT_TAGS) * text.len() as u64;
        let included = partials::included(name, prompts);
        prompts.get(name).map_or(0, |text| one(text)) + included.values().map(|text| one(text)).sum::<u64>()
    }

    /// Parses the prompt `name`, which may use `partials`: templates by name, `{{> name}}`.
    ///
    /// # Errors
    /// The first error in the text, or in a partial; then the line is not known and the message names the partial.
    pub fn parse_with(name: &str, text: &str, partials: &BTreeMap<String, String>) -> Result<Self, PromptError> {
        let (document, fields) = read(text)?;
        let yaml = document.frontmatter.unwrap_or_default();
        let metadata = frontmatter::read(yaml, fields)?;
        let wrong = |key: &'static str| move |problem: String| frontmatter::error_at(yaml, key, problem);
        let object = metadata.input_schema.as_ref().map_or(Ok(()), input::check_object_schema);
        object.map_err(wrong("input"))?;
        let validator = metadata.input_schema.as_ref().map(|schema| input::validator(schema, "input.schema"));
        let validator = validator.transpose().map_err(wrong("input"))?;
        let output = metadata.output_schema.as_ref().map(|schema| input::validator(schema, "output.schema"));
        output.transpose().map_err(wrong("output"))?;
        let template = PromptTemplate::parse(document.template, document.lines_before, partials)?;
        Ok(Self { name: name.to_owned(), metadata: Arc::new(metadata), validator, template })
    }

    /// Returns the fields of its frontmatter.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Reports whether the template uses the variable `name`: prints it, enters it, or hands it to a partial.
    pub fn uses_variable(&self, name: &str) -> bool {
        self.template.uses_variable(name)
    }

    /// Renders the messages for `input`, an object with the template's variables (or null: none), after the conversation
    /// `history`, oldest message first.
    ///
    /// # Errors
    /// An input that does not match the schema, or a template that fails with it.
    pub fn render(&self, input: &Value, history: &[RenderedMessage]) -> Result<RenderedPrompt, RenderError> {
        let variables = input::merge(input, &self.metadata.input_default, self.validator.as_ref());
        let printed = self.template.render(variables.map_err(RenderError::Input)?);
        let messages = printed.and_then(|printed| messages::to_messages(&printed, history));
        let messages = messages.map_err(|message| RenderError::Template { prompt: self.name.clone(), message })?;
        Ok(RenderedPrompt { messages, metadata: self.metadata.clone() })
    }
}

/// Checks what every reader of Dotprompt requires of a text: a frontmatter that ends and is YAML, and a template whose tags and
/// blocks end. Returns the fields of the frontmatter.
///
/// # Errors
/// An error for every reader, with its line.
pub fn syntax(text: &str) -> Result<Map<String, Value>, PromptError> {
    read(text).map(|(_, fields)| fields)
}

/// Returns the template in a text, without its frontmatter.
///
/// # Errors
/// A frontmatter that does not end.
pub fn template(text: &str) -> Result<&str, PromptError> {
    split(text).map(|document| document.template)
}

fn read(text: &str) -> Result<(Document<'_>, Map<String, Value>), PromptError> {
    let document = split(text)?;
    let fields = fields(document.frontmatter.unwrap_or_default())?;
    blocks::check_blocks(document.template, document.lines_before)?;
    Ok((document, fields))
}
