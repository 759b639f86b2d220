//! Collects the addresses that a rendered configuration names: of models, tools, databases and collectors of traces.
//!
//! They are read from the rendered variables and files and not from the objects behind them, so that what is admitted is exactly
//! what the Pods get. Only the fields that hold an address are read: a description or a prompt, which others may write, admits
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use crds::{
    plugin_config::BASE_URL_KEYS,
    provider::{OLLAMA, PROVIDERS, Provider, STUB, provider},
};
use k8s_openapi::ByteString;
use serde_json::Value;
use url::{Host, Url};

use crate::ports::{ChildKind, ChildManifest};

/// Variables that name a collector of traces, metrics or logs.
const COLLECTORS: [&str; 4] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
];
/// Variable that names the service of the web search.
const SEARCH: &str = "SEARXNG_URL";
/// Variables with which a provider of a cloud needs no metadata service.
const CREDENTIALS: [&str; 3] = ["GOOGLE_APPLICATION_CREDENTIALS", "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"];
/// Metadata services of Google Cloud: of the machine, and of the node's own server for the identities of Pods.
const GOOGLE_METADATA: [(&str, u16); 2] = [("169.254.169.254", 80), ("169.254.169.252", 988)];
/// Agent of EKS for the identities of Pods.
const EKS_METADATA: [(&str, u16); 1] = [("169.254.170.23", 80)];

/// Addresses that a rendered configuration names, as host and port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenderedAddresses {
    /// Addresses of tools and models, which the runtime calls by HTTP.
    pub called: BTreeSet<(String, u16)>,
    /// Addresses of databases and collectors, which no tool calls.
    pub others: BTreeSet<(String, u16)>,
    /// True if a model is at its provider's own addresses, or gets a token there.
    pub providers: bool,
    /// Addresses of the metadata services from which credentials of a model come.
    pub metadata: BTreeSet<(&'static str, u16)>,
}

/// Collects the addresses from the configuration of a workload and from its container.
pub fn rendered_addresses(config: &[ChildManifest], container: &Value) -> RenderedAddresses {
    let mut found = RenderedAddresses::default();
    let mut variables = BTreeMap::new();
    let mut files = Vec::new();
    for (key, text) in config.iter().flat_map(data) {
        match key.ends_with(".json") {
            true => files.extend(serde_json::from_str::<Value>(&text).ok()),
            false => {
                variables.insert(key, text);
            }
        }
    }
    for variable in container["env"].as_array().into_iter().flatten() {
        if let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str()) {
            variables.insert(name.to_owned(), value.to_owned());
        }
    }
    let has_foreign_secret = has_secret(config, container);
    let environment = Environment { variables, names: names(container), has_foreign_secret };
    found.add_environment(&environment);
    for file in &files {
        found.add_file(file, &environment);
    }
    found
}

/// Environment of the container, as far as it is known.
struct Environment {
    /// Variable to value, of those that are rendered.
    variables: BTreeMap<String, String>,
    /// Names of the variables that the container sets by itself, also those from Secrets.
    names: BTreeSet<String>,
    /// True if it has every key of a Secret that is not rendered.
    has_foreign_secret: bool,
}

impl Environment {
    fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn json(&self, name: &str) -> Option<Value> {
        serde_json::from_str(self.get(name)?).ok()
    }

    /// Reports whether it brings credentials of a provider.
    fn has_credentials(&self, provider: &Provider) -> bool {
        self.has_foreign_secret || self.names.iter().any(|name| is_credential(provider, name))
    }
}

