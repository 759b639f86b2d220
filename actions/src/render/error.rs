//! Why a spec cannot be rendered, in words for whoever wrote it.
//!
//! All of these are known from the values alone, so trying again is of no use until the spec or the operator changes.

use super::dsn::DsnError;

/// A spec that cannot be rendered. No text holds a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// One environment variable is more than the kernel hands to a process.
    #[error("environment variable {name} has {size} bytes with its name, Linux takes {max}: make it shorter")]
    EnvTooLarge {
        /// Name of the variable.
        name: String,
        /// Bytes of `NAME=value` and the NUL that ends it.
        size: usize,
        /// The most that is possible, in bytes.
        max: usize,
    },
    /// The ConfigMap or Secret is more than the API server stores.
    #[error("{object} would hold {size} bytes, Kubernetes takes {max}: shorten the prompt or use fewer tools")]
    ObjectTooLarge {
        /// The object, such as `ConfigMap/a-config`.
        object: String,
        /// Bytes of all its values.
        size: usize,
        /// The most that is possible, in bytes.
        max: usize,
    },
    /// The container and its sidecar would listen on one port.
    #[error("port {0} is the sidecar's: let the container listen on another one, or set proxy.enabled to false")]
    PortTaken(i32),
    /// A server that speaks over its standard input and output, and no program.
    #[error("a server of type stdio needs the program to run: set deployment.cmd")]
    NoProgram,
    /// The user sets a variable that comes from another field of the spec.
    #[error("{field} sets {name}, which the operator renders for this {kind}: remove it and use the field of the spec")]
    EnvReserved {
        /// Where it is set.
        field: &'static str,
        /// The kind in lower case.
        kind: &'static str,
        /// Name of the variable.
        name: String,
    },
    /// The API server takes a variable only once.
    #[error("spec.env has {0} twice: keep one")]
    DuplicateEnv(String),
    /// A name that cannot be a file or a route.
    #[error("{what} {name:?} {why}: choose another name")]
    BadName {
        /// What is called so.
        what: &'static str,
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A name that is there twice.
    #[error("{what} {name:?} is listed twice, by reference or in place: keep one")]
    DuplicateName {
        /// What is called so.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A flow without a prompt.
    #[error("a flow needs a prompt: list one in prompts")]
    NoPrompt,
    /// The model could not tell two tools apart.
    #[error("tools {one:?} and {other:?} both have the name {name:?} for the model: rename one in its spec.name")]
    DuplicateToolName {
        /// The name that both have.
        name: String,
        /// One Tool.
        one: String,
        /// Another Tool.
        other: String,
    },
    /// Headers of two tools would be the same variable with different values.
    #[error(
        "two headers from different Secrets would both be the variable {0}: rename one of the tools in its spec.name"
    )]
    HeaderConflict(String),
    /// One flow of a set.
    #[error("flow {flow:?}: {error}")]
    InFlow {
        /// Its name.
        flow: String,
        /// What is wrong with it.
        error: Box<RenderError>,
    },
    /// Two headers of tools, or a header and a credential, whose variables have one name.
    #[error("two secret values become the environment variable {0}: rename one of the tools or headers")]
    DuplicateVariable(String),
    /// An overlay that cannot be merged, or that would cut the Pods off from their agent.
    #[error("podTemplate: {0}")]
    PodTemplate(String),
    /// An overlay that takes the Pods further than the operator allows.
    #[error(
        "podTemplate: {field} is not of the Pod Security level {level}, which the operator asks for: change it, or have the \
         operator's --pod-security changed"
    )]
    PodSecurity {
        /// The field of the Pod template.
        field: String,
        /// The level.
        level: &'static str,
    },
    /// A place for conversations that this build does not know.
    #[error("storage {0:?} is unknown: use memory or postgresql")]
    UnknownStorage(String),
    /// Conversations are to be kept in a database, and none is known.
    #[error(
        "storage postgresql needs a database: set spec.databaseUrl, or have this namespace inherit the operator's DATABASE_URL (its --database-namespaces)"
    )]
    MissingDatabaseUrl,
    /// A DSN that cannot be read.
    #[error("{field}: {bad}")]
    InvalidDatabaseUrl {
        /// Where it is set.
        field: &'static str,
        /// What is wrong with it, its password masked.
        bad: DsnError,
    },
}

impl RenderError {
    /// The CamelCase word for the condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::EnvTooLarge { .. }
            | Self::ObjectTooLarge { .. }
            | Self::EnvReserved { .. }
            | Self::DuplicateEnv(_)
            | Self::PortTaken(_)
            | Self::NoProgram
            | Self::DuplicateVariable(_)
            | Self::BadName { .. }
            | Self::DuplicateName { .. }
            | Self::NoPrompt
            | Self::DuplicateToolName { .. }
            | Self::HeaderConflict(_)
            | Self::UnknownStorage(_)
            | Self::PodSecurity { .. }
            | Self::PodTemplate(_) => "InvalidSpec",
            Self::InFlow { error, .. } => error.reason(),
            Self::MissingDatabaseUrl => "MissingDatabaseUrl",
            Self::InvalidDatabaseUrl { .. } => "InvalidDatabaseUrl",
        }
    }
}
