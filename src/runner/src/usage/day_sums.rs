//! Tokens that the process has counted on one day, for all callers and for each.

use std::collections::HashMap;
use std::sync::Arc;

use crds::usage::{MAX_CELLS, PricedTokens, UsageTotals};

/// Most models of a sum. The tokens of further ones are counted as those of a model without a name.
const MAX_MODELS: usize = 32;

/// Tokens that are counted together.
#[derive(Debug, Default)]
pub(super) struct TokenSum {
    /// Tokens of input and output.
    pub(super) tokens: u64,
    models: Vec<(Arc<str>, PricedTokens)>,
}

impl TokenSum {
    fn add(&mut self, model: &Arc<str>, totals: &UsageTotals) {
        self.tokens = self.tokens.saturating_add(totals.input).saturating_add(totals.output);
        let has_room = self.models.len() < MAX_MODELS || self.models.iter().any(|(known, _)| known == model);
        let model = if has_room { model.clone() } else { Arc::from("") };
        if !self.models.iter().any(|(known, _)| *known == model) {
            self.models.push((model.clone(), PricedTokens::default()));
        }
        for (_, sums) in self.models.iter_mut().filter(|(known, _)| *known == model) {
            for (sum, more) in sums.iter_mut().zip(totals.priced()) {
                *sum = sum.saturating_add(more);
            }
        }
    }

    /// Returns the tokens of each model, by the name that it has among prices.
    pub(super) fn models(&self) -> impl Iterator<Item = (&str, PricedTokens)> {
        self.models.iter().map(|(name, tokens)| (&**name, *tokens))
    }
}

/// Tokens of one day.
///
/// Invariant: there are at most [`MAX_CELLS`] callers.
#[derive(Debug, Default)]
pub(super) struct DaySums {
    /// Days since 1970, UTC.
    day: i64,
    all: TokenSum,
    callers: HashMap<String, TokenSum>,
}

impl DaySums {
    /// Counts tokens of a model. Those of a day that is over are left out.
    pub(super) fn count(&mut self, day: i64, caller: &str, model: &Arc<str>, totals: &UsageTotals) {
        if day > self.day {
            *self = Self { day, ..Self::default() };
        }
        if day < self.day {
            return;
        }
        self.all.add(model, totals);
        if let Some(sum) = self.callers.get_mut(caller) {
            sum.add(model, totals);
        } else if !caller.is_empty() && self.callers.len() < MAX_CELLS {
            self.callers.entry(caller.to_owned()).or_default().add(model, totals);
        }
    }

    /// Returns what `measure` makes of the sums of a day: for all callers, and for this one; `None`: it is not known, or found no room.
    pub(super) fn measured(&self, day: i64, caller: &str, measure: impl Fn(&TokenSum) -> u64) -> (u64, Option<u64>) {
        if day != self.day {
            return (0, (!caller.is_empty()).then_some(0));
        }
        let is_counted = !caller.is_empty() && (self.callers.len() < MAX_CELLS || self.callers.contains_key(caller));
        let own = is_counted.then(|| self.callers.get(caller).map_or(0, &measure));
        (measure(&self.all), own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_of_a_sum_are_bounded_and_none_is_lost() {
        let mut sums = DaySums::default();
        let totals = UsageTotals { input: 3, cache_read: 1, output: 2, ..UsageTotals::default() };
        for number in 0..MAX_MODELS + 9 {
            sums.count(1, "ada", &format!("p/m{}", number % (MAX_MODELS + 3)).into(), &totals);
        }
        let of_models = |sum: &TokenSum| sum.models().map(|(_, tokens)| tokens.iter().sum::<u64>()).sum::<u64>();
        let all = 5 * (MAX_MODELS as u64 + 9);
        assert_eq!(sums.measured(1, "ada", of_models), (all, Some(all)));
        assert_eq!(sums.measured(1, "ada", |sum| sum.models().count() as u64), (33, Some(33)));
        assert_eq!(sums.measured(1, "ben", |sum| sum.tokens), (all, Some(0)));
    }
}
