//! Tools that an agent or flow has by its `toolServers`, beside those of its `tools`.
//!
//! A server lists what it likes, and must not fail those that use it: a tool whose name is taken, and every tool after the most
//! that a workload may have, is left out, and the condition `ToolsResolved` says so. It says too which patterns of `approval.tools`
//! match nothing.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use crds::{Tool, ToolServerRef, ToolSpec, approval::Approval, reason, tool_server_ref};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use meta::{condition, condition_type};

use crate::{
    discovery::{chosen_tools, unmatched_words},
    ports::CacheReader,
    render::header_variables,
};

/// Most tools of an agent or flow.
pub(crate) const MAX_TOOLS: usize = 128;
/// Most sentences of a condition on what is left out.
const FEW: usize = 5;

/// Tool that the spec itself lists.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ListedTool<'a> {
    /// A Tool: its object, and the name that the model knows it by.
    Object(&'a str, &'a str),
    /// A builtin, whose name may contain `_`.
    Builtin(&'a str),
}

impl ListedTool<'_> {
    /// Returns the name that the model knows it by, what has this name, such as `Tool/search`, and the name of its file.
    fn names(self) -> (String, String, String) {
        match self {
            Self::Object(object, name) => (name.to_owned(), format!("Tool/{object}"), object.to_owned()),
            Self::Builtin(name) => (name.to_owned(), format!("the builtin {name}"), name.to_owned()),
        }
    }
}

/// Tools of the `toolServers` of an agent or flow.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerTools {
    /// Tools in the order in which they are rendered, each under the name of its file, which no other tool of the flow has.
    pub(crate) tools: Vec<(String, Arc<Tool>)>,
    /// Tools that are left out, and patterns that match nothing; `None` without `toolServers`.
    pub(crate) left_out: Option<LeftOut>,
}

/// Tools that an agent or flow does not get, as sentences: those of servers, and a web search without a service. Also the patterns of
/// `approval.tools` that match no tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    unmatched: Vec<String>,
    conflicts: Vec<String>,
    undefined: Vec<String>,
    surplus: Vec<String>,
    unserved: Vec<String>,
}

impl LeftOut {
    /// Returns what several flows leave out together, each sentence with the name of its flow; `None` if no flow has
    /// any such tools.
    pub(crate) fn of_flows<'a>(flows: impl Iterator<Item = (&'a str, &'a Option<Self>)>) -> Option<Self> {
        let mut all: Option<Self> = None;
        for (flow, left_out) in flows {
            let Some(left_out) = left_out else { continue };
            let all = all.get_or_insert_default();
            let named = |sentence: &String| format!("flow {flow:?}: {sentence}");
            all.unmatched.extend(left_out.unmatched.iter().map(named));
            all.conflicts.extend(left_out.conflicts.iter().map(named));
            all.undefined.extend(left_out.undefined.iter().map(named));
            all.surplus.extend(left_out.surplus.iter().map(named));
            all.unserved.extend(left_out.unserved.iter().map(named));
        }
        all
    }

    /// Adds the sentence on a tool that the runtime leaves out, if there is one.
    pub(crate) fn add_unserved(left_out: &mut Option<Self>, sentence: Option<String>) {
        if let Some(sentence) = sentence {
            left_out.get_or_insert_default().unserved.push(sentence);
        }
    }

    /// Returns the condition `ToolsResolved`.
    pub(crate) fn condition(&self) -> Condition {
        let reason = if !self.unmatched.is_empty() {
            reason::APPROVAL_UNMATCHED
        } else if !self.conflicts.is_empty() {
            reason::NAME_CONFLICT
        } else if !(self.undefined.is_empty() && self.surplus.is_empty()) {
            reason::TOO_MANY_TOOLS
        } else if !self.unserved.is_empty() {
            reason::NO_SEARCH_SERVICE
        } else {
            return condition(condition_type::TOOLS_RESOLVED, true, "Resolved", "");
        };
        let left_out = self.conflicts.iter().chain(&self.undefined).chain(&self.surplus).chain(&self.unserved);
        let sentences = self.unmatched.iter().chain(left_out);
        condition(condition_type::TOOLS_RESOLVED, false, reason, first_few(sentences))
    }
}