impl RenderedAddresses {
    fn add_environment(&mut self, environment: &Environment) {
        self.others.extend(COLLECTORS.iter().filter_map(|name| environment.get(name)).flat_map(addresses));
        self.others.extend(environment.get("CORAIL_DATABASE_URL").into_iter().flat_map(addresses));
        self.called.extend(environment.get(SEARCH).into_iter().flat_map(addresses));
        let bases = environment.json("CORAIL_KNOWLEDGE_BASES").unwrap_or_default();
        for base in bases.as_array().into_iter().flatten() {
            self.others.extend(base["connection_url"].as_str().into_iter().flat_map(addresses));
            if let Some(type_) = base["embedding_provider"].as_str() {
                self.add_model(type_, None, &Value::Null, environment);
            }
        }
        self.add_tools(&environment.json("CORAIL_TOOLS").unwrap_or_default());
        if let Some(type_) = environment.get("CORAIL_MODEL_TYPE") {
            let keys = environment.json("CORAIL_MODEL_CREDENTIAL_KEYS").unwrap_or_default();
            self.add_model(type_, environment.get("CORAIL_MODEL_BASE_URL"), &keys, environment);
        }
        let fallbacks = environment.json("CORAIL_MODEL_FALLBACKS").unwrap_or_default();
        fallbacks.as_array().into_iter().flatten().for_each(|fallback| self.add_fallback(fallback, environment));
        let background = environment.get("CORAIL_BACKGROUND_MODEL").and_then(|model| model.split_once(':'));
        if let Some((type_, _)) = background {
            self.add_model(type_, None, &Value::Null, environment);
        }
    }

    /// Adds the addresses of a file: the tools of an agent, a tool of a flow, or the model of a flow.
    fn add_file(&mut self, file: &Value, environment: &Environment) {
        self.add_tools(file);
        let call = file["implementation"].as_object().into_iter().flatten();
        self.called.extend(call.filter_map(|(_, call)| call["url"].as_str()).flat_map(addresses));
        if let Some(type_) = file.pointer("/plugin/type").and_then(Value::as_str) {
            let keys = &file["credentialKeys"];
            self.add_model(type_, base_url(&file["plugin"]), keys, environment);
            let fallbacks = file["fallbacks"].as_array().into_iter().flatten();
            fallbacks.for_each(|fallback| self.add_fallback(fallback, environment));
        }
    }

    /// Adds the addresses of an agent's tools.
    fn add_tools(&mut self, tools: &Value) {
        for tool in tools.as_array().into_iter().flatten() {
            let named = ["endpoint", "mcpEndpoint"].into_iter().filter_map(|field| tool[field].as_str());
            self.called.extend(named.flat_map(addresses));
        }
    }

    fn add_fallback(&mut self, fallback: &Value, environment: &Environment) {
        if let Some(type_) = fallback.pointer("/plugin/type").and_then(Value::as_str) {
            let variables = fallback["credentials"].as_object().into_iter().flatten();
            let variables = variables.map(|(key, _)| Value::from(key.as_str()));
            let files = fallback["credentialKeys"].as_array().into_iter().flatten().cloned();
            let keys = Value::from(variables.chain(files).collect::<Vec<_>>());
            self.add_model(type_, base_url(&fallback["plugin"]), &keys, environment);
        }
    }

    /// Adds the addresses of a model. `base` is the address that its PluginConfig names, `keys` has the names of its credentials.
    fn add_model(&mut self, type_: &str, base: Option<&str>, keys: &Value, environment: &Environment) {
        let Some(provider) = provider(type_) else {
            // The image knows where it is.
            self.providers = true;
            self.called.extend(base.into_iter().flat_map(addresses));
            return;
        };
        if *provider == STUB {
            return;
        }
        match base.or_else(|| environment.get(provider.base)) {
            Some(url) => self.called.extend(addresses(url)),
            // On the same machine.
            None if *provider == OLLAMA => {}
            None => self.providers = true,
        }
        if provider.identity.is_empty() {
            return;
        }
        self.providers = true;
        let keys: Vec<_> = keys.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        // A single key is the provider's under any name, where it has one.
        let is_only = keys.len() == 1 && !provider.keys.is_empty();
        let is_keyed = is_only || keys.iter().any(|key| is_credential(provider, key));
        if is_keyed || environment.has_credentials(provider) {
            return;
        }
        if provider.identity.contains(&"GCE_METADATA_HOST") {
            self.metadata.extend(GOOGLE_METADATA);
        }
        if provider.identity.contains(&"AWS_CONTAINER_CREDENTIALS_FULL_URI") {
            self.metadata.extend(EKS_METADATA);
        }
    }
}

/// Reports whether a key or variable is a credential of the provider.
fn is_credential(provider: &Provider, name: &str) -> bool {
    provider.keys.contains(&name) || CREDENTIALS.contains(&name) && provider.identity.contains(&name)
}

/// Returns the address in the settings of a provider.
fn base_url(plugin: &Value) -> Option<&str> {
    let settings = &plugin["extraConfig"];
    BASE_URL_KEYS.iter().find_map(|key| settings[*key].as_str()).filter(|url| !url.is_empty())
}

