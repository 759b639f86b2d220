//! A client of MCP servers (Model Context Protocol, Streamable HTTP), whichever of its two eras they speak.
//!
//! The protocol is rmcp's business and stays behind this room: what leaves it is text, a tool's name and its schemas.
//! Up to revision 2025-11-25 a client opens a session with `initialize`; from 2026-07-28 on each request stands alone. A
//! [`Session`](session::Session) is either: it asks for the newer era and falls back. [`Sessions`] keeps one per server and opens a new one
//! when the old one broke.
//!
//! The operator asks servers for their tools by [`discover`], through clients of its own ([`Reach`]) that do not go everywhere.
//!
//! The caller gives the HTTP client and with it the rules for redirects and addresses. A server that hangs, answers
//! something else or never stops is an error within the caller's deadline.

mod discovery;
#[cfg(test)]
mod discovery_tests;
mod http;
mod metered;
mod problem;
mod reach;
mod reading;
mod session;
mod sessions;
mod sse;
#[cfg(test)]
mod tests;

pub use discovery::{Answer, Changes, Era, Failed, McpTool, Question, discover};
pub use reach::Cidr;
pub use reach::{DENIED, Denied, Judge, LOOPBACK, Reach, Resolver, Trust, admit, lookup, range_of};
pub use reading::Places;
#[cfg(test)]
use session::Session;
pub use session::{McpError, Server};
pub use sessions::Sessions;
