//! Acceptance of definitions by a person: the annotation of a server with the digests that were shown, which is removed once the
//! status says that they are in use.

use std::collections::BTreeMap;

use crds::{
    reason,
    tool_pins::{ACCEPT_TOOLS, digest_hex, shown_name},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::PhasedObject;

use super::{ToolServer, held::NamedServer};
use crate::kind::Context;

/// Definitions that a person accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acceptance {
    /// Digests (hex), by the name of the tool.
    pub(super) digests: BTreeMap<String, String>,
    /// False if a part of the annotation cannot be read.
    is_whole: bool,
}

impl Acceptance {
    /// Reads the annotation; `None` if there is none.
    pub(super) fn read(meta: &ObjectMeta) -> Option<Self> {
        let text = meta.annotations.as_ref()?.get(ACCEPT_TOOLS)?;
        let given: Option<BTreeMap<String, String>> = serde_json::from_str(text).ok();
        let hex = |(name, shown): (&String, &String)| Some((name.clone(), digest_hex(shown)?.to_owned()));
        let digests: BTreeMap<_, _> = given.iter().flatten().filter_map(hex).collect();
        let is_whole = given.is_some_and(|given| given.len() == digests.len());
        Some(Self { digests, is_whole })
    }

    /// Removes the annotation, and emits an Event on what could not be accepted: the server has another definition by now.
    pub(super) fn finish<K: ToolServer>(&self, cx: &Context, server: &mut K) {
        let status = server.tools_status().cloned().unwrap_or_default();
        let is_in_use = |name: &str, digest: &str| status.tool(name).is_some_and(|tool| tool.digest == digest);
        let refused = self.digests.iter().filter(|(name, digest)| !is_in_use(name, digest));
        let refused: Vec<_> = refused.map(|(name, _)| shown_name(name)).collect();
        let key = server.key();
        let place = NamedServer { kind: K::KIND, namespace: None, name: &key.name };
        if !refused.is_empty() {
            let message = format!(
                "not accepted, for the server has another definition by now: {}; {}",
                refused.join(", "),
                place.diff_command()
            );
            cx.notes.warn(reason::TOOL_CHANGED, message);
        } else if !self.is_whole {
            let message = format!("annotation {ACCEPT_TOOLS} is to be JSON such as {{\"get_weather\": \"sha256:…\"}}");
            cx.notes.warn("BadAnnotation", message);
        }
        if let Some(annotations) = PhasedObject::meta_mut(server).annotations.as_mut() {
            annotations.remove(ACCEPT_TOOLS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Option<Acceptance> {
        let annotations = BTreeMap::from([(ACCEPT_TOOLS.to_owned(), value.to_owned())]);
        Acceptance::read(&ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() })
    }

    #[test]
    fn what_can_be_read_of_the_annotation_counts() {
        let hex = "a".repeat(64);
        let both = read(&format!(r#"{{"a": "sha256:{hex}", "b": "{hex}"}}"#)).unwrap();
        assert_eq!((both.digests, both.is_whole), (BTreeMap::from([("a".to_owned(), hex.clone())]), false));
        assert!(read(&format!(r#"{{"a": "sha256:{hex}"}}"#)).unwrap().is_whole);
        for other in ["", "[]", "get_weather", r#"{"a": 1}"#] {
            let read = read(other).unwrap();
            assert!(read.digests.is_empty() && !read.is_whole, "{other}");
        }
        assert_eq!(Acceptance::read(&ObjectMeta::default()), None);
    }
}