/// Returns the keys and texts of a ConfigMap or Secret.
fn data(manifest: &ChildManifest) -> Vec<(String, String)> {
    let entries = manifest.body["data"].as_object().into_iter().flatten();
    let text = |value: &Value| match manifest.child.kind {
        ChildKind::ConfigMap => value.as_str().map(str::to_owned),
        ChildKind::Secret => {
            let bytes = serde_json::from_value::<ByteString>(value.clone()).ok()?;
            String::from_utf8(bytes.0).ok()
        }
        _ => None,
    };
    entries.filter_map(|(key, value)| Some((key.clone(), text(value)?))).collect()
}

fn names(container: &Value) -> BTreeSet<String> {
    let known = PROVIDERS.iter().flat_map(|found| found.keys.iter().chain(found.identity)).copied();
    let known: Vec<&str> = known.collect();
    let variables = container["env"].as_array().into_iter().flatten();
    let names = variables.filter_map(|variable| variable["name"].as_str());
    names.filter(|name| known.contains(name)).map(str::to_owned).collect()
}

/// Reports whether the container has every key of a Secret that is not rendered.
fn has_secret(config: &[ChildManifest], container: &Value) -> bool {
    let is_rendered = |name: &str| {
        config.iter().any(|manifest| manifest.child.kind == ChildKind::Secret && manifest.child.name == name)
    };
    let sources = container["envFrom"].as_array().into_iter().flatten();
    sources.filter_map(|source| source.pointer("/secretRef/name")?.as_str()).any(|name| !is_rendered(name))
}

/// Returns the hosts and ports of a URL; one of a database may have several.
fn addresses(url: &str) -> Vec<(String, u16)> {
    const POSTGRES: u16 = 5432;
    let Some((scheme, rest)) = url.trim().split_once("://") else { return Vec::new() };
    match scheme.to_ascii_lowercase().as_str() {
        "http" | "https" => return http_address(url).into_iter().collect(),
        "postgres" | "postgresql" => {}
        _ => return Vec::new(),
    }
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    let address = |host: &str| {
        let from = host.rfind(']').unwrap_or(0);
        let (host, port) = match host[from..].find(':') {
            Some(colon) => (&host[..from + colon], host[from + colon + 1..].parse::<u16>().ok()?),
            None => (host, POSTGRES),
        };
        let inner = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
        (!inner.is_empty()).then(|| (inner.trim_end_matches('.').to_ascii_lowercase(), port))
    };
    hosts.split(',').filter_map(address).collect()
}