/// Joins the first few sentences, and counts the others.
pub(crate) fn first_few<'a>(sentences: impl IntoIterator<Item = &'a String>) -> String {
    let all: Vec<&str> = sentences.into_iter().map(String::as_str).collect();
    let rest = all.len().saturating_sub(FEW);
    let more = if rest > 0 { format!("; and {rest} more") } else { String::new() };
    all.into_iter().take(FEW).collect::<Vec<_>>().join("; ") + &more
}

/// Returns the tools of these entries. `listed` are the `tools` of the spec: they come first.
pub(crate) fn server_tools<'a>(
    cache: &dyn CacheReader,
    namespace: &str,
    entries: &[ToolServerRef],
    listed: impl IntoIterator<Item = ListedTool<'a>>,
) -> ServerTools {
    if entries.is_empty() {
        return ServerTools::default();
    }
    // By the name for the model: what has it, and its place if it is a server's.
    let (mut taken, mut files) = (BTreeMap::<String, (String, Option<usize>)>::new(), BTreeSet::new());
    for (name, subject, file) in listed.into_iter().map(ListedTool::names) {
        taken.insert(name, (subject, None));
        files.insert(file);
    }
    let (mut tools, mut left_out) = (Vec::<(String, Arc<Tool>)>::new(), LeftOut::default());
    for entry in entries {
        let server = subject(entry);
        let chosen = chosen_tools(cache, namespace, entry);
        if !chosen.unmatched.is_empty() {
            left_out.unmatched.push(unmatched_words(&server, &chosen.unmatched));
        }
        left_out.undefined.extend(chosen.undefined.into_iter().map(|tool| {
            format!("tool {tool:?} of {server} is left out, the server's definitions are too large: let it list fewer")
        }));
        for (tool, mut object) in chosen.tools {
            let count = taken.len();
            match taken.entry(object.spec.name.clone()) {
                Entry::Occupied(first) => {
                    let (subject, place) = first.get();
                    if let Some((_, first)) =
                        place.filter(|_| *subject == server).and_then(|place| tools.get_mut(place))
                    {
                        share_approval(first, object.spec.approval.take());
                    }
                    let sentence = format!("tool {tool:?} of {server} is left out, {subject} has the name: set prefix");
                    left_out.conflicts.push(sentence);
                }
                Entry::Vacant(_) if count >= MAX_TOOLS => left_out.surplus.push(format!(
                    "tool {tool:?} of {server} is left out, there are {MAX_TOOLS} tools already: narrow include"
                )),
                Entry::Vacant(place) => {
                    place.insert((server.clone(), Some(tools.len())));
                    let file = file_name(entry, &tool, &object, &files);
                    files.insert(file.clone());
                    object.metadata.name = Some(file.clone());
                    tools.push((file, Arc::new(object)));
                }
            }
        }
    }
    ServerTools { tools, left_out: Some(left_out) }
}

/// Gives a tool that asks no person the approval of another entry of the same server, so that no call of it is made unasked.
fn share_approval(tool: &mut Arc<Tool>, approval: Option<Approval>) {
    if approval.is_some() && tool.spec.needed_approval().is_none() {
        let asking = ToolSpec { approval, ..tool.spec.clone() };
        if asking.needed_approval().is_some() {
            Arc::make_mut(tool).spec = asking;
        }
    }
}

/// Returns `remotemcpserver "docs"`, with its namespace if the entry names one.
fn subject(entry: &ToolServerRef) -> String {
    let namespace = entry.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{} \"{namespace}{}\"", entry.kind.to_lowercase(), entry.name)
}

/// Returns `<server>_<tool>`, with a digest after it if that is taken.
fn file_name(entry: &ToolServerRef, tool: &str, object: &Tool, taken: &BTreeSet<String>) -> String {
    let name = format!("{}_{}", entry.name, tool_server_ref::readable(tool));
    if !taken.contains(&name) {
        return name;
    }
    let entry = object.spec.call.variables.as_ref().map_or("", |variables| variables.digest.as_str());
    format!("{name}_{}", tool_server_ref::short_digest(&format!("{entry}/{tool}")))
}

