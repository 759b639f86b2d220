//! A document: its value, and where each field of it stands in the text.

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

/// Position in a text: line and column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// One document of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its content.
    pub value: Value,
    /// Place of each field and item, by its JSON pointer.
    pub places: Places,
}

/// Places of the fields and items of a document.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Places(pub(crate) BTreeMap<String, FieldPosition>);

/// Position of a field: of its key, and of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FieldPosition {
    /// `None` for an item of a list, and for the document itself.
    pub(crate) key: Option<Position>,
    pub(crate) value: Position,
}

impl Places {
    /// Returns where the document begins.
    pub fn start(&self) -> Position {
        self.0.get("").map_or(Position { line: 1, column: 1 }, |root| root.value)
    }

    /// Returns the place of a value by its JSON pointer. If it is not there, the place of the innermost field that should hold it.
    pub fn of(&self, pointer: &str) -> Position {
        if let Some(found) = self.0.get(pointer) {
            return found.value;
        }
        let mut rest = pointer;
        while let Some((parent, _)) = rest.rsplit_once('/') {
            if let Some(found) = self.0.get(parent) {
                return found.key.unwrap_or(found.value);
            }
            rest = parent;
        }
        self.start()
    }

    /// Returns the place of the key of a field by its JSON pointer, else that of [`Places::of`].
    pub fn of_key(&self, pointer: &str) -> Position {
        self.0.get(pointer).and_then(|found| found.key).unwrap_or_else(|| self.of(pointer))
    }
}

/// A text is no YAML, or has what JSON cannot express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError {
    /// Place of the fault.
    pub at: Position,
    /// Description of the fault.
    pub message: String,
}
