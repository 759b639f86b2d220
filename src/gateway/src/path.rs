//! Parses the request path `/v1/agents/{namespace}/{name}[/...]` into the addressed workload and the workload's own
//! path.
//!
//! Clients request the metadata of a protected MCP server at the root (RFC 9728, section 3):
//! `/.well-known/oauth-protected-resource` before the path of the server leads to the server's own document of that
//! name.
//!
//! Only the prefix is removed and the rest stays byte for byte, because only the workload knows the meaning of `%2F` or
//! `//`. Heads with dot segments were refused before.

use percent_encoding::{PercentDecode, percent_decode};

/// Request target, split at the beginning of the workload's own path. All slices borrow from the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Path<'a> {
    /// Key of the workload's route, such as `agents/default/weather`.
    pub(super) key: &'a [u8],
    /// Path prefix of the workload, such as `/v1/agents/default/weather`.
    pub(super) prefix: &'a [u8],
    /// Rest that the workload gets: empty, or beginning with `/` or `?`.
    pub(super) rest: &'a [u8],
}

/// Reasons why a target has no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteError {
    /// No workload can have this path.
    Unknown,
    /// The path is reserved for the sidecar and hidden from clients.
    Hidden,
}

/// Well-known path of the metadata of a protected resource (RFC 9728).
const PROTECTED: &[u8] = b"/.well-known/oauth-protected-resource";

impl<'a> Path<'a> {
    /// Parses a target.
    ///
    /// # Errors
    /// The target leads to no workload.
    pub(super) fn read(target: &'a [u8]) -> Result<Self, RouteError> {
        if let Some(server) = target.strip_prefix(PROTECTED).filter(|server| server.starts_with(b"/v1/mcp/")) {
            return Self::read(server).map(|path| Self { rest: &target[..PROTECTED.len()], ..path });
        }
        let rooted = target.strip_prefix(b"/v1/").ok_or(RouteError::Unknown)?;
        let mut slashes = memchr::memchr_iter(b'/', rooted);
        let (Some(first), Some(second)) = (slashes.next(), slashes.next()) else { return Err(RouteError::Unknown) };
        let name = &rooted[second + 1..];
        let length = name.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(name.len());
        if length == 0 || second == first + 1 || memchr::memchr(b'?', &rooted[..second]).is_some() {
            return Err(RouteError::Unknown);
        }
        let end = "/v1/".len() + second + 1 + length;
        let path = Self { key: &target["/v1/".len()..end], prefix: &target[..end], rest: &target[end..] };
        if path.is_hidden() { Err(RouteError::Hidden) } else { Ok(path) }
    }

    /// Reports whether the path is the protected-resource metadata of an MCP server.
    pub(super) fn is_metadata(&self) -> bool {
        let path = self.rest.split(|byte| *byte == b'?').next();
        self.key.starts_with(b"mcp/") && path == Some(PROTECTED)
    }

    /// Reports whether a server could read the path as `/metrics` or as something below `/_recif`, in any spelling.
    fn is_hidden(&self) -> bool {
        let path = self.rest.split(|byte| *byte == b'?').next().unwrap_or_default();
        let mut segments = Segments(percent_decode(path));
        // Servers differ in which slash ends path parameters: after those of an empty segment, any segment may be the
        // first.
        let mut may_begin_later = false;
        while let Some(segment) = segments.next() {
            match segment.name() {
                b"_recif" => return true,
                b"metrics" => {
                    let below = segments.find(|below| below.length > 0 || below.has_parameters);
                    return may_begin_later || segment.has_parameters || below.is_none_or(|below| below.length == 0);
                }
                b"" => may_begin_later |= segment.has_parameters,
                _ if may_begin_later => {}
                _ => return false,
            }
        }
        false
    }
}

/// Iterator over path segments as the most lenient server reads them: percent-decoded, lower-cased, also split at
/// backslashes.
struct Segments<'a>(PercentDecode<'a>);

/// Start of a segment: the part that matters here.
#[derive(Default)]
struct Segment {
    name: [u8; 8],
    /// Length of the whole name.
    length: usize,
    /// Set if a `;` follows the name.
    has_parameters: bool,
}

