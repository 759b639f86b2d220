//! Agent of upstream Récif.

use serde_json::{Map, Value, json};

use super::spec;
use crate::{
    env::{self, MOST_FIXED},
    needs,
    overlay::{self, Overlay},
    source::Source,
    subject::Subject,
};

/// Fields of an Agent that only upstream has.
const UPSTREAM: [&str; 10] = [
    "canary",
    "credentialSecret",
    "envSecrets",
    "evalSampleRate",
    "gcpServiceAccount",
    "judgeModel",
    "skills",
    "suggestions",
    "suggestionsProvider",
    "version",
];

/// Folder with the credentials of Google.
const GCP: &str = "/var/secrets/gcp";

/// Reports whether a field is upstream's alone.
pub(super) fn is_upstream(object: &Value) -> bool {
    let spec = &object["spec"];
    UPSTREAM.iter().any(|field| !spec[*field].is_null()) || spec["promptRef"].is_string()
}

/// Turns an Agent into ours.
pub(super) fn convert(subject: &Subject<'_>) {
    let mut ours = spec(subject);
    // All of upstream's own fields leave the spec here.
    let mut theirs: Map<String, Value> =
        UPSTREAM.iter().filter_map(|field| Some(((*field).to_owned(), ours.remove(*field)?))).collect();
    theirs.retain(|_, value| !value.is_null());
    if theirs.contains_key("canary") {
        subject.notes.loss("spec.canary", "no canary yet");
    }
    if ours.get("promptRef").is_some_and(Value::is_string) {
        ours.remove("promptRef");
        subject.notes.skip("spec.promptRef", "nothing upstream reads it");
    }
    if has_image(&ours) {
        overlay::tell_image(subject);
    }
    tell_needs(subject);
    replicas(subject, &mut ours);
    env_secrets(subject, &theirs, &mut ours);
    google(subject, &theirs, &mut ours);
    variables(subject, &theirs, &mut ours);
    model(subject, &mut ours);
    strategy(subject, &mut ours);
    database(subject, &mut ours);
    tell_tools(subject, &ours);
    subject.emit_own("Agent", ours.into());
}

fn text<'m>(map: &'m Map<String, Value>, key: &str) -> Option<&'m str> {
    map.get(key)?.as_str().filter(|text| !text.is_empty())
}

/// Reports what its Pods need and the input does not have.
fn tell_needs(subject: &Subject<'_>) {
    let spec = &subject.object["spec"];
    needs::container(subject, "spec", spec);
    if let Some(account) = spec["serviceAccountName"].as_str().filter(|name| !name.is_empty()) {
        needs::account(subject, "spec.serviceAccountName", account);
    }
    let pod = &spec["podTemplate"]["spec"];
    let items = |key: &str| pod[key].as_array().map(Vec::as_slice).unwrap_or_default();
    needs::volumes(subject, "spec.podTemplate.spec.volumes", items("volumes"));
    for (index, container) in items("containers").iter().enumerate() {
        needs::container(subject, &format!("spec.podTemplate.spec.containers[{index}]"), container);
    }
}

/// Brings the number of Pods into our limit, which upstream does not have.
fn replicas(subject: &Subject<'_>, ours: &mut Map<String, Value>) {
    let number = ours.get("replicas").and_then(Value::as_i64);
    let Some(number) = number.filter(|number| *number > MOST_FIXED) else { return };
    let has_sidecar = ours.get("proxy").is_none_or(|proxy| proxy["enabled"] != false);
    if has_sidecar && !ours.contains_key("scaling") {
        env::scale(subject, "spec.replicas", number, ours);
    } else {
        subject.notes.loss("spec.replicas", format!("at most {MOST_FIXED} Pods"));
        ours.insert("replicas".to_owned(), MOST_FIXED.into());
    }
}

