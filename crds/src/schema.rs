//! Completes the derived schemas, so that the API server accepts them and `kubectl explain` stays readable.
//!
//! The types of Kubernetes itself come with pages of description and without merge keys: here each description is cut
//! to its first sentence, and lists get the merge key that they have in a Pod. No field is nullable: a `null` in a
//! manifest then means "not set", as for built-in kinds, and the API server removes it before it fills in defaults.

mod servers;
mod traffic;

use k8s_openapi::{
    api::core::v1::{EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
    },
};
use meta::{
    CommonStatus,
    schema::{brief, list_map},
};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::{
    ObjectRef,
    flow_set::{FlowEntry, FlowState},
    tool::{HeaderSource, PARAMETER_TYPES, ToolType},
};

pub(crate) use servers::{
    allowed_from, allowed_namespaces_rule, discovered_tools, discovery_timeout, globs, label_selector,
    mcp_server_rules, one_value, publish_prefix, resync, server_header_name, server_headers, server_kind, server_path,
    server_protocol, server_ref_rule, server_url, sse_read_timeout, tls_rule, transport_type, value_source_type,
};
pub(crate) use traffic::{
    anonymous_paths, drain_timeout, scale_to_zero_after, scaling_rules, stable_window, timeout, traffic_rules,
};

/// Longest `metadata.name` of a workload: a Service's name has at most 63 characters, and children add a suffix.
pub const MAX_NAME: usize = 52;

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

pub(crate) fn env(generator: &mut SchemaGenerator) -> Schema {
    list_map::<EnvVar>(generator, "name")
}

pub(crate) fn env_from(generator: &mut SchemaGenerator) -> Schema {
    brief::<Vec<EnvFromSource>>(generator)
}

pub(crate) fn resources(generator: &mut SchemaGenerator) -> Schema {
    brief::<ResourceRequirements>(generator)
}

pub(crate) fn image_pull_secrets(generator: &mut SchemaGenerator) -> Schema {
    list_map::<LocalObjectReference>(generator, "name")
}

/// Returns the schema of an object that is kept as written.
pub(crate) fn opaque_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Returns the schema of any JSON value, kept as written.
pub(crate) fn any_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// Returns the schema of names of Tools: a set in the order of the user, so that two clients that apply the agent may
/// each add their own. The rule tells the user how to repair a duplicate. 128 names of 253 characters stay within the
/// run-time cost that the API server allows one rule; 256 do not.
pub(crate) fn tool_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 128,
        "items": { "type": "string", "minLength": 1, "maxLength": 253 },
        "x-kubernetes-list-type": "set",
        "x-kubernetes-validations": [{
            "rule": "self.all(a, self.exists_one(b, a == b))",
            "message": "the same Tool is listed twice: list each Tool once",
        }],
    })
}

/// Returns the schema of the framework of an agent.
pub(crate) fn framework(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["adk", "langchain", "crewai", "autogen", "custom", "corail"] })
}

/// Returns the schema of the storage of an agent's conversations.
pub(crate) fn storage(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["", "memory", "postgresql"] })
}

/// Returns the schema of the type of a Tool.
pub(crate) fn tool_type(_: &mut SchemaGenerator) -> Schema {
    let types: Vec<_> = ToolType::ALL.iter().map(|known| known.as_str()).collect();
    json_schema!({ "type": "string", "enum": types })
}

/// Returns the schema of the type of a tool's parameter.
pub(crate) fn parameter_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": PARAMETER_TYPES })
}

/// Adds the rules on mutually exclusive fields of a Tool. A Tool that was stored with both before the rule existed
/// stays valid: its schema takes precedence.
pub(crate) fn tool_rules(schema: &mut Schema) {
    let both = |it: &str| format!("has({it}.inputSchema) && has({it}.parameters) && size({it}.parameters) > 0");
    let rules = json!([{
        "rule": format!("!({}) || (oldSelf.hasValue() && {})", both("self"), both("oldSelf.value()")),
        "message": "parameters and inputSchema both say what the tool takes: set only one of them",
        "optionalOldSelf": true,
    }, {
        "rule": "!has(self.mcpServerRef) || !has(self.mcpEndpoint) || self.mcpEndpoint == ''",
        "message": "mcpEndpoint and mcpServerRef both say where the tool is: set only one of them",
    }]);
    schema.insert("x-kubernetes-validations".into(), rules);
}

