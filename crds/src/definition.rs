//! Completes the definitions that `kube` derives: with rules on names, a default status and readable descriptions.
//!
//! No field is nullable: a `null` in a manifest then means "not set", as for built-in kinds, and the API server removes it
//! before it fills in defaults.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use meta::CommonStatus;

/// Longest `metadata.name` of a workload: a Service's name has at most 63 characters, and children add a suffix.
const MAX_NAME: usize = 52;

/// Returns the rules on the name of a workload, which its Service gets, too (RFC 1035 label). Objects that were stored
/// before a rule pass, because they could otherwise never be changed or deleted. The format is a `matches`, because
/// `format.dns1035Label()` exceeds the cost that the API server allows.
pub(crate) fn workload_name_rules() -> Vec<ValidationRule> {
    let rule = |rule: String, message: String| ValidationRule {
        rule,
        message: Some(message),
        field_path: Some(".metadata.name".into()),
        optional_old_self: Some(true),
        ..Default::default()
    };
    vec![
        rule(
            format!("oldSelf.hasValue() || size(self.metadata.name) <= {MAX_NAME}"),
            format!("too long: choose a name of at most {MAX_NAME} characters"),
        ),
        rule(
            "oldSelf.hasValue() || self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')".into(),
            "the Service gets this name too: use lower-case letters, digits and '-', start with a letter and end \
             with a letter or digit"
                .into(),
        ),
    ]
}

/// Returns the rules on the name of a kind whose objects have children but no Pods: the name is the value of a label,
/// and the suffix of a child's name begins with a dot.
pub(crate) fn owner_name_rules() -> Vec<ValidationRule> {
    vec![ValidationRule {
        rule: "oldSelf.hasValue() || self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')".into(),
        message: Some(
            "use at most 63 lower-case letters, digits and '-', and begin and end with a letter or digit".into(),
        ),
        field_path: Some(".metadata.name".into()),
        optional_old_self: Some(true),
        ..Default::default()
    }]
}

/// Returns the definition as it is published: descriptions on one line, nothing nullable, `rules` on the whole object,
/// and no defaults in the status, which only the operator writes. The status as a whole has a default, so that no
/// client has to write it.
pub(crate) fn publish(mut crd: CustomResourceDefinition, rules: &[ValidationRule]) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            tidy(root);
            if let Some(status) = root.properties.as_mut().and_then(|properties| properties.get_mut("status")) {
                each(status, &|schema| schema.default = None);
                status.default = Some(JSON(CommonStatus::initial()));
            }
            if !rules.is_empty() {
                root.x_kubernetes_validations = Some(rules.to_vec());
                root.properties.get_or_insert_default().insert("metadata".into(), metadata());
            }
        }
    }
    crd
}

/// Returns the schema of `metadata` with its name: the path of a rule must lead to a field of the schema, and the API
/// server allows no other field here.
fn metadata() -> JSONSchemaProps {
    let of = |type_: &str| JSONSchemaProps { type_: Some(type_.into()), ..Default::default() };
    JSONSchemaProps { properties: Some([("name".into(), of("string"))].into()), ..of("object") }
}

fn tidy(schema: &mut JSONSchemaProps) {
    each(schema, &|schema| {
        schema.nullable = None;
        if let Some(description) = &mut schema.description {
            *description = description.split_whitespace().collect::<Vec<_>>().join(" ");
        }
    });
}

/// Applies a change to a schema and to every schema in it.
fn each(schema: &mut JSONSchemaProps, change: &impl Fn(&mut JSONSchemaProps)) {
    change(schema);
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        each(property, change);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        each(items, change);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        each(values, change);
    }
}
