//! Reasons why a container cannot be made from its Pod and the objects that this refers to.

/// A container that cannot be made from its configuration; the kubelet's words, by which the state machines know what is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    /// An object is not there.
    #[error("{kind} \"{name}\" not found")]
    Missing { kind: &'static str, name: String },
    /// A key of an object is not there.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    Key { key: String, kind: &'static str, namespace: String, name: String },
    /// A value from an object is no text.
    #[error("key {key} of {kind} {name} is no text, so it cannot be a variable: mount it as a file")]
    NoText { key: String, kind: &'static str, name: String },
    /// A field is not known.
    #[error(
        "field {0} cannot be read here: use one of metadata.name, metadata.namespace, metadata.uid, metadata.labels['x'], \
             metadata.annotations['x'], spec.nodeName, spec.serviceAccountName, status.podIP, status.hostIP"
    )]
    Field(String),
    /// A volume is of a kind that is not made here.
    #[error(
        "volume {0} is of a kind that is not made here: use emptyDir, configMap, secret, projected, downwardAPI, hostPath or \
             persistentVolumeClaim"
    )]
    Volume(String),
    /// A path leads out of its volume.
    #[error("path {0:?} of volume {1} leads out of it: use a relative path without `..`")]
    Path(String, String),
    /// A file cannot be written.
    #[error("write {path}: {error}")]
    Write { path: String, error: String },
    /// The API server, or the system's random numbers, gave an error.
    #[error("{0}")]
    Other(String),
}
