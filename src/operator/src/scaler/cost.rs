//! Prices of the models of a workload with `costPerDay`, which its gateways read in its status.
//!
//! They are those of its models and their fallbacks, by provider and id as runtimes report them. What a runtime asks besides, such as a
//! model for titles, is counted by the price of the first one.

use actions::ports::CacheReader;
use crds::{
    Agent, Flow, FlowSet, Limit, Model, ModelSpec, PluginConfig,
    flow::FlowDefinition,
    provider::provider,
    reason,
    usage::{ModelPrices, priced_name},
};

/// Kind whose workloads call models.
pub(super) trait PricedKind {
    /// Returns the models that its spec names, without their fallbacks.
    fn models(&self) -> Vec<ModelSource<'_>>;
}

/// Model in a spec.
pub(super) enum ModelSource<'a> {
    /// Model object of this name.
    Named(&'a str),
    /// Model that is written in place.
    Inline(&'a ModelSpec),
}

impl PricedKind for Agent {
    fn models(&self) -> Vec<ModelSource<'_>> {
        self.spec.model_ref.iter().map(|named| ModelSource::Named(&named.name)).collect()
    }
}

impl PricedKind for Flow {
    fn models(&self) -> Vec<ModelSource<'_>> {
        of_flow(&self.spec.definition).into_iter().collect()
    }
}

impl PricedKind for FlowSet {
    fn models(&self) -> Vec<ModelSource<'_>> {
        self.spec.flows.iter().filter_map(|flow| of_flow(&flow.definition)).collect()
    }
}

fn of_flow(definition: &FlowDefinition) -> Option<ModelSource<'_>> {
    let named = definition.model_ref.as_ref().map(|named| ModelSource::Named(&named.name));
    named.or(definition.model_spec.as_ref().map(ModelSource::Inline))
}

/// Reason why cost cannot be counted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PriceProblem {
    /// Reason in CamelCase.
    pub(super) reason: &'static str,
    /// Message, one sentence.
    pub(super) message: String,
}

/// Model that a workload calls.
struct CalledModel {
    /// Clause that it has no price.
    lacking: String,
    /// Type of its provider.
    provider: String,
    spec: ModelSpec,
}

/// Returns the prices of a workload; `None`: it has no limit of cost, or none of its models is there.
///
/// # Errors
/// A model has no price, or another currency than the first one.
pub(super) fn prices(
    workload: &impl PricedKind,
    limits: &[Limit],
    namespace: &str,
    cache: &dyn CacheReader,
) -> Result<Option<ModelPrices>, PriceProblem> {
    match limits.iter().any(|limit| limit.cost_per_day.is_some()) {
        true => prices_of(&models(workload, namespace, cache)),
        false => Ok(None),
    }
}

/// Returns the models of a workload and their fallbacks.
fn models(workload: &impl PricedKind, namespace: &str, cache: &dyn CacheReader) -> Vec<CalledModel> {
    let shared = |name: &str| {
        let model = cache.get::<Model>(namespace, name)?;
        Some((format!("model {name:?} has no spec.price"), model.spec.clone()))
    };
    let mut all = Vec::new();
    for source in workload.models() {
        let first = match source {
            ModelSource::Named(name) => shared(name),
            ModelSource::Inline(spec) => Some(("its modelSpec has no price".to_owned(), spec.clone())),
        };
        let Some(first) = first else { continue };
        let fallbacks: Vec<_> = first.1.fallback_refs.iter().filter_map(|named| shared(&named.name)).collect();
        all.push(first);
        all.extend(fallbacks);
    }
    let called = all.into_iter().filter_map(|(lacking, spec)| {
        let plugin = cache.get::<PluginConfig>(namespace, &spec.plugin_config_ref.name)?;
        Some(CalledModel { lacking, provider: plugin.spec.type_.clone(), spec })
    });
    called.collect()
}

fn prices_of(models: &[CalledModel]) -> Result<Option<ModelPrices>, PriceProblem> {
    let mut currency: Option<&str> = None;
    let mut priced: Vec<(String, [u64; 4])> = Vec::new();
    for CalledModel { lacking, provider: type_, spec } in models {
        let price = spec.price.as_ref().and_then(|price| Some((price.currency.as_str(), price.millionths()?)));
        let Some((of, prices)) = price else {
            let message = format!("{lacking}, which costPerDay needs");
            return Err(PriceProblem { reason: reason::PRICE_MISSING, message });
        };
        let first = *currency.get_or_insert(of);
        if first != of {
            let message =
                format!("the prices of its models are in {first} and {of}, but costPerDay needs one currency");
            return Err(PriceProblem { reason: reason::MIXED_CURRENCIES, message });
        }
        let usual = provider(type_).and_then(|provider| provider.names.first().copied());
        let name = priced_name(usual.unwrap_or(type_), &spec.model);
        if !priced.iter().any(|(known, _)| *known == name) {
            priced.push((name, prices));
        }
    }
    Ok(currency.and_then(|currency| ModelPrices::new(currency, priced)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn called(provider: &str, id: &str, price: Option<(&str, &str)>) -> CalledModel {
        let price = price.map(|(currency, input)| json!({ "currency": currency, "input": input, "output": "15" }));
        let spec = json!({ "provider": "x", "model": id, "pluginConfigRef": { "name": "p" }, "price": price });
        CalledModel {
            lacking: format!("model {id:?} has no spec.price"),
            provider: provider.to_owned(),
            spec: serde_json::from_value(spec).unwrap(),
        }
    }

    #[test]
    fn models_have_the_names_that_runtimes_report_and_each_is_there_once() {
        let models = [
            called("openai", "gpt-5", Some(("EUR", "3"))),
            called("googleai", "g", Some(("EUR", "0.5"))),
            called("openai", "gpt-5", Some(("EUR", "4"))),
        ];
        let prices = prices_of(&models).unwrap().unwrap().to_string();
        let expected = "EUR, openai/gpt-5 3000000 3000000 3000000 15000000, gemini/g 500000 500000 500000 15000000";
        assert_eq!(prices, expected);
        assert_eq!(prices_of(&[]), Ok(None));
    }

    #[test]
    fn a_model_without_a_price_and_two_currencies_are_problems() {
        let first = || called("openai", "gpt-5", Some(("EUR", "3")));
        for (other, reason, message) in [
            (called("openai", "m", None), "PriceMissing", "model \"m\" has no spec.price, which costPerDay needs"),
            (
                called("openai", "m", Some(("USD", "3"))),
                "MixedCurrencies",
                "the prices of its models are in EUR and USD, but costPerDay needs one currency",
            ),
        ] {
            let problem = PriceProblem { reason, message: message.to_owned() };
            assert_eq!(prices_of(&[first(), other]), Err(problem));
        }
    }
}
