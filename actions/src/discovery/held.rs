//! Words on tools whose definition at the server waits until a person accepts it: for the conditions of the server and of Tools.

use crds::{ApiKind, reason, tool_pins::shown_name, tool_server::DiscoveredTool};

/// Most tools that a sentence names.
const FEW: usize = 5;

/// Server whose tools a sentence is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedServer<'a> {
    /// Kind of the server.
    pub(super) kind: &'a str,
    /// Namespace of the server, if it is not that of the reader.
    pub(super) namespace: Option<&'a str>,
    /// Name of the server.
    pub(super) name: &'a str,
}

impl NamedServer<'_> {
    /// Returns `remotemcpserver "everything"`.
    pub(super) fn subject(&self) -> String {
        let namespace = self.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{} \"{namespace}{}\"", self.kind.to_lowercase(), self.name)
    }

    /// Returns the server as an argument of `recif tools`, such as `rmcp/everything`.
    fn argument(&self) -> String {
        let short = ApiKind::find(self.kind).map_or(self.kind, |kind| kind.short);
        let namespace = self.namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
        format!("{short}/{}{namespace}", self.name)
    }

    /// Returns how to read what waits.
    pub(super) fn diff_command(&self) -> String {
        format!("read recif tools diff {}", self.argument())
    }
}

/// Returns why these tools of a server wait, as a reason and as a sentence without its subject; `None` if none waits.
///
/// It names the command that shows what waits and that prints the one that accepts it, by digests: what is accepted was shown.
pub(super) fn held_words<'a>(
    server: NamedServer<'_>,
    tools: impl IntoIterator<Item = &'a DiscoveredTool>,
) -> Option<(&'static str, String)> {
    let held: Vec<&DiscoveredTool> = tools.into_iter().filter(|tool| tool.held_digest.is_some()).collect();
    let (mut first, mut said) = (None, Vec::new());
    for &why in reason::HELD_TOOL {
        for is_in_use in [true, false] {
            let is_meant =
                |tool: &&DiscoveredTool| tool.held_reason.as_deref() == Some(why) && tool.is_in_use() == is_in_use;
            let group: Vec<&DiscoveredTool> = held.iter().copied().filter(is_meant).collect();
            if group.is_empty() {
                continue;
            }
            let outcome = match (is_in_use, group.len()) {
                (true, 1) => "agents keep the accepted one",
                (true, _) => "agents keep the accepted ones",
                (false, 1) => "agents do not get it",
                (false, _) => "agents do not get them",
            };
            first = first.or(Some(why));
            said.push(format!("{}; {outcome}", happened(why, &group)));
        }
    }
    let them = if held.len() == 1 { "it" } else { "them" };
    let (said, diff) = (said.join("; it "), server.diff_command());
    Some((first?, format!("{said}: {diff}, which prints the command that accepts {them}")))
}

/// Returns what the server did with these tools, which wait for this reason.
fn happened(why: &str, tools: &[&DiscoveredTool]) -> String {
    let named = names(tools);
    match why {
        reason::HIDDEN_TEXT => format!("hides text in {named}"),
        reason::TOOL_CHANGED => {
            let since = tools.iter().filter_map(|tool| tool.held_at.as_ref()).min();
            let since = since.map(|since| format!(" at {}", since.0)).unwrap_or_default();
            format!("changed {named}{since}")
        }
        _ => format!("has the new tool{} {named}", if tools.len() == 1 { "" } else { "s" }),
    }
}

/// Joins the names of the first few tools.
fn names(tools: &[&DiscoveredTool]) -> String {
    let first: Vec<_> = tools.iter().take(FEW).map(|tool| shown_name(&tool.name)).collect();
    match tools.len().saturating_sub(FEW) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    const SERVER: NamedServer<'_> = NamedServer { kind: "RemoteMCPServer", namespace: None, name: "x" };

    fn held(name: &str, reason: &str, digest: &str) -> DiscoveredTool {
        DiscoveredTool {
            name: name.into(),
            digest: digest.into(),
            held_digest: Some("2".into()),
            held_at: Some(Time("2026-11-27T12:04:00Z".parse().unwrap())),
            held_reason: Some(reason.into()),
            ..DiscoveredTool::default()
        }
    }

    #[test]
    fn the_sentence_names_what_waits_and_the_commands() {
        let changed = held("get_weather", "ToolChanged", "1");
        let (reason, words) = held_words(SERVER, [&changed]).unwrap();
        assert_eq!(reason, "ToolChanged");
        assert_eq!(
            format!("{} {words}", SERVER.subject()),
            "remotemcpserver \"x\" changed get_weather at 2026-11-27T12:04:00Z; agents keep the accepted one: read recif \
             tools diff rmcp/x, which prints the command that accepts it"
        );
        let elsewhere = NamedServer { kind: "MCPServer", namespace: Some("team"), name: "y" };
        let new = held("$(id)", "ToolNotAccepted", "");
        assert_eq!(
            held_words(elsewhere, [&new]).unwrap().1,
            "has the new tool '$(id)'; agents do not get it: read recif tools diff mcp/y -n team, which prints the command \
             that accepts it"
        );
    }

    #[test]
    fn hidden_text_is_said_first_and_each_outcome_of_its_own_tools() {
        let names: Vec<String> = (0..7).map(|number| format!("t{number}")).collect();
        let mut all: Vec<_> = names.iter().map(|name| held(name, "ToolNotAccepted", "")).collect();
        all.push(held("sly", "HiddenText", "1"));
        let (reason, words) = held_words(SERVER, &all).unwrap();
        assert_eq!(reason, "HiddenText");
        assert_eq!(
            words,
            "hides text in sly; agents keep the accepted one; it has the new tools t0, t1, t2, t3, t4 and 2 more; agents do \
             not get them: read recif tools diff rmcp/x, which prints the command that accepts them"
        );
        assert_eq!(held_words(SERVER, [&DiscoveredTool::default()]), None);
    }
}
