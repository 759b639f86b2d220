//! ToolServer of kagent's first API: a program that becomes an MCPServer, or an address that becomes a RemoteMCPServer.

use serde_json::{Map, Value, json};

use super::{admitted::admit_users, mcp_server, remote_server};
use crate::{
    env::{set, set_list},
    fields::Fields,
    headers::{self, Receiver},
    overlay::{self, Overlay},
    period,
    subject::Subject,
};

/// Place where a tool of an agent names a ToolServer.
const TOOL_SERVER: &str = "/mcpServer/toolServer";

/// Reports whether a ToolServer is a program.
pub(super) fn is_stdio(object: &Value) -> bool {
    let config = object.pointer("/spec/config");
    let has = |key: &str| config.and_then(|config| config.get(key)).is_some_and(Value::is_object);
    has("stdio") && !has("sse") && !has("streamableHttp")
}

/// Reports whether a ToolServer is left out, because no image is known for its program.
pub(super) fn is_left_out(object: &Value) -> bool {
    let command = object.pointer("/spec/config/stdio/command").and_then(Value::as_str).unwrap_or_default();
    is_stdio(object) && mcp_server::default_image(command).is_none()
}

/// Turns a ToolServer into ours.
pub(super) fn convert(subject: &Subject<'_>) {
    let spec = subject.spec();
    let description = spec.text("description");
    let config = spec.part("config");
    config.text("type");
    let (stdio, sse, http) = (config.part("stdio"), config.part("sse"), config.part("streamableHttp"));
    if !sse.is_empty() || !http.is_empty() {
        let (part, protocol) = if http.is_empty() { (&sse, "SSE") } else { (&http, "STREAMABLE_HTTP") };
        remote(subject, description, part, protocol);
        for other in [&stdio, &sse, &http].into_iter().filter(|other| other.own_path() != part.own_path()) {
            other.ignore();
        }
    } else if stdio.is_empty() {
        subject.notes.skip("", "kagent refuses it too: its config names no transport");
    } else {
        if description.is_some() {
            subject.notes.skip("spec.description", "an MCPServer has none");
        }
        program(subject, &stdio);
    }
    remote_server::tell_discovery(subject);
}

fn remote(subject: &Subject<'_>, description: Option<&str>, part: &Fields<'_>, protocol: &str) {
    let mut ours = Map::new();
    set(&mut ours, "description", description);
    set(&mut ours, "protocol", Some(protocol));
    let url = part.text("url").and_then(|url| remote_server::address(subject, &part.path("url"), url));
    let Some(url) = url else {
        subject.notes.skip("", "kagent refuses it too: it has no usable url");
        part.ignore();
        return;
    };
    set(&mut ours, "url", Some(url));
    let mut all = Vec::new();
    for (name, value) in part.entries("headers") {
        let path = format!("{}[{name}]", part.path("headers"));
        match value.as_str() {
            Some(text) => all.extend(headers::text(subject, &path, name, text, Receiver::Server)),
            None => subject.notes.loss(&path, "is no text"),
        }
    }
    for header in headers::from(subject, part, "headersFrom") {
        all.retain(|known: &Value| known["name"] != header["name"]);
        all.push(header);
    }
    headers::clip(subject, &part.path("headersFrom"), &mut all, headers::MOST);
    set_list(&mut ours, "headersFrom", all);
    remote_server::connection(&mut ours, part);
    admit_users(subject, TOOL_SERVER, &mut ours);
    subject.emit("RemoteMCPServer", ours.into());
}

fn program(subject: &Subject<'_>, stdio: &Fields<'_>) {
    let Some(command) = stdio.text("command") else {
        subject.notes.skip("", "kagent refuses it too: it has no command");
        stdio.ignore();
        return;
    };
    let Some((image, needs_home)) = mcp_server::default_image(command) else {
        subject.notes.loss("", mcp_server::NO_IMAGE);
        stdio.ignore();
        return;
    };
    let mut deployment = Map::new();
    let mut overlay = Overlay::of("MCPServer");
    let mut env = Map::new();
    for (name, value) in stdio.entries("env") {
        match value.as_str() {
            Some(text) => {
                env.insert(name.to_owned(), text.into());
            }
            None => subject.notes.skip(&format!("{}[{name}]", stdio.path("env")), "is no text"),
        }
    }
    for variable in headers_as_variables(subject, stdio) {
        match variable.get("value").and_then(Value::as_str) {
            Some(text) => {
                env.insert(variable["name"].as_str().unwrap_or_default().to_owned(), text.into());
            }
            None => overlay.add_to_container("env", vec![variable]),
        }
    }
    let seconds = stdio.int("readTimeoutSeconds").filter(|seconds| *seconds > 0);
    let args: Vec<_> = stdio.texts("args").into_iter().map(Value::from).collect();
    subject.notes.change(&stdio.path("command"), mcp_server::DEFAULT_IMAGE);
    overlay::tell_image(subject);
    if needs_home {
        env.entry("HOME").or_insert("/tmp".into());
    }
    set(&mut deployment, "image", Some(image));
    set(&mut deployment, "cmd", Some(command));
    set_list(&mut deployment, "args", args);
    set(&mut deployment, "env", Some(env).filter(|env| !env.is_empty()));
    set(&mut deployment, "podTemplate", overlay.finish());
    let mut ours = json!({ "transportType": "stdio", "deployment": deployment });
    if let Some(seconds) = seconds {
        let text = format!("{seconds}s");
        let fixed = period::fixed(&text, 1, 600).unwrap_or_else(|| "10m".to_owned());
        if fixed != text {
            subject.notes.change(&stdio.path("readTimeoutSeconds"), format!("is now {fixed:?}"));
        }
        ours["timeout"] = fixed.into();
    }
    if let Some(fields) = ours.as_object_mut() {
        admit_users(subject, TOOL_SERVER, fields);
    }
    subject.emit("MCPServer", ours);
}

/// Returns the variables of `envFrom`, which has the form of headers.
fn headers_as_variables(subject: &Subject<'_>, stdio: &Fields<'_>) -> Vec<Value> {
    let mut variables = Vec::new();
    for entry in stdio.parts("envFrom") {
        let (name, value, source) = (entry.text("name"), entry.text("value"), entry.part("valueFrom"));
        let reference = (source.text("type"), source.text("valueRef"), source.text("key"));
        match (name, value, reference) {
            (Some(name), None, (Some(kind @ ("Secret" | "ConfigMap")), Some(object), Some(key))) => {
                subject.needs(source.own_path(), kind, object);
                let field = if kind == "Secret" { "secretKeyRef" } else { "configMapKeyRef" };
                variables.push(json!({ "name": name, "valueFrom": { field: { "name": object, "key": key } } }));
            }
            (Some(name), Some(value), _) => variables.push(json!({ "name": name, "value": value })),
            _ => subject.notes.skip(entry.own_path(), "is no variable"),
        }
    }
    variables
}
