//! Agent of Krypton: an Agent with an image of its own, or an MCPServer.

use serde_json::{Map, Value, json};

use crate::{
    env::{self, MOST_FIXED, MOST_SCALED, set, set_list},
    fields::Fields,
    needs,
    overlay::{self, Overlay},
    period,
    subject::Subject,
};

/// Reports whether an Agent is a server of tools.
pub(super) fn is_mcp(object: &Value) -> bool {
    object.pointer("/spec/protocol").is_some_and(|protocol| protocol == "mcp")
}

/// Turns an Agent into ours.
pub(super) fn convert(subject: &Subject<'_>) {
    let spec = subject.spec();
    let Some(image) = spec.text("image") else {
        subject.notes.skip("", "Krypton refuses it too: it has no image");
        spec.ignore();
        return;
    };
    overlay::tell_image(subject);
    for key in ["framework", "runtime", "protocol"] {
        spec.text(key);
    }
    let mut ours = Map::new();
    set(&mut ours, "image", Some(image));
    let port = env::port(subject, &spec, "port").unwrap_or(8080);
    set(&mut ours, "port", Some(port));
    set(&mut ours, "resources", env::resources(&spec));
    if is_mcp(subject.object) {
        server(subject, &spec, ours, port);
    } else {
        agent(subject, &spec, ours, port);
    }
    limits(subject, &spec);
}

fn agent(subject: &Subject<'_>, spec: &Fields<'_>, mut ours: Map<String, Value>, port: i64) {
    subject.notes.change("spec.port", "in-cluster callers use port 8000 of the Service");
    let framework = match spec.text("framework") {
        Some("adk" | "google-adk") => "adk",
        Some("langgraph" | "langchain") => "langchain",
        Some("crewai") => "crewai",
        Some("autogen") => "autogen",
        _ => "custom",
    };
    set(&mut ours, "name", Some(subject.id.name.as_str()));
    set(&mut ours, "framework", Some(framework));
    set(&mut ours, "imagePullPolicy", env::pull_policy(subject, spec));
    set(&mut ours, "imagePullSecrets", env::pull_secrets(subject, spec));
    set_list(&mut ours, "env", env::variables(subject, spec, "env", "Agent", Some(port), &[]));
    set(&mut ours, "envFrom", env::sources(subject, spec, "envFrom"));
    ours.insert("readiness".to_owned(), json!({}));
    match spec.text("protocol") {
        Some(protocol @ ("a2a" | "http")) => set(&mut ours, "protocol", Some(protocol)),
        Some(_) => subject.notes.skip("spec.protocol", "is no protocol"),
        // Krypton's default, which is not ours.
        None => set(&mut ours, "protocol", Some("a2a")),
    }
    ours.insert("scaling".to_owned(), scaling(subject, spec));
    // Callers name the path, and a card has it.
    spec.text("invocationPath");
    set(&mut ours, "timeout", timeout(subject, spec));
    let mut overlay = Overlay::of("Agent");
    if let Some(account) = spec.text("serviceAccountName") {
        set(&mut ours, "serviceAccountName", Some(account));
        needs::account(subject, "spec.serviceAccountName", account);
        overlay.keep_token(subject, "spec.serviceAccountName");
    }
    set(&mut ours, "podTemplate", overlay.finish());
    subject.emit("Agent", ours.into());
}

/// Returns how an agent is scaled: Krypton scales all, from 1 to 10 Pods with 8 requests each, where ours are not scaled unless they
/// say so.
fn scaling(subject: &Subject<'_>, spec: &Fields<'_>) -> Value {
    let mode = spec.text("mode");
    let fewest = env::replicas(subject, spec, "minReplicas", MOST_FIXED);
    let most = env::replicas(subject, spec, "maxReplicas", MOST_SCALED).unwrap_or(10);
    let concurrency = spec.int("concurrency").unwrap_or(8);
    let idle = spec.period("scaleToZeroAfter", 1, 24 * 3600);
    let mut ours = Map::new();
    let fewest = match (mode, fewest) {
        (Some("serverless"), Some(number)) if number > 0 => {
            subject.notes.change("spec.minReplicas", "is 0 now: without requests a serverless agent has no Pod");
            0
        }
        (Some("serverless"), _) => 0,
        (_, Some(0)) => {
            subject.notes.change("spec.minReplicas", "is 1 now: an agent that is always on has a Pod");
            1
        }
        (_, given) => given.unwrap_or(1),
    };
    set(&mut ours, "minReplicas", Some(fewest));
    set(&mut ours, "maxReplicas", Some(most.max(fewest).max(1)));
    set(&mut ours, "concurrency", Some(concurrency.clamp(1, 100_000)));
    set(&mut ours, "scaleToZeroAfter", idle);
    if !(1..=100_000).contains(&concurrency) {
        subject.notes.change("spec.concurrency", "is now between 1 and 100000");
    }
    ours.into()
}

