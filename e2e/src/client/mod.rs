//! Clients of what runs in the cluster, which see every byte and every end of a connection.

mod connection;
mod load;
mod target;
mod websocket;

pub(crate) use connection::{HttpClientConnection, HttpClientResponse};
pub(crate) use load::{BackgroundLoad, LoadProfile};
pub(crate) use target::ClientTarget;
pub(crate) use websocket::check_websocket_echo;

use std::time::Duration;

/// Longest wait for anything that is to come at once.
const TIMEOUT: Duration = Duration::from_secs(30);
