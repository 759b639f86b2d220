//! Schemas of answers that a model refuses: for an hour they are written into its instructions.
//!
//! Providers have no code for it, and some take schemas of a certain form alone. So a request with a schema that is refused as
//! invalid is sent once more without it, and what then succeeds says that the schema was the reason.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Time after which a schema is tried again.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Most schemas that are remembered. Callers may send their own, so only digests are kept.
const MOST: usize = 16;

/// Digests of the schemas that one model refuses, the oldest first.
#[derive(Debug, Default)]
pub(super) struct RefusedSchemas(Mutex<Vec<(String, Instant)>>);

impl RefusedSchemas {
    /// Reports whether the model has refused the schema with this digest lately.
    pub(super) fn contains(&self, schema: &str) -> bool {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|(_, since)| since.elapsed() < REMEMBERED);
        refused.iter().any(|(known, _)| known == schema)
    }

    /// Remembers that the model has refused the schema with this digest.
    pub(super) fn add(&self, schema: String) {
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
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_schema_is_tried_again_after_an_hour_and_few_are_kept() {
        let refused = RefusedSchemas::default();
        refused.add("a".into());
        assert!(refused.contains("a") && !refused.contains("b"));
        tokio::time::advance(REMEMBERED).await;
        assert!(!refused.contains("a"));
        for number in 0..=MOST {
            refused.add(number.to_string());
        }
        let known = (0..=MOST).filter(|number| refused.contains(&number.to_string())).count();
        assert!(known == MOST && !refused.contains("0"), "the oldest one goes");
    }
}
