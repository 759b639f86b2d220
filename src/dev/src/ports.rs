//! Ports on 127.0.0.1: that of a flag or none, else the usual one or the next that is free.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

/// Ports that are tried after the usual one.
const TRIES: u16 = 100;

/// A port that cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    /// The user named it.
    #[error("{flag} {port} is taken: choose another one, or leave the flag out")]
    Taken {
        /// The flag.
        flag: &'static str,
        /// The port.
        port: u16,
    },
    /// It cannot be bound for another reason.
    #[error("{flag} {port}: {source}")]
    Refused {
        /// The flag.
        flag: &'static str,
        /// The port.
        port: u16,
        /// Cause.
        source: io::Error,
    },
}

/// Binds the port of a flag; without one the usual port, or if that is taken the next one that is free.
///
/// # Errors
/// The port of the flag is taken, or no port can be bound.
pub(crate) fn bind<L>(
    flag: &'static str,
    wanted: Option<u16>,
    usual: u16,
    bind: impl Fn(SocketAddr) -> io::Result<L>,
) -> Result<L, PortError> {
    let at = |port: u16| bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let fail = |port: u16, source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => PortError::Taken { flag, port },
        _ => PortError::Refused { flag, port, source },
    };
    if let Some(port) = wanted {
        return at(port).map_err(|error| fail(port, error));
    }
    let mut last = None;
    for port in usual..=usual.saturating_add(if usual == 0 { 0 } else { TRIES }) {
        match at(port) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = Some(fail(port, error)),
            Err(error) => return Err(fail(port, error)),
        }
    }
    Err(last.unwrap_or(PortError::Taken { flag, port: usual }))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_usual_port_that_is_taken_is_replaced_and_one_of_a_flag_is_not() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let next = bind("--gateway-port", None, port, TcpListener::bind).unwrap();
        assert!(next.local_addr().unwrap().port() > port);
        let error = bind("--gateway-port", Some(port), 8080, TcpListener::bind).unwrap_err().to_string();
        assert_eq!(error, format!("--gateway-port {port} is taken: choose another one, or leave the flag out"));
        let any = bind("--api-port", None, 0, TcpListener::bind).unwrap();
        assert_ne!(any.local_addr().unwrap().port(), 0);
    }
}