/// Returns the host and port of a URL as the runtime reads it: a name in ASCII, an address in its usual form.
fn http_address(url: &str) -> Option<(String, u16)> {
    let url = Url::parse(url.trim()).ok()?;
    let host = match url.host()? {
        Host::Domain(name) => name.trim_end_matches('.').to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    };
    let port = url.port_or_known_default()?;
    (!host.is_empty()).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ports::ChildRef;

    fn manifest(kind: ChildKind, name: &str, data: Value) -> ChildManifest {
        let child = ChildRef { kind, namespace: "ns".to_owned(), name: name.to_owned() };
        ChildManifest { child, body: json!({ "data": data }) }
    }

    fn set(addresses: &[(&str, u16)]) -> BTreeSet<(String, u16)> {
        addresses.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect()
    }

    #[test]
    fn a_url_has_hosts_and_ports() {
        for (url, expected) in [
            ("https://api.example.com/v1?x=http://evil.example", vec![("api.example.com", 443)]),
            ("http://User:p@ss@Host:8080", vec![("host", 8080)]),
            ("http://[2001:db8::1]:81/x", vec![("2001:db8::1", 81)]),
            ("http://[2001:db8::1]/x", vec![("2001:db8::1", 80)]),
            ("https://Bücher.example./x", vec![("xn--bcher-kva.example", 443)]),
            ("http://0x0a.1/", vec![("10.0.0.1", 80)]),
            ("postgresql://u:p@one:5433,two/db", vec![("one", 5433), ("two", 5432)]),
            ("postgres:///db", vec![]),
            ("ftp://x", vec![]),
            ("http://x:port/", vec![]),
            ("no URL", vec![]),
        ] {
            let expected: Vec<(&str, u16)> = expected;
            let found = addresses(url);
            let found: Vec<_> = found.iter().map(|(host, port)| (host.as_str(), *port)).collect();
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn an_agent_names_its_model_tools_databases_and_collector() {
        let tools = json!([
            { "name": "a", "type": "http", "endpoint": "https://weather.example/{city}",
              "description": "as https://evil.example", "inputSchema": { "endpoint": "https://evil.example" } },
            { "name": "b", "type": "mcp", "mcpEndpoint": "http://mcp.tools.svc.cluster.local:3000/mcp" },
        ]);
        let config = [
            manifest(
                ChildKind::ConfigMap,
                "a-config",
                json!({
                    "CORAIL_MODEL_TYPE": "openai", "CORAIL_MODEL_BASE_URL": "http://llm.example:8000/v1",
                    "CORAIL_SYSTEM_PROMPT": "ask https://evil.example", "CORAIL_TOOLS": tools.to_string(),
                }),
            ),
            manifest(
                ChildKind::Secret,
                "a-config",
                json!({
                    "CORAIL_DATABASE_URL": ByteString(b"postgresql://u:p@db.shop.svc.cluster.local/x".to_vec()),
                }),
            ),
        ];
        let container = json!({ "env": [{ "name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://otel:4318" }],
            "envFrom": [{ "secretRef": { "name": "a-config" } }] });
        let found = rendered_addresses(&config, &container);
        assert_eq!(
            found.called,
            set(&[("weather.example", 443), ("mcp.tools.svc.cluster.local", 3000), ("llm.example", 8000)])
        );
        assert_eq!(found.others, set(&[("db.shop.svc.cluster.local", 5432), ("otel", 4318)]));
        assert!(!found.providers && found.metadata.is_empty());
    }

    #[test]
    fn a_flow_names_those_of_its_files() {
        let config = json!({ "plugin": { "type": "openai", "extraConfig": { "baseUrl": "https://llm.example" } },
            "fallbacks": [{ "plugin": { "type": "anthropic" } }] });
        let tool = json!({ "name": "t", "implementation": { "http": { "url": "http://t.example:81/x" } } });
        let files = [
            manifest(ChildKind::ConfigMap, "f-config", json!({ "config.json": config.to_string() })),
            manifest(ChildKind::ConfigMap, "f-tools", json!({ "t.json": tool.to_string() })),
            manifest(ChildKind::ConfigMap, "f-prompts", json!({ "p.prompt": "https://evil.example" })),
        ];
        let found = rendered_addresses(&files, &json!({}));
        assert_eq!(found.called, set(&[("llm.example", 443), ("t.example", 81)]));
        assert!(found.providers, "the fallback is at its provider's own address");
    }

    #[test]
    fn a_cloud_without_credentials_needs_its_metadata_service() {
        let of = |type_: &str, more: Value, container: Value| {
            let mut data = json!({ "CORAIL_MODEL_TYPE": type_ });
            data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let found = rendered_addresses(&[manifest(ChildKind::ConfigMap, "a-config", data)], &container);
            assert!(found.providers, "{type_}");
            found.metadata.into_iter().map(|(host, _)| host).collect::<Vec<_>>()
        };
        let google = ["169.254.169.252", "169.254.169.254"];
        assert_eq!(of("vertexai", json!({}), json!({})), google);
        assert_eq!(of("vertexai", json!({ "CORAIL_MODEL_BASE_URL": "https://x.googleapis.com" }), json!({})), google);
        let env = json!({ "env": [{ "name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "{}" }] });
        assert_eq!(of("vertexai", json!({}), env), [""; 0]);
        let project = json!({ "env": [{ "name": "GOOGLE_CLOUD_PROJECT", "value": "p" }] });
        assert_eq!(of("vertexai", json!({}), project), google, "a project is no credential");
        assert_eq!(of("bedrock", json!({}), json!({})), ["169.254.170.23"]);
        assert_eq!(of("bedrock", json!({ "CORAIL_MODEL_CREDENTIAL_KEYS": "[\"KEY\"]" }), json!({})), [""; 0]);
        assert_eq!(of("openai", json!({}), json!({})), [""; 0]);
        assert_eq!(of("azure-openai", json!({}), json!({})), [""; 0]);
    }
}
