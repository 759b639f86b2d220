//! Clients of what runs in the cluster, which see every byte and every end of a connection.

mod connection;
mod load;
mod target;
mod websocket;

pub(crate) use connection::{Answer, Connection};
pub(crate) use load::{Load, Plan};
pub(crate) use target::Target;
pub(crate) use websocket::echoes;

use std::time::Duration;

/// Longest wait for anything that is to come at once.
const PATIENCE: Duration = Duration::from_secs(30);
