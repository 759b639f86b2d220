//! Definitions of a server's tools as they are stored: one text, with the byte range of each tool in it.
//!
//! A text has up to 900 KiB, and dozens of Tools read one definition each, again and again. So it is indexed once, when it is
//! built or read from the cluster, and only the requested definitions are ever parsed into JSON values.

use std::{borrow::Cow, collections::BTreeMap, fmt, ops::Range};

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

/// Most tools that are taken from a server.
pub const MAX_TOOLS: usize = 1000;

/// Tool as its server defines it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpToolDefinition {
    /// Name of the tool.
    pub name: String,
    /// Description of its purpose.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// JSON Schema of its structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

/// Definitions, by name. Invariant: each range covers the definition of its name in `text`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Definitions {
    text: Box<str>,
    ranges: BTreeMap<Box<str>, Range<usize>>,
}

impl fmt::Debug for Definitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definitions").field("names", &self.ranges.keys()).finish_non_exhaustive()
    }
}

impl Definitions {
    /// Indexes the text of a ConfigMap. Another client may have written it: a text that is no list of definitions gives none.
    pub fn read(text: &str) -> Self {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
        }
        let all: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
        let place = |raw: &RawValue| {
            let named: Named<'_> = serde_json::from_str(raw.get()).ok()?;
            let start = (raw.get().as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
            Some((Box::from(named.name.as_ref()), start..start + raw.get().len()))
        };
        let ranges = all.into_iter().filter_map(place).collect();
        Self { text: text.into(), ranges }
    }

    /// Joins definitions, each with its name, in the order of their names.
    pub(super) fn join<'a>(definitions: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let (mut text, mut ranges) = ("[".to_owned(), BTreeMap::new());
        for (name, definition) in definitions {
            if text.len() > 1 {
                text.push(',');
            }
            let start = text.len();
            text.push_str(definition);
            ranges.insert(Box::from(name), start..text.len());
        }
        text.push(']');
        Self { text: text.into(), ranges }
    }

    /// Returns all definitions as JSON.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.ranges.keys().map(AsRef::as_ref)
    }

    /// Reports whether there is a definition of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.ranges.contains_key(name)
    }

    /// Returns the definition of this name as it is written.
    pub(super) fn text_of(&self, name: &str) -> Option<&str> {
        self.text.get(self.ranges.get(name)?.clone())
    }

    /// Returns the definition of this name, if it can be parsed.
    pub fn get(&self, name: &str) -> Option<McpToolDefinition> {
        serde_json::from_str(self.text_of(name)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_was_joined() {
        let (a, b) = (r#"{"inputSchema":{"a":[1,{"name":"x"}]},"name":"a"}"#, r#"{"inputSchema":{},"name":"b\"é"}"#);
        let joined = Definitions::join([("a", a), ("b\"é", b)]);
        assert_eq!(joined.text(), format!("[{a},{b}]"));
        assert_eq!(Definitions::read(joined.text()), joined);
        assert_eq!(joined.names().collect::<Vec<_>>(), ["a", "b\"é"]);
        assert_eq!(joined.get("a").unwrap().input_schema["a"][0], 1);
        assert_eq!(joined.get("b\"é").unwrap().name, "b\"é");
        assert!(joined.contains("a") && !joined.contains("x") && joined.get("x").is_none());
        assert_eq!(Definitions::read(Definitions::join([]).text()).names().count(), 0);
    }

    #[test]
    fn a_foreign_text_is_read_as_far_as_it_goes() {
        for text in ["", "{", "{}", "[1]", r#"[{"name":1}]"#] {
            assert_eq!(Definitions::read(text).names().count(), 0, "{text}");
        }
        let spaced = Definitions::read(" [ {\"name\": \"\\u0061\", \"inputSchema\": {} } , {\"name\": \"b\"} ]");
        assert_eq!(spaced.get("a").unwrap().name, "a");
        assert!(spaced.contains("b") && spaced.get("b").is_none(), "no definition without a schema");
    }
}
