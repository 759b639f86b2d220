//! Generation config of one answer: portable names, and the remaining settings under the provider's own names.

use serde_json::{Map, Value};

use super::{
    ModelRequest,
    choice::{CacheLife, CallChoice},
    error::ModelError,
};

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
        let mut values = with_portable_names(model);
        values.extend(with_portable_names(request));
        values.retain(|name, value| !value.is_null() && name != "apiKey");
        let version = values.remove("version").and_then(|version| version.as_str().map(str::to_owned));
        Self { model: version.unwrap_or_else(|| id.to_owned()), values }
    }

    /// Returns the values.
    pub(super) fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// Removes a value, for another place in the request.
    pub(super) fn remove(&mut self, name: &str) -> Option<Value> {
        self.values.remove(name)
    }

    /// Removes the choice of tools for `request`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn take_call_choice(&mut self, request: &ModelRequest) -> Result<CallChoice, ModelError> {
        CallChoice::read(self.remove("toolChoice"), request)
    }

    /// Removes the choice of tools if it has the provider's own form, an object with `type`, which is passed on.
    pub(super) fn take_own_call_choice(&mut self) -> Option<Value> {
        let is_own = self.values.get("toolChoice").is_some_and(is_own_call_choice);
        if is_own { self.remove("toolChoice") } else { None }
    }

    /// Removes the time for which the provider keeps what it has read.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn take_cache(&mut self) -> Result<Option<CacheLife>, ModelError> {
        CacheLife::read(self.remove("cache"))
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

/// Portable settings, which mean the same for every provider, each with its other spellings.
const PORTABLE: [(&str, &[&str]); 7] = [
    ("temperature", &[]),
    ("maxOutputTokens", &["max_output_tokens", "max_tokens"]),
    ("topP", &["top_p"]),
    ("topK", &["top_k"]),
    ("stopSequences", &["stop_sequences", "stop"]),
    ("toolChoice", &[]),
    ("cache", &[]),
];

/// Returns the settings with portable ones under their usual name, which goes before the other spellings.
fn with_portable_names(settings: &Map<String, Value>) -> Map<String, Value> {
    let mut named = settings.clone();
    for (name, spellings) in PORTABLE {
        for spelling in spellings {
            if let Some(value) = named.remove(*spelling) {
                named.entry(name).or_insert(value);
            }
        }
    }
    named
}

/// Returns the portable settings alone.
pub(super) fn portable(settings: &Map<String, Value>) -> Map<String, Value> {
    let mut named = with_portable_names(settings);
    named.retain(|name, value| {
        PORTABLE.iter().any(|(portable, _)| portable == name) && !(name == "toolChoice" && is_own_call_choice(value))
    });
    named
}

fn is_own_call_choice(value: &Value) -> bool {
    value["type"].is_string()
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
    fn portable_settings_have_two_spellings_and_the_usual_one_goes_first() {
        let read = |value: Value| value.as_object().unwrap().clone();
        let request =
            read(json!({"max_tokens": 5, "top_p": 0.5, "topP": 0.25, "stop": ["x"], "seed": 1, "version": "v"}));
        let expected = json!({"maxOutputTokens": 5, "topP": 0.25, "stopSequences": ["x"]});
        assert_eq!(Value::from(portable(&request)), expected);
        let others = json!({"toolChoice": "required", "cache": "5m"});
        assert_eq!(Value::from(portable(&read(others.clone()))), others);
        let own = json!({"toolChoice": {"type": "any"}});
        assert_eq!(Value::from(portable(&read(own))), json!({}), "another provider has another form");
        let generation = Generation::new("m", &read(json!({"maxOutputTokens": 9, "top_k": 3})), &request);
        let expected = json!({"maxOutputTokens": 5, "topP": 0.25, "stopSequences": ["x"], "seed": 1, "topK": 3});
        assert_eq!(Value::from(generation.into_values(&[], false)), expected);
    }

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