/// Returns the schema of the protocol of a provider.
pub(crate) fn plugin_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["stub", "openai", "anthropic", "gemini", "ollama"] })
}

pub(crate) fn pull_policy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Always", "IfNotPresent", "Never"] })
}

pub(crate) fn service_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["ClusterIP", "NodePort", "LoadBalancer"] })
}

/// Returns the schema of names of keys in a Secret, each once.
pub(crate) fn credential_keys(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "items": { "type": "string", "minLength": 1, "maxLength": 253, "pattern": "^[-._a-zA-Z0-9]+$" },
        "x-kubernetes-list-type": "set",
    })
}

/// Returns the schema of a name that is also the name of a file.
pub(crate) fn file_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 253, "pattern": "^[a-zA-Z0-9][-._a-zA-Z0-9]*$" })
}

/// Returns the schema of the name of a flow in a FlowSet.
pub(crate) fn flow_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 40, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$" })
}

/// Returns the schema of references to objects, each name once, at most 64.
pub(crate) fn tool_refs(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = list_map::<ObjectRef>(generator, "name");
    schema.insert("maxItems".into(), 64.into());
    schema
}

pub(crate) fn flows(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = list_map::<FlowEntry>(generator, "name");
    schema.insert("minItems".into(), 1.into());
    schema.insert("maxItems".into(), 64.into());
    schema
}

pub(crate) fn flow_states(generator: &mut SchemaGenerator) -> Schema {
    list_map::<FlowState>(generator, "name")
}

/// Adds the rule that exactly one of `modelRef` and `modelSpec` is set.
pub(crate) fn one_model(schema: &mut Schema) {
    one_of(schema, "modelRef", "modelSpec");
}

/// Adds the rule that exactly one of `promptRef` and `prompt` is set.
pub(crate) fn one_prompt(schema: &mut Schema) {
    one_of(schema, "promptRef", "prompt");
}

fn one_of(schema: &mut Schema, one: &str, other: &str) {
    let rule = json!({
        "rule": format!("has(self.{one}) != has(self.{other})"),
        "message": format!("set exactly one of {one} and {other}"),
    });
    add_rules(schema, [rule]);
}

/// Adds rules to those of a schema.
fn add_rules(schema: &mut Schema, rules: impl IntoIterator<Item = Value>) {
    let known = schema.ensure_object().entry("x-kubernetes-validations").or_insert_with(|| json!([]));
    if let Value::Array(known) = known {
        known.extend(rules);
    }
}

/// Adds the rules on mutually exclusive fields of a Flow.
pub(crate) fn flow_rules(schema: &mut Schema) {
    one_model(schema);
    traffic_rules(schema);
}

/// Adds the rules on mutually exclusive fields of an Agent.
pub(crate) fn agent_rules(schema: &mut Schema) {
    let rules = [
        json!({
            "rule": "!has(self.promptRef) || !has(self.systemPrompt) || self.systemPrompt == ''",
            "message": "set only one of promptRef and systemPrompt",
        }),
        json!({
            "rule": "!has(self.modelRef) || (self.modelType == 'stub' && self.modelId == 'stub-echo')",
            "message": "modelRef brings the model: leave out modelType and modelId",
        }),
    ];
    add_rules(schema, rules);
    traffic_rules(schema);
}

/// Adds the rule that a provider has credentials unless it needs none.
pub(crate) fn credentials_rule(schema: &mut Schema) {
    let rule = json!({
        "rule": "has(self.credentialsRef) || self.type in ['stub', 'ollama']",
        "message": "this type needs credentials: set credentialsRef to a Secret with them",
    });
    add_rules(schema, [rule]);
}

pub(crate) fn headers_from(generator: &mut SchemaGenerator) -> Schema {
    list_map::<HeaderSource>(generator, "name")
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
