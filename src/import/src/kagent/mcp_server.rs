//! MCPServer of kmcp.

use serde_json::{Map, Value, json};

use super::{admitted::admit_by_url, deployment, remote_server};
use crate::{
    env::{self, set, set_list},
    fields::Fields,
    overlay::{self, Overlay},
    subject::Subject,
};

/// Text on an image that kmcp would have chosen.
pub(super) const DEFAULT_IMAGE: &str = "kmcp's image is written out; pin it";
/// Text on a server without an image.
pub(super) const NO_IMAGE: &str = "no image, and the command has no default one";

/// Returns the image that kmcp takes for a command, and whether the program needs a folder as its home, which uid 1000
/// does not have.
pub(super) fn default_image(command: &str) -> Option<(&'static str, bool)> {
    match command {
        "uvx" => Some(("ghcr.io/astral-sh/uv:debian", true)),
        "npx" => Some(("node:24-alpine3.21", true)),
        _ => None,
    }
}

/// Reports whether an MCPServer is left out, because no image is known.
pub(super) fn is_left_out(object: &Value) -> bool {
    let text = |key: &str| object.pointer(&format!("/spec/deployment/{key}")).and_then(Value::as_str);
    let text = |key: &str| text(key).filter(|text| !text.is_empty());
    text("image").is_none() && text("cmd").and_then(default_image).is_none()
}

/// Turns an MCPServer into ours.
pub(super) fn convert(subject: &Subject<'_>) {
    if is_left_out(subject.object) {
        subject.notes.loss("", NO_IMAGE);
        return;
    }
    let spec = subject.spec();
    let part = spec.part("deployment");
    let cmd = part.text("cmd");
    let is_stdio = is_stdio(spec.text("transportType"), cmd);
    if is_stdio && cmd.is_none() {
        subject.notes.skip("", "kmcp cannot start it either: it has no cmd");
        [&part, &spec].into_iter().for_each(Fields::ignore);
        return;
    }
    let mut ours = json!({ "transportType": if is_stdio { "stdio" } else { "http" } });
    spec.value("stdioTransport");
    if let Some(http) = http_transport(subject, &spec, is_stdio) {
        ours["httpTransport"] = http;
    }
    if let Some(timeout) = spec.period("timeout", 1, 600) {
        ours["timeout"] = timeout.into();
    }
    ours["deployment"] = server_deployment(subject, &part, cmd).into();
    if let Some(fields) = ours.as_object_mut() {
        admit_by_url(subject, fields);
    }
    remote_server::tell_discovery(subject);
    subject.emit("MCPServer", ours);
}

/// Reports whether the program speaks over its standard input and output; without a transport the command decides.
fn is_stdio(transport: Option<&str>, cmd: Option<&str>) -> bool {
    transport.map_or(cmd.is_some(), |transport| transport == "stdio")
}

/// Returns a path as ours take it; `None` if it is none.
fn http_path(path: &str) -> Option<String> {
    let slash = if path.starts_with('/') { "" } else { "/" };
    let is_path = !path.contains(|it: char| it == '?' || it == '#' || it.is_whitespace());
    is_path.then(|| format!("{slash}{path}"))
}

fn http_transport(subject: &Subject<'_>, spec: &Fields<'_>, is_stdio: bool) -> Option<Value> {
    let http = spec.part("httpTransport");
    if http.value("tls").is_some() {
        subject.notes.loss(&http.path("tls"), "the server must speak plain HTTP inside its Pod");
    }
    let mut ours = Map::new();
    set(&mut ours, "targetPort", env::port(subject, &http, "targetPort"));
    if let Some(path) = http.text("path") {
        match http_path(path) {
            Some(path) => set(&mut ours, "path", Some(path)),
            None => subject.notes.skip(&http.path("path"), "is no path"),
        }
    }
    (!is_stdio && !ours.is_empty()).then(|| ours.into())
}

fn server_deployment(subject: &Subject<'_>, part: &Fields<'_>, cmd: Option<&str>) -> Map<String, Value> {
    let mut ours = Map::new();
    let mut variables = Map::new();
    for (name, value) in part.entries("env") {
        match value.as_str() {
            Some(text) => {
                variables.insert(name.to_owned(), text.into());
            }
            None => subject.notes.skip(&format!("{}[{name}]", part.path("env")), "is no text"),
        }
    }
    match (part.text("image"), cmd.and_then(default_image)) {
        (Some(image), _) => {
            set(&mut ours, "image", Some(image));
            overlay::tell_image(subject);
        }
        (None, Some((image, needs_home))) => {
            set(&mut ours, "image", Some(image));
            if needs_home {
                variables.entry("HOME").or_insert("/tmp".into());
            }
            subject.notes.change(&part.path("image"), DEFAULT_IMAGE);
            overlay::tell_image(subject);
        }
        // Such a server was left out before.
        (None, None) => {}
    }
    set(&mut ours, "port", env::port(subject, part, "port"));
    set(&mut ours, "cmd", cmd);
    set_list(&mut ours, "args", part.texts("args").into_iter().map(Value::from).collect());
    set(&mut ours, "env", Some(variables).filter(|variables| !variables.is_empty()));
    let mut secrets: Vec<Value> = Vec::new();
    for secret in part.parts("secretRefs") {
        if let Some(name) = secret.text("name") {
            subject.needs(secret.own_path(), "Secret", name);
            secrets.push(json!({ "name": name }));
        }
        // An ObjectReference has more fields, of which only the name counts.
        secret.ignore();
    }
    secrets.dedup();
    set_list(&mut ours, "secretRefs", secrets);
    set(&mut ours, "replicas", env::replicas(subject, part, "replicas", env::MOST_FIXED));
    set(&mut ours, "resources", env::resources(part));

    let mut overlay = Overlay::of("MCPServer");
    set(&mut ours, "serviceAccountName", account(subject, part, &mut overlay));
    overlay.take(subject, part);
    mount_config_maps(subject, part, &mut overlay);
    overlay.set_in_container("imagePullPolicy", env::pull_policy(subject, part));
    overlay.set_in_pod("imagePullSecrets", env::pull_secrets(subject, part));
    overlay.take_containers(subject, part, "sidecars");
    overlay.take_containers(subject, part, "extraContainers");
    if part.value("initContainer").is_some() {
        subject.notes.skip(&part.path("initContainer"), "the bridge has its own image");
    }
    set(&mut ours, "podTemplate", overlay.finish());
    ours
}

fn account(subject: &Subject<'_>, part: &Fields<'_>, overlay: &mut Overlay) -> Option<String> {
    let account = deployment::account(subject, part, "serviceAccount");
    if account.is_some() {
        let field = if part.has("serviceAccountName") { "serviceAccountName" } else { "serviceAccount" };
        overlay.keep_token(subject, &part.path(field));
    }
    account
}

fn mount_config_maps(subject: &Subject<'_>, part: &Fields<'_>, overlay: &mut Overlay) {
    for map in part.parts("configMapRefs") {
        if let Some(name) = map.text("name") {
            subject.needs(map.own_path(), "ConfigMap", name);
            let volume = crate::names::label(&format!("configmap-{name}"), 63, true);
            overlay.add_to_pod("volumes", vec![json!({ "name": volume, "configMap": { "name": name } })]);
            overlay
                .mount(vec![json!({ "name": volume, "mountPath": format!("/configmaps/{name}"), "readOnly": true })]);
        }
        map.ignore();
    }
}
