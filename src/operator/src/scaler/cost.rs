//! Prices of the models of a workload with `costPerDay`, which its gateways read in its status.
//!
//! They are those of its models and their fallbacks, by provider and id as runtimes report them. While one of them is missing, the last
//! prices in the status hold. What a runtime asks besides, such as a model for titles, is counted by the price of the first one.

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

/// Prices by which the cost of a workload is counted.
#[derive(Debug, Default)]
pub(super) struct EffectivePrices {
    /// The prices; `None`: it has no limit of cost, or there never were prices.
    pub(super) prices: Option<ModelPrices>,
    /// Reason why they are not those of its models as they are now.
    pub(super) problem: Option<PriceProblem>,
}

/// Returns the prices of a workload. While those of its models cannot be counted by, the last ones (`stored`) hold: a budget must not end
/// with an edit of a Model.
pub(super) fn prices(
    workload: &impl PricedKind,
    limits: &[Limit],
    namespace: &str,
    cache: &dyn CacheReader,
    stored: Option<&str>,
) -> EffectivePrices {
    if limits.iter().all(|limit| limit.cost_per_day.is_none()) {
        return EffectivePrices::default();
    }
    match models(workload, namespace, cache).and_then(|models| prices_of(&models)) {
        Ok(prices) => EffectivePrices { prices, problem: None },
        Err(mut problem) => {
            let prices = stored.and_then(ModelPrices::read);
            if prices.is_some() {
                problem.message.push_str("; the last prices hold");
            }
            EffectivePrices { prices, problem: Some(problem) }
        }
    }
}

/// Returns the models of a workload and their fallbacks.
fn models(
    workload: &impl PricedKind,
    namespace: &str,
    cache: &dyn CacheReader,
) -> Result<Vec<CalledModel>, PriceProblem> {
    let shared = |name: &str| -> Result<(String, ModelSpec), PriceProblem> {
        let model = cache.get::<Model>(namespace, name).ok_or_else(|| not_found("model", name))?;
        Ok((format!("model {name:?} has no spec.price"), model.spec.clone()))
    };
    let called = |(lacking, spec): (String, ModelSpec)| -> Result<CalledModel, PriceProblem> {
        let plugin = spec.plugin_config_ref.name.as_str();
        let found = cache.get::<PluginConfig>(namespace, plugin).ok_or_else(|| not_found("pluginconfig", plugin))?;
        Ok(CalledModel { lacking, provider: found.spec.type_.clone(), spec })
    };
    let mut all = Vec::new();
    for source in workload.models() {
        let first = match source {
            ModelSource::Named(name) => shared(name)?,
            ModelSource::Inline(spec) => ("its modelSpec has no price".to_owned(), spec.clone()),
        };
        let fallbacks = first.1.fallback_refs.clone();
        all.push(called(first)?);
        for named in fallbacks {
            all.push(called(shared(&named.name)?)?);
        }
    }
    Ok(all)
}

/// Returns the problem that there is no object of this kind and name.
fn not_found(kind: &str, name: &str) -> PriceProblem {
    let message = format!("{kind} {name:?} not found, which costPerDay needs");
    PriceProblem { reason: reason::PRICE_MISSING, message }
}

