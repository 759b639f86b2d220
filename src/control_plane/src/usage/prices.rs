//! Prices of models, from the Models of a namespace and the models that workloads define themselves.

use crds::{
    ApiKind, Model, ModelSpec, PluginConfig,
    provider::provider,
    usage::{ModelPrice, UsageKey, UsageTotals},
};
use meta::{Key, PhasedObject};
use serde_json::Value;

use crate::fleet::FleetCache;

/// Model with a price.
#[derive(Debug)]
struct PricedModel {
    /// Provider by its usual name, as runtimes report it.
    provider: String,
    id: String,
    price: ModelPrice,
}

/// Prices for one workload: of the models that it defines itself, and of the Models in its namespace.
#[derive(Debug, Default)]
pub(super) struct Prices(Vec<PricedModel>);

impl Prices {
    /// Reads the prices for a workload. Of two with the same provider and id the workload's own counts, then the first by name.
    pub(super) fn read(fleet: &FleetCache, workload: &ApiKind, key: &Key) -> Self {
        let own = fleet.get(workload, key).map(|entry| entry.record.object()).unwrap_or_default();
        let spec = &own["spec"];
        let flows = spec["flows"].as_array().into_iter().flatten().map(|flow| &flow["modelSpec"]);
        let own = [&spec["modelSpec"]].into_iter().chain(flows).cloned();
        let shared =
            ApiKind::find(Model::KIND).map(|kind| fleet.in_namespace(kind, &key.namespace)).unwrap_or_default();
        let shared = shared.iter().map(|record| record.object()["spec"].take());
        let priced = own.chain(shared).filter_map(|spec| PricedModel::read(fleet, &key.namespace, spec));
        Self(priced.collect())
    }

    /// Returns the cost of a cell in 10⁻⁹ of a currency, and the currency; `None`: its model has no price.
    pub(super) fn cost(&self, key: &UsageKey, totals: &UsageTotals) -> Option<(u64, String)> {
        let model = self.0.iter().find(|model| model.id == key.model && model.provider == key.provider)?;
        Some((model.price.cost(totals)?, model.price.currency.clone()))
    }
}

impl PricedModel {
    /// Reads a model from its spec; `None`: it has no price, or its provider is not known.
    fn read(fleet: &FleetCache, namespace: &str, spec: Value) -> Option<Self> {
        let ModelSpec { model, plugin_config_ref, price, .. } = serde_json::from_value(spec).ok()?;
        let price = price?;
        let plugin = fleet.get(ApiKind::find(PluginConfig::KIND)?, &Key::new(namespace, plugin_config_ref.name))?;
        let plugin = plugin.record.object();
        let name = plugin["spec"]["type"].as_str()?;
        let usual = provider(name).and_then(|provider| provider.names.first().copied());
        Some(Self { provider: usual.unwrap_or(name).to_owned(), id: model, price })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::TestFleet;

    #[test]
    fn a_model_is_priced_by_provider_and_id_and_the_workloads_own_comes_first() {
        let mut stage = TestFleet::new();
        let model = |id: &str, plugin: &str, input: &str| {
            let price = json!({ "input": input, "output": "1" });
            json!({ "provider": "x", "model": id, "pluginConfigRef": { "name": plugin }, "price": price })
        };
        stage.put("PluginConfig", "ns", "g", json!({ "type": "googleai" }), json!(null));
        stage.put("PluginConfig", "ns", "o", json!({ "type": "openai" }), json!(null));
        stage.put("Model", "ns", "m1", model("m", "g", "2"), json!(null));
        stage.put("Model", "ns", "m2", model("m", "o", "3"), json!(null));
        stage.put("Model", "ns", "m3", model("other", "missing", "3"), json!(null));
        stage.put("Model", "other", "m4", model("far", "o", "3"), json!(null));
        stage.put("Flow", "ns", "f", json!({ "modelSpec": model("m", "o", "5") }), json!(null));
        let million = UsageTotals { input: 1_000_000, ..UsageTotals::default() };
        let cost = |kind: &str, name: &str, provider: &str, model: &str| {
            let prices = Prices::read(&stage.fleet, ApiKind::find(kind).unwrap(), &Key::new("ns", name));
            let key = UsageKey { provider: provider.into(), model: model.into(), ..UsageKey::default() };
            prices.cost(&key, &million)
        };
        let usd = |amount: u64| Some((amount * 1_000_000_000, "USD".to_owned()));
        for (kind, name, provider, model, expected) in [
            ("Agent", "a", "gemini", "m", usd(2)),
            ("Agent", "a", "openai", "m", usd(3)),
            ("Flow", "f", "openai", "m", usd(5)),
            ("Agent", "a", "openai", "other", None),
            ("Agent", "a", "openai", "far", None),
        ] {
            assert_eq!(cost(kind, name, provider, model), expected, "{kind} {provider} {model}");
        }
    }
}
