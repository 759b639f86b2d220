//! Request targets (RFC 9112, section 3.2).

use super::{InvalidMessage, fields::table};

/// Splits a target into path and query, and the authority of an absolute target.
pub(super) fn split<'a>(method: &[u8], target: &'a [u8]) -> Result<(&'a [u8], Option<&'a [u8]>), InvalidMessage> {
    if is_origin_form(target) || (target == b"*" && method == b"OPTIONS") {
        return Ok((target, None));
    }
    let scheme = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    let rest = scheme.and_then(|scheme| target.get(scheme.len()..)).ok_or(InvalidMessage::Target)?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.is_empty() || !is_authority(authority) || !(path.is_empty() || is_origin_form(path)) {
        return Err(InvalidMessage::Target);
    }
    Ok((if path.is_empty() { b"/" } else { path }, Some(authority)))
}

/// Reports whether a target is in origin form: a slash, then visible ASCII without a fragment.
fn is_origin_form(target: &[u8]) -> bool {
    // Every byte is checked without a branch, so that the compiler can vectorize.
    let visible = |all, &byte: &u8| all & (byte > b' ') & (byte < 0x7f) & (byte != b'#');
    target.first() == Some(&b'/') && target.iter().fold(true, visible)
}

const AUTHORITY: [bool; 256] = table(b"-._~%!$&'()*+,;=:[]");

/// Reports whether a text has only characters of a host and an optional port: names, IPv4 and bracketed IPv6 addresses.
pub(super) fn is_authority(text: &[u8]) -> bool {
    text.iter().all(|byte| AUTHORITY[*byte as usize])
}

/// Reports whether a segment of the path is `.` or `..`, plain or percent-encoded, so that a server could read another
/// path.
pub(super) fn has_dot_segment(target: &[u8]) -> bool {
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    if memchr::memchr2(b'.', b'%', path).is_none() {
        return false;
    }
    // For some servers an encoded slash or backslash ends a segment.
    let mut segment = Vec::with_capacity(path.len().min(256));
    let mut dots = false;
    let mut at = 0;
    while let Some(&byte) = path.get(at) {
        let (byte, length) = match (byte, path.get(at + 1..at + 3)) {
            (b'%', Some(digits)) => decoded(digits).map_or((byte, 1), |byte| (byte, 3)),
            _ => (byte, 1),
        };
        at += length;
        if matches!(byte, b'/' | b'\\') {
            dots |= is_dots(&segment);
            segment.clear();
        } else {
            segment.push(byte);
        }
    }
    dots || is_dots(&segment)
}

fn is_dots(segment: &[u8]) -> bool {
    // Parameters after a semicolon are not part of the name.
    let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
    matches!(name, b"." | b"..")
}

fn decoded(digits: &[u8]) -> Option<u8> {
    let text = str::from_utf8(digits).ok()?;
    if text.bytes().all(|digit| digit.is_ascii_hexdigit()) { u8::from_str_radix(text, 16).ok() } else { None }
}
