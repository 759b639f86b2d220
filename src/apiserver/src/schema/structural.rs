//! The schema of one value: a structural schema of Kubernetes, read from the JSON of a CustomResourceDefinition. It is data;
//! what applies it stands above it, also the compiled rules.
//!
//! A keyword that is not understood fails the compilation, because to pass over it would accept what a real API server
//! refuses.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Map, Value};

use super::{error::child, value_validation::ValueValidation};

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataType {
    Array,
    Boolean,
    Integer,
    IntOrString,
    Number,
    Object,
    String,
}

impl DataType {
    /// Returns the name in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::IntOrString => "integer,string",
            Self::Number => "number",
            Self::Object => "object",
            Self::String => "string",
        }
    }

    fn parse(name: &Value) -> Option<Self> {
        let types = [Self::Array, Self::Boolean, Self::Integer, Self::Number, Self::Object, Self::String];
        types.into_iter().find(|found| name == found.name())
    }
}

/// Identity of the items of a list (`x-kubernetes-list-type`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListType {
    /// They are not: the list is replaced as a whole.
    Atomic,
    /// By their value.
    Set,
    /// By the values of these fields.
    Map(Vec<String>),
}

/// The schema of one value.
#[derive(Debug, Default)]
pub(super) struct StructuralSchema {
    /// The type of the value. None: any.
    pub(super) data_type: Option<DataType>,
    pub(super) nullable: bool,
    /// Fields that the schema does not name are kept.
    pub(super) preserve: bool,
    /// The value is an object of Kubernetes: the root, or one that is embedded. It has `apiVersion`, `kind` and
    /// `metadata`.
    pub(super) resource: bool,
    pub(super) default: Option<Value>,
    pub(super) properties: BTreeMap<String, Self>,
    /// The schema of all fields that `properties` does not name.
    pub(super) additional: Option<Box<Self>>,
    pub(super) items: Option<Box<Self>>,
    pub(super) list_type: Option<ListType>,
    /// Constraints on the value beside its type.
    pub(super) validation: ValueValidation,
    /// Rules as they are written.
    pub(super) rules: Vec<Value>,
}

/// Metadata of an object that rules may read.
static METADATA: LazyLock<BTreeMap<String, StructuralSchema>> = LazyLock::new(|| {
    let text = || StructuralSchema { data_type: Some(DataType::String), ..StructuralSchema::default() };
    let names = ["name", "generateName"].map(|name| (name.to_owned(), text()));
    let metadata =
        StructuralSchema { data_type: Some(DataType::Object), properties: names.into(), ..StructuralSchema::default() };
    let fields = [("apiVersion", text()), ("kind", text()), ("metadata", metadata)];
    fields.map(|(name, node)| (name.to_owned(), node)).into()
});

