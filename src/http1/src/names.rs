//! Names of protected header fields, in every spelling that servers accept: WSGI, CGI and PHP read `_` as `-`.

/// Header fields that determine where a message ends, who sends it, and where it goes.
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

/// Reports whether a server that reads `_` as `-` takes a name for `known` (lower case).
pub fn is_lenient_match(name: &[u8], known: &str) -> bool {
    name.len() == known.len() && name.iter().zip(known.bytes()).all(|(byte, known)| normalize(*byte) == known)
}

/// Reports whether a name is a protected field in any spelling: `Connection` must not name it, and it is not forwarded
/// with `_`.
pub(super) fn is_protected(name: &[u8]) -> bool {
    let ours = b"x-recif-";
    let is_ours = name.get(..ours.len()).is_some_and(|start| start.iter().zip(ours).all(|(a, b)| normalize(*a) == *b));
    is_ours || PROTECTED.iter().any(|known| is_lenient_match(name, known))
}

fn normalize(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }
}
