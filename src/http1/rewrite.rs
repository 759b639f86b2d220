//! A head as it is passed on: copied line by line, but for the lines that belong to one connection.

use super::{Fields, Line, RequestHead, ResponseHead, Version, fields::Kind};

/// Bytes that what is added usually needs.
const ADDED: usize = 192;

/// Writes a head to the end of a buffer.
#[derive(Debug)]
pub struct HeadWriter<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> HeadWriter<'o> {
    /// Begins a request: method, this target, HTTP/1.1.
    pub fn request(head: &RequestHead<'_>, target: &[u8], out: &'o mut Vec<u8>) -> Self {
        out.reserve(head.bytes.len() + ADDED);
        for part in [head.method, b" ", target, b" HTTP/1.1\r\n"] {
            out.extend_from_slice(part);
        }
        Self { out }
    }

    /// Begins a response: HTTP/1.1, status and reason as received.
    pub fn response(head: &ResponseHead<'_>, out: &'o mut Vec<u8>) -> Self {
        out.reserve(head.bytes.len() + ADDED);
        // Without a field, the empty line follows.
        let end = head.fields.lines().first().map_or(head.bytes.len() - 2, |line| line.start as usize);
        out.extend_from_slice(b"HTTP/1.1");
        out.extend_from_slice(head.bytes.get(8..end).unwrap_or_default());
        Self { out }
    }

    /// Copies the fields of a head, but for those of its connection and those that `leave_out` names.
    pub fn copy(self, bytes: &[u8], fields: &Fields, mut leave_out: impl FnMut(&[u8]) -> bool) -> Self {
        let named = fields.has(Kind::Connection);
        let mut drop = |line: &Line| {
            let name = line.name(bytes);
            // Those of one connection (RFC 9110, section 7.6.1). `Transfer-Encoding` stays, because chunks do.
            matches!(line.kind, Kind::Connection | Kind::Upgrade | Kind::HopByHop)
                || (named && is_named_by_connection(bytes, fields, name))
                || leave_out(name)
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
        if !head.fields.has(Kind::Host) {
            self = self.field("Host", if head.host.is_empty() { b"localhost" } else { head.host });
        }
        if head.upgrades
            && let Some(protocol) = head.value("upgrade")
        {
            self = self.field("Connection", "Upgrade").field("Upgrade", protocol);
        }
        self.end();
    }

    /// Ends a final response's head with what belongs to its connection. `close`: it ends with the answer; `version` is the
    /// client's.
    pub fn end_response(self, head: &ResponseHead<'_>, version: Version, close: bool) {
        let upgrade = || head.fields.values(head.bytes, "upgrade").next();
        match (head.status == 101).then(upgrade).flatten() {
            Some(protocol) => self.field("Connection", "Upgrade").field("Upgrade", protocol),
            None if close => self.field("Connection", "close"),
            // A client of HTTP/1.0 that asked to stay must be told that it may.
            None if version == Version::Http10 => self.field("Connection", "keep-alive"),
            None => self,
        }
        .end();
    }

    /// Ends the head.
    pub fn end(self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

fn is_named_by_connection(bytes: &[u8], fields: &Fields, name: &[u8]) -> bool {
    fields.words(bytes, Kind::Connection).any(|word| word.eq_ignore_ascii_case(name))
}
