//! Metrics of the requests to models.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crds::usage::UsageTotals;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Most models that have a label of their own.
const MAX_MODELS: usize = 20;
/// Label of all further models.
const OTHER_MODELS: &str = "other";
/// Upper bounds of the duration's buckets, in seconds: from a short answer to long reasoning.
const SECONDS: [f64; 10] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 30.0, 60.0, 300.0];

/// Metrics of the requests to models. Clones share them.
#[derive(Clone)]
pub(crate) struct UsageMetrics {
    tokens: Family<TokenLabels, Counter>,
    calls: Family<CallLabels, Counter>,
    seconds: Family<ModelLabels, Histogram, fn() -> Histogram>,
    fallbacks: Family<FallbackLabels, Counter>,
    unknown_budgets: Counter,
    /// Models that have a label.
    models: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    model: String,
    direction: &'static str,
    purpose: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    model: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FallbackLabels {
    from: String,
    to: String,
}

impl Default for UsageMetrics {
    fn default() -> Self {
        let seconds = Family::new_with_constructor((|| Histogram::new(SECONDS)) as fn() -> Histogram);
        let (tokens, calls, fallbacks, unknown_budgets, models) = Default::default();
        Self { tokens, calls, seconds, fallbacks, unknown_budgets, models }
    }
}

impl UsageMetrics {
    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Tokens by model, direction and purpose; those of cache and reasoning are part of input and output";
        registry.register("tokens", help, self.tokens.clone());
        registry.register("model_calls", "Requests to models by model and outcome", self.calls.clone());
        let help = "Time from a request to a model to the end of its answer, by model, in seconds";
        registry.register("model_seconds", help, self.seconds.clone());
        let help = "Answers of fallbacks, by the first model and the one that answered";
        registry.register("fallbacks", help, self.fallbacks.clone());
        let help =
            "Requests by no gateway while no gateway had said for five minutes, or today, what is left of the budgets";
        registry.register("budget_unknown", help, self.unknown_budgets.clone());
    }

    /// Counts a request to a model.
    pub(super) fn count(&self, model: &str, purpose: &'static str, totals: &UsageTotals) {
        let UsageTotals { calls, failed, input, cache_read, cache_write, output, reasoning, .. } = *totals;
        let model = self.label(model);
        for (outcome, requests) in [("ok", calls), ("error", failed)] {
            if requests > 0 {
                self.calls.get_or_create(&CallLabels { model: model.clone(), outcome }).inc_by(requests);
            }
        }
        for (direction, tokens) in [
            ("input", input),
            ("cache_read", cache_read),
            ("cache_write", cache_write),
            ("output", output),
            ("reasoning", reasoning),
        ] {
            if tokens > 0 {
                self.tokens.get_or_create(&TokenLabels { model: model.clone(), direction, purpose }).inc_by(tokens);
            }
        }
    }

    /// Counts the duration of a request to a model.
    pub(crate) fn observe(&self, model: &str, took: Duration) {
        self.seconds.get_or_create(&ModelLabels { model: self.label(model) }).observe(took.as_secs_f64());
    }

    /// Counts an answer of a fallback in place of the first model.
    pub(crate) fn count_fallback(&self, first: &str, fallback: &str) {
        let labels = FallbackLabels { from: self.label(first), to: self.label(fallback) };
        self.fallbacks.get_or_create(&labels).inc();
    }

    /// Counts a request for which it is not known what is left of a budget.
    pub(super) fn count_unknown_budget(&self) {
        self.unknown_budgets.inc();
    }

    /// Returns the number of these requests.
    #[cfg(test)]
    pub(super) fn unknown_budgets(&self) -> u64 {
        self.unknown_budgets.get()
    }

    /// Returns the label of a model: its name, or [`OTHER_MODELS`] once [`MAX_MODELS`] others have a label.
    fn label(&self, model: &str) -> String {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if !models.contains(model) {
            if models.len() >= MAX_MODELS {
                return OTHER_MODELS.to_owned();
            }
            models.insert(model.to_owned());
        }
        model.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_a_bound() {
        let metrics = UsageMetrics::default();
        let labels: Vec<String> = (0..30).map(|number| metrics.label(&format!("p/m{number}"))).collect();
        assert_eq!((labels[0].as_str(), labels[19].as_str(), labels[20].as_str()), ("p/m0", "p/m19", "other"));
        assert_eq!(metrics.label("p/m3"), "p/m3", "a model keeps its label");
    }
}
