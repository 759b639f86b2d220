//! Bounds the cost of validating a value against a JSON Schema of foreign origin.
//!
//! A small schema may take endless time: sixty definitions of which each refers twice to the next make 2^60 branches.
//! So the branches are counted, with every reference replaced by its target, before anything is validated. A reference
//! that leads back into itself counts once, because only the value can continue it.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Largest size of a schema as JSON, in bytes.
pub const MOST_BYTES: usize = 256 * 1024;
/// Deepest nesting of lists and objects in a schema: JSON parsers stop at 128, and the schema is put into other
/// documents.
pub const MOST_DEPTH: usize = 110;
/// Most branches that one validation may visit.
pub const MOST_BRANCHES: u64 = 10_000;
/// Longest chain of references that follow one another.
const MAX_REFERENCE_CHAIN: usize = 100;
/// Deepest nesting with references replaced by their targets: each level takes a stack frame.
const MOST_LEVELS: usize = 500;

/// Most regular expressions in a schema, each of which takes memory once it is compiled.
pub const MOST_PATTERNS: usize = 200;
/// Keywords that give a subschema an address other than its JSON Pointer.
const ADDRESS_KEYWORDS: [&str; 5] = ["$anchor", "$dynamicAnchor", "$id", "$recursiveAnchor", "$recursiveRef"];

/// Keywords whose value is a schema, or a list of them.
const SCHEMA_KEYWORDS: [&str; 15] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a map of schemas.
const SCHEMA_MAP_KEYWORDS: [&str; 4] = ["dependencies", "dependentSchemas", "patternProperties", "properties"];

/// Cost of validating a value against a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Branches that the validation of one part of the value visits.
    pub branches: u64,
    /// Set if a reference leads back into itself: each level of the value then multiplies the branches.
    pub recursive: bool,
}

