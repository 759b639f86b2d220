//! Session affinity (sticky sessions) for MCP servers: a session, in revisions of the protocol up to 2025-11-25, lives
//! in one Pod.
//!
//! The affinity is stateless: towards clients the session id `id` becomes `<tag>.<id>`, where the tag names the Pod,
//! and the tag is removed again from requests. So every gateway finds the Pod, and none has to remember a session.

use http1::RequestHead;
use sha2::{Digest as _, Sha256};

use super::{local_response::LocalResponse, object::RoutedKind};

/// Header field with the session id.
pub(super) const FIELD: &str = "Mcp-Session-Id";
/// Last revision of the protocol that has sessions. Revisions are dates, so they compare as text.
const LAST_SESSION_REVISION: &[u8] = b"2025-11-25";
/// Length of a tag, in hexadecimal digits.
const TAG_LENGTH: usize = 10;

/// Tag of a Pod in session ids: a truncated hash of the Pod's uid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PodTag([u8; TAG_LENGTH]);

impl PodTag {
    /// Derives the tag of the Pod with this uid. The tag does not reveal the uid.
    pub(super) fn of(uid: &str) -> Self {
        let mut tag = [0; TAG_LENGTH];
        // Fails only if the lengths do not match.
        let _ = hex::encode_to_slice(&Sha256::digest(uid.as_bytes())[..TAG_LENGTH / 2], &mut tag);
        Self(tag)
    }

    /// Returns the tag as written in session ids.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Session id as a client sends it, split into the Pod's tag and the Pod's own id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionRef<'a> {
    /// Tag of the Pod that holds the session.
    pub(super) tag: PodTag,
    /// Session id within that Pod.
    pub(super) id: &'a [u8],
}

impl<'a> SessionRef<'a> {
    /// Reads the session of a request to a workload of this kind. Returns `None` without one, and for later revisions
    /// of the protocol, which have no sessions and ignore the field.
    ///
    /// # Errors
    /// The session id was not issued by a gateway.
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

/// Creates the response for a session that no Pod holds any more; clients open a new one upon it.
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
