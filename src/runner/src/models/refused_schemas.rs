//! Schemas of answers that a model refuses: for an hour they are written into its instructions.
//!
//! Providers have no code for it, and some take schemas of a certain form alone. So a request with a schema that is refused as
//! invalid is sent once more without it, and what then succeeds says that the schema was the reason.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

/// Time after which a schema is tried again.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Most schemas that are remembered. Callers may send their own.
const MOST: usize = 16;

/// Schemas that one model refuses, the oldest first.
#[derive(Debug, Default)]
pub(super) struct RefusedSchemas(Mutex<Vec<(Value, Instant)>>);

impl RefusedSchemas {
    /// Reports whether the model has refused this schema lately.
    pub(super) fn contains(&self, schema: &Value) -> bool {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|(_, since)| since.elapsed() < REMEMBERED);
        refused.iter().any(|(known, _)| known == schema)
    }

    /// Remembers that the model has refused this schema.
    pub(super) fn add(&self, schema: Value) {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|(known, _)| *known != schema);
        if refused.len() >= MOST {
            refused.remove(0);
        }
        refused.push((schema, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_schema_is_tried_again_after_an_hour_and_few_are_kept() {
        let refused = RefusedSchemas::default();
        refused.add(json!({"title": "a"}));
        assert!(refused.contains(&json!({"title": "a"})) && !refused.contains(&json!({"title": "b"})));
        tokio::time::advance(REMEMBERED).await;
        assert!(!refused.contains(&json!({"title": "a"})));
        for number in 0..=MOST {
            refused.add(json!(number));
        }
        let known = (0..=MOST).filter(|number| refused.contains(&json!(number))).count();
        assert!(known == MOST && !refused.contains(&json!(0)), "the oldest one goes");
    }
}
