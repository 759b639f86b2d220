//! Field names that only a relay may set or judge, however a server behind it reads them: to WSGI, CGI and PHP `_` is `-`.

/// Fields that say where a message ends, who asks, and for whom it is.
const PROTECTED: &[&str] = &[
    "authorization",
    "content-length",
    "cookie",
    "forwarded",
    "host",
    "transfer-encoding",
    "traceparent",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-prefix",
    "x-forwarded-proto",
];

/// Whether a name is `known` (lower case) to a server that takes `_` for `-`.
pub fn is_lenient_match(name: &[u8], known: &str) -> bool {
    name.len() == known.len() && name.iter().zip(known.bytes()).all(|(byte, known)| normalize(*byte) == known)
}

/// Whether a name is of one of the fields that no client can take away, and no server may get in another spelling.
pub(super) fn is_protected(name: &[u8]) -> bool {
    let ours = b"x-recif-";
    let is_ours = name.get(..ours.len()).is_some_and(|start| start.iter().zip(ours).all(|(a, b)| normalize(*a) == *b));
    is_ours || PROTECTED.iter().any(|known| is_lenient_match(name, known))
}

fn normalize(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }
}
