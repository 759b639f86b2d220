//! `recif-proxy mcp-bridge`: serves an MCP server that speaks over its standard input and output as Streamable HTTP.
//!
//! The bridge translates nothing: a message of a client reaches a child process as one line, and a message of the child
//! reaches the client as a response or an event. It only decides *which* child and *which* client, for the two eras of
//! the protocol:
//!
//! - Up to revision 2025-11-25 a client opens a session with `initialize`. Each session has a child of its own
//!   ([`session`]), and messages pass through unchanged.
//! - From 2026-07-28 on there are no sessions. All requests share one child ([`stateless`]), so the ids that clients
//!   chose are replaced by ids of the bridge on the way in and restored on the way out ([`rewrite`]).
//!
//! The output of a child is not trusted: [`framing`] finds messages in it and bounds the bytes held. A client that does
//! not read never holds up others ([`event_channel`]).

mod args;
mod body;
mod child;
mod child_log;
mod command;
mod event_channel;
mod framing;
mod headers;
mod http;
mod http_errors;
mod install;
mod memory;
mod message;
mod reaper;
mod received_message;
mod reply;
mod resources;
mod rewrite;
mod scanner;
mod serve;
mod session;
mod session_requests;
mod session_state;
mod sessions;
mod state;
mod stateless;
mod stateless_state;

pub use args::Args;
pub use command::ArgsError;
pub use install::{InstallError, install};
pub use serve::{ServeError, run};
