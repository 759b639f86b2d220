//! Rewrites the arguments of helpers, blocks and partials.

use handlebars::Path;
use handlebars::template::{HelperTemplate, Parameter, Subexpression, TemplateElement};
use serde_json::Value;

use super::helpers::{self, HelperPosition, RESOLVE};
use super::template_position::{TemplatePosition, TemplateSyntaxError};
use super::variables::split_path;

/// Checks a call of a helper.
pub(super) fn check(
    call: &HelperTemplate,
    how: HelperPosition,
    place: TemplatePosition,
) -> Result<(), TemplateSyntaxError> {
    let name = call.name.as_name().unwrap_or("(…)");
    let checked = helpers::check(name, how, call.params.len(), call.hash.contains_key("url"));
    checked.or_else(|problem| place.error(problem))
}

/// Rewrites the arguments of a call.
pub(super) fn arguments<'p>(
    parameters: impl IntoIterator<Item = &'p mut Parameter>,
    place: TemplatePosition,
) -> Result<(), TemplateSyntaxError> {
    for parameter in parameters {
        match parameter {
            Parameter::Name(_) | Parameter::Literal(_) => {}
            Parameter::Path(_) => {
                let path = parameter.as_name().unwrap_or_default();
                *parameter = value(path, place)?;
            }
            Parameter::Subexpression(inner) => match inner.element.as_mut() {
                TemplateElement::Expression(call) if call.name.as_name() != Some(RESOLVE) => {
                    check(call, HelperPosition::Argument, place)?;
                    arguments(call.params.iter_mut().chain(call.hash.values_mut()), place.deeper()?)?;
                }
                _ => {}
            },
            _ => return place.error("an argument must be a value, a path or a helper in parentheses"),
        }
    }
    Ok(())
}

/// Returns the expression for the value at `path`: its first key is looked up in the scopes, the others in the value found.
pub(super) fn value(path: &str, place: TemplatePosition) -> Result<Parameter, TemplateSyntaxError> {
    let (first, keys) = split_path(path);
    if first.matches("../").count() + usize::from(first.ends_with("..")) > place.scopes && !path.starts_with('@') {
        // Above the outermost context nothing is found; the crate would stay in that context.
        let nowhere = vec![Parameter::Literal(Value::Null), Parameter::Literal(Value::from(""))];
        let resolve = Parameter::Name(RESOLVE.to_owned());
        return Ok(Parameter::Subexpression(Subexpression::new(resolve, nowhere, Default::default())));
    }
    let first = match Path::parse(first) {
        Ok(first) => Parameter::Path(first),
        Err(_) => return place.error(format!("`{path}` is not a path")),
    };
    if keys.is_empty() {
        return Ok(first);
    }
    let keys = keys.into_iter().map(|key| Parameter::Literal(key.into()));
    let parameters = std::iter::once(first).chain(keys).collect();
    Ok(Parameter::Subexpression(Subexpression::new(
        Parameter::Name(RESOLVE.to_owned()),
        parameters,
        Default::default(),
    )))
}
