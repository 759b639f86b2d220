//! The merge of server-side apply: a live object with what a configuration sets.

use serde_json::Value;

use crate::{field_path::FieldPath, structure::Structure};

impl Structure<'_> {
    /// Returns the live object with what a configuration sets. Items of a list are in the configuration's order, and others keep
    /// their place among them.
    pub(crate) fn merge(self, live: &Value, config: &Value) -> Value {
        self.merged(&mut FieldPath::default(), live, config)
    }

    fn merged<'v>(self, place: &mut FieldPath<'v>, live: &'v Value, config: &'v Value) -> Value {
        let (Some(mine), Some(wanted)) = (self.children(place, live), self.children(place, config)) else {
            return config.clone();
        };
        match (live, config) {
            (Value::Object(fields), Value::Object(_)) => {
                let mut fields = fields.clone();
                for (step, value) in wanted {
                    let name = step.name.unwrap_or_default();
                    let value = match live.get(name) {
                        Some(mine) => place.enter(&step, |place| self.merged(place, mine, value)),
                        None => value.clone(),
                    };
                    fields.insert(name.to_owned(), value);
                }
                Value::Object(fields)
            }
            (Value::Array(_), Value::Array(_)) => {
                let is_wanted = |edge: &str| wanted.iter().any(|(step, _)| step.edge == edge);
                let mut result = Vec::new();
                let mut rest = mine.iter().peekable();
                let mut is_done: Vec<&str> = Vec::new();
                for (step, value) in &wanted {
                    // Items of others come before the next item that the configuration has, too.
                    while let Some((other, item)) =
                        rest.next_if(|(other, _)| !is_wanted(&other.edge) || is_done.contains(&other.edge.as_str()))
                    {
                        if !is_wanted(&other.edge) {
                            result.push((*item).clone());
                        }
                    }
                    is_done.push(&step.edge);
                    result.push(match mine.iter().find(|(other, _)| other.edge == step.edge) {
                        Some((_, mine)) => place.enter(step, |place| self.merged(place, mine, value)),
                        None => (*value).clone(),
                    });
                }
                result.extend(rest.filter(|(other, _)| !is_wanted(&other.edge)).map(|(_, item)| (*item).clone()));
                Value::Array(result)
            }
            _ => config.clone(),
        }
    }
}
