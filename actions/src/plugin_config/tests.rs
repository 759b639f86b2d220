use std::time::Duration;

use serde_json::json;

use super::*;
use crate::fake::{Operator, Sim, id, object, secret};

#[tokio::test(start_paused = true)]
async fn every_condition_has_a_time() {
    let sim = Sim::new();
    let spec = json!({"type": "stub", "extraConfig": {"baseUrl": "http://h"}});
    sim.store().create(&id("PluginConfig", "p"), object("PluginConfig", spec));
    let mut operator = Operator::start(&sim);
    operator.run(Duration::from_secs(60)).await;
    let conditions = sim.store().at(&id("PluginConfig", "p"), "/status/conditions");
    let all = conditions.as_array().unwrap();
    assert!(all.iter().any(|found| found["type"] == "ConfigUnderstood"), "{all:?}");
    let undated = |found: &&Value| found["lastTransitionTime"] == json!(meta::UNSET_TIME.to_string());
    assert_eq!(all.iter().find(undated), None, "the schema's time is no time");
}

#[tokio::test(start_paused = true)]
async fn a_whole_secret_of_which_a_cloud_reads_nothing_is_named() {
    let bedrock = json!({"type": "bedrock", "extraConfig": {"baseUrl": "https://gateway.example"}});
    let lost = "type bedrock reads no key of Secret keys: name the one with the credential in credentialKeys";
    for (more, data, expected) in [
        (json!({}), json!({"token": "aw=="}), Some(lost)),
        (json!({"credentialKeys": ["token"]}), json!({"token": "aw=="}), None),
        (json!({}), json!({"token": "aw==", "AWS_ACCESS_KEY_ID": "aw=="}), None),
        (json!({}), json!({}), None),
        (json!({"type": "ollama"}), json!({"token": "aw=="}), None),
    ] {
        let sim = Sim::new();
        let mut spec = bedrock.clone();
        spec["credentialsRef"] = json!({"name": "keys"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        sim.store().create(&id("Secret", "keys"), secret(data));
        sim.store().create(&id("PluginConfig", "p"), object("PluginConfig", spec.clone()));
        Operator::start(&sim).run(Duration::from_secs(60)).await;
        let conditions = sim.store().at(&id("PluginConfig", "p"), "/status/conditions");
        let mut all = conditions.as_array().unwrap().iter();
        let found = all.find(|found| found["type"] == "ConfigUnderstood").map(|found| found["message"].clone());
        assert_eq!(found.as_ref().and_then(Value::as_str), expected, "{spec}");
    }
}

#[test]
fn keys_that_nothing_reads_are_named() {
    for (type_, extra, expected) in [
        ("openai", json!({"baseURL": "http://h"}), None),
        ("ollama", json!({"serverAddress": "http://h"}), None),
        ("stub", json!({"baseUrl": "http://h"}), Some("nothing reads baseUrl of extraConfig with type stub: ")),
        (
            "openai",
            json!({"a": 1, "baseUrl": "http://h", "b": 2}),
            Some("nothing reads a, b of extraConfig with type openai: "),
        ),
        ("mistral", json!({"projectId": "p"}), None),
        ("azure-openai", json!({"endpoint": "http://h", "apiVersion": "2024-10-21"}), None),
        ("vertexai", json!({"project": "p", "location": "eu"}), None),
        ("openai", json!({"apiVersion": "1"}), Some("nothing reads apiVersion of extraConfig with type openai: ")),
    ] {
        let spec = serde_json::from_value(json!({"type": type_, "extraConfig": extra})).unwrap();
        let found = unread(&spec);
        assert_eq!(found.is_some(), expected.is_some(), "{type_}: {found:?}");
        assert!(found.unwrap_or_default().starts_with(expected.unwrap_or_default()), "{type_} {extra}");
    }
}

#[test]
fn what_no_provider_could_be_reached_by_is_told() {
    let keyed = |more: Value| {
        let mut spec = json!({"type": "openai", "credentialsRef": {"name": "s"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        problem(&serde_json::from_value(spec).unwrap())
    };
    let bad_url = Some("extraConfig.baseUrl must be a URL that begins with http:// or https:// and names a host");
    for (more, expected) in [
        (json!({}), None),
        (json!({"credentialsRef": null}), Some("openai needs credentialsRef, or baseUrl, headersFrom or passthrough")),
        (json!({"type": "ollama", "credentialsRef": null}), None),
        (json!({"region": "us-east-1", "extraConfig": {"baseUrl": "https://h/v1", "x": 1}}), None),
        (json!({"region": "evil.example/"}), Some("region \"evil.example/\" is not a region: use a word such as eu")),
        (json!({"extraConfig": {"baseUrl": ""}}), None),
        (json!({"extraConfig": {"baseUrl": "HTTP://h"}}), None),
        (json!({"extraConfig": {"baseUrl": "h/v1"}}), bad_url),
        (json!({"extraConfig": {"baseUrl": "ftp://h"}}), bad_url),
        (json!({"extraConfig": {"baseUrl": "https:///v1"}}), bad_url),
        (json!({"extraConfig": {"baseUrl": 8080}}), bad_url),
        (json!({"credentialsRef": null, "passthrough": true}), None),
        (json!({"credentialsRef": null, "extraConfig": {"endpoint": "http://h"}}), None),
        (json!({"credentialsRef": null, "headersFrom": [{"name": "X-Key", "value": "k"}]}), None),
        (json!({"type": "mistral", "credentialsRef": null}), None),
        (
            json!({"type": "google-ai", "credentialsRef": null}),
            Some("google-ai needs credentialsRef, or baseUrl, headersFrom or passthrough"),
        ),
        (json!({"extraConfig": {"baseUrl": "http://h", "serverAddress": "http://h"}}), None),
        (
            json!({"extraConfig": {"baseUrl": "http://h", "serverAddress": "http://i"}}),
            Some("keep one of baseUrl, serverAddress"),
        ),
        (json!({"type": "azure", "extraConfig": {"endpoint": "h.example", "baseUrl": "unix:/run/llm"}}), None),
        // Types of clouds were once for images of users' own.
        (json!({"type": "bedrock", "credentialsRef": null}), None),
        (json!({"type": "vertexai", "region": "eu", "extraConfig": {"location": "us", "baseUrl": "h"}}), None),
    ] {
        assert_eq!(keyed(more.clone()).as_deref(), expected, "{more}");
    }
}

#[test]
fn what_the_runner_could_not_reach_a_cloud_by_is_told() {
    for (spec, expected) in [
        (json!({"type": "openai", "extraConfig": {"baseUrl": "h"}}), None),
        (json!({"type": "azure-openai", "extraConfig": {"apiVersion": "v1"}}), None),
        (
            json!({"type": "azure-openai", "extraConfig": {"endpoint": "h.example"}}),
            Some("extraConfig.endpoint must be a URL that begins with http:// or https:// and names a host"),
        ),
        (
            json!({"type": "azureaifoundry", "extraConfig": {"apiVersion": 2}}),
            Some("extraConfig.apiVersion must be a text"),
        ),
        (json!({"type": "vertexai", "region": "eu", "extraConfig": {"location": "eu"}}), None),
        (
            json!({"type": "vertexai", "region": "eu", "extraConfig": {"location": "us"}}),
            Some("keep one of region, location"),
        ),
        (
            json!({"type": "anthropic-vertex", "extraConfig": {"region": "eu", "location": "us"}}),
            Some("keep one of location, region"),
        ),
        (
            json!({"type": "vertex-ai", "extraConfig": {"projectId": "p", "project": "q"}}),
            Some("keep one of projectId, project"),
        ),
        (
            json!({"type": "vertexai", "extraConfig": {"location": "evil.example/"}}),
            Some("region \"evil.example/\" is not a region: use a word such as eu"),
        ),
        (json!({"type": "bedrock"}), Some("bedrock needs region, such as eu-central-1")),
        (json!({"type": "bedrock", "region": "eu-central-1"}), None),
        (json!({"type": "bedrock", "extraConfig": {"baseUrl": "http://h"}}), None),
    ] {
        let found = cloud_problem(&serde_json::from_value(spec.clone()).unwrap());
        assert_eq!(found.as_deref(), expected, "{spec}");
    }
}
