//! RemoteMCPServer of kagent.

use crds::tool_server::AllowedNamespaces;
use serde_json::{Map, Value};

use super::{
    service_host::{ServiceHost, with_scheme},
    tls,
};
use crate::{
    env::{set, set_list},
    fields::Fields,
    headers,
    input::place,
    source::Source,
    subject::Subject,
};

/// Turns a RemoteMCPServer into ours.
pub(super) fn convert(subject: &Subject<'_>) {
    let spec = subject.spec();
    let mut ours = Map::new();
    set(&mut ours, "description", spec.text("description"));
    if let Some(protocol) = spec.text("protocol") {
        if matches!(protocol, "STREAMABLE_HTTP" | "SSE") {
            set(&mut ours, "protocol", Some(protocol));
        } else {
            subject.notes.skip(&spec.path("protocol"), "is no protocol");
        }
    }
    let url = spec.text("url").and_then(|url| address(subject, &spec.path("url"), url));
    let Some(url) = url else {
        subject.notes.skip("", "kagent refuses it too: it has no usable url");
        spec.ignore();
        return;
    };
    set(&mut ours, "url", Some(url));
    let mut all = headers::from(subject, &spec, "headersFrom");
    headers::clip(subject, &spec.path("headersFrom"), &mut all, headers::MOST);
    set_list(&mut ours, "headersFrom", all);
    set(&mut ours, "tls", tls::tls(subject, &spec));
    connection(&mut ours, &spec);
    let allowed = spec.typed::<AllowedNamespaces>("allowedNamespaces", "choice of namespaces");
    set(&mut ours, "allowedNamespaces", allowed);
    tell_discovery(subject);
    subject.emit("RemoteMCPServer", ours.into());
}

/// Copies the times of a connection.
pub(super) fn connection(ours: &mut Map<String, Value>, spec: &Fields<'_>) {
    set(ours, "timeout", spec.period("timeout", 1, 600));
    set(ours, "sseReadTimeout", spec.period("sseReadTimeout", 1, 3600));
    set(ours, "terminateOnClose", spec.value("terminateOnClose").and_then(Value::as_bool));
}

/// Reports that a label that keeps kagent from discovering a server has no effect.
pub(super) fn tell_discovery(subject: &Subject<'_>) {
    let label = subject.object.pointer("/metadata/labels/kagent.dev~1discovery");
    if label.is_some_and(|label| label == "disabled") {
        subject.notes.loss("metadata.labels[kagent.dev/discovery]", "it is discovered all the same");
    }
}

/// Returns the URL of a server as we take it: with a scheme, without credentials; `None` if it is none.
pub(super) fn address(subject: &Subject<'_>, field: &str, url: &str) -> Option<String> {
    let url = with_scheme(url.trim());
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = match authority.rsplit_once('@') {
        Some((_, host)) => {
            subject.notes.loss(field, "credentials in the URL; put them into headersFrom");
            host
        }
        None => authority,
    };
    let is_url = matches!(scheme.as_str(), "http" | "https")
        && !host.is_empty()
        && !url.contains(char::is_whitespace)
        && url.len() <= 2048;
    if !is_url {
        return None;
    }
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|it| it.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name).to_ascii_lowercase();
    if name == "localhost" || name == "[::1]" || name.starts_with("127.") {
        subject.notes.todo(field, "loopback is never connected to; set the server's address");
    }
    let url = format!("{scheme}://{host}{path}");
    tell_elsewhere(subject, field, &url);
    Some(url)
}

/// Reports a URL that leads to a Service of another namespace, which our operator does not ask. An MCPServer of the input admits the
/// namespace.
fn tell_elsewhere(subject: &Subject<'_>, field: &str, url: &str) {
    let here = subject.namespace();
    let Some(ServiceHost { namespace, name, is_certain }) = ServiceHost::of(url, subject.world) else { return };
    let is_server = subject.world.find(Source::Kagent, "MCPServer", &namespace, &name).is_some();
    if here.is_empty() || namespace == here || is_server {
        return;
    }
    let condition = if is_certain { String::new() } else { format!("if {namespace} is a namespace: ") };
    let service = place(&namespace, &name);
    subject.notes.todo(
        field,
        format!(
            "{condition}Service {service} is not asked from namespace {here}: put the server into namespace {namespace}, \
             with allowedNamespaces for {here}"
        ),
    );
}
