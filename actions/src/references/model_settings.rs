//! Checks the settings of a model and its fallbacks: with a wrong one each request fails.

use crds::{Model, ModelSpec};

use crate::ports::CacheReader;

/// Returns what is wrong with the settings of this model or of one of its fallbacks. `name` is that of the Model; `None` for the one
/// of `modelSpec`. `has_tool` reports whether the model may have a tool of this name.
pub(crate) fn model_setting_problem(
    cache: &dyn CacheReader,
    namespace: &str,
    name: Option<&str>,
    model: &ModelSpec,
    has_tool: &dyn Fn(&str) -> bool,
) -> Option<String> {
    let problem = |subject: &str, model: &ModelSpec| {
        let absent = model.chosen_tool().filter(|tool| !has_tool(tool));
        let absent = absent
            .map(|tool| format!("`toolChoice` names the tool {tool:?}, which is not there: add it, or name another"));
        let found = model.setting_problem().map(str::to_owned).or(absent)?;
        Some(format!("{subject}: in defaultConfig, {found}"))
    };
    let first = name.map_or_else(|| "modelSpec".to_owned(), |name| format!("Model {name}"));
    problem(&first, model).or_else(|| {
        model.fallback_refs.iter().find_map(|fallback| {
            let found = cache.get::<Model>(namespace, &fallback.name)?;
            problem(&format!("Model {}", fallback.name), &found.spec)
        })
    })
}