impl Segment {
    fn name(&self) -> &[u8] {
        &self.name[..self.length.min(self.name.len())]
    }
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let mut byte = self.0.next()?;
        let mut segment = Segment::default();
        while !matches!(byte, b'/' | b'\\') {
            segment.has_parameters |= byte == b';';
            if !segment.has_parameters {
                if let Some(place) = segment.name.get_mut(segment.length) {
                    *place = byte.to_ascii_lowercase();
                }
                segment.length += 1;
            }
            let Some(next) = self.0.next() else { break };
            byte = next;
        }
        Some(segment)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(target: &str) -> Result<(String, String), RouteError> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Path::read(target.as_bytes()).map(|path| (text(path.key), text(path.rest)))
    }

    #[test]
    fn exactly_the_prefix_is_taken_off() {
        for (target, key, rest) in [
            ("/v1/agents/ns/a", "agents/ns/a", ""),
            ("/v1/agents/ns/a/", "agents/ns/a", "/"),
            ("/v1/agents/ns/a?x=/y", "agents/ns/a", "?x=/y"),
            ("/v1/flows/ns/f/v1//x%2Fy;z?q#", "flows/ns/f", "/v1//x%2Fy;z?q#"),
            ("/v1/flowsets/ns/s//chat", "flowsets/ns/s", "//chat"),
            ("/v1/mcp/ns/m/mcp", "mcp/ns/m", "/mcp"),
            ("/.well-known/oauth-protected-resource/v1/mcp/ns/m", "mcp/ns/m", "/.well-known/oauth-protected-resource"),
            (
                "/.well-known/oauth-protected-resource/v1/mcp/ns/m/x?y",
                "mcp/ns/m",
                "/.well-known/oauth-protected-resource",
            ),
            ("/v1/agents/ns/a/metrics/x", "agents/ns/a", "/metrics/x"),
            ("/v1/agents/ns/a/metricsx", "agents/ns/a", "/metricsx"),
            ("/v1/agents/ns/a/_recify", "agents/ns/a", "/_recify"),
            ("/v1/agents/ns/a/x/_recif/y", "agents/ns/a", "/x/_recif/y"),
            ("/v1/agents/ns/a/x;y/_recif", "agents/ns/a", "/x;y/_recif"),
            ("/v1/agents/ns/a/metrics/x;y", "agents/ns/a", "/metrics/x;y"),
            ("/v1/agents/ns/a/;jsessionid=1", "agents/ns/a", "/;jsessionid=1"),
        ] {
            assert_eq!(read(target), Ok((key.to_owned(), rest.to_owned())), "{target}");
        }
    }

    #[test]
    fn other_targets_lead_nowhere() {
        for (target, expected) in [
            ("/", RouteError::Unknown),
            ("*", RouteError::Unknown),
            ("/v1/agents/ns", RouteError::Unknown),
            ("/v1/agents/ns/", RouteError::Unknown),
            ("/v1/agents/ns?/a", RouteError::Unknown),
            ("/v1/agents?/ns/a", RouteError::Unknown),
            ("/v1/agents//a", RouteError::Unknown),
            ("/v2/agents/ns/a", RouteError::Unknown),
            ("//v1/agents/ns/a", RouteError::Unknown),
            ("/v1/agents/ns/a/metrics", RouteError::Hidden),
            ("/v1/agents/ns/a/metrics/?x", RouteError::Hidden),
            ("/v1/agents/ns/a//metric%73;x", RouteError::Hidden),
            ("/v1/agents/ns/a/Metrics?x", RouteError::Hidden),
            ("/v1/agents/ns/a/_recif", RouteError::Hidden),
            ("/v1/agents/ns/a/_recif/inflight", RouteError::Hidden),
            ("/v1/agents/ns/a/%5Frecif%2Fdrain", RouteError::Hidden),
            ("/v1/agents/ns/a/\\_recif;x=y/drain", RouteError::Hidden),
            ("/v1/agents/ns/a/;x/_recif/drain", RouteError::Hidden),
            ("/v1/agents/ns/a/;x%2F_recif/drain", RouteError::Hidden),
            ("/v1/agents/ns/a/;x\\_recif/drain", RouteError::Hidden),
            ("/v1/agents/ns/a/%3Bx%5Cmetrics", RouteError::Hidden),
            ("/v1/agents/ns/a/metrics;x%2Fy", RouteError::Hidden),
            ("/v1/agents/ns/a/metrics//;x%2Fy", RouteError::Hidden),
        ] {
            assert_eq!(read(target), Err(expected), "{target}");
        }
    }

    proptest! {
        #[test]
        fn nothing_of_a_target_is_lost_or_made_up(target in "(/v1/(agents|flows)/[a-z]{1,3}/[a-z]{1,3})?[/?.%;a-z0-9_]{0,20}") {
            if let Ok(path) = Path::read(target.as_bytes()) {
                prop_assert_eq!([path.prefix, path.rest].concat(), target.as_bytes());
                prop_assert_eq!([b"/v1/", path.key].concat(), path.prefix);
                prop_assert!(matches!(path.rest.first(), None | Some(b'/' | b'?')));
                prop_assert_eq!(path.key.iter().filter(|byte| **byte == b'/').count(), 2);
            }
        }
    }
}
