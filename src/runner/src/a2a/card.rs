//! Agent card: describes an agent and its endpoint to clients that know only its address.
//!
//! One card serves both versions of the protocol: 1.0 reads `supportedInterfaces`, 0.3 reads `url`,
//! `preferredTransport` and `protocolVersion`. Its URL is the one that the client called, which the proxies on the path
//! report in `X-Forwarded-*`.

use axum::http::{
    HeaderMap,
    header::HOST,
    uri::{Authority, PathAndQuery},
};
use crds::agent_card::AgentSkill;
use serde::Deserialize;
use serde_json::{Value, json};

use super::hitl;

/// Description and skills of an agent, as `CORAIL_AGENT_CARD` sets them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct CardSettings {
    /// Description of the agent; empty: one made of its name.
    description: String,
    /// Skills of the agent; empty: one skill, chat.
    skills: Vec<AgentSkill>,
}

/// Returns the card of the agent `name`, reached at `url`. One that `asks_people` to approve calls offers the extension for that.
pub(super) fn card(name: &str, settings: &CardSettings, url: &str, asks_people: bool) -> Value {
    let description = match settings.description.as_str() {
        "" => format!("The AI agent {name}: it answers messages, and uses tools on the way where it has some."),
        set => set.to_owned(),
    };
    let skills = match settings.skills.as_slice() {
        [] => json!([{ "id": "chat", "name": "Chat", "description": description, "tags": ["chat"] }]),
        set => set.iter().map(skill).collect(),
    };
    let mut capabilities = json!({ "streaming": true, "pushNotifications": false });
    if asks_people {
        capabilities["extensions"] = json!([hitl::on_card()]);
    }
    json!({
        "name": name,
        "description": description,
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [
            { "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
            { "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3" },
        ],
        "capabilities": capabilities,
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": ["text/plain"],
        "skills": skills,
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
    })
}

/// Returns a skill with the fields that the protocol requires, of which the spec may leave out description and tags.
fn skill(skill: &AgentSkill) -> Value {
    let mut shown = json!(skill);
    shown["description"] = json!(skill.description.as_deref().filter(|text| !text.is_empty()).unwrap_or(&skill.name));
    shown["tags"] = json!(skill.tags);
    shown
}

/// Returns the URL by which the client reaches this agent, from `X-Forwarded-*` or `Host`; `None` when the request has
/// neither. A forwarded value that cannot be part of a URL counts as absent.
pub(super) fn address(headers: &HeaderMap) -> Option<String> {
    let scheme = forwarded(headers, "x-forwarded-proto").map(str::to_ascii_lowercase);
    let scheme = scheme.filter(|scheme| matches!(scheme.as_str(), "http" | "https")).unwrap_or("http".into());
    let host = forwarded(headers, "x-forwarded-host").filter(|host| is_host(host));
    let host = host.or_else(|| headers.get(HOST)?.to_str().ok().filter(|host| is_host(host)))?;
    let prefix = forwarded(headers, "x-forwarded-prefix").map(|prefix| prefix.trim_end_matches('/'));
    let prefix = prefix.filter(|prefix| is_prefix(prefix)).unwrap_or_default();
    Some(format!("{scheme}://{host}{prefix}/"))
}

/// Returns the first value of a list header: the one set by the proxy next to the client. Each proxy on the path may
/// append its own.
fn forwarded<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let first = headers.get(name)?.to_str().ok()?.split(',').next()?.trim();
    (!first.is_empty()).then_some(first)
}

fn is_host(host: &str) -> bool {
    host.parse::<Authority>().is_ok_and(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'))
}

fn is_prefix(prefix: &str) -> bool {
    let path = prefix.parse::<PathAndQuery>();
    prefix.starts_with('/') && !prefix.starts_with("//") && path.is_ok_and(|path| path.path() == prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_take_the_place_of_the_defaults_each_for_itself() {
        let card = |settings: Value| card("shop", &serde_json::from_value(settings).unwrap(), "http://a/", false);
        let skills = json!([
            { "id": "find", "name": "Find", "tags": ["search"], "inputModes": ["text/plain"] },
            { "id": "buy", "name": "Buy", "description": "Buys a thing.", "examples": ["Buy a pen"] },
        ]);
        let both = card(json!({ "description": "Sells pens.", "skills": skills }));
        assert_eq!(both["description"], "Sells pens.");
        assert_eq!(
            both["skills"],
            json!([
                { "id": "find", "name": "Find", "description": "Find", "tags": ["search"], "inputModes": ["text/plain"] },
                { "id": "buy", "name": "Buy", "description": "Buys a thing.", "tags": [], "examples": ["Buy a pen"] },
            ])
        );
        let described = card(json!({ "description": "Sells pens." }));
        assert_eq!(described["skills"][0]["id"], "chat");
        assert_eq!(described["skills"][0]["description"], "Sells pens.");
        let none = card(json!({}));
        assert!(none["description"].as_str().unwrap().starts_with("The AI agent shop: "), "{none}");
        assert_eq!(none["skills"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn the_address_is_the_one_the_client_used() {
        for (given, expected) in [
            (&[("host", "a:8000")][..], Some("http://a:8000/")),
            (&[("host", "[::1]:8000")], Some("http://[::1]:8000/")),
            (&[("host", "a"), ("x-forwarded-proto", "HTTPS")], Some("https://a/")),
            (
                &[("host", "a"), ("x-forwarded-host", "gw.example, inner"), ("x-forwarded-proto", "https,http")],
                Some("https://gw.example/"),
            ),
            (&[("host", "a"), ("x-forwarded-prefix", "/v1/agents/ns/x/")], Some("http://a/v1/agents/ns/x/")),
            (&[("host", "a"), ("x-forwarded-prefix", "/")], Some("http://a/")),
            (&[("host", "a"), ("x-forwarded-proto", "javascript")], Some("http://a/")),
            (&[("host", "a"), ("x-forwarded-host", "b/c?d")], Some("http://a/")),
            (&[("host", "a"), ("x-forwarded-host", "user@b")], Some("http://a/")),
            (&[("host", "a"), ("x-forwarded-prefix", "//evil")], Some("http://a/")),
            (&[("host", "a"), ("x-forwarded-prefix", "/p?q=1")], Some("http://a/")),
            (&[("host", "a"), ("x-forwarded-prefix", "/a b")], Some("http://a/")),
            (&[("host", "a b")], None),
            (&[], None),
        ] {
            let headers = given.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            assert_eq!(address(&headers.collect()).as_deref(), expected, "{given:?}");
        }
    }
}
