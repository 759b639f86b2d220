//! Helpers of blocks, and the scopes in which their content is printed.

use handlebars::{
    BlockContext, BlockParams, Context, Handlebars, Helper, HelperDef, HelperResult, Output, PathAndJson,
    RenderContext, Renderable,
};
use serde_json::Value;

use crate::javascript::{equal, is_truthy, print};

/// Helper of a block: prints its content, once or for each scope, or its `else` part.
pub(super) enum BlockHelper {
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
