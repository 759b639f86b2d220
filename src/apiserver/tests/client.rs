//! The client of kube-rs over the server: its decoders, watches and applies run for real.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::{model, server};
use crds::Model;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::{
    api::{apps::v1::Deployment, authentication::v1::TokenReview, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    discovery::Discovery,
    runtime::{reflector, watcher},
};
use serde_json::json;

fn client() -> Client {
    Client::new(server(), "default")
}

fn map(name: &str, value: &str) -> ConfigMap {
    let data = BTreeMap::from([("k".to_owned(), value.to_owned())]);
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

#[tokio::test]
async fn the_client_creates_reads_patches_applies_and_deletes() {
    let api: Api<ConfigMap> = Api::default_namespaced(client());
    let created = api.create(&PostParams::default(), &map("a", "1")).await.unwrap();
    assert_eq!(api.get("a").await.unwrap(), created);
    assert_eq!(api.get_opt("b").await.unwrap(), None);
    let patch = json!({ "data": { "l": "2" } });
    let patched = api.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    assert_eq!(patched.data.as_ref().unwrap().len(), 2);
    let config = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "m": "3" } });
    let applied = api.patch("a", &PatchParams::apply("m"), &Patch::Apply(config)).await.unwrap();
    assert_eq!(applied.data.unwrap().len(), 3);
    let mut stale = patched.clone();
    stale.data = None;
    let error = api.replace("a", &PostParams::default(), &stale).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.is_conflict()));
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert!(api.delete("a", &DeleteParams::default()).await.unwrap().is_right());
    assert!(api.get_metadata_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn the_client_watches() {
    let api: Api<ConfigMap> = Api::default_namespaced(client());
    let mut events = api.watch(&WatchParams::default().timeout(20), "0").await.unwrap().boxed();
    api.create(&PostParams::default(), &map("a", "1")).await.unwrap();
    let event = events.try_next().await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Added(found) if found.name_any() == "a"));
}

#[tokio::test]
async fn a_reflector_follows_by_list_and_by_streaming_list() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let api: Api<Model> = Api::default_namespaced(client());
        let object = |name: &str| serde_json::from_value::<Model>(model(name)).unwrap();
        api.create(&PostParams::default(), &object("a")).await.unwrap();
        let (reader, writer) = reflector::store();
        let mut events = reflector(writer, watcher(api.clone(), config)).boxed();
        while reader.is_empty() {
            events.try_next().await.unwrap().unwrap();
        }
        api.create(&PostParams::default(), &object("b")).await.unwrap();
        api.delete("a", &DeleteParams::default()).await.unwrap();
        while reader.state().iter().map(|found| found.name_any()).collect::<Vec<_>>() != ["b"] {
            events.try_next().await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn the_client_finds_the_kinds() {
    let client = client();
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
    for discovery in [Discovery::new(client.clone()).run().await, Discovery::new(client.clone()).run_aggregated().await]
    {
        let discovery = discovery.unwrap();
        let group = discovery.get("agents.recif.dev").unwrap();
        let (resource, capabilities) = group.recommended_kind("Agent").unwrap();
        assert_eq!(resource.plural, "agents");
        assert!(
            capabilities.subresources.iter().any(|(found, _)| found.plural.ends_with("scale") || found.kind == "Scale")
        );
        assert!(discovery.groups().count() > 5);
    }
}

#[tokio::test]
async fn the_client_scales_and_reviews() {
    let client = client();
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    let object = serde_json::from_value(common::deployment("a")).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    let scale = Patch::Merge(json!({ "spec": { "replicas": 3 } }));
    let scaled = api.patch_scale("a", &PatchParams::default(), &scale).await.unwrap();
    assert_eq!(scaled.spec.unwrap().replicas, Some(3));
    let reviews: Api<TokenReview> = Api::all(client);
    let review = serde_json::from_value(json!({ "metadata": {}, "spec": { "token": "known" } })).unwrap();
    let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
    assert_eq!(answer.status.unwrap().authenticated, Some(true));
}
