//! Tools of an agent: those of servers become `toolServers`, agents become Tools.

use crds::approval::ALWAYS;
use serde_json::{Map, Value, json};

use super::{agent_tool, is_first_api, mcp_server, service, split_reference, tool_server};
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
/// Most names in `include` and in `approval.tools`.
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
    /// Names of tools whose calls wait for a person.
    asking: Vec<String>,
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

    /// Reports whether calls of a tool wait for a person.
    pub(super) fn ask(&self) -> bool {
        self.servers.iter().any(|server| !server.asking.is_empty())
    }

    /// Sets `toolServers` and `tools`.
    pub(super) fn set(self, subject: &Subject<'_>, field: &str, ours: &mut Map<String, Value>) {
        for server in self.servers.iter().filter(|server| server.asks_for_all()) {
            let text = format!("more than {MOST_NAMES} tools of {} need approval: all of them ask", server.name);
            subject.notes.change(field, text);
        }
        let mut entries: Vec<_> = self.servers.iter().flat_map(Server::entries).collect();
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
        let asking = once(part.texts("requireApproval").into_iter().filter(|tool| {
            let is_taken = include.is_empty() || include.iter().any(|name| name == tool);
            if !is_taken && !tool.is_empty() {
                subject.notes.skip(&part.path("requireApproval"), format!("{tool} is not in toolNames"));
            }
            is_taken
        }));
        let forwarded = headers::forwarded(subject, part, "allowedHeaders");
        let Some(Found { kind, namespace, name, object }) = found(subject, part) else { return };
        if !asking.is_empty() {
            let text = "is approval now: a call waits 1h, then it is refused; approval.timeout may be up to 168h";
            subject.notes.change(&part.path("requireApproval"), text);
        }
        let server = Server { kind, namespace, name, headers, forwarded, include, asking };
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
        self.asking.extend(other.asking);
    }

    /// Reports whether each tool asks, because those that need it are more than an entry can name.
    fn asks_for_all(&self) -> bool {
        once(&self.include).is_empty() && once(&self.asking).len() > MOST_NAMES
    }

    /// Returns the entries for the server: several if it has more names than one takes.
    fn entries(&self) -> Vec<Value> {
        let (include, asking) = (once(&self.include), once(&self.asking));
        let parts: Vec<&[String]> = if include.is_empty() { vec![&[]] } else { include.chunks(MOST_NAMES).collect() };
        let entry = |include: &[String]| {
            let mut entry = Map::new();
            set(&mut entry, "kind", Some(self.kind));
            set(&mut entry, "namespace", self.namespace.clone());
            set(&mut entry, "name", Some(self.name.clone()));
            let texts = |names: &[String]| names.iter().cloned().map(Value::from).collect();
            set_list(&mut entry, "include", texts(include));
            set_list(&mut entry, "headersFrom", self.headers.clone());
            set_list(&mut entry, "forwardHeaders", texts(&self.forwarded));
            let mut asking = asking.clone();
            asking.retain(|name| include.is_empty() || include.contains(name));
            if !asking.is_empty() {
                let mut approval = Map::new();
                if !self.asks_for_all() {
                    set_list(&mut approval, "tools", texts(&asking));
                }
                set(&mut approval, "when", Some(ALWAYS));
                set(&mut entry, "approval", Some(approval));
            }
            Value::Object(entry)
        };
        parts.into_iter().map(entry).collect()
    }
}

/// Returns texts without empty ones, each once.
fn once<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for text in texts {
        let text = text.as_ref();
        if !text.is_empty() && !kept.iter().any(|known| known == text) {
            kept.push(text.to_owned());
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
            if namespace != here {
                tell_refused(subject, field, &crate::input::shown("Service", namespace, name));
                return None;
            }
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
        return program_elsewhere(subject, field, source_kind, (namespace, name));
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

/// Returns the RemoteMCPServer by which a program of another namespace is used, and adds it; the MCPServer that the program becomes
/// admits this namespace. Only the first API takes one: the second refuses an MCPServer of another namespace.
fn program_elsewhere<'w>(
    subject: &Subject<'w>,
    field: &str,
    source_kind: &'static str,
    (namespace, name): (&str, &str),
) -> Option<Found<'w>> {
    let (shown, here) = (crate::input::shown(source_kind, namespace, name), subject.namespace());
    let is_open = source_kind == "ToolServer" && is_first_api(subject) && !here.is_empty();
    let found = subject.world.find(Source::Kagent, source_kind, namespace, name).map(|found| &found.value);
    if !is_open || found.is_none_or(|server| is_left_out(source_kind, server)) {
        tell_refused(subject, field, &shown);
        return None;
    }
    let theirs = subject.world.name_of(Source::Kagent, source_kind, "MCPServer", namespace, name);
    // The default port, and the path of the bridge.
    let spec = json!({ "url": format!("http://{theirs}.{namespace}.svc:3000/mcp") });
    let made = subject.world.claim("RemoteMCPServer", here, &format!("{namespace}-{theirs}"), &spec);
    subject.emit_more("RemoteMCPServer", &made, json!({ "spec": spec }));
    subject.notes.change(field, format!("{shown} is used by RemoteMCPServer {made}, whose url is its Service"));
    subject.refers(field, shown, ("MCPServer".to_owned(), namespace.to_owned(), theirs));
    Some(Found { kind: "RemoteMCPServer", namespace: None, name: made, object: None })
}

/// Reports a server of another namespace that is not for this one.
fn tell_refused(subject: &Subject<'_>, field: &str, shown: &str) {
    subject.notes.loss(field, format!("{shown} is used in its own namespace only; its tools are left out"));
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