/// Returns the time limit of a request, unless it is the default of both.
fn timeout(subject: &Subject<'_>, spec: &Fields<'_>) -> Option<String> {
    let timeout = spec.period("timeout", 1, 3600)?;
    if period::is(&timeout, 60) {
        return None;
    }
    subject.notes.change("spec.timeout", "is enforced here");
    Some(timeout)
}

/// Reports what is not a setting of one workload.
fn limits(subject: &Subject<'_>, spec: &Fields<'_>) {
    if spec.text("startupTimeout").is_some_and(|time| !period::is(time, 30)) {
        subject.notes.loss("spec.startupTimeout", "the gateway's --cold-start-timeout is for all");
    }
}

fn server(subject: &Subject<'_>, spec: &Fields<'_>, mut ours: Map<String, Value>, port: i64) {
    let mut overlay = Overlay::of("MCPServer");
    set(&mut ours, "imagePullPolicy", env::pull_policy(subject, spec));
    overlay.set_in_pod("imagePullSecrets", env::pull_secrets(subject, spec));
    let (texts, others): (Vec<_>, Vec<_>) = env::variables(subject, spec, "env", "MCPServer", Some(port), &[])
        .into_iter()
        .partition(|variable| variable["valueFrom"].is_null());
    let name = |variable: &Value| variable["name"].as_str().unwrap_or_default().to_owned();
    let text = |variable: &Value| json!(variable["value"].as_str().unwrap_or_default());
    let texts: Map<_, _> = texts.iter().map(|variable| (name(variable), text(variable))).collect();
    set(&mut ours, "env", Some(texts).filter(|texts| !texts.is_empty()));
    overlay.add_to_container("env", others);
    let sources = env::sources(subject, spec, "envFrom").and_then(|sources| sources.as_array().cloned());
    overlay.add_to_container("envFrom", sources.unwrap_or_default());
    let fewest = env::replicas(subject, spec, "minReplicas", MOST_FIXED);
    set(&mut ours, "replicas", fewest);
    if spec.int("maxReplicas").is_some_and(|most| most > fewest.unwrap_or(1)) {
        subject.notes.loss("spec.maxReplicas", "an MCPServer is not scaled");
    }
    for (key, text) in [
        ("mode", "an MCPServer always runs"),
        ("concurrency", "an MCPServer has no cap"),
        ("scaleToZeroAfter", "an MCPServer always runs"),
        ("timeout", "a Tool has a timeout of its own"),
    ] {
        let is_default = match spec.text_or_number(key).as_deref() {
            None => true,
            Some(value) => (key, value) == ("mode", "always-on") || key == "timeout" && period::is(value, 60),
        };
        if !is_default {
            subject.notes.loss(&spec.path(key), text);
        }
    }
    if let Some(account) = spec.text("serviceAccountName") {
        set(&mut ours, "serviceAccountName", Some(account));
        needs::account(subject, "spec.serviceAccountName", account);
        overlay.keep_token(subject, "spec.serviceAccountName");
    }
    set(&mut ours, "podTemplate", overlay.finish());
    let mut server = json!({ "transportType": "http", "deployment": ours });
    if let Some(path) = spec.text("invocationPath") {
        let slash = if path.starts_with('/') { "" } else { "/" };
        if path.contains(|it: char| it == '?' || it == '#' || it.is_whitespace()) {
            subject.notes.skip("spec.invocationPath", "is no path");
        } else {
            server["httpTransport"] = json!({ "path": format!("{slash}{path}") });
        }
    }
    subject.emit("MCPServer", server);
}
