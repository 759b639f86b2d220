//! Client of MCP servers ([Model Context Protocol](https://modelcontextprotocol.io), Streamable HTTP) of either era of the
//! protocol, and what the HTTP clients of operator and runner share: egress policy, trust, the fallback without CA certificates.
//!
//! The crate rmcp implements the protocol and is not part of the interface, which has texts, names of tools and their schemas. Up
//! to revision 2025-11-25 a client opens a session with `initialize`; from 2026-07-28 on each request stands alone. A
//! [`McpSession`](session::McpSession) is either: it tries the newer era and falls back. [`Sessions`] keeps one per server and
//! opens a new one after the old one broke.
//!
//! The operator queries servers for their tools by [`discover`], through HTTP clients of its own ([`EgressClients`]), which do
//! not connect to denied addresses.
//!
//! The caller provides the HTTP client and with it the rules for redirects and addresses. A server that hangs, answers something
//! else or never stops is an error within the caller's deadline.

mod bounded_client;
mod cidr;
mod closed_ports;
mod discovery;
mod discovery_request;
mod egress;
mod error_text;
mod http;
mod http_client;
mod read_budget;
pub mod reason;
mod session;
mod sessions;
mod sse;
#[cfg(test)]
mod tests;
mod tool_list_changes;
mod trust;

pub use cidr::{Cidr, DENIED_RANGES, LOOPBACK_RANGES, range_of};
pub use closed_ports::{ClosedPorts, is_localhost};
pub use discovery::{McpTool, ServerFailure, ServerTools, discover};
pub use discovery_request::{DiscoveryRequest, Era};
pub use egress::{AddressPolicy, DeniedAddress, DnsResolver, EgressClients, check_url, lookup};
pub use http_client::build_client;
pub use read_budget::ReadPermits;
#[cfg(test)]
use session::McpSession;
pub use session::{CallTrace, McpError, ServerEndpoint};
pub use sessions::Sessions;
pub use tool_list_changes::ToolListChanges;
pub use trust::Trust;
