//! Generation config of one answer: portable names, and the remaining settings under the provider's own names.

use serde_json::{Map, Value};

/// Config of a model merged with that of a request.
pub(super) struct Generation {
    /// Id of the model to use.
    pub(super) model: String,
    values: Map<String, Value>,
}

impl Generation {
    /// Merges the configs, the request's over the model's; a `null` removes a setting. `version` replaces the model's
    /// id. An `apiKey` is not config and is never sent.
    pub(super) fn new(id: &str, model: &Map<String, Value>, request: &Map<String, Value>) -> Self {
        let mut values = model.clone();
        values.extend(request.iter().map(|(name, value)| (name.clone(), value.clone())));
        values.retain(|name, value| !value.is_null() && name != "apiKey");
        let version = values.remove("version").and_then(|version| version.as_str().map(str::to_owned));
        Self { model: version.unwrap_or_else(|| id.to_owned()), values }
    }

    /// Removes a value, for another place in the request.
    pub(super) fn remove(&mut self, name: &str) -> Option<Value> {
        self.values.remove(name)
    }

    /// Returns the remaining values, renamed by `names`; a name without an entry becomes `snake_case` if `snake`, or
    /// stays.
    pub(super) fn into_values(self, names: &[(&str, &str)], snake: bool) -> Map<String, Value> {
        let rename = |(name, value): (String, Value)| match names.iter().find(|(ours, _)| *ours == name) {
            Some((_, theirs)) => ((*theirs).to_owned(), value),
            None if snake => (snake_case(&name), value),
            None => (name, value),
        };
        self.values.into_iter().map(rename).collect()
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_goes_over_its_model() {
        let model = json!({"temperature": 0.1, "topK": 3, "seed": 1, "apiKey": "SECRET"});
        let request = json!({"temperature": 0.9, "seed": null, "logProbs": true, "version": "m-2"});
        let read = |value: Value| value.as_object().unwrap().clone();
        let mut generation = Generation::new("m", &read(model), &read(request));
        assert_eq!((generation.remove("topK"), generation.model.as_str()), (Some(json!(3)), "m-2"));
        let values = generation.into_values(&[("temperature", "heat")], true);
        assert_eq!(Value::from(values), json!({"heat": 0.9, "log_probs": true}));
    }
}
