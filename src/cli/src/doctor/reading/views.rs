//! Readings of a cluster that are judged: the scope of the checks, nodes and definitions.

use std::{collections::BTreeSet, time::Duration};

/// Architectures of our images.
pub(in crate::doctor) const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// Extent of a reading.
#[derive(Debug, Clone)]
pub(in crate::doctor) struct Scope {
    /// Namespace of the first agent.
    pub namespace: String,
    /// Namespace of operator, gateway and control plane.
    pub system: String,
    /// True if a Pod pulls each image.
    pub pull: bool,
    /// Longest time for each reading.
    pub timeout: Duration,
}

/// State of the installation of Récif in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::doctor) enum Installed {
    /// A part or a kind of it is.
    Yes,
    /// None is.
    No,
    /// It may not be read.
    Unknown,
}

/// Tool by which Récif was installed in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) enum Installer {
    /// Its objects have the label that Helm's have. `None`: the release is unknown.
    Helm(Option<HelmRelease>),
    /// They have not: manifests were applied.
    Manifests,
    /// None was found.
    Unknown,
}

/// Release of Helm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct HelmRelease {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// Node of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::doctor) struct NodeView {
    /// Name.
    pub name: String,
    /// Version of its kubelet, such as `v1.34.2`.
    pub kubelet: String,
    /// Operating system, such as `linux`.
    pub os: String,
    /// Architecture, such as `amd64`.
    pub arch: String,
    /// True if it is Ready.
    pub ready: bool,
    /// Names of the images that it holds.
    pub images: Vec<String>,
}

/// CustomResourceDefinition of one of our kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::doctor) struct Definition {
    /// Its name, such as `agents.agents.recif.dev`.
    pub name: String,
    /// Digest of its schema, from its annotation.
    pub schema: Option<String>,
    /// Version of Récif that it is of, from its annotation.
    pub version: Option<String>,
    /// Paths of the fields in its schema, such as `spec.image`.
    pub fields: BTreeSet<String>,
    /// True if the API server serves it.
    pub established: bool,
    /// True if it is of a chart.
    pub by_helm: bool,
    /// Release that it is of; `None`: unknown.
    pub release: Option<HelmRelease>,
}
