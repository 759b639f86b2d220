//! The interface of schemas, with one rule: required fields of the spec. The module `schema` takes its place.

use serde_json::Value;

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct Schema(Value);

impl Schema {
    /// Compiles an `openAPIV3Schema`.
    pub(crate) fn compile(open_api_v3: &Value) -> Result<Self, String> {
        Ok(Self(open_api_v3.clone()))
    }

    /// Removes nulls and unknown fields of the spec, whose paths it returns, and sets the default status.
    pub(crate) fn admit(&self, object: &mut Value) -> Vec<String> {
        crate::object::remove_nulls(object);
        let status = &self.0["properties"]["status"]["default"];
        if object["status"].is_null() && !status.is_null() {
            object["status"] = status.clone();
        }
        let known = self.0.pointer("/properties/spec/properties").and_then(Value::as_object);
        let spec = object.get_mut("spec").and_then(Value::as_object_mut);
        let (Some(spec), Some(known)) = (spec, known) else { return Vec::new() };
        let unknown: Vec<String> = spec.keys().filter(|name| !known.contains_key(*name)).cloned().collect();
        spec.retain(|name, _| known.contains_key(name));
        unknown.into_iter().map(|name| format!("spec.{name}")).collect()
    }

    /// Returns the violations.
    pub(crate) fn validate(&self, object: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        let required = self.0.pointer("/properties/spec/required").and_then(Value::as_array);
        let names = required.into_iter().flatten().filter_map(Value::as_str);
        let missing = names.filter(|name| object["spec"].get(name).is_none());
        missing
            .map(|name| FieldError {
                kind: FieldErrorKind::Required,
                field: format!("spec.{name}"),
                message: "Required value".to_owned(),
            })
            .collect()
    }

    /// Returns the type of the list at a path of field names.
    pub(crate) fn list_keys(&self, path: &[&str]) -> Option<ListType> {
        matches!(path, ["status", "conditions"]).then(|| ListType::Map(vec!["type".to_owned()]))
    }
}

/// One violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// What is wrong.
    pub(crate) kind: FieldErrorKind,
    /// Path of the field.
    pub(crate) field: String,
    /// Message, without the path.
    pub(crate) message: String,
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldErrorKind {
    /// It must be set.
    Required,
}

impl FieldErrorKind {
    /// Returns the reason of a cause in a Status.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
        }
    }
}

/// How two writers of a list are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListType {
    /// The list is one value.
    Atomic,
    /// Each value is in it once.
    Set,
    /// Its items have keys.
    Map(Vec<String>),
}