/// Gives the variables with the header values of servers names that no other value in the same Pod has. Equal values share one
/// variable.
pub(crate) fn name_variables<'a>(tools: impl Iterator<Item = &'a mut Arc<Tool>>) {
    let mut taken = BTreeMap::new();
    for tool in tools {
        let is_taken = header_variables(&tool.spec)
            .into_iter()
            .any(|variable| taken.get(&variable.name).is_some_and(|known| *known != variable.source));
        if is_taken && tool.spec.call.variables.is_some() {
            let tool = Arc::make_mut(tool);
            tool.spec.call.variables.iter_mut().for_each(|variables| variables.is_unique = true);
        }
        taken.extend(header_variables(&tool.spec).into_iter().map(|variable| (variable.name, variable.source)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(server: &str, digest: &str, header: &str, secret: &str) -> Arc<Tool> {
        let server_ref = serde_json::from_value(json!({ "name": server })).unwrap();
        let mut spec = crds::ToolSpec::of_server("t".into(), server_ref);
        let header = json!({ "name": header, "valueFrom": { "type": "Secret", "name": secret, "key": "k" } });
        spec.call.headers = vec![serde_json::from_value(header).unwrap()];
        let (server, digest) = (server.to_owned(), digest.to_owned());
        spec.call.variables = Some(crds::tool::ServerVariables { server, digest, is_unique: false });
        Arc::new(Tool { metadata: Default::default(), spec, status: None })
    }

    fn names(mut tools: Vec<Arc<Tool>>) -> Vec<String> {
        name_variables(tools.iter_mut());
        tools.iter().flat_map(|tool| header_variables(&tool.spec)).map(|variable| variable.name).collect()
    }

    #[test]
    fn tools_of_one_entry_share_its_variables_and_another_value_has_another_name() {
        let one = || tool("docs", "11111111", "Authorization", "a");
        let other = || tool("docs", "22222222", "Authorization", "b");
        let named = names(vec![one(), one(), other(), other()]);
        let (plain, own) = ("MCP_DOCS_AUTHORIZATION", "MCP_DOCS_AUTHORIZATION_22222222");
        assert_eq!(named, [plain, plain, own, own]);
        assert_eq!(
            names(vec![one(), tool("docs", "22222222", "Authorization", "a")]),
            [plain, plain],
            "an equal value"
        );
        let (left, right) = (tool("a-b", "11111111", "C", "x"), tool("a", "22222222", "B-C", "y"));
        assert_eq!(names(vec![left, right]), ["MCP_A_B_C", "MCP_A_B_C_22222222"], "two servers, one name");
    }

    #[test]
    fn the_condition_names_a_few_and_counts_the_others() {
        let sentences = |what: &str, count: usize| (0..count).map(|n| format!("{what}{n}")).collect::<Vec<_>>();
        let of = |conflicts: usize, surplus: usize| {
            let (conflicts, surplus) = (sentences("c", conflicts), sentences("s", surplus));
            let left_out = LeftOut { conflicts, surplus, ..LeftOut::default() };
            let Condition { status, reason, message, .. } = left_out.condition();
            (status, reason, message)
        };
        let expected =
            |status: &str, reason: &str, message: &str| (status.to_owned(), reason.to_owned(), message.to_owned());
        assert_eq!(of(0, 0), expected("True", "Resolved", ""));
        assert_eq!(of(1, 1), expected("False", "NameConflict", "c0; s0"));
        assert_eq!(of(0, 7), expected("False", "TooManyTools", "s0; s1; s2; s3; s4; and 2 more"));
        let undefined = LeftOut { undefined: sentences("u", 1), ..LeftOut::default() };
        assert_eq!(undefined.condition().reason, "TooManyTools");
        let unmatched = sentences("g", 1);
        let of_b = Some(LeftOut { unmatched, conflicts: sentences("c", 1), ..undefined });
        let flows = [("a", &None), ("b", &of_b)];
        let of_set = LeftOut::of_flows(flows.into_iter()).unwrap().condition();
        assert_eq!(of_set.reason, "ApprovalUnmatched", "what may run unasked comes first");
        assert_eq!(of_set.message, "flow \"b\": g0; flow \"b\": c0; flow \"b\": u0");
        assert_eq!(LeftOut::of_flows([("a", &None)].into_iter()), None);
    }
}
