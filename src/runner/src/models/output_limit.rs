//! Limit of an answer by the tokens that are left of today's budget.
//!
//! An answer that begins just before the budget is spent uses little more than what is left. It keeps enough room to say something, and
//! the thoughts that the config asks for.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{ModelRequest, generation::Generation};

/// Setting with the most tokens of an answer.
const SETTING: &str = "maxOutputTokens";
/// The same under names of providers, which stay as they are.
const OWN_NAMES: [&str; 5] = ["max_completion_tokens", "maxCompletionTokens", "maxTokens", "num_predict", "numPredict"];
/// Settings with the most tokens of thoughts, which are a part of the answer's.
const THINKING: [&str; 4] = ["budget_tokens", "budgetTokens", "thinkingBudget", "thinking_budget"];
/// Fewest tokens that an answer is limited to, besides its thoughts.
const LEAST: u64 = 1024;
/// Tokens from which on a model without the setting is not limited: more might be above what it can.
const UNLIMITED: u64 = 4096;

/// Returns the request for a model of this config, with its answer limited to what is left.
pub(super) fn limited(mut request: ModelRequest, config: &Map<String, Value>) -> ModelRequest {
    let Some(left) = request.account.tokens_left() else { return request };
    let settings = Generation::new("", config, &request.config);
    if let Some(limit) = limit(settings.values(), left) {
        Arc::make_mut(&mut request.config).insert(SETTING.to_owned(), limit.into());
    }
    request
}

/// Returns the limit of an answer; `None`: it stays as the settings say.
fn limit(settings: &Map<String, Value>, left: u64) -> Option<u64> {
    if OWN_NAMES.iter().any(|name| settings.contains_key(*name)) {
        return None;
    }
    let most = match settings.get(SETTING) {
        None => UNLIMITED,
        Some(configured) => configured.as_u64()?,
    };
    let limit = left.max(thoughts(settings).saturating_add(LEAST));
    (limit < most).then_some(limit)
}

/// Returns the most tokens of thoughts that the settings, or objects in them, ask for.
fn thoughts(settings: &Map<String, Value>) -> u64 {
    let named = THINKING.iter().filter_map(|name| settings.get(*name)?.as_u64());
    let nested = settings.values().filter_map(Value::as_object).map(thoughts);
    named.chain(nested).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_limited_to_what_is_left_within_what_is_configured() {
        let thinking = json!({"maxOutputTokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 5000}});
        let dynamic = json!({"maxOutputTokens": 9000, "thinkingConfig": {"thinkingBudget": -1}});
        for (settings, left, expected) in [
            (json!({}), 4095, Some(4095)),
            (json!({}), 4096, None),
            (json!({}), 0, Some(1024)),
            (json!({"maxOutputTokens": 3000}), 2999, Some(2999)),
            (json!({"maxOutputTokens": 3000}), 3000, None),
            (json!({"maxOutputTokens": 100}), 1, None),
            (thinking.clone(), 7000, Some(7000)),
            (thinking, 1, Some(6024)),
            (dynamic, 1, Some(1024)),
            (json!({"thinkingConfig": {"thinkingBudget": 8000}}), 1, None),
            (json!({"maxOutputTokens": "many"}), 1, None),
            (json!({"num_predict": 10}), 1, None),
        ] {
            assert_eq!(limit(settings.as_object().unwrap(), left), expected, "{settings} {left}");
        }
    }
}
