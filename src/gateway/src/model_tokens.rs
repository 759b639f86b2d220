//! Tokens of one workload by model, as its responses report them, and what they cost where the workload has prices.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crds::usage::{ReportedUsage, TokenDirection};

/// Most models of a workload that are counted by name.
pub(super) const MAX_MODELS: usize = 20;
/// Name for all further models, and for reports without a model.
const OTHER: &str = "other";

/// Counters of tokens by model, and of their cost. A response without a report does not lock them.
#[derive(Debug, Default)]
pub(super) struct ModelTokens(Mutex<Option<Box<ReportedSums>>>);

/// Sums of what responses reported.
#[derive(Debug, Default)]
struct ReportedSums {
    models: Vec<ModelSums>,
    /// Costs in 10⁻⁹ of each currency.
    costs: Vec<(Box<str>, u64)>,
}

/// Tokens of a model, in the order of [`TokenDirection::ALL`].
#[derive(Debug)]
struct ModelSums {
    name: Box<str>,
    tokens: [u64; TokenDirection::ALL.len()],
}

impl ModelTokens {
    /// Counts what a response reports.
    pub(super) fn count(&self, usage: &ReportedUsage) {
        let mut sums = self.sums();
        let models = &mut sums.get_or_insert_default().models;
        let wanted = usage.model.as_deref().unwrap_or(OTHER);
        let is_known = models.iter().any(|model| *model.name == *wanted);
        let named = models.iter().filter(|model| *model.name != *OTHER).count();
        let name = if is_known || named < MAX_MODELS { wanted } else { OTHER };
        if !models.iter().any(|model| *model.name == *name) {
            models.push(ModelSums { name: name.into(), tokens: Default::default() });
        }
        for model in models.iter_mut().filter(|model| *model.name == *name) {
            for (sum, more) in model.tokens.iter_mut().zip(usage.tokens) {
                *sum = sum.saturating_add(more);
            }
        }
    }

    /// Returns the tokens that were counted, by model and direction.
    pub(super) fn read(&self) -> Vec<(Box<str>, TokenDirection, u64)> {
        let of = |model: &ModelSums| {
            let counted = TokenDirection::ALL.into_iter().zip(model.tokens).filter(|(_, tokens)| *tokens > 0);
            counted.map(|(direction, tokens)| (model.name.clone(), direction, tokens)).collect::<Vec<_>>()
        };
        self.sums().iter().flat_map(|sums| &sums.models).flat_map(of).collect()
    }

    /// Counts what a response cost, in 10⁻⁹ of the currency.
    pub(super) fn count_cost(&self, currency: &str, nanos: u64) {
        let mut sums = self.sums();
        let costs = &mut sums.get_or_insert_default().costs;
        if let Some((_, sum)) = costs.iter_mut().find(|(known, _)| **known == *currency) {
            *sum = sum.saturating_add(nanos);
            return;
        }
        costs.push((currency.into(), nanos));
    }

    /// Returns the cost that was counted, by currency.
    pub(super) fn costs(&self) -> Vec<(Box<str>, f64)> {
        let cost = |(currency, nanos): &(Box<str>, u64)| (currency.clone(), *nanos as f64 / 1e9);
        self.sums().iter().flat_map(|sums| &sums.costs).map(cost).collect()
    }

    fn sums(&self) -> MutexGuard<'_, Option<Box<ReportedSums>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_twenty_models_count_by_name_and_the_rest_as_other() {
        let counted = ModelTokens::default();
        for round in 0..2 {
            for number in 0..500 {
                let model = Some(format!("p/m{number}").into());
                counted.count(&ReportedUsage { tokens: [3, 0, 0, round, 0], model, ..ReportedUsage::default() });
            }
            counted.count(&ReportedUsage { tokens: [1, 0, 0, 0, 0], ..ReportedUsage::default() });
        }
        let read = counted.read();
        assert_eq!(read.iter().filter(|(_, direction, _)| *direction == TokenDirection::Input).count(), MAX_MODELS + 1);
        let of = |name: &str| {
            let found = read.iter().filter(|(model, ..)| **model == *name);
            found.map(|(_, direction, tokens)| (*direction, *tokens)).collect::<Vec<_>>()
        };
        assert_eq!(of("p/m19"), [(TokenDirection::Input, 6), (TokenDirection::Output, 1)]);
        assert!(of("p/m20").is_empty());
        assert_eq!(of(OTHER), [(TokenDirection::Input, 480 * 6 + 2), (TokenDirection::Output, 480)]);
        assert!(counted.costs().is_empty());
    }

    #[test]
    fn costs_are_summed_by_currency() {
        let counted = ModelTokens::default();
        for (currency, nanos) in [("EUR", 1_500_000_000), ("USD", 1), ("EUR", 500_000_000)] {
            counted.count_cost(currency, nanos);
        }
        let expected: [(Box<str>, f64); 2] = [("EUR".into(), 2.0), ("USD".into(), 1e-9)];
        assert_eq!(counted.costs(), expected);
        assert!(counted.read().is_empty());
    }
}
