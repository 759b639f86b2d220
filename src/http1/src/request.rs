//! Request heads: parsing and validation.

use super::{
    Fields, Framing, InvalidMessage, Version,
    fields::{FieldKind, is_token},
    names::is_protected,
    target,
};

/// Valid request head. All slices borrow from the bytes that were parsed.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// Whole head, its empty line included.
    pub bytes: &'a [u8],
    /// Header fields.
    pub fields: &'a Fields,
    /// Method, in upper case.
    pub method: &'a [u8],
    /// Target as path and query, or `*`; of an absolute target the part after the authority.
    pub target: &'a [u8],
    /// Host, with its port if it has one; empty for an HTTP/1.0 request without a host.
    pub host: &'a [u8],
    /// HTTP version.
    pub version: Version,
    /// Framing of the body.
    pub framing: Framing,
    /// Set if the client keeps the connection open for another request.
    pub keeps_alive: bool,
    /// Set if the request asks for an upgrade to WebSocket, the only protocol that a relay tunnels: nothing could be
    /// validated in another one. Not set for a request with a body.
    pub upgrades: bool,
}

/// Protocol to which a connection may be upgraded.
pub(super) const WEBSOCKET: &str = "websocket";

impl<'a> RequestHead<'a> {
    /// Parses and validates a complete head ([`super::head_length`]). `fields` is scratch space whose former content is
    /// lost.
    ///
    /// # Errors
    /// A head that RFC 9112 calls invalid or ambiguous.
    ///
    /// # Example
    ///
    /// ```
    /// use http1::{Fields, Framing, InvalidMessage, RequestHead, head_length};
    ///
    /// let received = b"POST /chat HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello";
    /// let length = head_length(received, &mut 0)?.unwrap_or_default();
    /// let mut fields = Fields::default();
    /// let head = RequestHead::read(&received[..length], &mut fields)?;
    /// assert_eq!((head.method, head.target, head.host), (&b"POST"[..], &b"/chat"[..], &b"a.example"[..]));
    /// assert_eq!(head.framing, Framing::Length(5));
    ///
    /// // Two parsers could disagree about the end of this body, so its head is refused.
    /// let smuggled = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
    /// assert_eq!(RequestHead::read(smuggled, &mut fields).err(), Some(InvalidMessage::Coding));
    /// # Ok::<(), InvalidMessage>(())
    /// ```
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

    /// Returns the value of the first field with this name (lower case).
    pub fn value(&self, name: &'a str) -> Option<&'a [u8]> {
        self.fields.values(self.bytes, name).next()
    }

    /// Reports whether the method is HEAD: the response has no body, whatever its head says.
    pub fn is_head(&self) -> bool {
        self.method == b"HEAD"
    }

    /// Reports whether the method is safe (RFC 9110, section 9.2.1), so that the request may be sent twice.
    pub fn is_safe(&self) -> bool {
        matches!(self.method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE")
    }

    /// Reports whether the client accepts trailers (RFC 9110, section 10.1.4).
    pub fn takes_trailers(&self) -> bool {
        self.fields.has(FieldKind::Te)
            && self.fields.words(self.bytes, FieldKind::Te).any(|word| word.eq_ignore_ascii_case(b"trailers"))
    }

    /// Reports whether a server may leave the body unread and take it for the next request, because the method usually
    /// has no body.
    pub fn may_leave_body(&self) -> bool {
        self.framing != Framing::Length(0) && (self.is_safe() || self.method == b"DELETE")
    }
}

/// Reports whether `Upgrade` lists WebSocket, alone or among other protocols.
fn is_websocket(bytes: &[u8], fields: &Fields) -> bool {
    fields.words(bytes, FieldKind::Upgrade).any(|protocol| protocol.eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
}

/// Returns the end of the first line, before its CRLF.
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

/// Returns the only Host, which an absolute target must repeat.
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

/// Determines the framing of the body by RFC 9112, section 6.3, without its leniencies.
fn framing(bytes: &[u8], fields: &Fields, version: Version) -> Result<Framing, InvalidMessage> {
    let coding = transfer_coding(bytes, fields, version)?;
    let length = content_length(bytes, fields)?;
    match (coding, length) {
        (true, Some(_)) => Err(InvalidMessage::Coding),
        (true, None) => Ok(Framing::Chunked),
        (false, length) => Ok(Framing::Length(length.unwrap_or(0))),
    }
}

/// Reports whether the body has the chunked transfer coding.
pub(super) fn transfer_coding(bytes: &[u8], fields: &Fields, version: Version) -> Result<bool, InvalidMessage> {
    match fields.only(bytes, FieldKind::TransferEncoding) {
        Ok(None) => Ok(false),
        Ok(Some(value)) if value.eq_ignore_ascii_case(b"chunked") && version == Version::Http11 => Ok(true),
        _ => Err(InvalidMessage::Coding),
    }
}

/// Parses the only Content-Length.
pub(super) fn content_length(bytes: &[u8], fields: &Fields) -> Result<Option<u64>, InvalidMessage> {
    let Some(value) = fields.only(bytes, FieldKind::ContentLength).map_err(|_| InvalidMessage::Length)? else {
        return Ok(None);
    };
    // Only digits: some parsers accept `+5` and `0x5` as numbers. 18 digits cannot overflow.
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return Err(InvalidMessage::Length);
    }
    Ok(Some(value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))))
}

/// Options of the `Connection` field.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConnectionOptions {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl ConnectionOptions {
    /// Parses the options, and refuses those that name a protected field as hop-by-hop.
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

    /// Reports whether the sender keeps the connection open.
    pub(super) fn keep_alive(self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }
}
