//! Field errors: what is wrong with one field of an object, in the words of
//! `k8s.io/apimachinery/pkg/util/validation/field`.

use std::fmt;

use serde_json::Value;

use super::go;

/// Name of the object itself, which has no path, as the API server writes it.
pub(super) const NO_PATH: &str = "<nil>";

/// One violation of a schema.
///
/// `Display` gives `field: message`, as in the message of a `Status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// Its kind.
    pub(crate) kind: FieldErrorKind,
    /// Path of the field, such as `spec.flows[0].name`; `<nil>` for the object itself.
    pub(crate) field: String,
    /// Message, such as `Invalid value: 11: …`, without the path.
    pub(crate) message: String,
}

/// The kind of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldErrorKind {
    /// A value occurs twice where it may occur once.
    Duplicate,
    /// The field may not be set to this value in this state.
    Forbidden,
    /// The value breaks a rule.
    Invalid,
    /// The value is none of those that are listed.
    NotSupported,
    /// The field is missing.
    Required,
    /// The text is too long.
    TooLong,
    /// The list or map has too many entries.
    TooMany,
    /// The value is of another type.
    TypeInvalid,
}

impl FieldErrorKind {
    /// Returns the reason in a `StatusCause`, such as `FieldValueInvalid`.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Required => "FieldValueRequired",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// Returns the kind that a rule names as its `reason`, if rules may do so.
    pub(super) fn of_rule(reason: &str) -> Option<Self> {
        let kinds = [Self::Invalid, Self::Forbidden, Self::Required, Self::Duplicate];
        kinds.into_iter().find(|kind| kind.reason() == reason)
    }

    /// Returns whether rules in CEL are not evaluated after such a violation, because they could fail on the value.
    pub(super) fn blocks_rules(self) -> bool {
        matches!(self, Self::NotSupported | Self::Required | Self::TooLong | Self::TooMany | Self::TypeInvalid)
    }

    fn title(self) -> &'static str {
        match self {
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Required => "Required value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl FieldError {
    /// Returns an error about a field; kinds that never show the value leave it out, and so does a missing one.
    pub(super) fn new(kind: FieldErrorKind, field: &str, value: Option<&Value>, detail: &str) -> Self {
        let shows = !matches!(kind, FieldErrorKind::Required | FieldErrorKind::Forbidden | FieldErrorKind::TooLong);
        let value = value.filter(|_| shows).map(|value| format!(": {}", go::shown(value)));
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        let message = format!("{}{}{detail}", kind.title(), value.unwrap_or_default());
        let field = if field.is_empty() { NO_PATH } else { field };
        Self { kind, field: field.to_owned(), message }
    }

    pub(super) fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(value), detail)
    }

    /// Returns the error that no rule was evaluated. It is about no value, which is shown as `null` without quotes.
    pub(super) fn unchecked_rules() -> Self {
        let detail = "null: some validation rules were not checked because the object was invalid; correct the existing errors to \
                      complete validation";
        Self::new(FieldErrorKind::Invalid, "", None, detail)
    }

    /// Returns the error that a value, or a type, is not of the expected type.
    pub(super) fn wrong_type(field: &str, expected: &str, actual: &str) -> Self {
        let detail = format!("{field} in body must be of type {expected}: {}", go::quoted(actual));
        Self::new(FieldErrorKind::TypeInvalid, field, Some(&actual.into()), &detail)
    }

    pub(super) fn required(field: &str) -> Self {
        Self::new(FieldErrorKind::Required, field, None, "")
    }

    pub(super) fn duplicate(field: &str, value: &Value) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(value), "")
    }

    pub(super) fn too_long(field: &str, max: u64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(FieldErrorKind::TooLong, field, None, &format!("may not be more than {max} {unit}"))
    }

    pub(super) fn too_many(field: &str, count: usize, max: u64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        Self::new(FieldErrorKind::TooMany, field, Some(&count.into()), &detail)
    }

    pub(super) fn not_supported(field: &str, value: &Value, supported: &[Value]) -> Self {
        let quoted = supported.iter().map(|value| match value {
            Value::String(text) => go::quoted(text),
            other => go::quoted(&other.to_string()),
        });
        let detail = format!("supported values: {}", quoted.collect::<Vec<_>>().join(", "));
        Self::new(FieldErrorKind::NotSupported, field, Some(value), &detail)
    }
}

/// Returns the path of a field of the object at `path`.
pub(super) fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
