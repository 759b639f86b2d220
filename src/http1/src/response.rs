//! Response heads: parsing and validation.

use super::{
    Fields, Framing, InvalidMessage, Version,
    fields::FieldKind,
    request::{ConnectionOptions, WEBSOCKET, content_length, line_end, transfer_coding},
};

/// Valid response head.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'a> {
    /// Whole head, its empty line included.
    pub bytes: &'a [u8],
    /// Header fields.
    pub fields: &'a Fields,
    /// Status code, 100 to 599.
    pub status: u16,
    /// HTTP version.
    pub version: Version,
    /// Framing of the body.
    pub framing: Framing,
    /// Set if the server keeps the connection open afterwards.
    pub keeps_alive: bool,
}

impl<'a> ResponseHead<'a> {
    /// Parses and validates a complete head; `to_head` says whether it responds to a HEAD request.
    ///
    /// # Errors
    /// A head that RFC 9112 calls invalid or ambiguous.
    pub fn read(bytes: &'a [u8], fields: &'a mut Fields, to_head: bool) -> Result<Self, InvalidMessage> {
        let end = line_end(bytes)?;
        let (version, status) = status_line(&bytes[..end])?;
        fields.read(bytes, end + 2)?;
        let fields = &*fields;
        let chunked = transfer_coding(bytes, fields, version)?;
        let length = content_length(bytes, fields)?;
        if chunked && length.is_some() {
            return Err(InvalidMessage::Coding);
        }
        // Such a response has no body, whatever its head says (RFC 9112, section 6.3, rule 1).
        let bodiless = to_head || status < 200 || matches!(status, 204 | 304);
        let framing = match (chunked, length) {
            _ if bodiless => Framing::Length(0),
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::Close,
        };
        let keeps_alive = ConnectionOptions::read(bytes, fields)?.keep_alive(version) && framing != Framing::Close;
        Ok(Self { bytes, fields, status, version, framing, keeps_alive })
    }

    /// Reports whether the response switches to WebSocket, and to no other protocol.
    pub(super) fn opens_websocket(&self) -> bool {
        let mut protocols = self.fields.words(self.bytes, FieldKind::Upgrade);
        let is_ours = protocols.next().is_some_and(|protocol| protocol.eq_ignore_ascii_case(WEBSOCKET.as_bytes()));
        self.status == 101 && is_ours && protocols.next().is_none()
    }

    /// Reports whether another head follows: 1xx except 101, after which another protocol is spoken.
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }
}

fn status_line(line: &[u8]) -> Result<(Version, u16), InvalidMessage> {
    let version = match line.get(..9) {
        Some(b"HTTP/1.1 ") => Version::Http11,
        Some(b"HTTP/1.0 ") => Version::Http10,
        _ => return Err(InvalidMessage::Version),
    };
    let (code, reason) = line[9..].split_at_checked(3).ok_or(InvalidMessage::Status)?;
    if !code.iter().all(u8::is_ascii_digit) || !matches!(code[0], b'1'..=b'5') {
        return Err(InvalidMessage::Status);
    }
    // Some servers omit the reason phrase together with its space.
    if !matches!(reason.first(), None | Some(b' '))
        || reason.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t')
    {
        return Err(InvalidMessage::Status);
    }
    Ok((version, code.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'))))
}
