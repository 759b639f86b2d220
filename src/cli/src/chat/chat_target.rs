//! Target of a chat: its parsing, its path at the gateway and the body of its requests.

use crds::ApiKind;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::{
    error::CliError,
    target::{check_name, find_kind},
};

/// Characters that are percent-encoded in a segment of a path: all but the unreserved ones (RFC 3986, section 2.3).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Target of a chat: an agent, a flow, or a flow of a FlowSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChatTarget {
    kind: &'static str,
    /// Name of the object.
    pub(super) name: String,
    /// Name of the flow in a FlowSet.
    flow: Option<String>,
}

impl ChatTarget {
    /// Parses `agent/NAME`, `flow/NAME` or `flowset/NAME/FLOW`.
    ///
    /// # Errors
    /// [`CliError::Usage`], or the error of an unknown kind.
    pub(super) fn parse(text: &str) -> Result<Self, CliError> {
        let mut words = text.splitn(3, '/');
        let (word, name, flow) = (words.next().unwrap_or_default(), words.next(), words.next());
        let kind = find_kind(word).map_err(|error| error.without_kind(name.unwrap_or_default()))?;
        let usage = |text: String| Err(CliError::Usage(text));
        let name = match name {
            Some(name) if !name.is_empty() => name,
            _ => return usage(format!("a name is missing: write {0}/my-{0}", kind.name.to_lowercase())),
        };
        check_name(name)?;
        match (kind.name, flow) {
            ("Agent" | "Flow", None) => {}
            // The names of the flows are known only from the FlowSet itself.
            ("FlowSet", _) => {}
            ("Agent" | "Flow", Some(_)) => {
                return usage(format!("there is nothing behind {name:?}: leave out the rest"));
            }
            _ => {
                return usage(format!(
                    "a {} cannot be talked to: use agent/NAME, flow/NAME or flowset/NAME/FLOW",
                    kind.name
                ));
            }
        }
        let flow = flow.filter(|flow| !flow.is_empty()).map(str::to_owned);
        Ok(Self { kind: kind.name, name: name.to_owned(), flow })
    }

    /// Returns a usage error if no flow of a FlowSet was named. `set` is the FlowSet, if it could be read.
    pub(super) fn lacks_flow(&self, set: Option<&Value>) -> Option<CliError> {
        if self.kind != "FlowSet" || self.flow.is_some() {
            return None;
        }
        let flows = set.and_then(|set| set.pointer("/spec/flows")?.as_array());
        let names: Vec<String> = flows
            .into_iter()
            .flatten()
            .filter_map(|flow| flow["name"].as_str())
            .map(|flow| format!("flowset/{}/{flow}", self.name))
            .collect();
        let names = if names.is_empty() { format!("flowset/{}/my-flow", self.name) } else { names.join(", ") };
        Some(CliError::Usage(format!("name one of its flows: {names}")))
    }

    /// Returns the kind of the object.
    ///
    /// # Errors
    /// The kind is unknown, which would be a defect.
    pub(super) fn kind(&self) -> Result<&'static ApiKind, CliError> {
        find_kind(self.kind)
    }

    /// Reports whether the target is an agent, which has conversations.
    pub(super) fn is_agent(&self) -> bool {
        self.kind == "Agent"
    }

    /// Returns the target as the user types it.
    pub(super) fn display(&self) -> String {
        let flow = self.flow.as_ref().map(|flow| format!("/{flow}")).unwrap_or_default();
        format!("{}/{}{flow}", self.kind.to_lowercase(), self.name)
    }

    /// Returns the path of the target's own root at the gateway, without a slash at the end.
    pub(super) fn root(&self, namespace: &str) -> String {
        format!("/v1/{}s/{namespace}/{}", self.kind.to_lowercase(), self.name)
    }

    /// Returns the path of the target at the gateway.
    pub(super) fn path(&self, namespace: &str) -> String {
        let rest = match (self.kind, &self.flow) {
            ("Agent", _) => "chat".to_owned(),
            (_, Some(flow)) => utf8_percent_encode(flow, SEGMENT).to_string(),
            _ => String::new(),
        };
        format!("{}/{rest}", self.root(namespace))
    }

    /// Returns the body of a request to the target.
    pub(super) fn body(&self, message: &str, conversation: Option<&str>) -> Value {
        if !self.is_agent() {
            let variables = serde_json::from_str::<Value>(message).ok().filter(Value::is_object);
            return variables.unwrap_or_else(|| json!({ "message": message }));
        }
        match conversation {
            Some(id) => json!({ "message": message, "conversation_id": id }),
            None => json!({ "message": message }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Result<String, String> {
        ChatTarget::parse(text).map(|asked| asked.path("ns")).map_err(|error| error.to_string())
    }

    #[test]
    fn every_chat_target_has_a_path_at_the_gateway() {
        assert_eq!(path("agent/a").as_deref(), Ok("/v1/agents/ns/a/chat"));
        assert_eq!(path("ag/a").as_deref(), Ok("/v1/agents/ns/a/chat"));
        assert_eq!(path("flows/greeter").as_deref(), Ok("/v1/flows/ns/greeter/"));
        assert_eq!(path("fls/set/a flow?").as_deref(), Ok("/v1/flowsets/ns/set/a%20flow%3F"));
    }

    #[test]
    fn what_cannot_be_asked_says_what_can() {
        for (text, expected) in [
            ("my-agent", "write agent/my-agent"),
            ("agent", "agent/my-agent"),
            ("agent/", "agent/my-agent"),
            ("agent/a/b", "leave out the rest"),
            ("tool/a", "cannot be talked to"),
            ("agent/A B", "is not a valid name"),
        ] {
            let error = path(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_set_without_a_flow_names_those_that_there_are() {
        let set = json!({ "spec": { "flows": [{ "name": "haiku" }, { "name": "ode" }] } });
        for text in ["flowset/desk", "flowset/desk/"] {
            let asked = ChatTarget::parse(text).unwrap();
            let expected = |set| asked.lacks_flow(set).unwrap().to_string();
            assert_eq!(expected(Some(&set)), "name one of its flows: flowset/desk/haiku, flowset/desk/ode");
            assert_eq!(expected(None), "name one of its flows: flowset/desk/my-flow");
        }
        assert!(ChatTarget::parse("flowset/desk/haiku").unwrap().lacks_flow(Some(&set)).is_none());
        assert!(ChatTarget::parse("agent/a").unwrap().lacks_flow(None).is_none());
    }

    #[test]
    fn an_agent_gets_a_message_and_a_flow_its_variables() {
        let (agent, flow) = (ChatTarget::parse("agent/a").unwrap(), ChatTarget::parse("flow/f").unwrap());
        assert_eq!(agent.body("{\"a\": 1}", None), json!({ "message": "{\"a\": 1}" }));
        assert_eq!(agent.body("hi", Some("c")), json!({ "message": "hi", "conversation_id": "c" }));
        assert_eq!(flow.body("{\"name\": \"Ada\"}", None), json!({ "name": "Ada" }));
        assert_eq!(flow.body("[1]", None), json!({ "message": "[1]" }));
    }
}
