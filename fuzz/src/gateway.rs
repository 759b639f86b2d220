//! Checks how the gateway finds the workload of a request.

use percent_encoding::percent_decode;

use http1::{Fields, RequestHead};

#[path = "../../src/gateway/src/path.rs"]
mod path;

use path::{Path, RouteError};

/// Checks that a target is split without loss, and that a path is hidden if a server may interpret it as one of the
/// sidecar's own. Servers differ in the order in which they decode, split and remove parameters. Input that does not begin
/// with `/` is appended to the path of a workload.
pub fn gateway_path(bytes: &[u8]) {
    let workload: &[u8] = if bytes.starts_with(b"/") { b"" } else { b"/v1/agents/n/a/" };
    let target = [workload, bytes].concat();
    let request = [&b"GET "[..], &target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
    let mut fields = Fields::default();
    let Ok(head) = RequestHead::read(&request, &mut fields) else { return };
    let path = match Path::read(head.target) {
        Ok(path) => path,
        Err(RouteError::Unknown) => return,
        Err(RouteError::Hidden) => return hidden_for_a_reason(head.target),
    };
    let names: Vec<_> = path.key.split(|byte| *byte == b'/').collect();
    assert!(names.len() == 3 && !names[1].is_empty() && !names[2].is_empty());
    if head.target.starts_with(b"/.well-known/") {
        assert!(path.is_metadata() && head.target.starts_with(path.rest));
        return;
    }
    assert_eq!([path.prefix, path.rest].concat(), head.target);
    assert_eq!([b"/v1/", path.key].concat(), path.prefix);
    assert!(matches!(path.rest.first(), None | Some(b'/' | b'?')));
    let rest = path.rest.split(|byte| *byte == b'?').next().unwrap_or_default();
    assert!(!readings(rest).iter().any(|read| is_own(read)), "a server may read {}", rest.escape_ascii());
}

/// Checks that a path without parameters is hidden only if a server may interpret it as one of the sidecar's own.
fn hidden_for_a_reason(target: &[u8]) {
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let path = path.strip_prefix(b"/.well-known/oauth-protected-resource").unwrap_or(path);
    let rest = path.split(|byte| *byte == b'/').skip(5).collect::<Vec<_>>().join(&b'/');
    let has_parameters = percent_decode(&rest).any(|byte| byte == b';');
    assert!(has_parameters || readings(&rest).iter().any(|read| is_own(read)), "{}", target.escape_ascii());
}

fn is_own(path: &[Vec<u8>]) -> bool {
    path.first().is_some_and(|first| first == b"_recif") || path == [b"metrics"]
}

/// Returns the path in the ways in which servers may interpret it: as segments in lower case, without empty ones.
fn readings(path: &[u8]) -> [Vec<Vec<u8>>; 3] {
    [decoded_first(path), cut_first(path, b"/"), cut_first(path, b"/\\")]
}

/// Returns the path of a server that decodes, then splits, then removes parameters.
fn decoded_first(path: &[u8]) -> Vec<Vec<u8>> {
    split(&percent_decode(path).collect::<Vec<_>>())
}

/// Returns the path of a server that splits at these bytes, then removes parameters, then decodes.
fn cut_first(path: &[u8], slashes: &[u8]) -> Vec<Vec<u8>> {
    let segments = path.split(|byte| slashes.contains(byte)).map(without_parameters);
    let decoded: Vec<_> = segments.map(|segment| percent_decode(segment).collect::<Vec<_>>()).collect();
    split(&decoded.join(&b'/'))
}

fn split(path: &[u8]) -> Vec<Vec<u8>> {
    let segments = path.split(|byte| matches!(byte, b'/' | b'\\')).map(without_parameters);
    segments.filter(|segment| !segment.is_empty()).map(<[u8]>::to_ascii_lowercase).collect()
}

fn without_parameters(segment: &[u8]) -> &[u8] {
    segment.split(|byte| *byte == b';').next().unwrap_or_default()
}
