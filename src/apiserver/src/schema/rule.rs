//! Validation rules (`x-kubernetes-validations`): conditions in CEL on a value, and on a value and the one before it.

use cel::Value as CelValue;
use serde_json::Value;

use super::{
    error::{FieldError, FieldErrorKind, child},
    expression::{Expression, RuleVariables},
    structural::StructuralSchema,
};

/// The longest message that an expression may make, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// A condition that a value must meet.
#[derive(Debug)]
pub(super) struct Rule {
    expression: Expression,
    optional_old: bool,
    /// Name in messages about the rule itself: its message, else its text.
    name: String,
    message: String,
    message_expression: Option<Expression>,
    /// The field that the error is about, below the value; empty: the value itself.
    field_path: String,
    kind: FieldErrorKind,
}

impl Rule {
    /// Compiles a rule on values of a schema.
    pub(super) fn compile(rule: &Value, node: &StructuralSchema) -> Result<Self, String> {
        let fields = rule.as_object().ok_or("a rule must be an object")?;
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::trim).unwrap_or_default();
        let source = text("rule");
        let wrong = |what: String| format!("rule {source}: {what}");
        let known = ["rule", "message", "messageExpression", "reason", "fieldPath", "optionalOldSelf"];
        if let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(wrong(format!("{name} is not supported")));
        }
        let optional_old = fields.get("optionalOldSelf") == Some(&Value::Bool(true));
        let compile = |source: &str| Expression::compile(source, node, optional_old).map_err(wrong);
        let (message, name) = match text("message") {
            "" => (format!("failed rule: {source}"), source),
            message => (message.to_owned(), message),
        };
        let kind = match text("reason") {
            "" => FieldErrorKind::Invalid,
            reason => FieldErrorKind::of_rule(reason).ok_or_else(|| wrong(format!("reason {reason} is unknown")))?,
        };
        let message_expression = Some(text("messageExpression")).filter(|text| !text.is_empty()).map(compile);
        Ok(Self {
            expression: compile(source)?,
            optional_old,
            name: name.to_owned(),
            message,
            message_expression: message_expression.transpose()?,
            field_path: field_path(text("fieldPath"), node).map_err(wrong)?,
            kind,
        })
    }

    /// Checks a value at `path`. `unchanged`: the update leaves it as it is, so only rules that compare can fail.
    pub(super) fn check(&self, variables: &RuleVariables<'_>, unchanged: bool, path: &str) -> Option<FieldError> {
        if self.expression.uses_old && variables.old.is_none() && !self.optional_old {
            return None;
        }
        // An object or a list is too long for a message.
        let shown = Some(variables.value).filter(|value| !value.is_object() && !value.is_array());
        match self.expression.evaluate(variables) {
            Ok(CelValue::Bool(true)) => None,
            Ok(_) if unchanged && !self.expression.uses_old => None,
            Ok(_) => {
                let detail = match self.kind {
                    FieldErrorKind::Duplicate => String::new(),
                    _ => self.message(variables),
                };
                let at = if self.field_path.is_empty() { path.to_owned() } else { child(path, &self.field_path) };
                Some(FieldError::new(self.kind, &at, shown, &detail))
            }
            Err(error) => {
                let name = &self.name;
                let detail = match error.as_str() {
                    "no such overload" => format!(
                        "'{error}': call arguments did not match a supported operator, function or macro signature for \
                         rule: {name}"
                    ),
                    _ => format!("{error} evaluating rule: {name}"),
                };
                Some(FieldError::new(FieldErrorKind::Invalid, path, shown, &detail))
            }
        }
    }

    /// Returns the message that the expression makes, if it makes a good one, else the one that is written.
    fn message(&self, variables: &RuleVariables<'_>) -> String {
        let made = self.message_expression.as_ref().and_then(|expression| expression.evaluate(variables).ok());
        let Some(CelValue::String(made)) = made else { return self.message.clone() };
        let made = made.trim();
        let is_good = !made.is_empty() && made.len() <= LONGEST_MESSAGE && !made.contains('\n');
        if is_good { made.to_owned() } else { self.message.clone() }
    }
}

/// Returns the path without its first dot, if each name is that of a field.
fn field_path(path: &str, node: &StructuralSchema) -> Result<String, String> {
    let Some(names) = path.strip_prefix('.') else {
        return if path.is_empty() { Ok(String::new()) } else { Err(format!("fieldPath {path} is not supported")) };
    };
    let start = Some(node);
    let found = names.split('.').fold(start, |node, name| node.and_then(|node| node.readable_field(name)));
    found.map(|_| names.to_owned()).ok_or_else(|| format!("fieldPath {path} does not refer to a valid field"))
}
