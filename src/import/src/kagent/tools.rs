//! Tools of an agent: those of servers become `toolServers`, agents become Tools.

use serde_json::{Map, Value};

use super::{agent_tool, mcp_server, service, split_reference, tool_server};
use crate::{
    env::{set, set_list},
    fields::Fields,
    headers,
    input::place,
    source::Source,
    subject::Subject,
};

/// Most entries of `toolServers`.
const MOST_SERVERS: usize = 32;
/// Most names in `include` and in `exclude`.
const MOST_NAMES: usize = 64;

/// Tools of an agent.
#[derive(Debug, Default)]
pub(super) struct ParsedTools {
    servers: Vec<Server>,
    tools: Vec<String>,
}

/// Tools of one server.
#[derive(Debug, PartialEq)]
struct Server {
    kind: &'static str,
    namespace: Option<String>,
    name: String,
    headers: Vec<Value>,
    /// Names of headers of the caller.
    forwarded: Vec<String>,
    /// Names of tools; empty: all.
    include: Vec<String>,
    /// Names of tools that need approval, each with the field that says so.
    exclude: Vec<(String, String)>,
}

/// Returns the names of the tools that an agent of kagent lists.
pub(super) fn names(fields: &Fields<'_>) -> Vec<String> {
    let names = fields.items("tools").iter().filter_map(|tool| tool.pointer("/mcpServer/toolNames")?.as_array());
    names.flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl ParsedTools {
    /// Reads the tools of an agent.
    pub(super) fn read(subject: &Subject<'_>, fields: &Fields<'_>) -> Self {
        let mut tools = Self::default();
        for tool in fields.parts("tools") {
            // kagent goes by the member that is set, and so does this.
            tool.value("type");
            let (server, agent) = (tool.part("mcpServer"), tool.part("agent"));
            match (server.is_empty(), agent.is_empty()) {
                (false, _) => {
                    agent.ignore();
                    let mut headers = headers::from(subject, &tool, "headersFrom");
                    headers::clip(subject, &tool.path("headersFrom"), &mut headers, headers::MOST_OF_TOOL);
                    tools.add_server(subject, &server, headers);
                }
                (true, false) => {
                    let made = agent_tool::tool(subject, &tool, &agent);
                    tools.tools.extend(made.filter(|name| !tools.tools.contains(name)));
                }
                (true, true) => {
                    tool.value("headersFrom");
                    subject.notes.skip(tool.own_path(), "names neither a server nor an agent");
                }
            }
        }
        tools
    }

    /// Sets `toolServers` and `tools`.
    pub(super) fn set(self, subject: &Subject<'_>, field: &str, ours: &mut Map<String, Value>) {
        let mut entries = Vec::new();
        for server in &self.servers {
            let made = server.entries();
            let is_there = made.as_ref().is_some_and(|entries| !entries.is_empty());
            for (tool, field) in &server.exclude {
                // Our `approval` needs a database or a single replica: whether an agent can have it is for its author to say.
                let remedy = if is_there {
                    "take it out of exclude".to_owned()
                } else {
                    format!("add {} {} to toolServers", server.kind, server.name)
                };
                let ask = format!("set approval: {{when: Always, tools: [{tool}]}} to ask");
                subject.notes.loss(field, format!("{tool} needs approval and is left out; {remedy}, and {ask}"));
            }
            match made {
                Some(more) => entries.extend(more),
                None => {
                    let text = format!("more than {MOST_NAMES} tools of {} need approval; it is left out", server.name);
                    subject.notes.loss(field, text);
                }
            }
        }
        if entries.len() > MOST_SERVERS {
            subject.notes.loss(field, format!("at most {MOST_SERVERS} servers; the others are left out"));
            entries.truncate(MOST_SERVERS);
        }
        set_list(ours, "toolServers", entries);
        set_list(ours, "tools", self.tools.into_iter().map(Value::from).collect());
    }

    fn add_server(&mut self, subject: &Subject<'_>, part: &Fields<'_>, headers: Vec<Value>) {
        let field = part.own_path();
        part.text("apiGroup");
        let include: Vec<String> = part.texts("toolNames").into_iter().map(str::to_owned).collect();
        let excluded = part.path("requireApproval");
        let exclude =
            part.texts("requireApproval").into_iter().map(|tool| (tool.to_owned(), excluded.clone())).collect();
        let forwarded = headers::forwarded(subject, part, "allowedHeaders");
        let Some(Found { kind, namespace, name, object }) = found(subject, part) else { return };
        let server = Server { kind, namespace, name, headers, forwarded, include, exclude };
        let is_same = |known: &Server| {
            (known.kind, &known.namespace, &known.name, &known.headers, &known.forwarded)
                == (server.kind, &server.namespace, &server.name, &server.headers, &server.forwarded)
        };
        let at = self.servers.iter().position(is_same).unwrap_or(self.servers.len());
        if let Some(object) = object {
            tell_unreadable(subject, field, object, &server, at);
        }
        match self.servers.get_mut(at) {
            Some(known) => known.join(server),
            None => self.servers.push(server),
        }
    }
}

impl Server {
    fn join(&mut self, other: Self) {
        if self.include.is_empty() || other.include.is_empty() {
            self.include.clear();
        } else {
            self.include.extend(other.include);
        }
        self.exclude.extend(other.exclude);
    }

    /// Returns the entries for the server: several if it has more names than one takes, and none if nothing of it may be
    /// called. `None` if what must not be called is more than an entry can name.
    fn entries(&self) -> Option<Vec<Value>> {
        let excluded: Vec<String> = self.exclude.iter().map(|(tool, _)| tool.clone()).collect();
        let (mut include, mut exclude) = (once(&self.include), once(&excluded));
        if !include.is_empty() && include.iter().all(|name| exclude.contains(name)) {
            return Some(Vec::new());
        }
        if exclude.len() > MOST_NAMES {
            if include.is_empty() {
                return None;
            }
            include.retain(|name| !exclude.contains(name));
            exclude.clear();
        }
        let parts: Vec<&[String]> = if include.is_empty() { vec![&[]] } else { include.chunks(MOST_NAMES).collect() };
        let entry = |include: &[String]| {
            let mut entry = Map::new();
            set(&mut entry, "kind", Some(self.kind));
            set(&mut entry, "namespace", self.namespace.clone());
            set(&mut entry, "name", Some(self.name.clone()));
            let texts = |names: &[String]| names.iter().cloned().map(Value::from).collect();
            set_list(&mut entry, "include", texts(include));
            set_list(&mut entry, "exclude", texts(&exclude));
            set_list(&mut entry, "headersFrom", self.headers.clone());
            set_list(&mut entry, "forwardHeaders", texts(&self.forwarded));
            Value::Object(entry)
        };
        Some(parts.into_iter().map(entry).collect())
    }
}

/// Returns texts without empty ones, each once.
fn once(texts: &[String]) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for text in texts.iter().filter(|text| !text.is_empty()) {
        if !kept.contains(text) {
            kept.push(text.clone());
        }
    }
    kept
}

