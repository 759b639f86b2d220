//! Sessions of MCP servers (revisions of the protocol up to 2025-11-25), which live in one Pod each.
//!
//! The name of a session tells its Pod: towards clients `id` becomes `<tag>.<id>`, and the tag is taken off again on the way
//! in. So every gateway finds the Pod, and none has to remember anything.

use http1::RequestHead;
use sha2::{Digest as _, Sha256};

use super::{local_response::LocalResponse, object::RoutedKind};

/// The field that names a session.
pub(super) const FIELD: &str = "Mcp-Session-Id";
/// The last revision of the protocol with sessions. Revisions are dates, so they compare as texts.
const LAST_SESSION_REVISION: &[u8] = b"2025-11-25";
/// Length of a tag, in hexadecimal digits.
const TAG_LENGTH: usize = 10;

/// What a Pod is named by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PodTag([u8; TAG_LENGTH]);

impl PodTag {
    /// That of the Pod with this uid. Nobody who sees it learns the uid.
    pub(super) fn of(uid: &str) -> Self {
        let mut tag = [0; TAG_LENGTH];
        // It fails only where the lengths do not match.
        let _ = hex::encode_to_slice(&Sha256::digest(uid.as_bytes())[..TAG_LENGTH / 2], &mut tag);
        Self(tag)
    }

    /// As it is written.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A session as its client names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionRef<'a> {
    /// Its Pod.
    pub(super) tag: PodTag,
    /// Its name there.
    pub(super) id: &'a [u8],
}

impl<'a> SessionRef<'a> {
    /// The session of a request to a workload of this kind, if it is in one. Later revisions of the protocol have none and
    /// ignore the field.
    ///
    /// # Errors
    /// Its name is none of ours.
    pub(super) fn read(head: &RequestHead<'a>, kind: RoutedKind) -> Result<Option<Self>, LocalResponse> {
        if kind != RoutedKind::McpServer
            || head.value("mcp-protocol-version").is_some_and(|version| version > LAST_SESSION_REVISION)
        {
            return Ok(None);
        }
        let mut values = head.fields.values(head.bytes, FIELD);
        let Some(value) = values.next() else { return Ok(None) };
        let (tag, id) = value.split_at_checked(TAG_LENGTH).ok_or_else(session_gone)?;
        match (tag.try_into(), id.strip_prefix(b"."), values.next()) {
            (Ok(tag), Some(id), None) if !id.is_empty() => Ok(Some(Self { tag: PodTag(tag), id })),
            _ => Err(session_gone()),
        }
    }
}

/// Nobody has the session any more; clients open another upon it.
pub(super) fn session_gone() -> LocalResponse {
    LocalResponse { rpc: Some(-32001), ..LocalResponse::new(404, "session", "Session not found") }
}

#[cfg(test)]
mod tests {
    use http1::Fields;

    use super::*;

    fn read(fields: &str, kind: RoutedKind) -> Result<Option<(String, String)>, u16> {
        let bytes = format!("POST /mcp HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut known = Fields::default();
        let head = RequestHead::read(bytes.as_bytes(), &mut known).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let read = SessionRef::read(&head, kind).map_err(|refusal| refusal.status)?;
        Ok(read.map(|session| (text(session.tag.as_bytes()), text(session.id))))
    }

    #[test]
    fn a_session_names_its_pod() {
        let tag = PodTag::of("d1c5f1a4-0000-4000-8000-000000000001");
        assert!(tag.as_bytes().iter().all(u8::is_ascii_hexdigit) && tag != PodTag::of("x"));
        let digest = Sha256::digest(b"x");
        assert_eq!(&PodTag::of("x").0[..2], format!("{:02x}", digest[0]).as_bytes());
        let server = |fields: &str| read(fields, RoutedKind::McpServer);
        let found = |tag: &str, id: &str| Ok(Some((tag.to_owned(), id.to_owned())));
        assert_eq!(server("Mcp-Session-Id: 0123456789.a.b\r\n"), found("0123456789", "a.b"));
        assert_eq!(server(""), Ok(None));
        for none in ["Mcp-Session-Id: abc\r\n", "Mcp-Session-Id: 0123456789.\r\n", "Mcp-Session-Id: 0123456789a.b\r\n"]
        {
            assert_eq!(server(none), Err(404), "{none}");
        }
        let twice = "Mcp-Session-Id: 0123456789.a\r\nMcp-Session-Id: 0123456789.b\r\n";
        assert_eq!(server(twice), Err(404));
    }

    #[test]
    fn who_has_no_sessions_is_left_alone() {
        let field = "Mcp-Session-Id: abc\r\n";
        assert_eq!(read(field, RoutedKind::Agent), Ok(None));
        assert_eq!(read(&format!("{field}MCP-Protocol-Version: 2026-07-28\r\n"), RoutedKind::McpServer), Ok(None));
        assert_eq!(read(&format!("{field}MCP-Protocol-Version: 2025-11-25\r\n"), RoutedKind::McpServer), Err(404));
    }
}
