//! Validates the names of prompts, tools and flows, which become file names, keys and routes.

use std::collections::BTreeSet;

use crds::flow::FlowDefinition;

use super::super::RenderError;

/// Routes of the runner itself.
const RESERVED: [&str; 5] = ["chat", "healthz", "metrics", "readyz", "v1"];
/// Longest key of a ConfigMap, in bytes.
const MAX_KEY: usize = 253;

/// Validates the name of a flow and the names in its definition.
///
/// # Errors
/// [`RenderError::BadName`], [`RenderError::DuplicateName`] and [`RenderError::NoPrompt`].
pub fn check_names(flow: &str, definition: &FlowDefinition) -> Result<(), RenderError> {
    check_route("flow", flow)?;
    let prompts = definition.prompts.iter().map(|source| source.name());
    check_files("prompt", ".prompt", prompts.clone())?;
    prompts.into_iter().try_for_each(|name| check_route("prompt", name))?;
    check_files("tool", ".json", definition.tools.iter().map(|tool| tool.name.as_str()))?;
    match definition.prompts.is_empty() {
        true => Err(RenderError::NoPrompt),
        false => Ok(()),
    }
}

fn check_route(what: &'static str, name: &str) -> Result<(), RenderError> {
    let bad = |why| Err(RenderError::BadName { what, name: name.to_owned(), why });
    if RESERVED.contains(&name) { bad("is a route of the runner's own") } else { Ok(()) }
}

fn check_files<'a>(what: &'static str, suffix: &str, names: impl Iterator<Item = &'a str>) -> Result<(), RenderError> {
    let mut seen = BTreeSet::new();
    for name in names {
        let bad = |why| Err(RenderError::BadName { what, name: name.to_owned(), why });
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !name.bytes().all(allowed) || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return bad("is not a file name: use letters, digits, '-', '_' and '.', and begin with a letter or digit");
        }
        if name.len() + suffix.len() > MAX_KEY {
            return bad("is too long for a key of a ConfigMap");
        }
        if !seen.insert(name) {
            return Err(RenderError::DuplicateName { what, name: name.to_owned() });
        }
    }
    Ok(())
}
