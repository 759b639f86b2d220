//! Defines the errors of rendering, in words for the author of the spec.
//!
//! All of them are decided by the values alone, so a retry is of no use until the spec or the operator changes.

use crds::reason;

use super::dsn::DsnError;

/// Error of a spec that cannot be rendered. No text holds a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// An environment variable is larger than the kernel passes to a process.
    #[error("environment variable {name} has {size} bytes with its name, Linux takes {max}: make it shorter")]
    EnvTooLarge {
        /// Name of the variable.
        name: String,
        /// Bytes of `NAME=value` and the NUL that ends it.
        size: usize,
        /// Limit in bytes.
        max: usize,
    },
    /// A ConfigMap or Secret is larger than the API server stores.
    #[error("{object} would hold {size} bytes, Kubernetes takes {max}: shorten the prompt or use fewer tools")]
    ObjectTooLarge {
        /// Object, such as `ConfigMap/a-config`.
        object: String,
        /// Bytes of all its values.
        size: usize,
        /// Limit in bytes.
        max: usize,
    },
    /// The container and its sidecar would listen on one port.
    #[error("port {0} is the sidecar's: let the container listen on another one, or set proxy.enabled to false")]
    PortTaken(i32),
    /// A stdio server has no program.
    #[error("a server of type stdio needs the program to run: set deployment.cmd")]
    NoProgram,
    /// The user sets a variable that comes from another field of the spec.
    #[error("{field} sets {name}, which the operator renders for this {kind}: remove it and use the field of the spec")]
    EnvReserved {
        /// Field that sets it.
        field: &'static str,
        /// Kind in lower case.
        kind: &'static str,
        /// Name of the variable.
        name: String,
    },
    /// A variable is set twice; the API server accepts it only once.
    #[error("spec.env has {0} twice: keep one")]
    DuplicateEnv(String),
    /// A name cannot be a file or a route.
    #[error("{what} {name:?} {why}: choose another name")]
    BadName {
        /// Thing that has the name.
        what: &'static str,
        /// Name.
        name: String,
        /// Problem of the name.
        why: &'static str,
    },
    /// A name is used twice.
    #[error("{what} {name:?} is listed twice, by reference or in place: keep one")]
    DuplicateName {
        /// Thing that has the name.
        what: &'static str,
        /// Name.
        name: String,
    },
    /// A flow has no prompt.
    #[error("a flow needs a prompt: list one in prompts")]
    NoPrompt,
    /// The model could not tell two tools apart.
    #[error("tools {one:?} and {other:?} both have the name {name:?} for the model: rename one in its spec.name")]
    DuplicateToolName {
        /// Name of both.
        name: String,
        /// One Tool.
        one: String,
        /// Other Tool.
        other: String,
    },
    /// Calls of a flow's tool wait for a person.
    #[error(
        "tool {0:?} asks a person, and a flow has no conversation to wait in: remove its approval, or give it to an Agent"
    )]
    ApprovalUnsupported(String),
    /// Headers of two tools would be the same variable with different values.
    #[error(
        "two headers from different Secrets would both be the variable {0}: rename one of the tools in its spec.name"
    )]
    HeaderConflict(String),
    /// A flow of a set cannot be rendered.
    #[error("flow {flow:?}: {error}")]
    InFlow {
        /// Name of the flow.
        flow: String,
        /// Error of the flow.
        error: Box<RenderError>,
    },
    /// Two headers of tools, or a header and a credential, have variables of one name.
    #[error("two secret values become the environment variable {0}: rename one of the tools or headers")]
    DuplicateVariable(String),
    /// An overlay cannot be merged, or would cut the Pods off from their owner.
    #[error("podTemplate: {0}")]
    PodTemplate(String),
    /// An overlay goes beyond the Pod Security level that the operator allows.
    #[error(
        "podTemplate: {field} violates the Pod Security level {level}, which the operator enforces: change it, or have the \
         operator's --pod-security changed"
    )]
    PodSecurity {
        /// Field of the Pod template.
        field: String,
        /// Level.
        level: &'static str,
    },
    /// The storage of conversations is not one that this build knows.
    #[error("storage {0:?} is unknown: use memory or postgresql")]
    UnknownStorage(String),
    /// Conversations are to be stored in a database, and none is configured.
    #[error(
        "storage postgresql needs a database: set spec.databaseUrl, or have this namespace inherit the operator's DATABASE_URL (its --database-namespaces)"
    )]
    MissingDatabaseUrl,
    /// A DSN cannot be parsed.
    #[error("{field}: {bad}")]
    InvalidDatabaseUrl {
        /// Field that sets it.
        field: &'static str,
        /// Problem of the DSN, with its password masked.
        bad: DsnError,
    },
}

impl RenderError {
    /// Returns the reason for the condition, a CamelCase word.
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
            | Self::PodTemplate(_) => reason::INVALID_SPEC,
            Self::ApprovalUnsupported(_) => reason::APPROVAL_UNSUPPORTED,
            Self::InFlow { error, .. } => error.reason(),
            Self::MissingDatabaseUrl => reason::MISSING_DATABASE_URL,
            Self::InvalidDatabaseUrl { .. } => reason::INVALID_DATABASE_URL,
        }
    }
}
