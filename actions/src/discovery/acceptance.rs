//! Acceptance of definitions by a person: the annotation of a server with the digests that were shown, which is removed once the
//! status says that they are in use.

use std::collections::BTreeMap;

use crds::{
    ToolServerStatus, reason,
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

    /// Returns the tools whose accepted definitions are not in use, each with whether the server lists it.
    fn refused(&self, status: &ToolServerStatus) -> Vec<(&str, bool)> {
        let is_in_use = |name: &str, digest: &str| status.tool(name).is_some_and(|tool| tool.digest == digest);
        let is_listed = |name: &str| status.discovered_tools.iter().any(|tool| tool.name == name);
        let refused = self.digests.iter().filter(|(name, digest)| !is_in_use(name, digest));
        refused.map(|(name, _)| (name.as_str(), is_listed(name))).collect()
    }

    /// Removes the annotation, and emits an Event on what could not be accepted: the server has another definition by now, or no such
    /// tool.
    pub(super) fn finish<K: ToolServer>(&self, cx: &Context, server: &mut K) {
        let status = server.tools_status().cloned().unwrap_or_default();
        let refused = self.refused(&status);
        if !refused.is_empty() {
            let key = server.key();
            let place = NamedServer { kind: K::KIND, namespace: None, name: &key.name };
            cx.notes.warn(reason::TOOL_CHANGED, refused_words(&refused, place));
        } else if !self.is_whole {
            let message = format!("annotation {ACCEPT_TOOLS} is to be JSON such as {{\"get_weather\": \"sha256:…\"}}");
            cx.notes.warn("BadAnnotation", message);
        }
        if let Some(annotations) = PhasedObject::meta_mut(server).annotations.as_mut() {
            annotations.remove(ACCEPT_TOOLS);
        }
    }
}

/// Returns why tools were not accepted; `refused`: each with whether the server has it, with another definition.
fn refused_words(refused: &[(&str, bool)], server: NamedServer<'_>) -> String {
    let named = |wanted: bool| {
        let names = refused.iter().filter(|(_, is_listed)| *is_listed == wanted).map(|(name, _)| shown_name(name));
        names.collect::<Vec<_>>().join(", ")
    };
    let (changed, gone) = (named(true), named(false));
    let mut why = Vec::new();
    if !gone.is_empty() {
        why.push(format!("the server has no such tool: {gone}"));
    }
    if !changed.is_empty() {
        why.push(format!("the server has another definition by now: {changed}; {}", server.diff_command()));
    }
    format!("not accepted, because {}", why.join("; "))
}

#[cfg(test)]
mod tests {
    use crds::tool_server::DiscoveredTool;

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

    #[test]
    fn what_is_refused_is_said_with_the_cause() {
        let server = NamedServer { kind: "RemoteMCPServer", namespace: None, name: "x" };
        let acceptance = read(&format!(
            r#"{{"a": "sha256:{one}", "b": "sha256:{one}", "c": "sha256:{one}"}}"#,
            one = "1".repeat(64)
        ));
        let tool = |name: &str, digit: &str| DiscoveredTool {
            name: name.to_owned(),
            digest: digit.repeat(64),
            ..DiscoveredTool::default()
        };
        let status =
            ToolServerStatus { discovered_tools: vec![tool("a", "1"), tool("b", "2")], ..ToolServerStatus::default() };
        let acceptance = acceptance.unwrap();
        let refused = acceptance.refused(&status);
        assert_eq!(refused, [("b", true), ("c", false)]);
        assert_eq!(
            refused_words(&refused, server),
            "not accepted, because the server has no such tool: c; the server has another definition by now: b; read recif \
             tools diff rmcp/x"
        );
        assert_eq!(refused_words(&refused[1..], server), "not accepted, because the server has no such tool: c");
    }
}
