//! Programs whose output is shown: the value of `--logs`.

use node::Source;

use crate::part::Part;

/// Name of the sidecar's container, and of the init container that brings it.
const SIDECAR: &str = "proxy";

/// Programs whose output is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutputSelection {
    /// Workloads, without their sidecars.
    Usual,
    /// Every program, and the parts.
    All,
    /// None.
    None,
    /// Those with these names.
    Names(Vec<String>),
}

impl OutputSelection {
    /// Reads the names of the flag.
    pub(crate) fn new(names: &[String]) -> Self {
        let names: Vec<_> =
            names.iter().map(|name| name.trim().to_lowercase()).filter(|name| !name.is_empty()).collect();
        match names.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [] => Self::Usual,
            ["all"] => Self::All,
            ["none"] => Self::None,
            _ => Self::Names(names),
        }
    }

    /// Reports whether the output of a container is shown.
    pub(crate) fn has(&self, source: &Source) -> bool {
        match self {
            Self::Usual => source.container != SIDECAR,
            Self::All => true,
            Self::None => false,
            Self::Names(names) => names.iter().any(|name| match name.as_str() {
                SIDECAR => source.container == SIDECAR,
                name => {
                    let is_named = *name == source.name || *name == format!("{}/{}", source.kind, source.name);
                    source.container != SIDECAR && (is_named || *name == source.container)
                }
            }),
        }
    }

    /// Reports whether the log of a part is shown.
    pub(crate) fn has_part(&self, part: Part) -> bool {
        match self {
            Self::All => true,
            Self::Names(names) => names.iter().any(|name| name == part.name()),
            Self::Usual | Self::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(flag: &str) -> Vec<&'static str> {
        let selection = OutputSelection::new(&flag.split(',').map(str::to_owned).collect::<Vec<_>>());
        let source = |kind: &str, name: &str, container: &str| Source {
            namespace: "default".to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            pod: format!("{name}-1"),
            index: 1,
            container: container.to_owned(),
        };
        let sources = [
            ("a", source("agent", "a", "agent")),
            ("a's sidecar", source("agent", "a", "proxy")),
            ("b", source("flow", "b", "flow")),
        ];
        let programs = sources.iter().filter(|(_, source)| selection.has(source)).map(|(name, _)| *name);
        programs.chain(Part::ALL.into_iter().filter(|part| selection.has_part(*part)).map(Part::name)).collect()
    }

    #[test]
    fn names_select_programs_and_parts() {
        for (flag, expected) in [
            ("", &["a", "b"][..]),
            ("all", &["a", "a's sidecar", "b", "operator", "gateway", "control-plane"]),
            ("none", &[]),
            ("a", &["a"]),
            ("Agent/a,operator", &["a", "operator"]),
            ("flow", &["b"]),
            ("proxy", &["a's sidecar"]),
            ("flow/a", &[]),
        ] {
            assert_eq!(shown(flag), expected, "{flag}");
        }
    }
}
