//! Expressions in [CEL](https://cel.dev), as Kubernetes runs them: compiled against a schema, evaluated over values of
//! it.
//!
//! The crate `cel` parses and evaluates, but knows no types. So [`check`] looks up each field and function when an
//! expression is compiled, as a real API server does. What is not supported fails there, and not with the first object.

mod check;
mod duration;
mod names;
mod values;

use std::sync::{Arc, LazyLock};

use cel::{Context, Env, ExecutionError, Program, Value as CelValue, common::types::CelOptional, extensions};
use serde_json::Value;

use super::structural::StructuralSchema;

static ENVIRONMENT: LazyLock<Result<Arc<Env>, String>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    let extended = env.add_extension(extensions::strings).and_then(|()| env.add_extension(duration::extension));
    extended.map(|()| Arc::new(env)).map_err(|error| error.to_string())
});

fn environment() -> Result<Arc<Env>, String> {
    ENVIRONMENT.clone()
}

/// A compiled expression over `self` and `oldSelf`.
#[derive(Debug)]
pub(super) struct Expression {
    program: Program,
    /// The expression reads the value before the update.
    pub(super) uses_old: bool,
    optional_old: bool,
}

/// The variables of an expression.
pub(super) struct RuleVariables<'a> {
    /// The schema of both values.
    pub(super) node: &'a StructuralSchema,
    pub(super) value: &'a Value,
    /// The value before the update.
    pub(super) old: Option<&'a Value>,
}

impl Expression {
    /// Compiles an expression over values of a schema. `optional_old`: `oldSelf` is an optional, which may have no
    /// value.
    pub(super) fn compile(source: &str, node: &StructuralSchema, optional_old: bool) -> Result<Self, String> {
        let program = environment()?.compile(source).map_err(|error| error.to_string())?;
        let uses_old = check::check(program.expression(), node, optional_old)?;
        Ok(Self { program, uses_old, optional_old })
    }

    /// Evaluates the expression. The error is in the words of `cel-go`, which the API server uses.
    pub(super) fn evaluate(&self, variables: &RuleVariables<'_>) -> Result<CelValue, String> {
        let mut context = Context::with_env(environment()?);
        context.add_variable_as_val("self", values::convert(variables.node, variables.value));
        if self.uses_old {
            let old = variables.old.map(|old| values::convert(variables.node, old));
            match old {
                _ if self.optional_old => context.add_variable_as_val("oldSelf", Box::new(CelOptional::from(old))),
                Some(old) => context.add_variable_as_val("oldSelf", old),
                None => {}
            }
        }
        self.program.execute(&context).map_err(|error| words(&error))
    }
}

fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(name) => format!("no such key: {name}"),
        ExecutionError::NoSuchOverload(_) | ExecutionError::UnsupportedBinaryOperator(..) => {
            "no such overload".to_owned()
        }
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}
