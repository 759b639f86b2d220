//! Reasons of failed discoveries, as the API of Récif names them in conditions. This crate does not depend on the API; the
//! operator checks that both have the same words.

/// The server cannot be connected to, or answers HTTP 5xx.
pub const SERVER_UNREACHABLE: &str = "ServerUnreachable";
/// The server did not list its tools in time.
pub const SERVER_TIMEOUT: &str = "ServerTimeout";
/// The server refuses the query.
pub const SERVER_REFUSED: &str = "ServerRefused";
/// The server answers something else than MCP, or too much.
pub const INVALID_SERVER_ANSWER: &str = "InvalidServerAnswer";
/// The URL leads to an address that is denied.
pub const ADDRESS_DENIED: &str = "AddressDenied";

/// Every reason of a [`ServerFailure`](crate::ServerFailure).
pub const ALL: &[&str] = &[SERVER_UNREACHABLE, SERVER_TIMEOUT, SERVER_REFUSED, INVALID_SERVER_ANSWER, ADDRESS_DENIED];
