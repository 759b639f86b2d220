//! `recif-proxy mcp-bridge`: an MCP server that speaks over its standard input and output, served as Streamable HTTP.
//!
//! The bridge translates nothing: what a client says reaches a child process as one line, what the child says reaches the
//! client as an answer or an event. It decides only *which* child and *which* client, for the two eras of the protocol:
//!
//! - Up to revision 2025-11-25 a client opens a session with `initialize`. Each session has a child of its own
//!   ([`session`]), and messages pass through as they are.
//! - From 2026-07-28 on there is no session. All requests share one child ([`shared`]), so the ids that clients chose are
//!   replaced by our own on the way in and put back on the way out ([`rewrite`]).
//!
//! Nothing a child writes is trusted: [`framing`] finds messages in its output and bounds what is held, and a client that
//! does not read is never waited for by others ([`outlet`]).

mod args;
mod body;
mod child;
mod command;
mod event_channel;
mod framing;
mod headers;
mod http;
mod install;
mod memory;
mod message;
mod reaper;
mod reply;
mod rewrite;
mod scanner;
mod serve;
mod session;
mod session_state;
mod sessions;
mod stateless;
mod stateless_state;

pub use args::Args;
pub use command::ArgsError;
pub use install::{InstallError, install};
pub use serve::{ServeError, run};
