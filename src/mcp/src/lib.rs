//! A client of MCP servers (Model Context Protocol, Streamable HTTP), whichever of its two eras they speak.
//!
//! The protocol is rmcp's business and stays behind this room: what leaves it is text, a tool's name and its schemas.
//! Up to revision 2025-11-25 a client opens a session with `initialize`; from 2026-07-28 on each request stands alone. A
//! [`McpSession`](session::Session) is either: it asks for the newer era and falls back. [`Sessions`] keeps one per server and opens a new one
//! when the old one broke.
//!
//! The operator asks servers for their tools by [`discover`], through clients of its own ([`EgressClients`]) that do not go everywhere.
//!
//! The caller gives the HTTP client and with it the rules for redirects and addresses. A server that hangs, answers
//! something else or never stops is an error within the caller's deadline.

mod bounded_client;
mod discovery;
#[cfg(test)]
mod discovery_tests;
mod egress;
mod error_text;
mod http;
mod read_budget;
mod session;
mod sessions;
mod sse;
#[cfg(test)]
mod tests;

pub use discovery::{DiscoveryRequest, Era, McpTool, ServerFailure, ServerTools, ToolListChanges, discover};
pub use egress::Cidr;
pub use egress::{
    AddressPolicy, DENIED_RANGES, DeniedAddress, DnsResolver, EgressClients, LOOPBACK_RANGES, Trust, check_url, lookup,
    range_of,
};
pub use read_budget::ReadPermits;
#[cfg(test)]
use session::McpSession;
pub use session::{McpError, ServerEndpoint};
pub use sessions::Sessions;
