//! The compiled rules of a schema, as a tree of the same shape, which holds only what has rules.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    error::{FieldError, child},
    expression::RuleVariables,
    lists,
    rule::Rule,
    structural::StructuralSchema,
};

/// The rules on a value and on its parts.
#[derive(Debug)]
pub(super) struct Validator {
    rules: Vec<Rule>,
    properties: BTreeMap<String, Self>,
    additional: Option<Box<Self>>,
    items: Option<Box<Self>>,
}

impl Validator {
    /// Compiles the rules of the schema at `path`; none if it and its parts have no rules.
    ///
    /// # Errors
    /// Names the path and the rule that is invalid or not supported.
    pub(super) fn compile(node: &StructuralSchema, path: &str) -> Result<Option<Self>, String> {
        let wrong = |error: String| format!("{}: {error}", if path.is_empty() { "schema" } else { path });
        let part = |schema: &Option<Box<StructuralSchema>>, path: &str| -> Result<Option<Box<Self>>, String> {
            match schema {
                Some(schema) => Ok(Self::compile(schema, path)?.map(Box::new)),
                None => Ok(None),
            }
        };
        let mut properties = BTreeMap::new();
        for (name, schema) in &node.properties {
            if let Some(validator) = Self::compile(schema, &child(path, name))? {
                properties.insert(name.clone(), validator);
            }
        }
        let additional = part(&node.additional, &format!("{path}[*]"))?;
        let items = part(&node.items, &format!("{path}[]"))?;
        let rules = node.rules.iter().map(|rule| Rule::compile(rule, node).map_err(wrong));
        let rules = rules.collect::<Result<Vec<_>, String>>()?;
        let is_empty = rules.is_empty() && properties.is_empty() && additional.is_none() && items.is_none();
        Ok((!is_empty).then_some(Self { rules, properties, additional, items }))
    }

    /// Checks the value at `path` by its rules and those of its parts. `unchanged`: it, or what it is a part of, was the
    /// same before.
    pub(super) fn check(
        &self,
        variables: &RuleVariables<'_>,
        unchanged: bool,
        path: &str,
        errors: &mut Vec<FieldError>,
    ) {
        let RuleVariables { node, value, old } = *variables;
        if value.is_null() {
            return;
        }
        errors.extend(self.rules.iter().filter_map(|rule| rule.check(variables, unchanged, path)));
        let mut part =
            |rules: Option<&Self>, node: Option<&StructuralSchema>, value: &Value, old: Option<&Value>, path: &str| {
                let (Some(rules), Some(node)) = (rules, node) else { return };
                let unchanged = old.map_or(unchanged, |old| old == value);
                rules.check(&RuleVariables { node, value, old }, unchanged, path, errors);
            };
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let old = lists::counterpart(node, item, old);
                    part(self.items.as_deref(), node.items.as_deref(), item, old, &format!("{path}[{index}]"));
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    let old = old.and_then(|old| old.get(name));
                    match node.properties.get(name) {
                        Some(schema) => part(self.properties.get(name), Some(schema), field, old, &child(path, name)),
                        None => {
                            let (rules, schema) = (self.additional.as_deref(), node.additional.as_deref());
                            part(rules, schema, field, old, &format!("{path}[{name}]"));
                        }
                    }
                }
            }
            _ => {}
        }
    }
}
