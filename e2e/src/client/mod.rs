//! Test clients for the workloads in the cluster, which observe every byte and every end of a connection.

mod connection;
mod load;
mod target;
mod websocket;

pub(crate) use connection::{HttpClientConnection, HttpClientResponse};
pub(crate) use load::{BackgroundLoad, Exchange, LoadClient, LoadProfile};
pub(crate) use target::ClientTarget;
pub(crate) use websocket::check_websocket_echo;

use std::time::Duration;

/// Longest wait for a connection, a line or a part of a body that should come at once.
const TIMEOUT: Duration = Duration::from_secs(30);
