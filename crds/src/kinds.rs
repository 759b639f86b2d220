//! Table of the kinds of the API. Code that handles every kind iterates [`KINDS`]; a new kind is one more row.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use meta::Phase;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    CRD_SCHEMA, CRD_VERSION, GROUP, HasReferences, Reference, ReferencePhase, VERSION, WorkloadPhase, definition,
    digest, model,
};

/// One kind of the API.
#[derive(Debug, Clone, Copy)]
pub struct ApiKind {
    /// Kind as written in manifests, such as `Agent`.
    pub name: &'static str,
    /// Plural, as in the URL: `agents`.
    pub plural: &'static str,
    /// Short name for kubectl: `ag`.
    pub short: &'static str,
    /// Life cycle of its objects.
    pub role: Role,
    owns: bool,
    definition: fn() -> CustomResourceDefinition,
    references: fn(&Value) -> Vec<Reference>,
}

/// Life cycle of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Runs Pods; its phases are those of [`WorkloadPhase`].
    Workload,
    /// Is validated and then used by other objects; its phases are those of [`ReferencePhase`].
    Reference,
}

impl Role {
    /// Returns the names of the phases of this life cycle, in the order in which a healthy object passes them.
    pub fn phases(self) -> Vec<&'static str> {
        match self {
            Self::Workload => WorkloadPhase::ALL.iter().map(|phase| phase.as_str()).collect(),
            Self::Reference => ReferencePhase::ALL.iter().map(|phase| phase.as_str()).collect(),
        }
    }
}

/// Expands a macro over the table of kinds, the only list of all of them. A row has, in this order: the type, its module, plural and
/// short name, the life cycle (`workload` or `reference`), whether its objects have children (`owner` or `childless`) and, if others may
/// refer to it, its rank in messages on missing objects (1 comes first).
#[macro_export]
macro_rules! for_each_kind {
    ($callback:path) => {
        $callback! {
            Agent agent "agents" "ag" workload owner 6;
            Flow flow "flows" "fl" workload owner 5;
            FlowSet flow_set "flowsets" "fls" workload owner;
            MCPServer mcp_server "mcpservers" "mcp" workload owner 8;
            Tool tool "tools" "tl" reference childless 2;
            Model model "models" "mdl" reference childless 3;
            PluginConfig plugin_config "pluginconfigs" "pc" reference childless 4;
            Prompt prompt "prompts" "pr" reference childless 1;
            RemoteMCPServer remote_mcp_server "remotemcpservers" "rmcp" reference owner 7;
        }
    };
}

macro_rules! kinds {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        /// Every kind.
        pub const KINDS: &[ApiKind] = &[$(
            ApiKind {
                name: stringify!($kind),
                plural: $plural,
                short: $short,
                role: kinds!(role $role),
                owns: kinds!(owns $children),
                definition: crate::$module::$kind::crd,
                references: references_of::<crate::$module::$kind>,
            },
        )+];
    };
    (role workload) => { Role::Workload };
    (role reference) => { Role::Reference };
    (owns owner) => { true };
    (owns childless) => { false };
}
for_each_kind!(kinds);

impl ApiKind {
    /// Finds a kind by the word that a user types, in any case: its name, plural or short name, each also with the API
    /// group.
    pub fn find(word: &str) -> Option<&'static Self> {
        let word = word.strip_suffix(&format!(".{GROUP}")).unwrap_or(word);
        KINDS
            .iter()
            .find(|kind| [kind.name, kind.plural, kind.short].iter().any(|name| word.eq_ignore_ascii_case(name)))
    }

    /// Returns its CustomResourceDefinition, ready to be applied.
    pub fn definition(&self) -> CustomResourceDefinition {
        let rules = match self.role {
            Role::Workload => definition::workload_name_rules(),
            Role::Reference if self.owns() => definition::owner_name_rules(),
            Role::Reference if self.name == "Model" => model::rules(),
            Role::Reference => Vec::new(),
        };
        let mut definition = definition::publish((self.definition)(), &rules);
        let annotations =
            [(CRD_VERSION, env!("CARGO_PKG_VERSION").to_owned()), (CRD_SCHEMA, schema_digest(&definition))];
        let annotations = annotations.map(|(name, value)| (name.to_owned(), value));
        definition.metadata.annotations.get_or_insert_default().extend(annotations);
        definition
    }

    /// Reports whether its objects own child objects.
    pub fn owns(&self) -> bool {
        self.owns
    }

    /// Returns the references of an object of this kind, sorted by kind and name; none for a value that is not such an
    /// object.
    pub fn references(&self, object: &Value) -> Vec<Reference> {
        (self.references)(object)
    }

    /// Returns the `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        format!("{GROUP}/{VERSION}")
    }
}

fn references_of<K: DeserializeOwned + HasReferences>(object: &Value) -> Vec<Reference> {
    K::deserialize(object).map(|object| object.references()).unwrap_or_default()
}

/// Returns the CRD manifests of all kinds as file name and YAML, in the order of [`KINDS`]. The bytes are the same each
/// time.
///
/// # Errors
/// A definition that cannot be written as YAML: a defect of this crate, which its tests would show.
pub fn manifests() -> Result<Vec<(String, String)>, serde_yaml::Error> {
    KINDS
        .iter()
        .map(|kind| {
            let mut definition = serde_yaml::to_value(kind.definition())?;
            write_whole_numbers_as_such(&mut definition);
            Ok((format!("{}.{GROUP}.yaml", kind.plural), serde_yaml::to_string(&definition)?))
        })
        .collect()
}

/// Returns the digest of the versions of a definition, with their schemas: the first 16 digits of SHA-256 (hex) over canonical JSON.
fn schema_digest(definition: &CustomResourceDefinition) -> String {
    // Cannot fail: a schema consists of strings, numbers, lists and maps with string keys.
    let mut versions = serde_yaml::to_value(&definition.spec.versions).unwrap_or_default();
    write_whole_numbers_as_such(&mut versions);
    let mut digest = digest::digest(&serde_json::to_value(versions).unwrap_or_default());
    digest.truncate(16);
    digest
}

/// Writes whole numbers without a fraction: limits are floats in the type of a schema, and `maximum: 10` reads better
/// than `10.0`.
fn write_whole_numbers_as_such(value: &mut serde_yaml::Value) {
    match value {
        serde_yaml::Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15) {
                *number = (float as i64).into();
            }
        }
        serde_yaml::Value::Sequence(items) => items.iter_mut().for_each(write_whole_numbers_as_such),
        serde_yaml::Value::Mapping(fields) => fields.values_mut().for_each(write_whole_numbers_as_such),
        _ => {}
    }
}