fn env_secrets(subject: &Subject<'_>, theirs: &Map<String, Value>, ours: &mut Map<String, Value>) {
    // Upstream's default stands for an empty list, too.
    let given = theirs.get("envSecrets").and_then(Value::as_array).filter(|names| !names.is_empty());
    let names: Vec<&str> = match given {
        Some(names) => names.iter().filter_map(Value::as_str).collect(),
        None => {
            subject.notes.change("spec.envSecrets", "upstream's default: Secret agent-env is read if it is there");
            vec!["agent-env"]
        }
    };
    let mut sources = ours.get("envFrom").and_then(Value::as_array).cloned().unwrap_or_default();
    for name in names {
        let source = json!({ "secretRef": { "name": name, "optional": true } });
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    if !sources.is_empty() {
        ours.insert("envFrom".to_owned(), sources.into());
    }
}

/// Mounts the credentials of Google.
fn google(subject: &Subject<'_>, theirs: &Map<String, Value>, ours: &mut Map<String, Value>) {
    let by_type = matches!(text(ours, "modelType"), Some("vertex-ai" | "google-ai")).then_some("gcp-adc");
    let (secret, file, project) = if let Some(account) = text(theirs, "gcpServiceAccount") {
        if theirs.contains_key("credentialSecret") {
            subject.notes.skip("spec.credentialSecret", "gcpServiceAccount goes first");
        }
        let domain = account.split_once('@').map_or("", |(_, domain)| domain);
        let project = domain.split('.').next().filter(|project| !project.is_empty()).map(str::to_owned);
        (format!("{}-gcp-sa", subject.name), "credentials.json", project)
    } else if let Some(secret) = text(theirs, "credentialSecret").or(by_type) {
        let todo = "set GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION, which upstream's operator gave";
        subject.notes.todo("spec.credentialSecret", todo);
        (secret.to_owned(), "adc.json", None)
    } else {
        return;
    };
    let Some(mut overlay) = Overlay::on("Agent", ours.get("podTemplate")) else {
        subject.notes.skip("spec.podTemplate", "is no overlay on a Pod template");
        return;
    };
    let volume = json!({ "name": "gcp", "secret": { "secretName": secret, "optional": true } });
    overlay.add_to_pod("volumes", vec![volume]);
    overlay.mount(vec![json!({ "name": "gcp", "mountPath": GCP, "readOnly": true })]);
    let mut variables = vec![json!({ "name": "GOOGLE_APPLICATION_CREDENTIALS", "value": format!("{GCP}/{file}") })];
    variables.extend(project.map(|project| json!({ "name": "GOOGLE_CLOUD_PROJECT", "value": project })));
    // What the agent sets itself goes first.
    variables.retain(|variable| !sets(ours, &variable["name"]));
    overlay.add_to_container("env", variables);
    if let Some(template) = overlay.finish() {
        ours.insert("podTemplate".to_owned(), template);
    }
}

fn sets(ours: &Map<String, Value>, name: &Value) -> bool {
    let known = ours.get("env").and_then(Value::as_array);
    known.into_iter().flatten().any(|variable| variable["name"] == *name)
}

/// Sets the variables by which upstream's operator passes on fields that ours do not have.
fn variables(subject: &Subject<'_>, theirs: &Map<String, Value>, ours: &mut Map<String, Value>) {
    let skills = theirs.get("skills").filter(|skills| !skills.as_array().is_some_and(Vec::is_empty));
    let rate = theirs.get("evalSampleRate").and_then(Value::as_f64).filter(|percent| *percent > 0.0);
    let rate = rate.map(|percent| (percent / 100.0).to_string());
    let given = |key: &str| text(theirs, key).map(str::to_owned);
    let variables = [
        ("CORAIL_SKILLS", skills.map(Value::to_string)),
        ("CORAIL_SUGGESTIONS_PROVIDER", given("suggestionsProvider")),
        ("CORAIL_SUGGESTIONS", given("suggestions")),
        ("RECIF_JUDGE_MODEL", given("judgeModel")),
        ("RECIF_AGENT_VERSION", given("version")),
        ("RECIF_EVAL_SAMPLE_RATE", rate),
    ];
    let mut all = ours.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
    for (name, value) in variables {
        let Some(value) = value.filter(|_| !sets(ours, &name.into())) else { continue };
        all.push(json!({ "name": name, "value": value }));
    }
    for (field, value) in theirs {
        let is_list = matches!(field.as_str(), "envSecrets" | "skills") && value.is_array();
        let is_known =
            value.is_string() || is_list || field == "canary" || field == "evalSampleRate" && value.is_number();
        if !is_known {
            subject.notes.skip(&format!("spec.{field}"), "has another type");
        }
    }
    if !all.is_empty() {
        ours.insert("env".to_owned(), all.into());
    }
}

fn has_image(ours: &Map<String, Value>) -> bool {
    text(ours, "image").is_some()
}

fn model(subject: &Subject<'_>, ours: &mut Map<String, Value>) {
    // An image speaks what it speaks.
    if has_image(ours) {
        return;
    }
    let type_ = match text(ours, "modelType") {
        Some("vertex-ai") => "gemini-vertex",
        Some("google-ai") => "gemini",
        Some(other) => return env::tell_provider(subject, "spec.modelType", other),
        None => return,
    };
    subject.notes.change("spec.modelType", format!("is {type_} now"));
    env::tell_provider(subject, "spec.modelType", type_);
    ours.insert("modelType".to_owned(), type_.into());
}

/// Reports whether an image is corail, of any registry and version.
fn is_corail(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split([':', '@']).next() == Some("corail")
}

fn strategy(subject: &Subject<'_>, ours: &mut Map<String, Value>) {
    let is_corail = text(ours, "image").is_some_and(is_corail);
    let is_named = matches!(text(ours, "strategy"), None | Some("simple" | "react" | "rag"));
    if is_corail && is_named {
        ours.insert("strategy".to_owned(), "agent-react".into());
        subject.notes.change("spec.strategy", "is agent-react now, the only one corail knows");
    }
}

fn database(subject: &Subject<'_>, ours: &mut Map<String, Value>) {
    let Some(url) = text(ours, "databaseUrl") else { return };
    let Some((scheme, rest)) = url.split_once("://") else { return };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (user, address) = authority.rsplit_once('@').map_or(("", authority), |(user, address)| (user, address));
    let (host, port) = address.split_once(':').map_or((address, ""), |(host, port)| (host, port));
    let is_one_label = !host.is_empty()
        && host != "localhost"
        && host.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_');
    if !is_one_label {
        return;
    }
    let at = if authority.contains('@') { "@" } else { "" };
    let colon = if address.contains(':') { ":" } else { "" };
    let namespace = &subject.world.options.operator_namespace;
    let url = format!("{scheme}://{user}{at}{host}.{namespace}.svc.cluster.local{colon}{port}{tail}");
    // The URL is never printed: it holds a password.
    subject
        .notes
        .change("spec.databaseUrl", format!("its host is now in namespace {namespace}, as upstream expands it"));
    ours.insert("databaseUrl".to_owned(), url.into());
}

fn tell_tools(subject: &Subject<'_>, ours: &Map<String, Value>) {
    let tools = ours.get("tools").and_then(Value::as_array);
    for name in tools.into_iter().flatten().filter_map(Value::as_str) {
        let is_there = subject.world.find(Source::Recif, "Tool", subject.namespace(), name).is_some();
        if !is_there && !crds::tool::is_builtin(name) {
            subject.notes.todo(
                "spec.tools",
                format!("Tool {name} is not in the input; the Agent waits for it (upstream took it for a builtin)"),
            );
        }
    }
}
