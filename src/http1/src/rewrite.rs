//! A head as it is passed on: copied line by line, but for the lines that belong to one connection.

use super::{FieldLine, Fields, RequestHead, ResponseHead, Version, fields::FieldKind, request::WEBSOCKET};

/// Bytes that what is added usually needs.
const EXTRA_CAPACITY: usize = 192;

/// Those of one connection (RFC 9110, section 7.6.1). `Transfer-Encoding` stays, because chunks do.
const HOP_BY_HOP: u8 = FieldKind::Connection.bit() | FieldKind::Upgrade.bit() | FieldKind::Dropped.bit();
/// What says how a body is framed, and what follows it.
const CHUNK_FIELDS: u8 = FieldKind::TransferEncoding.bit() | FieldKind::Trailer.bit();

/// Writes a head to the end of a buffer.
#[derive(Debug)]
pub struct HeadWriter<'o> {
    out: &'o mut Vec<u8>,
    /// The kinds of fields that are not copied.
    drops: u8,
}

impl<'o> HeadWriter<'o> {
    /// Begins a request: method, this target, HTTP/1.1. Its trailers stay behind, and so does the field that announces them.
    pub fn request(head: &RequestHead<'_>, target: &[u8], out: &'o mut Vec<u8>) -> Self {
        out.reserve(head.bytes.len() + EXTRA_CAPACITY);
        for part in [head.method, b" ", target, b" HTTP/1.1\r\n"] {
            out.extend_from_slice(part);
        }
        Self { out, drops: HOP_BY_HOP | FieldKind::Trailer.bit() }
    }

    /// Begins a response: HTTP/1.1, status and reason as received. A client of `version` 1.0 gets no chunks and is told of none.
    pub fn response(head: &ResponseHead<'_>, version: Version, out: &'o mut Vec<u8>) -> Self {
        out.reserve(head.bytes.len() + EXTRA_CAPACITY);
        // Without a field, the empty line follows.
        let end = head.fields.lines().first().map_or(head.bytes.len() - 2, |line| line.start as usize);
        out.extend_from_slice(b"HTTP/1.1");
        out.extend_from_slice(head.bytes.get(8..end).unwrap_or_default());
        Self { out, drops: if version == Version::Http10 { HOP_BY_HOP | CHUNK_FIELDS } else { HOP_BY_HOP } }
    }

    /// Copies the fields of a head, but for those of its connection and those that `leave_out` names.
    pub fn copy(self, bytes: &[u8], fields: &Fields, mut leave_out: impl FnMut(&[u8]) -> bool) -> Self {
        let named = fields.has(FieldKind::Connection);
        let drops = self.drops;
        let mut drop = |line: &FieldLine| {
            let name = line.name(bytes);
            line.kind.bit() & drops != 0 || (named && is_named_by_connection(bytes, fields, name)) || leave_out(name)
        };
        // Runs of lines that stay are copied at once.
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

    /// Adds a field. Name and value must be fit for a head; what comes from a received head is.
    pub fn field(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        for part in [name.as_bytes(), b": ", value.as_ref(), b"\r\n"] {
            self.out.extend_from_slice(part);
        }
        self
    }

    /// Adds a field whose value is made of these parts.
    pub fn parts<'v>(self, name: &str, parts: impl IntoIterator<Item = &'v [u8]>) -> Self {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        for part in parts {
            self.out.extend_from_slice(part);
        }
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Ends a request's head with what belongs to its connection, and with the host if only the target or nobody named it, as
    /// HTTP/1.0 may.
    pub fn end_request(mut self, head: &RequestHead<'_>) {
        if !head.fields.has(FieldKind::Host) {
            self = self.field("Host", if head.host.is_empty() { b"localhost" } else { head.host });
        }
        if head.upgrades {
            self = self.field("Connection", "Upgrade").field("Upgrade", WEBSOCKET);
        } else if head.may_leave_body() {
            self = self.field("Connection", "close");
        }
        self.end();
    }

    /// Ends a final response's head with what belongs to its connection. `close`: it ends with the answer; `version` is the
    /// client's.
    pub fn end_response(self, head: &ResponseHead<'_>, version: Version, close: bool) {
        if head.status == 101 {
            self.field("Connection", "Upgrade").field("Upgrade", WEBSOCKET)
        } else if close {
            self.field("Connection", "close")
        } else if version == Version::Http10 {
            // A client of HTTP/1.0 that asked to stay must be told that it may.
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

fn is_named_by_connection(bytes: &[u8], fields: &Fields, name: &[u8]) -> bool {
    fields.words(bytes, FieldKind::Connection).any(|word| word.eq_ignore_ascii_case(name))
}
