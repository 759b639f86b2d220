//! Rewriting of heads for forwarding: copies a head line by line, except for its hop-by-hop fields.

use super::{FieldLine, Fields, RequestHead, ResponseHead, Version, fields::FieldKind, request::WEBSOCKET};

/// Bytes reserved for added fields.
const EXTRA_CAPACITY: usize = 192;

/// Hop-by-hop fields (RFC 9110, section 7.6.1). `Transfer-Encoding` is copied, because chunks are forwarded as they
/// are.
const HOP_BY_HOP: u16 =
    FieldKind::Connection.bit() | FieldKind::Upgrade.bit() | FieldKind::Te.bit() | FieldKind::Dropped.bit();
/// Fields that describe chunk framing and trailers.
const CHUNK_FIELDS: u16 = FieldKind::TransferEncoding.bit() | FieldKind::Trailer.bit();
/// Options of `Connection` whose fields are hop-by-hop anyway.
const KNOWN_OPTIONS: [&str; 3] = ["te", "keep-alive", "upgrade"];

/// Writer that appends a head to a buffer.
#[derive(Debug)]
pub struct HeadWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Kinds of fields that are not copied.
    drops: u16,
}

impl<'o> HeadWriter<'o> {
    /// Begins a request with its method, this target and HTTP/1.1. Trailers are dropped, and so is the field that
    /// announces them.
    pub fn request(head: &RequestHead<'_>, target: &[u8], out: &'o mut Vec<u8>) -> Self {
        out.reserve(head.bytes.len() + EXTRA_CAPACITY);
        for part in [head.method, b" ", target, b" HTTP/1.1\r\n"] {
            out.extend_from_slice(part);
        }
        Self { out, drops: HOP_BY_HOP | FieldKind::Trailer.bit() }
    }

    /// Begins a response with HTTP/1.1, and status and reason as received. A client of `version` 1.0 gets no chunks, so
    /// the fields that announce them are dropped.
    pub fn response(head: &ResponseHead<'_>, version: Version, out: &'o mut Vec<u8>) -> Self {
        out.reserve(head.bytes.len() + EXTRA_CAPACITY);
        // Without any field, the empty line follows.
        let end = head.fields.lines().first().map_or(head.bytes.len() - 2, |line| line.start as usize);
        out.extend_from_slice(b"HTTP/1.1");
        out.extend_from_slice(head.bytes.get(8..end).unwrap_or_default());
        Self { out, drops: if version == Version::Http10 { HOP_BY_HOP | CHUNK_FIELDS } else { HOP_BY_HOP } }
    }

    /// Drops the field `Trailer`, unless the client accepts trailers.
    pub fn with_trailers(self, takes_trailers: bool) -> Self {
        let trailer = if takes_trailers { 0 } else { FieldKind::Trailer.bit() };
        Self { drops: self.drops | trailer, ..self }
    }

    /// Copies the fields of a head, except for hop-by-hop fields and those that `leave_out` selects.
    pub fn copy(self, bytes: &[u8], fields: &Fields, mut leave_out: impl FnMut(&[u8]) -> bool) -> Self {
        // Few heads name another field, so that few lines are searched for in `Connection`.
        let named = fields.has(FieldKind::Connection)
            && fields.words(bytes, FieldKind::Connection).any(|word| !is_known_option(word));
        let drops = self.drops;
        let mut drop = |line: &FieldLine| {
            let name = line.name(bytes);
            line.kind.bit() & drops != 0 || (named && is_named_by_connection(bytes, fields, name)) || leave_out(name)
        };
        // Runs of copied lines are appended at once.
        let mut run = fields.lines().first().map_or(0, |line| line.start as usize);
        let mut end = run;
        for line in fields.lines() {
            if drop(line) {
                self.out.extend_from_slice(bytes.get(run..end).unwrap_or_default());
                run = line.end as usize;
            }
            end = line.end as usize;
        }
        self.out.extend_from_slice(bytes.get(run..end).unwrap_or_default());
        self
    }

    /// Appends a field. Name and value must be valid in a head, as those of a parsed head are.
    pub fn field(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        for part in [name.as_bytes(), b": ", value.as_ref(), b"\r\n"] {
            self.out.extend_from_slice(part);
        }
        self
    }

    /// Appends a field whose value is the concatenation of these parts.
    pub fn parts<'v>(self, name: &str, parts: impl IntoIterator<Item = &'v [u8]>) -> Self {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        for part in parts {
            self.out.extend_from_slice(part);
        }
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Ends a request head with its hop-by-hop fields, and with a Host if the head has none, which HTTP/1.0 allows:
    /// from the target, or `localhost`. `TE: trailers` asks for trailers, which a server does not send otherwise (RFC 9110, section
    /// 10.1.4); [`ResponsePolicy::trailer`](super::ResponsePolicy::trailer) gets them.
    pub fn end_request(mut self, head: &RequestHead<'_>) {
        if !head.fields.has(FieldKind::Host) {
            self = self.field("Host", if head.host.is_empty() { b"localhost" } else { head.host });
        }
        if head.upgrades {
            self = self.field("Connection", "Upgrade").field("Upgrade", WEBSOCKET);
        } else if head.may_leave_body() {
            self = self.field("Connection", "close");
        } else {
            self = self.field("TE", "trailers").field("Connection", "TE");
        }
        self.end();
    }

    /// Ends a final response head with its hop-by-hop fields. `close` says that the connection ends with the response;
    /// `version` is the client's.
    pub fn end_response(self, head: &ResponseHead<'_>, version: Version, close: bool) {
        if head.status == 101 {
            self.field("Connection", "Upgrade").field("Upgrade", WEBSOCKET)
        } else if close {
            self.field("Connection", "close")
        } else if version == Version::Http10 {
            // An HTTP/1.0 client that asked for a persistent connection needs a field that says that it gets one.
            self.field("Connection", "keep-alive")
        } else {
            self
        }
        .end();
    }

    /// Ends the head.
    pub fn end(self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

fn is_known_option(word: &[u8]) -> bool {
    KNOWN_OPTIONS.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

fn is_named_by_connection(bytes: &[u8], fields: &Fields, name: &[u8]) -> bool {
    fields.words(bytes, FieldKind::Connection).any(|word| word.eq_ignore_ascii_case(name))
}