/// Computes the cost of validating values against a schema.
///
/// # Errors
/// The bound that the schema breaks, as a clause about the schema.
pub fn evaluate_cost(schema: &Value) -> Result<Cost, String> {
    let bytes = schema.to_string().len();
    if bytes > MOST_BYTES {
        return Err(format!("it has {bytes} bytes, more than {MOST_BYTES}"));
    }
    if depth(schema) > MOST_DEPTH {
        return Err(format!("it is nested deeper than {MOST_DEPTH}"));
    }
    // `#` refers to the whole schema.
    let mut unrolling = Unrolling {
        root: schema,
        known: HashMap::new(),
        path: vec![String::new()],
        recursive: false,
        level: 0,
        patterns: 0,
    };
    match unrolling.branches(schema)? {
        branches @ 0..=MOST_BRANCHES => Ok(Cost { branches, recursive: unrolling.recursive }),
        _ => Err(format!("a check of it has more than {MOST_BRANCHES} branches")),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Traversal of a schema.
///
/// Invariant: `level` is the number of schemas that enclose the current one, itself included, and `path` holds the targets of the
/// references that led to it, outermost first.
struct Unrolling<'s> {
    root: &'s Value,
    /// Branches of the reference targets that are already counted, by JSON Pointer.
    known: HashMap<String, u64>,
    /// Targets of the references that led to the current schema.
    path: Vec<String>,
    /// Set once a reference led back to one of them.
    recursive: bool,
    /// Schemas that enclose the current one, itself included.
    level: usize,
    /// Regular expressions found so far.
    patterns: usize,
}

impl<'s> Unrolling<'s> {
    fn branches(&mut self, schema: &'s Value) -> Result<u64, String> {
        let Some(fields) = schema.as_object() else { return Ok(1) };
        if self.level == MOST_LEVELS {
            return Err(format!("it is nested deeper than {MOST_LEVELS} with its references"));
        }
        self.level += 1;
        let mut sum: u64 = 0;
        for (key, value) in fields {
            if ADDRESS_KEYWORDS.contains(&key.as_str()) && !(key == "$id" && self.level == 1) {
                return Err(format!("`{key}` is not read: refer to what is meant by a JSON Pointer, `#/$defs/…`"));
            }
            if let ("pattern", Value::String(_)) | ("patternProperties", Value::Object(_)) = (key.as_str(), value) {
                self.patterns += value.as_object().map_or(1, |named| named.len());
                if self.patterns > MOST_PATTERNS {
                    return Err(format!("it has more than {MOST_PATTERNS} patterns"));
                }
            }
            let more = match (key.as_str(), value) {
                ("$ref" | "$dynamicRef", Value::String(reference)) => self.target(reference)?,
                (key, Value::Array(list)) if SCHEMA_KEYWORDS.contains(&key) => self.all(list.iter())?,
                (key, value) if SCHEMA_KEYWORDS.contains(&key) => self.branches(value)?,
                (key, Value::Object(named)) if SCHEMA_MAP_KEYWORDS.contains(&key) => self.all(named.values())?,
                _ => 0,
            };
            sum = sum.saturating_add(more);
        }
        self.level -= 1;
        Ok(sum.max(1))
    }

    fn all(&mut self, schemas: impl Iterator<Item = &'s Value>) -> Result<u64, String> {
        let mut sum: u64 = 0;
        for schema in schemas {
            sum = sum.saturating_add(self.branches(schema)?);
        }
        Ok(sum)
    }

    fn target(&mut self, reference: &'s str) -> Result<u64, String> {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err("it refers to another document by `$ref`: nothing is fetched, put it below `$defs`".into());
        };
        let pointer = percent_decode_str(pointer).decode_utf8().map_err(|_| "a `$ref` is not UTF-8".to_owned())?;
        if let Some(known) = self.known.get(&*pointer) {
            return Ok(*known);
        }
        if self.path.iter().any(|before| *before == pointer) {
            self.recursive = true;
            return Ok(1);
        }
        if self.path.len() == MAX_REFERENCE_CHAIN {
            return Err(format!("more than {MAX_REFERENCE_CHAIN} references follow one another"));
        }
        let Some(target) = self.root.pointer(&pointer) else {
            return Err(format!("`$ref` {reference:?} leads nowhere: it takes a JSON Pointer, `#/$defs/…`"));
        };
        self.path.push(pointer.to_string());
        let branches = self.branches(target);
        self.path.pop();
        let branches = branches?;
        self.known.insert(pointer.into_owned(), branches);
        Ok(branches)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    /// Returns definitions of which each refers twice to the next, by `keyword`.
    fn doubling(levels: usize, keyword: &str) -> Value {
        let level = |n: usize| {
            let next = json!({ "$ref": format!("#/$defs/a{}", n + 1) });
            (format!("a{n}"), json!({ keyword: [next, next] }))
        };
        let mut defs: Map<_, _> = (0..levels).map(level).collect();
        defs.insert(format!("a{levels}"), json!({ "required": ["zzz"] }));
        json!({ "type": "object", "$ref": "#/$defs/a0", "$defs": defs })
    }

    #[test]
    fn a_schema_is_judged_by_what_its_check_costs() {
        for keyword in ["anyOf", "oneOf", "allOf"] {
            assert_eq!(evaluate_cost(&doubling(13, keyword)).map(|cost| cost.recursive), Ok(false), "{keyword}");
            let problem = evaluate_cost(&doubling(60, keyword)).unwrap_err();
            assert_eq!(problem, "a check of it has more than 10000 branches", "{keyword}");
        }
        let nested = |levels: usize| (0..levels).fold(json!({}), |schema, _| json!({ "items": schema }));
        let chain: Map<_, _> =
            (0..5000).map(|n| (format!("a{n}"), json!({ "$ref": format!("#/$defs/a{}", n + 1) }))).collect();
        let deep =
            |n: usize| (0..100).fold(json!({ "$ref": format!("#/$defs/a{}", n + 1) }), |it, _| json!({ "items": it }));
        let deep: Map<_, _> = (0..99).map(|n| (format!("a{n}"), deep(n))).collect();
        for (schema, problem) in [
            (nested(100), None),
            (nested(111), Some("nested deeper than 110")),
            (json!({ "description": "x".repeat(MOST_BYTES) }), Some("more than 262144")),
            (json!({ "properties": { "a": { "$ref": "https://x/s.json" } } }), Some("another document")),
            (json!({ "$ref": "#/$defs/a0", "$defs": chain }), Some("references follow one another")),
            (json!({ "properties": { "$ref": { "type": "string" } }, "default": { "$ref": "x" } }), None),
            (json!({ "$defs": { "tree": { "items": { "$ref": "#/$defs/tree" } } }, "$ref": "#/$defs/tree" }), None),
            (json!({ "$ref": "#" }), None),
            (
                json!({ "$ref": "#/%24defs/a", "$defs": { "a": { "$ref": "https://x/s.json" } } }),
                Some("another document"),
            ),
            (json!({ "$ref": "#/$defs/b", "$defs": {} }), Some("leads nowhere")),
            (json!({ "$ref": "#b", "$defs": { "a": { "$anchor": "b" } } }), Some("leads nowhere")),
            (json!({ "$id": "https://x/s.json", "$ref": "#/$defs/a", "$defs": { "a": {} } }), None),
            (json!({ "items": { "$id": "https://x/s.json", "$ref": "#/$defs/a" } }), Some("`$id` is not read")),
            (json!({ "properties": { "$id": { "type": "string" }, "id": { "type": "string" } } }), None),
            (json!({ "allOf": vec![json!({ "pattern": "x" }); 201] }), Some("more than 200 patterns")),
            (json!({ "$ref": "#/$defs/a0", "$defs": deep }), Some("nested deeper than 500 with its references")),
            (json!(true), None),
        ] {
            match problem {
                None => assert!(evaluate_cost(&schema).is_ok(), "{schema}"),
                Some(problem) => assert!(evaluate_cost(&schema).unwrap_err().contains(problem), "{problem}"),
            }
        }
    }
}
