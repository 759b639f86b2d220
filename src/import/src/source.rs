//! Sources of an import, by the API group of an object.

use std::fmt;

use serde_json::Value;

/// Project whose objects are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// kagent, with kmcp.
    Kagent,
    /// genkit-operator.
    Genkit,
    /// Krypton.
    Krypton,
    /// Upstream Récif, whose group and version are ours.
    Recif,
}

impl Source {
    /// All sources.
    pub const ALL: [Self; 4] = [Self::Kagent, Self::Genkit, Self::Krypton, Self::Recif];

    /// Returns the name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kagent => "kagent",
            Self::Genkit => "genkit",
            Self::Krypton => "krypton",
            Self::Recif => "recif",
        }
    }

    /// Returns the API group of its objects.
    pub fn group(self) -> &'static str {
        match self {
            Self::Kagent => "kagent.dev",
            Self::Genkit => "genkit.dev",
            Self::Krypton => "krypton.ai",
            Self::Recif => crds::GROUP,
        }
    }

    /// Returns the source of an object; `None` for an object of another group or of a version that is not known.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let (group, version) = object.get("apiVersion")?.as_str()?.split_once('/')?;
        let source = Self::ALL.into_iter().find(|source| source.group() == group)?;
        source.versions().contains(&version).then_some(source)
    }

    /// Returns the versions whose objects are read, the newest first.
    pub(crate) fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Kagent => &["v1alpha2", "v1alpha1"],
            Self::Genkit | Self::Krypton => &["v1alpha1"],
            Self::Recif => &["v1"],
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
