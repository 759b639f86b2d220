//! The table of kinds. Whatever is done for each kind is driven from [`KINDS`]; a new kind is one more row.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use meta::Phase;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Agent, Flow, FlowSet, GROUP, HasReferences, MCPServer, Model, PluginConfig, Prompt, Reference, ReferencePhase,
    RemoteMCPServer, Tool, VERSION, WorkloadPhase, schema,
};

/// One kind of the API.
#[derive(Debug, Clone, Copy)]
pub struct ApiKind {
    /// The kind as written in manifests, such as `Agent`.
    pub name: &'static str,
    /// Plural, as in the URL: `agents`.
    pub plural: &'static str,
    /// Short name for kubectl: `ag`.
    pub short: &'static str,
    /// Which life cycle its objects have.
    pub role: Role,
    definition: fn() -> CustomResourceDefinition,
    references: fn(&Value) -> Vec<Reference>,
}

/// The two life cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Ends in Pods: phases of [`WorkloadPhase`].
    Workload,
    /// Only checked, then used by others: phases of [`ReferencePhase`].
    Reference,
}

impl Role {
    /// The names of the phases of this life cycle, in the order in which a healthy object sees them.
    pub fn phases(self) -> Vec<&'static str> {
        match self {
            Self::Workload => WorkloadPhase::ALL.iter().map(|phase| phase.as_str()).collect(),
            Self::Reference => ReferencePhase::ALL.iter().map(|phase| phase.as_str()).collect(),
        }
    }
}

/// Every kind.
pub const KINDS: &[ApiKind] = &[
    ApiKind {
        name: "Agent",
        plural: "agents",
        short: "ag",
        role: Role::Workload,
        definition: Agent::crd,
        references: references_of::<Agent>,
    },
    ApiKind {
        name: "Flow",
        plural: "flows",
        short: "fl",
        role: Role::Workload,
        definition: Flow::crd,
        references: references_of::<Flow>,
    },
    ApiKind {
        name: "FlowSet",
        plural: "flowsets",
        short: "fls",
        role: Role::Workload,
        definition: FlowSet::crd,
        references: references_of::<FlowSet>,
    },
    ApiKind {
        name: "MCPServer",
        plural: "mcpservers",
        short: "mcp",
        role: Role::Workload,
        definition: MCPServer::crd,
        references: references_of::<MCPServer>,
    },
    ApiKind {
        name: "Tool",
        plural: "tools",
        short: "tl",
        role: Role::Reference,
        definition: Tool::crd,
        references: references_of::<Tool>,
    },
    ApiKind {
        name: "Model",
        plural: "models",
        short: "mdl",
        role: Role::Reference,
        definition: Model::crd,
        references: references_of::<Model>,
    },
    ApiKind {
        name: "PluginConfig",
        plural: "pluginconfigs",
        short: "pc",
        role: Role::Reference,
        definition: PluginConfig::crd,
        references: references_of::<PluginConfig>,
    },
    ApiKind {
        name: "Prompt",
        plural: "prompts",
        short: "pr",
        role: Role::Reference,
        definition: Prompt::crd,
        references: references_of::<Prompt>,
    },
    ApiKind {
        name: "RemoteMCPServer",
        plural: "remotemcpservers",
        short: "rmcp",
        role: Role::Reference,
        definition: RemoteMCPServer::crd,
        references: references_of::<RemoteMCPServer>,
    },
];

impl ApiKind {
    /// The kind that somebody means by a word: its name in any case, plural, short name, or one of these with the group.
    pub fn find(word: &str) -> Option<&'static Self> {
        let word = word.strip_suffix(&format!(".{GROUP}")).unwrap_or(word);
        KINDS
            .iter()
            .find(|kind| [kind.name, kind.plural, kind.short].iter().any(|name| word.eq_ignore_ascii_case(name)))
    }

    /// Its CustomResourceDefinition, as it is to be applied.
    pub fn definition(&self) -> CustomResourceDefinition {
        let rules = match self.role {
            Role::Workload => schema::workload_name_rules(),
            Role::Reference if self.owns() => schema::owner_name_rules(),
            Role::Reference => Vec::new(),
        };
        schema::publish((self.definition)(), &rules)
    }

    /// Whether its objects have children.
    pub fn owns(&self) -> bool {
        self.role == Role::Workload || self.name == "RemoteMCPServer"
    }

    /// What an object of this kind refers to, sorted by kind and name; nothing for a value that is no such object.
    pub fn references(&self, object: &Value) -> Vec<Reference> {
        (self.references)(object)
    }

    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        format!("{GROUP}/{VERSION}")
    }
}

fn references_of<K: DeserializeOwned + HasReferences>(object: &Value) -> Vec<Reference> {
    K::deserialize(object).map(|object| object.references()).unwrap_or_default()
}

/// The manifests of all kinds: file name and YAML, in the order of [`KINDS`], the same bytes each time.
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

/// Limits are floats in the type of a schema; `maximum: 10` reads better than `10.0`.
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
