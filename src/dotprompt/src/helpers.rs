//! Helpers of a template, and the check of their calls.
//!
//! Helpers that print return their text instead of writing it, because then the crate indents it like the text around it.

use handlebars::{
    BlockContext, BlockParams, Context, Handlebars, Helper, HelperDef, HelperResult, Output, PathAndJson,
    RenderContext, RenderError, RenderErrorReason, Renderable, ScopedJson,
};
use serde_json::Value;

use super::javascript::{equal, is_truthy, print, property, stringify};
use super::messages::{Mark, clean};

/// Helper that prints a value; `{{value}}` is rewritten to it. No template can name it.
pub(super) const PRINT: &str = "=print";
/// Helper that looks up a path in a value, key by key; `a.b.c` is rewritten to it.
pub(super) const RESOLVE: &str = "=resolve";
/// Helper of a block without one, `{{#list}}…{{/list}}`: iterates over a list, tests a boolean or null, and enters any other
/// value.
pub(super) const SECTION: &str = "=section";

/// Position of a helper's call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HelperPosition {
    /// `{{helper}}`
    Print,
    /// `{{#helper}}…{{/helper}}`
    Block,
    /// `(helper)`, the argument of another.
    Argument,
}

/// Helpers that a template may call: name, number of arguments, allowed positions.
const HELPERS: [(&str, usize, &[HelperPosition]); 13] = [
    ("each", 1, &[HelperPosition::Block]),
    ("history", 0, &[HelperPosition::Print]),
    ("if", 1, &[HelperPosition::Block]),
    ("ifEquals", 2, &[HelperPosition::Block]),
    ("json", 1, &[HelperPosition::Print, HelperPosition::Argument]),
    ("log", 1, &[HelperPosition::Print]),
    ("lookup", 2, &[HelperPosition::Print, HelperPosition::Argument]),
    ("media", 0, &[HelperPosition::Print]),
    ("role", 1, &[HelperPosition::Print]),
    ("section", 1, &[HelperPosition::Print]),
    ("unless", 1, &[HelperPosition::Block]),
    ("unlessEquals", 2, &[HelperPosition::Block]),
    ("with", 1, &[HelperPosition::Block]),
];

/// Reports whether `name` is a helper's.
pub(super) fn is_known(name: &str) -> bool {
    HELPERS.iter().any(|(known, ..)| *known == name)
}

/// Checks a call of a helper.
///
/// # Errors
/// A helper that does not exist, that cannot stand there, or that takes other arguments.
pub(super) fn check(name: &str, how: HelperPosition, arguments: usize, has_url: bool) -> Result<(), String> {
    let Some((_, wanted, uses)) = HELPERS.iter().find(|(known, ..)| *known == name) else {
        let names = HELPERS.map(|(known, ..)| known).join(", ");
        return Err(format!("unknown helper `{name}`; the helpers are {names}"));
    };
    if !uses.contains(&how) {
        return Err(match uses.first() {
            Some(HelperPosition::Block) => format!("`{name}` is a block: write `{{{{#{name} …}}}} … {{{{/{name}}}}}`"),
            _ if how == HelperPosition::Block => format!("`{name}` is not a block: write `{{{{{name} …}}}}`"),
            _ => format!("`{name}` has no value, so it cannot be an argument"),
        });
    }
    if arguments != *wanted {
        let plural = if *wanted == 1 { "" } else { "s" };
        return Err(format!("`{name}` takes {wanted} argument{plural}, not {arguments}"));
    }
    if name == "media" && !has_url {
        return Err("`media` needs a url: write `{{media url=…}}`".into());
    }
    Ok(())
}

/// Replaces the crate's helpers, some of which the reference does not have, by ours.
pub(super) fn register(registry: &mut Handlebars<'static>) {
    for name in ["eq", "ne", "gt", "gte", "lt", "lte", "and", "or", "not", "len", "raw"] {
        registry.unregister_helper(name);
    }
    for (name, helper) in [
        (PRINT, ValueHelper::Value),
        (RESOLVE, ValueHelper::Resolve),
        ("history", ValueHelper::History),
        ("json", ValueHelper::Json),
        ("log", ValueHelper::Log),
        ("lookup", ValueHelper::Lookup),
        ("media", ValueHelper::Media),
        ("role", ValueHelper::Role),
        ("section", ValueHelper::Section),
    ] {
        registry.register_helper(name, Box::new(helper));
    }
    for (name, helper) in [
        (SECTION, BlockHelper::Section),
        ("each", BlockHelper::Each),
        ("if", BlockHelper::If(true)),
        ("unless", BlockHelper::If(false)),
        ("ifEquals", BlockHelper::Equals(true)),
        ("unlessEquals", BlockHelper::Equals(false)),
        ("with", BlockHelper::With),
    ] {
        registry.register_helper(name, Box::new(helper));
    }
}

