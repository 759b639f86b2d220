//! Services as servers of tools: kagent finds their address by annotations.

use serde_json::{Value, json};

use crate::subject::Subject;

/// Returns the name of the RemoteMCPServer that stands for a Service, and adds it; `None` if its port is unknown.
pub(super) fn server(subject: &Subject<'_>, field: &str, namespace: &str, name: &str) -> Option<String> {
    let shown = crate::input::shown("Service", namespace, name);
    let Some((port, service)) = port(subject, namespace, name) else {
        subject.notes.loss(field, format!("the port of {shown} is unknown; its tools are left out"));
        return None;
    };
    let path = annotation(service, "path").unwrap_or("/mcp");
    let slash = if path.starts_with('/') { "" } else { "/" };
    let home = if namespace.is_empty() { "default" } else { namespace };
    if namespace.is_empty() {
        subject.notes.todo(field, format!("{shown} has no namespace here: correct the url if it is not default"));
    }
    let mut spec = json!({ "url": format!("http://{name}.{home}.svc:{port}{slash}{path}") });
    if annotation(service, "protocol") == Some("SSE") {
        spec["protocol"] = "SSE".into();
    }
    let here = subject.namespace();
    let is_taken = subject.world.is_taken("RemoteMCPServer", here, name);
    let wanted = if is_taken { format!("{name}-service") } else { name.to_owned() };
    let made = subject.world.claim("RemoteMCPServer", here, &wanted, &spec);
    subject.emit_more("RemoteMCPServer", &made, json!({ "spec": spec }));
    subject.notes.change(field, format!("{shown} is RemoteMCPServer {made} now"));
    Some(made)
}

fn port<'s>(subject: &Subject<'s>, namespace: &str, name: &str) -> Option<(u16, &'s Value)> {
    let service = subject.world.core("Service", namespace, name)?;
    let named = annotation(service, "port").and_then(|text| text.trim().parse::<u16>().ok());
    let ports = service.pointer("/spec/ports").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let number = |port: &Value| port["port"].as_u64().and_then(|number| u16::try_from(number).ok());
    let only = match ports {
        [only] => number(only),
        several => several.iter().find(|port| port["appProtocol"] == "mcp").and_then(number),
    };
    Some((named.or(only).filter(|number| *number > 0)?, service))
}

fn annotation<'o>(service: &'o Value, what: &str) -> Option<&'o str> {
    let annotations = service.pointer("/metadata/annotations")?;
    annotations.get(format!("kagent.dev/mcp-service-{what}"))?.as_str().filter(|text| !text.is_empty())
}