/// Returns the prices of models.
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
    let prices = currency.and_then(|currency| ModelPrices::new(currency, priced));
    let (length, most) = (prices.as_ref().map_or(0, |prices| prices.to_string().len()), ModelPrices::MAX_TEXT);
    if length > most {
        let message = format!(
            "the prices of its models take {length} bytes, but costPerDay needs at most {most}: let it call fewer models"
        );
        return Err(PriceProblem { reason: reason::TOO_MANY_PRICES, message });
    }
    Ok(prices)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cluster::cache::{Caches, InformerReader};
    use serde_json::{Value, json};

    use super::*;
    use crate::scaler::testing::observe;

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

    #[test]
    fn prices_that_gateways_would_not_read_are_a_problem() {
        let models = |count: u8| -> Vec<CalledModel> {
            (0..count).map(|at| called("openai", &format!("{at:0>253}"), Some(("EUR", "3")))).collect()
        };
        let text = prices_of(&models(27)).unwrap().unwrap().to_string();
        assert!(ModelPrices::read(&text).is_some(), "{} bytes", text.len());
        let problem = prices_of(&models(28)).unwrap_err();
        let message =
            "the prices of its models take 8263 bytes, but costPerDay needs at most 8192: let it call fewer models";
        assert_eq!((problem.reason, problem.message.as_str()), ("TooManyPrices", message));
    }

    /// Returns a reader of caches with the PluginConfig `p` of type openai and the Models `one`, with `two` as its fallback, `two` and
    /// `lost`, whose PluginConfig is missing. Without `two`: with its name in the fallbacks alone.
    fn caches(has_two: bool) -> InformerReader {
        let maps = Caches::default();
        let object = |name: &str, spec: Value| json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": spec });
        observe(maps.kinds.of::<PluginConfig>(), 1, object("p", json!({ "type": "openai" })));
        observe(maps.kinds.of::<Model>(), 1, object("one", spec("1", "p", &["two"])));
        observe(maps.kinds.of::<Model>(), 2, object("lost", spec("3", "gone", &[])));
        if has_two {
            observe(maps.kinds.of::<Model>(), 3, object("two", spec("2", "p", &[])));
        }
        InformerReader::new(&maps, Arc::default())
    }

    /// Returns the spec of the model `m-PRICE`.
    fn spec(price: &str, plugin: &str, fallbacks: &[&str]) -> Value {
        let fallbacks: Vec<Value> = fallbacks.iter().map(|name| json!({ "name": name })).collect();
        let price_of = json!({ "currency": "EUR", "input": price, "output": price });
        json!({ "provider": "x", "model": format!("m-{price}"), "pluginConfigRef": { "name": plugin },
            "fallbackRefs": fallbacks, "price": price_of })
    }

    fn named(model: &str) -> Value {
        json!({ "name": model, "prompts": [], "modelRef": { "name": model } })
    }

    const LAST: &str = "USD, a/b 1 1 1 1";

    /// Returns the prices of a workload and the message of their problem.
    fn found<K: PricedKind + serde::de::DeserializeOwned>(
        spec: Value,
        cost: Option<&str>,
        has_two: bool,
        stored: Option<&str>,
    ) -> (Option<String>, Option<String>) {
        let workload: K = serde_json::from_value(json!({ "metadata": { "name": "w" }, "spec": spec })).unwrap();
        let limit = json!({ "per": "workload", "tokensPerDay": 1, "costPerDay": cost });
        let limits: Vec<Limit> = vec![serde_json::from_value(limit).unwrap()];
        let effective = prices(&workload, &limits, "ns", &caches(has_two), stored);
        (effective.prices.map(|prices| prices.to_string()), effective.problem.map(|problem| problem.message))
    }

    #[test]
    fn the_models_of_each_kind_and_their_fallbacks_have_prices() {
        let one = "openai/m-1 1000000 1000000 1000000 1000000";
        let two = "openai/m-2 2000000 2000000 2000000 2000000";
        let of = |names: &[&str]| (Some(format!("EUR, {}", names.join(", "))), None::<String>);
        let agent = || json!({ "name": "A", "framework": "corail", "modelRef": { "name": "one" } });
        let cost = Some("1");
        assert_eq!(found::<Agent>(agent(), cost, true, Some(LAST)), of(&[one, two]));
        assert_eq!(found::<Flow>(named("one"), cost, true, None), of(&[one, two]));
        let inline = json!({ "prompts": [], "modelSpec": spec("7", "p", &["two"]) });
        let seven = "openai/m-7 7000000 7000000 7000000 7000000";
        assert_eq!(found::<Flow>(inline, cost, true, None), of(&[seven, two]));
        let set = json!({ "flows": [named("two"), named("one")] });
        assert_eq!(found::<FlowSet>(set, cost, true, None), of(&[two, one]));
        assert_eq!(found::<Agent>(agent(), None, true, Some(LAST)), (None, None), "no limit of cost");
    }

    #[test]
    fn while_a_model_or_its_provider_is_missing_the_last_prices_hold() {
        let set = || json!({ "flows": [named("two"), named("lost")] });
        let agent = || json!({ "name": "A", "framework": "corail", "modelRef": { "name": "one" } });
        let held = |message: &str| (Some(LAST.to_owned()), Some(format!("{message}; the last prices hold")));
        let cost = Some("1");
        let no_model = "model \"two\" not found, which costPerDay needs";
        let no_plugin = "pluginconfig \"gone\" not found, which costPerDay needs";
        assert_eq!(found::<Agent>(agent(), cost, false, Some(LAST)), held(no_model), "a fallback");
        assert_eq!(found::<Flow>(named("two"), cost, false, Some(LAST)), held(no_model));
        assert_eq!(found::<FlowSet>(set(), cost, true, Some(LAST)), held(no_plugin));
        assert_eq!(found::<FlowSet>(set(), cost, true, None), (None, Some(no_plugin.to_owned())));
    }
}
