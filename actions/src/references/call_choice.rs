//! Checks the setting `toolChoice` of a model and its fallbacks: with a wrong one each request fails.

use crds::{Model, ModelSpec, call_choice};

use crate::ports::CacheReader;

/// Returns what is wrong with `toolChoice` of this model or of one of its fallbacks. `name` is that of the Model; `None` for the one
/// of `modelSpec`. `has_tool` reports whether the model may have a tool of this name.
pub(crate) fn call_choice_problem(
    cache: &dyn CacheReader,
    namespace: &str,
    name: Option<&str>,
    model: &ModelSpec,
    has_tool: &dyn Fn(&str) -> bool,
) -> Option<String> {
    let problem = |subject: &str, model: &ModelSpec| {
        let found = call_choice::call_choice_problem(model.default_config.as_ref(), has_tool)?;
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
