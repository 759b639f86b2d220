//! The parts of the platform that run in this process, and by which name each is known.

/// Part of the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    /// Reconciles the objects.
    Operator,
    /// One address in front of all workloads.
    Gateway,
    /// Web UI and REST API.
    ControlPlane,
}

impl Part {
    /// Every part.
    pub(crate) const ALL: [Self; 3] = [Self::Operator, Self::Gateway, Self::ControlPlane];

    /// Returns its name: that of its container in a cluster.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Gateway => "gateway",
            Self::ControlPlane => "control-plane",
        }
    }

    /// Returns the name of its Deployment and Service in a cluster, which is here that of its Pod, too.
    pub(crate) fn full_name(self) -> &'static str {
        match self {
            Self::Operator => "recif-operator",
            Self::Gateway => "recif-gateway",
            Self::ControlPlane => "recif-control-plane",
        }
    }

    /// Returns the part whose log an event belongs to, by the module that it comes from: what is shared counts as the operator's.
    pub(crate) fn of_target(target: &str) -> Self {
        match target.split("::").next().unwrap_or_default() {
            "gateway" => Self::Gateway,
            "control_plane" | "store" => Self::ControlPlane,
            _ => Self::Operator,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_belongs_to_the_part_of_its_module() {
        for (target, part) in [
            ("gateway::process", Part::Gateway),
            ("gateway", Part::Gateway),
            ("control_plane::mirror", Part::ControlPlane),
            ("store::write", Part::ControlPlane),
            ("operator::run", Part::Operator),
            ("phase_trace", Part::Operator),
            ("cluster::watch", Part::Operator),
            ("gateway_api", Part::Operator),
        ] {
            assert_eq!(Part::of_target(target), part, "{target}");
        }
    }
}
