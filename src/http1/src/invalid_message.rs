//! Reasons for which a message is refused.

/// Message that is not forwarded. Display explains the reason to its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    /// The head has more than [`super::MAX_HEAD`] bytes.
    #[error("the header block is larger than 64 KiB")]
    HeadTooLarge,
    /// The head has more than [`super::MAX_FIELDS`] fields.
    #[error("there are more than 128 header fields")]
    TooManyFields,
    /// A line does not end in CRLF, or a CR or LF stands alone.
    #[error("a line of the head does not end in CRLF")]
    LineEnd,
    /// The start line is malformed.
    #[error("the first line is not a valid start line")]
    StartLine,
    /// The method contains lower-case letters, or is no token.
    #[error("the method is not valid")]
    Method,
    /// CONNECT, which only a forward proxy serves.
    #[error("CONNECT is not served")]
    Connect,
    /// The target is neither a path nor an absolute URL.
    #[error("the request target is not valid")]
    Target,
    /// A segment of the path is `.` or `..`, plain or encoded, so that other servers may read it as another path.
    #[error("the path has a dot segment")]
    DotSegment,
    /// The version is neither HTTP/1.0 nor HTTP/1.1.
    #[error("only HTTP/1.0 and HTTP/1.1 are served")]
    Version,
    /// A field without a colon, with space before it, folded, or with a control character.
    #[error("a header field is not valid")]
    Field,
    /// No Host, two of them, an invalid one, or a different one than in the absolute target.
    #[error("exactly one valid Host is needed, the same as in the target")]
    Host,
    /// A Content-Length that is no number, or more than one.
    #[error("Content-Length is not one number")]
    Length,
    /// Both Content-Length and Transfer-Encoding, or a Transfer-Encoding other than a single `chunked`.
    #[error("Transfer-Encoding is not a single `chunked` without Content-Length")]
    Coding,
    /// `Connection` names an end-to-end field that the relay must forward.
    #[error("Connection names a header field that must be passed on")]
    ConnectionNames,
    /// A chunk size that is no hexadecimal number, or has too many digits.
    #[error("the size of a chunk is not valid")]
    ChunkSize,
    /// Chunk data that is not followed by CRLF, or an invalid line end within the framing.
    #[error("the framing of a chunk is not valid")]
    ChunkFrame,
    /// Chunk extensions or trailers exceed their limits.
    #[error("chunk extensions or trailers are too large")]
    ChunkLimits,
    /// An invalid status line of a response, or an unexpected 101.
    #[error("the status of the response is not valid")]
    Status,
}

impl InvalidMessage {
    /// Returns the status code for the refusal of a request.
    pub fn status(self) -> u16 {
        match self {
            Self::HeadTooLarge | Self::TooManyFields => 431,
            Self::Connect => 405,
            Self::Version => 505,
            _ => 400,
        }
    }
}