/// Helper that returns a value.
enum ValueHelper {
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

/// Helper of a block: prints its content, once or for each scope, or its `else` part.
enum BlockHelper {
    Each,
    Equals(bool),
    If(bool),
    Section,
    With,
}

impl HelperDef for BlockHelper {
    fn call<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        registry: &'reg Handlebars<'reg>,
        context: &'rc Context,
        rc: &mut RenderContext<'reg, 'rc>,
        out: &mut dyn Output,
    ) -> HelperResult {
        let Some(first) = helper.param(0) else { return Ok(()) };
        let value = first.value();
        let scopes = match self {
            Self::Each => each(helper, first, rc),
            Self::With if is_truthy(value, true) => vec![scope(helper, first, None, rc)],
            Self::With => Vec::new(),
            Self::Section => match value {
                Value::Bool(true) => vec![None],
                Value::Bool(false) | Value::Null => Vec::new(),
                Value::Array(_) => each(helper, first, rc),
                _ => vec![scope(helper, first, None, rc)],
            },
            Self::If(wanted) => {
                let include_zero = helper.hash_get("includeZero").is_some_and(|it| is_truthy(it.value(), false));
                if is_truthy(value, include_zero) == *wanted { vec![None] } else { Vec::new() }
            }
            Self::Equals(wanted) => {
                let second = helper.param(1);
                let same = second.is_some_and(|second| {
                    first.is_value_missing() == second.is_value_missing() && equal(value, second.value())
                });
                if same == *wanted { vec![None] } else { Vec::new() }
            }
        };
        if scopes.is_empty() {
            return helper.inverse().map_or(Ok(()), |inverse| inverse.render(registry, context, rc, out));
        }
        let Some(template) = helper.template() else { return Ok(()) };
        for scope in scopes {
            let pushed = scope.is_some();
            if let Some(scope) = scope {
                rc.push_block(scope);
            }
            template.render(registry, context, rc, out)?;
            if pushed {
                rc.pop_block();
            }
        }
        Ok(())
    }
}

/// Returns a scope for each element of a list or field of an object.
fn each<'rc>(
    helper: &Helper<'rc>,
    list: &PathAndJson<'rc>,
    rc: &RenderContext<'_, 'rc>,
) -> Vec<Option<BlockContext<'rc>>> {
    let keys: Vec<Value> = match list.value() {
        Value::Array(list) => (0..list.len()).map(Value::from).collect(),
        Value::Object(fields) => fields.keys().map(|key| Value::from(key.as_str())).collect(),
        _ => Vec::new(),
    };
    let last = keys.len().saturating_sub(1);
    let mut scopes = Vec::with_capacity(keys.len());
    for (at, key) in keys.into_iter().enumerate() {
        let mut scope = scope(helper, list, Some(&key), rc);
        if let Some(scope) = &mut scope {
            scope.set_local_var("first", (at == 0).into());
            scope.set_local_var("last", (at == last).into());
            scope.set_local_var("index", at.into());
            scope.set_local_var("key", key);
        }
        scopes.push(scope);
    }
    scopes
}

/// Returns a scope whose context is `value`, or its element `key`. It sees the `@` variables of the scope around it.
fn scope<'rc>(
    helper: &Helper<'rc>,
    value: &PathAndJson<'rc>,
    key: Option<&Value>,
    rc: &RenderContext<'_, 'rc>,
) -> Option<BlockContext<'rc>> {
    let mut scope = BlockContext::new();
    if let Some(outer) = rc.block() {
        scope.local_variables_mut().clone_from(outer.local_variables());
    }
    let element = match (value.value(), key) {
        (Value::Array(list), Some(Value::Number(at))) => {
            at.as_u64().and_then(|at| list.get(usize::try_from(at).ok()?))?
        }
        (Value::Object(fields), Some(Value::String(key))) => fields.get(key)?,
        (value, _) => value,
    };
    let mut names = BlockParams::new();
    let (first, second) = match (helper.block_param(), helper.block_param_pair()) {
        (Some(name), _) => (Some(name), None),
        (_, Some((first, second))) => (Some(first), Some(second)),
        _ => (None, None),
    };
    match value.context_path() {
        Some(path) => {
            *scope.base_path_mut() = path.iter().cloned().chain(key.map(print)).collect();
            first.map(|name| names.add_path(name, Vec::new()));
        }
        None => {
            scope.set_base_value(element.clone());
            first.map(|name| names.add_value(name, element.clone()));
        }
    }
    if let (Some(name), Some(key)) = (second, key) {
        let _ = names.add_value(name, key.clone());
    }
    scope.set_block_params(names);
    Some(scope)
}
