//! Responses that the relay generates itself.

/// Appends a response with these fields and this body to `out`; `to_head` says whether the request was HEAD.
pub fn write_local_response(
    status: u16,
    fields: &[(&str, &[u8])],
    body: &str,
    to_head: bool,
    close: bool,
    out: &mut Vec<u8>,
) {
    let phrase = http::StatusCode::from_u16(status).ok().and_then(|code| code.canonical_reason()).unwrap_or_default();
    out.extend_from_slice(format!("HTTP/1.1 {status} {phrase}\r\nContent-Length: {}\r\n", body.len()).as_bytes());
    let close: &[(&str, &[u8])] = if close { &[("Connection", b"close")] } else { &[] };
    for (name, value) in fields.iter().chain(close) {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"\r\n");
    if !to_head {
        out.extend_from_slice(body.as_bytes());
    }
}
