//! Position in a template, and the errors there.

use super::error::PromptError;

/// Deepest nesting of blocks or parentheses.
const DEPTH: usize = 64;

/// Error in a template.
#[derive(Debug)]
pub(super) struct TemplateSyntaxError {
    /// Line, from 1, if it is known.
    pub(super) line: Option<usize>,
    pub(super) message: String,
}

impl From<PromptError> for TemplateSyntaxError {
    fn from(PromptError { line, message }: PromptError) -> Self {
        Self { line, message }
    }
}

/// Position in a template.
#[derive(Clone, Copy)]
pub(super) struct TemplatePosition {
    pub(super) line: usize,
    /// Number of blocks or parentheses around it.
    pub(super) depth: usize,
    /// Number of those blocks that have a context of their own.
    pub(super) scopes: usize,
}

impl TemplatePosition {
    /// Returns an error there.
    pub(super) fn error<T>(self, message: impl Into<String>) -> Result<T, TemplateSyntaxError> {
        Err(TemplateSyntaxError { line: Some(self.line), message: message.into() })
    }

    /// Returns the position inside another block or other parentheses.
    pub(super) fn deeper(self) -> Result<Self, TemplateSyntaxError> {
        if self.depth < DEPTH {
            return Ok(Self { depth: self.depth + 1, ..self });
        }
        self.error(format!("nested deeper than {DEPTH}"))
    }
}
