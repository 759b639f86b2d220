//! The head of a request, judged.

use super::{
    Fields, Framing, InvalidMessage, Version,
    fields::{FieldKind, is_token},
    names::is_protected,
    target,
};

/// The head of a request that may be passed on. All slices are of the bytes it was read from.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// The whole head, its empty line included.
    pub bytes: &'a [u8],
    /// Its fields.
    pub fields: &'a Fields,
    /// The method, in upper case.
    pub method: &'a [u8],
    /// The target as path and query, or `*`; of an absolute target the part after the authority.
    pub target: &'a [u8],
    /// The host, with its port if it has one; empty for an HTTP/1.0 request without.
    pub host: &'a [u8],
    /// The version.
    pub version: Version,
    /// How long its body is.
    pub framing: Framing,
    /// Whether the sender keeps the connection open for another request.
    pub keeps_alive: bool,
    /// Whether it asks for a WebSocket, the only other protocol that a relay lets through: of whatever else is spoken
    /// afterwards nothing could be judged. With a body it does not.
    pub upgrades: bool,
}

/// The protocol that may be changed to.
pub(super) const WEBSOCKET: &str = "websocket";

impl<'a> RequestHead<'a> {
    /// Judges a complete head ([`super::head_length`]). `fields` is scratch space whose former content is lost.
    ///
    /// # Errors
    /// Whatever RFC 9112 calls invalid or ambiguous.
    pub fn read(bytes: &'a [u8], fields: &'a mut Fields) -> Result<Self, InvalidMessage> {
        let end = line_end(bytes)?;
        let (method, target, version) = start_line(&bytes[..end])?;
        let (target, authority) = target::split(method, target)?;
        fields.read(bytes, end + 2)?;
        let fields = &*fields;
        if target::has_dot_segment(target) {
            return Err(InvalidMessage::DotSegment);
        }
        let host = host(bytes, fields, version, authority)?;
        let framing = framing(bytes, fields, version)?;
        let options = ConnectionOptions::read(bytes, fields)?;
        Ok(Self {
            bytes,
            fields,
            method,
            target,
            host,
            version,
            framing,
            keeps_alive: options.keep_alive(version),
            upgrades: version == Version::Http11
                && options.upgrade
                && framing == Framing::Length(0)
                && is_websocket(bytes, fields),
        })
    }

    /// The value of the first field of this name (lower case).
    pub fn value(&self, name: &'a str) -> Option<&'a [u8]> {
        self.fields.values(self.bytes, name).next()
    }

    /// Whether an answer to it has no body, whatever its head says.
    pub fn is_head(&self) -> bool {
        self.method == b"HEAD"
    }

    /// Whether it may be sent twice (RFC 9110, section 9.2.1).
    pub fn is_safe(&self) -> bool {
        matches!(self.method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE")
    }

    /// Whether it has a body that a server may leave unread and take for its next request, because the method usually has none.
    pub fn may_leave_body(&self) -> bool {
        self.framing != Framing::Length(0) && (self.is_safe() || self.method == b"DELETE")
    }
}

/// Whether `Upgrade` names a WebSocket, alone or among others.
fn is_websocket(bytes: &[u8], fields: &Fields) -> bool {
    fields.words(bytes, FieldKind::Upgrade).any(|protocol| protocol.eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
}

/// Where the first line ends, before its CRLF.
pub(super) fn line_end(bytes: &[u8]) -> Result<usize, InvalidMessage> {
    let end = memchr::memchr2(b'\r', b'\n', bytes).ok_or(InvalidMessage::LineEnd)?;
    if bytes[end..].starts_with(b"\r\n") { Ok(end) } else { Err(InvalidMessage::LineEnd) }
}

fn start_line(line: &[u8]) -> Result<(&[u8], &[u8], Version), InvalidMessage> {
    let first = memchr::memchr(b' ', line).ok_or(InvalidMessage::StartLine)?;
    let second = first + 1 + memchr::memchr(b' ', &line[first + 1..]).ok_or(InvalidMessage::StartLine)?;
    let (method, target, version) = (&line[..first], &line[first + 1..second], &line[second + 1..]);
    if target.is_empty() || version.contains(&b' ') {
        return Err(InvalidMessage::StartLine);
    }
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte) && !byte.is_ascii_lowercase()) {
        return Err(InvalidMessage::Method);
    }
    if method == b"CONNECT" {
        return Err(InvalidMessage::Connect);
    }
    let version = match version {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        other if other.starts_with(b"HTTP/") => return Err(InvalidMessage::Version),
        _ => return Err(InvalidMessage::StartLine),
    };
    Ok((method, target, version))
}

/// The one Host, which an absolute target must repeat.
fn host<'a>(
    bytes: &'a [u8],
    fields: &'a Fields,
    version: Version,
    authority: Option<&'a [u8]>,
) -> Result<&'a [u8], InvalidMessage> {
    let host = match (fields.only(bytes, FieldKind::Host), version) {
        (Ok(Some(host)), _) => host,
        (Ok(None), Version::Http10) => return Ok(authority.unwrap_or_default()),
        _ => return Err(InvalidMessage::Host),
    };
    let differs = authority.is_some_and(|authority| !authority.eq_ignore_ascii_case(host));
    if differs || !target::is_authority(host) { Err(InvalidMessage::Host) } else { Ok(host) }
}

/// How long the body is, by RFC 9112, section 6.3, without its leniencies.
fn framing(bytes: &[u8], fields: &Fields, version: Version) -> Result<Framing, InvalidMessage> {
    let coding = transfer_coding(bytes, fields, version)?;
    let length = content_length(bytes, fields)?;
    match (coding, length) {
        (true, Some(_)) => Err(InvalidMessage::Coding),
        (true, None) => Ok(Framing::Chunked),
        (false, length) => Ok(Framing::Length(length.unwrap_or(0))),
    }
}

/// Whether the body is chunked.
pub(super) fn transfer_coding(bytes: &[u8], fields: &Fields, version: Version) -> Result<bool, InvalidMessage> {
    match fields.only(bytes, FieldKind::TransferEncoding) {
        Ok(None) => Ok(false),
        Ok(Some(value)) if value.eq_ignore_ascii_case(b"chunked") && version == Version::Http11 => Ok(true),
        _ => Err(InvalidMessage::Coding),
    }
}

/// The one Content-Length.
pub(super) fn content_length(bytes: &[u8], fields: &Fields) -> Result<Option<u64>, InvalidMessage> {
    let Some(value) = fields.only(bytes, FieldKind::ContentLength).map_err(|_| InvalidMessage::Length)? else {
        return Ok(None);
    };
    // Only digits: `+5` and `0x5` are numbers to some. 18 of them stay far from overflow.
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return Err(InvalidMessage::Length);
    }
    Ok(Some(value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))))
}

/// What `Connection` says.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConnectionOptions {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl ConnectionOptions {
    /// Refuses what may not be declared to be for one connection.
    pub(super) fn read(bytes: &[u8], fields: &Fields) -> Result<Self, InvalidMessage> {
        let mut options = Self::default();
        if !fields.has(FieldKind::Connection) {
            return Ok(options);
        }
        for word in fields.words(bytes, FieldKind::Connection) {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            options.close |= is("close");
            options.keep_alive |= is("keep-alive");
            options.upgrade |= is("upgrade");
            if is_protected(word) {
                return Err(InvalidMessage::ConnectionNames);
            }
        }
        Ok(options)
    }

    /// Whether the sender keeps the connection open.
    pub(super) fn keep_alive(self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }
}
