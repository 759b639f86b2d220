//! Mode of this process, selected by the mounted files.
//!
//! | below the contract's folder | mode |
//! |---|---|
//! | `manifest.json` | a set of flows |
//! | `config.json` | one flow |
//! | neither | an agent, described by `CORAIL_*` variables |

use std::net::SocketAddr;

use super::{
    Lookup,
    config::RunnerConfig,
    flow::{FlowSettings, Folder, MANIFEST},
    variables::{
        ConfigError, LogFormat, address, closed_ports, egress_list, search_service, sidecar_port, telemetry,
        value_or_default,
    },
};

/// Mode of this process with its configuration.
#[derive(Debug)]
pub enum Mode {
    /// An agent.
    Agent(Box<RunnerConfig>),
    /// A flow, or a set of them.
    Flows(Box<FlowSettings>),
}

impl Mode {
    /// Selects the mode by the files that exist and reads the variables of that mode through `lookup`.
    ///
    /// # Errors
    /// The first variable that is invalid.
    pub fn read(lookup: &Lookup) -> Result<Self, ConfigError> {
        let folder = Folder::new(value_or_default(lookup, "RECIF_CONTRACT_ROOT"));
        let set = folder.has(MANIFEST);
        if !set && !folder.has("config.json") {
            return RunnerConfig::read(lookup).map(|config| Self::Agent(config.into()));
        }
        sidecar_port(lookup)?;
        closed_ports(lookup)?;
        search_service(lookup)?;
        egress_list(lookup)?;
        let name = lookup("RECIF_FLOW_NAME").filter(|name| !name.is_empty());
        let version = value_or_default(lookup, "RECIF_CONTRACT_VERSION");
        Ok(Self::Flows(Box::new(FlowSettings {
            folder,
            is_set: set,
            version,
            name,
            namespace: value_or_default(lookup, "RECIF_NAMESPACE"),
            telemetry: telemetry(lookup)?,
            address: address(lookup, "PORT")?,
            log: LogFormat::read(lookup)?,
        })))
    }

    /// Returns the format of log lines.
    pub fn log(&self) -> LogFormat {
        match self {
            Self::Agent(config) => config.log,
            Self::Flows(settings) => settings.log,
        }
    }

    /// Returns the address to listen on.
    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Self::Agent(config) => config.address,
            Self::Flows(settings) => settings.address,
        }
    }
}