/// Server that a tool names, as ours has it.
struct Found<'w> {
    kind: &'static str,
    namespace: Option<String>,
    name: String,
    /// The server in the input.
    object: Option<&'w Value>,
}

/// Returns the server that a tool names.
fn found<'w>(subject: &Subject<'w>, part: &Fields<'_>) -> Option<Found<'w>> {
    let (field, here) = (part.own_path(), subject.namespace());
    let older = part.has("toolServer").then(|| part.text("toolServer")).flatten();
    let (kind, given) = (part.text("kind"), part.text("namespace"));
    let Some(name) = part.text("name").or(older) else {
        subject.notes.skip(field, "names no server");
        return None;
    };
    let (namespace, name) = split_reference(name, given.unwrap_or(here));
    let (source_kind, kind) = match (older.is_some(), kind) {
        (true, _) => ("ToolServer", tool_server_kind(subject, namespace, name)),
        (false, Some("RemoteMCPServer")) => ("RemoteMCPServer", "RemoteMCPServer"),
        (false, Some("MCPServer") | None) => ("MCPServer", "MCPServer"),
        (false, Some("Service")) => {
            let name = service::server(subject, field, namespace, name)?;
            return Some(Found { kind: "RemoteMCPServer", namespace: None, name, object: None });
        }
        (false, Some(_)) => {
            subject.notes.skip(&part.path("kind"), "is no kind of server");
            return None;
        }
    };
    let shown = crate::input::shown(source_kind, namespace, name);
    if kind == "MCPServer" && namespace != here {
        subject.notes.loss(field, format!("{shown} is used in its own namespace only; its tools are left out"));
        return None;
    }
    let object = subject.world.find(Source::Kagent, source_kind, namespace, name).map(|found| &found.value);
    match object {
        None => subject.missing(field, source_kind, namespace, name),
        Some(server) if is_left_out(source_kind, server) => {
            subject.notes.todo(field, format!("{shown} is left out: create it, or take it out of toolServers"));
        }
        Some(_) => {
            let ours = subject.world.name_of(Source::Kagent, source_kind, kind, namespace, name);
            subject.refers(field, shown, (kind.to_owned(), namespace.to_owned(), ours));
        }
    }
    let ours = subject.world.name_of(Source::Kagent, source_kind, kind, namespace, name);
    Some(Found { kind, namespace: (namespace != here).then(|| namespace.to_owned()), name: ours, object })
}

/// Reports whether a server of the input becomes nothing, because no image is known for it.
fn is_left_out(kind: &str, server: &Value) -> bool {
    match kind {
        "MCPServer" => mcp_server::is_left_out(server),
        "ToolServer" => tool_server::is_left_out(server),
        _ => false,
    }
}

fn tool_server_kind(subject: &Subject<'_>, namespace: &str, name: &str) -> &'static str {
    let server = subject.world.find(Source::Kagent, "ToolServer", namespace, name);
    if server.is_some_and(|server| tool_server::is_stdio(&server.value)) { "MCPServer" } else { "RemoteMCPServer" }
}

/// Reports which headers and certificates of a server other namespaces do not get.
fn tell_unreadable(subject: &Subject<'_>, field: &str, object: &Value, server: &Server, at: usize) {
    let Some(namespace) = &server.namespace else { return };
    let place = place(namespace, &server.name);
    let headers = ["/spec/headersFrom", "/spec/config/sse/headersFrom", "/spec/config/streamableHttp/headersFrom"];
    let headers = headers.into_iter().filter_map(|pointer| object.pointer(pointer)?.as_array()).flatten();
    for header in headers.filter(|header| header["valueFrom"]["type"].is_string()) {
        let name = header["name"].as_str().unwrap_or_default();
        if server.headers.iter().any(|own| own["name"] == name) {
            continue;
        }
        subject.notes.loss(
            field,
            format!(
                "other namespaces do not get header {name} of {place}; put it into a Secret here and \
                 toolServers[{at}].headersFrom"
            ),
        );
    }
    let tls = &object["spec"]["tls"];
    // Without verification, any certificate is taken.
    if tls["caCertSecretRef"].is_string() && tls["disableVerify"] != true {
        let text = if tls["disableSystemCAs"] == true {
            format!("{place} cannot be used here: it trusts only certificates that other namespaces do not get")
        } else {
            format!("other namespaces do not get the certificates that {place} trusts")
        };
        subject.notes.loss(field, text);
    }
}
