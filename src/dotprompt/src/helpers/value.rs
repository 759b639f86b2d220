//! Helpers that return a value or a text.

use handlebars::{
    Context, Handlebars, Helper, HelperDef, PathAndJson, RenderContext, RenderError, RenderErrorReason, ScopedJson,
};
use serde_json::Value;

use crate::javascript::{print, property, stringify};
use crate::messages::{Mark, clean};

/// Helper that returns a value.
pub(super) enum ValueHelper {
    Value,
    Resolve,
    History,
    Json,
    Log,
    Lookup,
    Media,
    Role,
    Section,
}

impl HelperDef for ValueHelper {
    fn call_inner<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        _: &'rc Context,
        _: &mut RenderContext<'reg, 'rc>,
    ) -> Result<ScopedJson<'rc>, RenderError> {
        let first = helper.param(0);
        let text = match self {
            Self::Value => clean(&print(first.map_or(&Value::Null, PathAndJson::value))),
            Self::Resolve => {
                let mut value = first.filter(|it| !it.is_value_missing()).map(|it| it.value().clone());
                for key in helper.params().iter().skip(1) {
                    value = value.and_then(|value| property(&value, key.value().as_str().unwrap_or_default()));
                }
                return Ok(value.map_or(ScopedJson::Missing, ScopedJson::Derived));
            }
            Self::Lookup => {
                let value = first.map_or(&Value::Null, PathAndJson::value);
                let key = helper.param(1).map_or(&Value::Null, PathAndJson::value);
                return Ok(property(value, &print(key)).map_or(ScopedJson::Missing, ScopedJson::Derived));
            }
            Self::Json => match first.filter(|it| !it.is_value_missing()) {
                Some(value) => stringify(value.value(), &indent(helper.hash_get("indent"))),
                None => "undefined".into(),
            },
            Self::Log => String::new(),
            Self::History => Mark::History.printed(),
            Self::Role => Mark::Role(first.map(|it| print(it.value())).unwrap_or_default()).printed(),
            Self::Section => Mark::Section.printed(),
            Self::Media => media(helper)?,
        };
        Ok(ScopedJson::Derived(text.into()))
    }
}

/// Returns the indentation of each level of `JSON.stringify`: so many spaces or that text, 10 characters at most.
fn indent(value: Option<&PathAndJson<'_>>) -> String {
    match value.map(PathAndJson::value) {
        Some(Value::Number(width)) => " ".repeat(width.as_f64().unwrap_or(0.0).clamp(0.0, 10.0) as usize),
        Some(Value::String(text)) => clean(&text.chars().take(10).collect::<String>()),
        _ => String::new(),
    }
}

fn media(helper: &Helper<'_>) -> Result<String, RenderError> {
    let text = |key: &str| helper.hash_get(key).map(|it| print(it.value())).filter(|text| !text.is_empty());
    let url = text("url").ok_or_else(|| other_error("`media`: the url is missing or empty"))?;
    let content_type = text("contentType");
    if [Some(&url), content_type.as_ref()].into_iter().flatten().any(|text| text.contains(char::is_whitespace)) {
        return Err(other_error("`media`: the url or the content type has white space in it"));
    }
    Ok(Mark::Media { url, content_type }.printed())
}

fn other_error(message: &str) -> RenderError {
    RenderErrorReason::Other(message.to_owned()).into()
}
