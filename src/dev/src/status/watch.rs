//! Watches of the objects whose state is shown: all kinds of ours, and the Services with their ports on this machine.

use std::future::ready;

use crds::{ApiKind, GROUP, KINDS, VERSION};
use futures::{
    Stream, StreamExt as _,
    stream::{BoxStream, select_all},
};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{
        WatchStreamExt as _,
        watcher::{Config, Event, watcher},
    },
};
use serde_json::Value;

use crate::manifest::ObjectId;

/// Change that a watch has seen.
#[derive(Debug)]
pub(crate) enum Sight {
    /// An object is there, and may have changed.
    Object(ObjectId, Box<DynamicObject>),
    /// An object was deleted.
    Gone(ObjectId),
    /// A Service is there; its port on this machine, if it has one.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port on this machine.
        port: Option<u16>,
    },
}

/// Watches all objects, for ever.
pub(crate) fn sights(client: &Client) -> impl Stream<Item = Sight> + Send + use<> {
    let mut all: Vec<BoxStream<'static, Sight>> = KINDS.iter().map(|kind| objects(client, kind).boxed()).collect();
    all.push(deployments(client).boxed());
    all.push(services(client).boxed());
    select_all(all)
}

/// Watches the Deployments that no other object has made.
fn deployments(client: &Client) -> impl Stream<Item = Sight> + Send + use<> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("apps", "v1", "Deployment"), "deployments");
    let is_made =
        |object: &DynamicObject| object.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
    let own = events(client, &resource).filter(move |(object, _)| ready(!is_made(object)));
    own.map(|(object, is_there)| sight("apps/v1", "Deployment", object, is_there))
}

fn objects(client: &Client, kind: &'static ApiKind) -> impl Stream<Item = Sight> + Send + use<> {
    let gvk = GroupVersionKind::gvk(GROUP, VERSION, kind.name);
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
    events(client, &resource).map(move |(object, is_there)| sight(&kind.api_version(), kind.name, object, is_there))
}

fn sight(api_version: &str, kind: &str, object: DynamicObject, is_there: bool) -> Sight {
    let id = ObjectId {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
    };
    if is_there { Sight::Object(id, Box::new(object)) } else { Sight::Gone(id) }
}

fn services(client: &Client) -> impl Stream<Item = Sight> + Send + use<> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Service"), "services");
    events(client, &resource).map(|(object, is_there)| Sight::Service {
        port: is_there.then(|| port(&object.data)).flatten(),
        namespace: object.metadata.namespace.unwrap_or_default(),
        name: object.metadata.name.unwrap_or_default(),
    })
}

/// Returns the port of a Service on this machine: that of the port `http`, else of the first one.
fn port(service: &Value) -> Option<u16> {
    let ports = service.pointer("/spec/ports")?.as_array()?;
    let http = ports.iter().find(|port| port["name"] == "http").or_else(|| ports.first())?;
    u16::try_from(http["nodePort"].as_u64()?).ok()
}

/// Watches a kind: each object, with whether it is there.
fn events(client: &Client, resource: &ApiResource) -> impl Stream<Item = (DynamicObject, bool)> + Send + use<> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    watcher(api, Config::default()).default_backoff().filter_map(|event| {
        ready(match event {
            Ok(Event::InitApply(object) | Event::Apply(object)) => Some((object, true)),
            Ok(Event::Delete(object)) => Some((object, false)),
            Ok(Event::Init | Event::InitDone) | Err(_) => None,
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_port_of_http_is_the_one_to_call() {
        let service = |ports: Value| json!({ "spec": { "ports": ports } });
        assert_eq!(port(&service(json!([{ "name": "x", "nodePort": 1 }, { "name": "http", "nodePort": 2 }]))), Some(2));
        assert_eq!(port(&service(json!([{ "name": "x", "nodePort": 1 }]))), Some(1));
        assert_eq!(port(&service(json!([{ "name": "http", "port": 80 }]))), None);
        assert_eq!(port(&json!({})), None);
    }
}
