//! The config of one answer: names that mean the same everywhere, and the rest under the provider's own names.

use serde_json::{Map, Value};

/// The config of a model with that of a request over it.
pub(super) struct Generation {
    /// The model to ask.
    pub(super) model: String,
    values: Map<String, Value>,
}

impl Generation {
    /// Merges; a `null` takes back what the model's config says. An `apiKey` is not config and is never sent.
    pub(super) fn new(id: &str, model: &Map<String, Value>, request: &Map<String, Value>) -> Self {
        let mut values = model.clone();
        values.extend(request.iter().map(|(name, value)| (name.clone(), value.clone())));
        values.retain(|name, value| !value.is_null() && name != "apiKey");
        let version = values.remove("version").and_then(|version| version.as_str().map(str::to_owned));
        Self { model: version.unwrap_or_else(|| id.to_owned()), values }
    }

    /// Takes a value out, to be written elsewhere.
    pub(super) fn remove(&mut self, name: &str) -> Option<Value> {
        self.values.remove(name)
    }

    /// All that is left, renamed as `names` says; without an entry there, a name becomes `snake_case` or stays.
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