impl StructuralSchema {
    /// Compiles the schema of the value at `path`. `resource`: the value is a whole object of Kubernetes.
    pub(super) fn compile(schema: &Value, path: &str, resource: bool) -> Result<Self, String> {
        let wrong = |what: &str| format!("{}: {what}", if path.is_empty() { "schema" } else { path });
        let keywords = schema.as_object().ok_or_else(|| wrong("a schema must be an object"))?;
        let mut node = Self { resource, ..Self::default() };
        let mut int_or_string = false;
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "description" | "title" | "example" | "externalDocs" => {}
                "type" => node.data_type = Some(DataType::parse(value).ok_or_else(|| wrong("type is unknown"))?),
                "nullable" => node.nullable = flag(value, keyword, path)?,
                "default" => node.default = Some(value.clone()).filter(|value| !value.is_null()),
                "properties" => node.properties = properties(value, path)?,
                "additionalProperties" => {
                    node.additional = Some(Box::new(Self::compile(value, &format!("{path}[*]"), false)?));
                }
                "items" => node.items = Some(Box::new(Self::compile(value, &format!("{path}[]"), false)?)),
                "x-kubernetes-preserve-unknown-fields" => node.preserve = flag(value, keyword, path)?,
                "x-kubernetes-embedded-resource" => node.resource |= flag(value, keyword, path)?,
                "x-kubernetes-int-or-string" => int_or_string = flag(value, keyword, path)?,
                "x-kubernetes-list-type" => node.list_type = Some(list_type(value, keywords, path)?),
                "x-kubernetes-list-map-keys" => {} // belongs to the list type
                "x-kubernetes-map-type" if value == "granular" => {}
                "x-kubernetes-validations" => node.rules = value.as_array().cloned().unwrap_or_default(),
                _ => {
                    if !node.validation.read(keyword, value).map_err(|error| wrong(&error))? {
                        return Err(wrong(&format!("keyword {keyword} with value {value} is not supported")));
                    }
                }
            }
        }
        if int_or_string {
            node.data_type = Some(DataType::IntOrString);
        }
        Ok(node)
    }

    fn children(&self) -> impl Iterator<Item = &Self> {
        self.properties.values().chain(self.additional.as_deref()).chain(self.items.as_deref())
    }

    /// Returns the schema of a field of this object.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    /// Returns the schema of a field as rules see it. Of an object's metadata they see the names; of a field without a
    /// type nothing.
    pub(super) fn readable_field(&self, name: &str) -> Option<&Self> {
        let metadata = self.resource.then(|| METADATA.get(name)).flatten();
        metadata.or_else(|| self.field(name)).filter(|field| field.data_type.is_some())
    }

    /// Returns the names of the fields that this object may have, beside those of `additional`.
    pub(super) fn declared_fields(&self) -> impl Iterator<Item = &str> {
        let metadata = METADATA.keys().filter(move |_| self.resource);
        metadata.chain(self.properties.keys()).map(String::as_str)
    }

    /// Returns whether a field belongs to every object of Kubernetes, and this is one.
    pub(super) fn owns_metadata(&self, name: &str) -> bool {
        self.resource && METADATA.contains_key(name)
    }

    /// Returns whether the order of a list in such a value says nothing: it is a set or a map.
    pub(super) fn has_unordered_list(&self) -> bool {
        matches!(self.list_type, Some(ListType::Set | ListType::Map(_)))
            || self.children().any(Self::has_unordered_list)
    }

    /// Returns the type of the list at a path of field names, through the items of lists on the way.
    pub(super) fn list_at(&self, path: &[&str]) -> Option<ListType> {
        let items = std::iter::successors(Some(self), |node| node.items.as_deref());
        match path {
            [] => (self.data_type == Some(DataType::Array)).then(|| self.list_type.clone().unwrap_or(ListType::Atomic)),
            [name, rest @ ..] => items.last()?.field(name)?.list_at(rest),
        }
    }
}

fn properties(value: &Value, path: &str) -> Result<BTreeMap<String, StructuralSchema>, String> {
    let fields = value.as_object().ok_or_else(|| format!("{path}: properties must be an object"))?;
    fields
        .iter()
        .map(|(name, schema)| Ok((name.clone(), StructuralSchema::compile(schema, &child(path, name), false)?)))
        .collect()
}

fn flag(value: &Value, keyword: &str, path: &str) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("{path}: {keyword} must be true or false"))
}

fn list_type(name: &Value, keywords: &Map<String, Value>, path: &str) -> Result<ListType, String> {
    let keys = keywords.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten();
    let keys: Vec<String> = keys.filter_map(Value::as_str).map(str::to_owned).collect();
    match name.as_str() {
        Some("atomic") => Ok(ListType::Atomic),
        Some("set") => Ok(ListType::Set),
        Some("map") if !keys.is_empty() => Ok(ListType::Map(keys)),
        _ => Err(format!("{path}: x-kubernetes-list-type must be atomic, set, or map with keys")),
    }
}
