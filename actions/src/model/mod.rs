//! `Model` kind. The lifecycle is that of every reference (`crate::reference`): a Model is Available when its PluginConfig is, and
//! its fallbacks are there. A setting that no provider would take is a condition, because an image of the user's own may know it.

use crds::{Model, ReferencePhase, model::OWN_FALLBACK, provider::provider, reason};
use machine::{ActionError, Table, TableError};
use meta::{PhasedObject as _, condition, condition_type, update_condition};

use crate::{
    deps::Deps,
    kind::{ControlledKind, Registry},
    reference::{self, ReferenceKind},
    references::{Evaluation, Query, Referable, used_digest},
};

impl ControlledKind for Model {
    const TABLE: Table<ReferencePhase> = Table {
        render_version: 1,
        conditions: &[condition_type::AVAILABLE, condition_type::CONFIG_UNDERSTOOD],
        ..reference::TABLE
    };

    fn registry() -> Result<Registry<Self>, TableError> {
        reference::registry()
    }
}

impl Referable for Model {
    fn evaluate(query: &Query<'_>) -> Evaluation {
        let found = query.object::<Self>();
        if query.is_fallback() {
            return query.evaluate_fallback(found);
        }
        query.evaluate_reference(found, |found| used_digest(&found.spec, &["price"]))
    }
}

impl ReferenceKind for Model {
    fn report_status(&mut self, _: &Deps) {
        let problem = provider(&self.spec.provider).and_then(|_| self.spec.setting_problem());
        let conditions = &mut self.common_mut().conditions;
        match problem {
            Some(problem) => {
                let message = format!("{problem}: correct it in defaultConfig, or leave it out");
                let found = condition(condition_type::CONFIG_UNDERSTOOD, false, reason::INVALID_SPEC, message);
                update_condition(conditions, found);
            }
            None => conditions.retain(|known| known.type_ != condition_type::CONFIG_UNDERSTOOD),
        }
    }

    fn validate(&self) -> Result<(), ActionError> {
        let name = self.key().name;
        // Same as the validation rule of the CRD, for objects that are older than the rule.
        match self.spec.fallback_refs.iter().any(|fallback| fallback.name == name) {
            true => Err(ActionError::terminal(reason::INVALID_SPEC, OWN_FALLBACK)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use crate::fake::{Operator, Sim, id, object};

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_setting_that_no_provider_takes_is_named_until_it_is_corrected() {
        let sim = Sim::new();
        sim.store().create(&id("PluginConfig", "p"), object("PluginConfig", json!({"type": "stub"})));
        let model = |config: Value| {
            let spec =
                json!({"provider": "stub", "model": "m", "pluginConfigRef": {"name": "p"}, "defaultConfig": config});
            object("Model", spec)
        };
        let mut operator = Operator::start(&sim);
        for (name, config, expected) in [
            (
                "a",
                json!({"toolChoice": "any"}),
                Some("`toolChoice` is auto, none, required, or {\"tool\": \"its name\"}"),
            ),
            ("b", json!({"cache": "2h", "toolChoice": {"tool": "find"}}), Some("`cache` is 5m, 1h or off")),
            ("c", json!({"toolChoice": {"type": "any"}, "cache": "1h"}), None),
            ("d", json!({"temperature": 1}), None),
        ] {
            let model_id = id("Model", name);
            sim.store().create(&model_id, model(config));
            operator.run(MINUTE).await;
            let message = || {
                let conditions = sim.store().at(&model_id, "/status/conditions");
                let all = conditions.as_array().unwrap().clone();
                assert!(all.iter().any(|found| found["type"] == "Available" && found["status"] == "True"), "{all:?}");
                let found = all.into_iter().find(|found| found["type"] == "ConfigUnderstood")?;
                Some(found["message"].as_str().unwrap().to_owned())
            };
            let expected = expected.map(|text| format!("{text}: correct it in defaultConfig, or leave it out"));
            assert_eq!(message(), expected, "{name}");
            sim.store().edit(&model_id, |model| model["spec"]["defaultConfig"] = json!({"toolChoice": "auto"}));
            operator.run(MINUTE).await;
            assert_eq!(message(), None, "{name}");
        }
    }
}
