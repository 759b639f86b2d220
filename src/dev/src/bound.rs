//! The listeners of this process, all on 127.0.0.1, and their URLs.

use std::io;

use tokio::net::TcpListener;

use crate::{
    args::DevArgs,
    listener,
    platform::PartPorts,
    ports::{self, PortError},
};

/// Usual ports.
const GATEWAY_PORT: u16 = 8080;
const UI_PORT: u16 = 8780;

/// Listeners that are bound.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Of the gateway, for clients.
    pub(crate) gateway: std::net::TcpListener,
    /// Of the gateway, for the scaler and metrics.
    pub(crate) gateway_admin: TcpListener,
    /// Of the control plane.
    pub(crate) control_plane: TcpListener,
    /// Of the control plane, for metrics.
    pub(crate) control_plane_admin: TcpListener,
    /// Of the control plane, for spans.
    pub(crate) otlp: TcpListener,
    /// Of the API server.
    pub(crate) api: TcpListener,
}

/// URLs that the screen and the kubeconfig show.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    /// Of the gateway.
    pub(crate) gateway: String,
    /// Of the control plane.
    pub(crate) control_plane: String,
    /// Of the web UI.
    pub(crate) ui: String,
    /// Notes about usual ports that were taken.
    pub(crate) notes: Vec<String>,
}

impl Bound {
    /// Binds the ports of the flags, else the usual ones or the next that are free.
    ///
    /// # Errors
    /// The port of a flag is taken.
    pub(crate) fn bind(args: &DevArgs) -> Result<Self, PortError> {
        Ok(Self {
            gateway: ports::bind("--gateway-port", args.gateway_port, GATEWAY_PORT, gateway::bind)?,
            gateway_admin: ports::bind("a free port:", None, 0, listener::bind)?,
            control_plane: ports::bind("--ui-port", args.ui_port, UI_PORT, listener::bind)?,
            control_plane_admin: ports::bind("a free port:", None, 0, listener::bind)?,
            otlp: ports::bind("a free port:", None, 0, listener::bind)?,
            api: ports::bind("--api-port", args.api_port, 0, listener::bind)?,
        })
    }

    /// Returns the ports of the parts.
    ///
    /// # Errors
    /// The system does not tell them.
    pub(crate) fn ports(&self) -> io::Result<PartPorts> {
        Ok(PartPorts {
            gateway: self.gateway.local_addr()?.port(),
            gateway_admin: self.gateway_admin.local_addr()?.port(),
            control_plane: self.control_plane.local_addr()?.port(),
            control_plane_admin: self.control_plane_admin.local_addr()?.port(),
        })
    }
}

impl Addresses {
    /// Returns the URLs of the parts; a port counts as another one unless a flag asked for it.
    pub(crate) fn new(ports: PartPorts, args: &DevArgs) -> Self {
        let (gateway, control_plane) = (url(ports.gateway), url(ports.control_plane));
        let ui = format!("{control_plane}/ui/");
        let mut notes = Vec::new();
        if args.gateway_port.is_none() && ports.gateway != GATEWAY_PORT {
            notes.push(format!("port {GATEWAY_PORT} is taken: the gateway is at {gateway}"));
        }
        if args.ui_port.is_none() && ports.control_plane != UI_PORT {
            notes.push(format!("port {UI_PORT} is taken: the web UI is at {ui}"));
        }
        Self { gateway, control_plane, ui, notes }
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: DevArgs,
    }

    #[test]
    fn a_usual_port_that_is_taken_is_told() {
        let notes = |flags: &[&str], gateway: u16, control_plane: u16| {
            let args = Cli::parse_from(["dev"].iter().chain(flags)).args;
            let ports = PartPorts { gateway, gateway_admin: 1, control_plane, control_plane_admin: 2 };
            Addresses::new(ports, &args).notes
        };
        assert_eq!(notes(&[], 8080, 8780), Vec::<String>::new());
        let expected = [
            "port 8080 is taken: the gateway is at http://127.0.0.1:8083",
            "port 8780 is taken: the web UI is at http://127.0.0.1:8781/ui/",
        ];
        assert_eq!(notes(&[], 8083, 8781), expected);
        assert_eq!(notes(&["--gateway-port", "9000", "--ui-port", "9001"], 9000, 9001), Vec::<String>::new());
    }
}
