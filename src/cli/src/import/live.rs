//! Reads the objects of a cluster: the kinds of each source, and the ConfigMaps and Services that their objects name.

use std::collections::BTreeSet;

use ::import::{ImportOptions, ListedKind, Source, SourceObject, listed_kinds, named_objects};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::{
    cluster::{ReadError, UserClient},
    error::CliError,
};

/// Objects per page of a list.
const PAGE: usize = 500;

/// Reads the objects of the sources that a cluster has.
///
/// # Errors
/// [`CliError::Read`], and errors of an import.
pub(super) async fn read(
    live: &UserClient,
    all_namespaces: bool,
    options: &ImportOptions,
) -> Result<Vec<SourceObject>, CliError> {
    let namespace = (!all_namespaces).then_some(live.namespace.as_str());
    let mut objects = Vec::new();
    // Objects of the upstream operator have our own group, so that they are taken only where that is meant.
    let sources = match options.from {
        Some(source) => vec![source],
        None => vec![Source::Kagent, Source::Genkit, Source::Krypton],
    };
    for source in sources {
        let Some(group) = get(live, &format!("/apis/{}", source.group())).await? else { continue };
        let served: Vec<&str> =
            group["versions"].as_array().into_iter().flatten().filter_map(|it| it["version"].as_str()).collect();
        let mut resources = BTreeSet::new();
        for version in &served {
            let path = format!("/apis/{}/{version}", source.group());
            let Some(found) = get(live, &path).await? else { continue };
            for resource in found["resources"].as_array().into_iter().flatten() {
                let name = resource["name"].as_str().unwrap_or_default();
                resources.insert(((*version).to_owned(), name.to_owned()));
            }
        }
        for kind in listed_kinds(source) {
            let is_served = |version: &&&str| resources.contains(&((**version).to_owned(), kind.plural.to_owned()));
            if let Some(version) = kind.versions.iter().find(is_served) {
                objects.extend(list(live, &kind, version, namespace).await?);
            }
        }
    }
    for named in named_objects(&objects, options)? {
        let plural = if named.kind == "ConfigMap" { "configmaps" } else { "services" };
        let [namespace, name] = [&named.namespace, &named.name].map(|text| escaped(text));
        let path = format!("/api/v1/namespaces/{namespace}/{plural}/{name}");
        if let Some(mut value) = get(live, &path).await? {
            value["apiVersion"] = "v1".into();
            value["kind"] = named.kind.clone().into();
            objects.push(SourceObject { value, at: "the cluster".to_owned(), is_context: true });
        }
    }
    Ok(objects)
}

/// Reads an object; `None` if it does not exist.
async fn get(live: &UserClient, path: &str) -> Result<Option<Value>, CliError> {
    match live.request::<Value>(&format!("get {path}"), Method::GET, path, None).await {
        Ok(value) => Ok(Some(value).filter(Value::is_object)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Lists the objects of a kind, page by page.
async fn list(
    live: &UserClient,
    kind: &ListedKind,
    version: &str,
    namespace: Option<&str>,
) -> Result<Vec<SourceObject>, ReadError> {
    let scope = namespace.map(|namespace| format!("namespaces/{}/", escaped(namespace))).unwrap_or_default();
    let base = format!("/apis/{}/{version}/{scope}{}?limit={PAGE}", kind.group, kind.plural);
    let (mut objects, mut next) = (Vec::new(), String::new());
    loop {
        let page = if next.is_empty() { base.clone() } else { format!("{base}&continue={}", escaped(&next)) };
        let mut list: Value = live.request(&format!("list {}", kind.plural), Method::GET, &page, None).await?;
        if let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) {
            objects.extend(items.into_iter().filter_map(|item| object(item, kind, version)));
        }
        match list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
            Some(token) => token.clone_into(&mut next),
            None => return Ok(objects),
        }
    }
}

/// Returns an item of a list with its kind, which items may lack.
fn object(item: Value, kind: &ListedKind, version: &str) -> Option<SourceObject> {
    let Value::Object(fields) = item else { return None };
    let mut value = Map::new();
    value.insert("apiVersion".to_owned(), format!("{}/{version}", kind.group).into());
    value.insert("kind".to_owned(), kind.kind.into());
    value.extend(fields.into_iter().filter(|(key, _)| key != "apiVersion" && key != "kind"));
    Some(SourceObject { value: value.into(), at: "the cluster".to_owned(), is_context: false })
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
