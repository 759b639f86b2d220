//! Errors of answers.

/// Error in the answer of an agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum A2aError {
    /// The agent answered with an error of JSON-RPC.
    #[error("{message} (error {code})")]
    Refused {
        /// Code of the error.
        code: i64,
        /// Text of the agent.
        message: String,
    },
    /// The answer is no JSON-RPC, or its result is no object of the protocol.
    #[error("the answer is not one of A2A: {0}")]
    Malformed(&'static str),
}
