//! Objects of files: what is applied, and where each of its fields is.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use node::DEV_FOLDER;
use serde_json::{Value, json};
use yaml::{Places, pointer_of};

use crate::{
    files::SourceText,
    kinds::{Kind, Kinds},
};

/// Annotation with a pattern of files whose changes roll a workload.
pub(crate) const WATCH: &str = "recif.dev/dev-watch";

/// Field by which a workload answers only callers that a gateway vouches for.
const REQUIRE_IDENTITY: &str = "/spec/proxy/requireIdentity";

/// Object by its kind and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId {
    /// Its apiVersion.
    pub(crate) api_version: String,
    /// Its kind.
    pub(crate) kind: String,
    /// Its namespace; empty for an object in none.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
}

/// Displays as `agent/my-agent`, as commands take it.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.to_lowercase(), self.name)
    }
}

/// Place of an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Origin {
    /// Name of the file, as the user wrote it.
    pub(crate) file: Arc<str>,
    /// Folder of the file, absolute; `None` for a text that is in no file.
    pub(crate) folder: Option<PathBuf>,
    places: Arc<Places>,
    /// JSON pointer of the object in its document: not empty for an item of a List.
    prefix: String,
}

impl Origin {
    /// Returns `FILE:LINE:COLUMN` of a field by the path that an API server names; empty for the object itself.
    pub(crate) fn at(&self, field: &str) -> String {
        let place = self.places.of(&format!("{}{}", self.prefix, pointer_of(field)));
        format!("{}:{place}", self.file)
    }

    /// Returns `FILE:LINE:COLUMN` of the key of a field.
    pub(crate) fn at_key(&self, field: &str) -> String {
        let place = self.places.of_key(&format!("{}{}", self.prefix, pointer_of(field)));
        format!("{}:{place}", self.file)
    }

    /// Returns `FILE:LINE` of the object.
    pub(crate) fn line(&self) -> String {
        format!("{}:{}", self.file, self.places.of(&self.prefix).line)
    }
}

/// Object of a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Manifest {
    /// Its identity.
    pub(crate) id: ObjectId,
    /// The object, as it is applied.
    pub(crate) object: Value,
    /// Its place.
    pub(crate) origin: Origin,
}

/// Content of a file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Contents {
    /// Objects that are kept, in their order.
    pub(crate) manifests: Vec<Manifest>,
    /// Faults of documents, each with its place.
    pub(crate) problems: Vec<String>,
    /// First object of each kind that nothing acts on, by its kind.
    pub(crate) without_effect: BTreeMap<String, String>,
    /// Notes about what is otherwise here than in a cluster.
    pub(crate) notes: Vec<String>,
}

/// Reads the objects of a file. One that names no namespace is in this one.
///
/// # Errors
/// The text is no YAML: place and cause. What is known of the file stays then.
pub(crate) fn read(file: &SourceText, kinds: &Kinds, namespace: &str) -> Result<Contents, String> {
    let documents = yaml::read(&file.text).map_err(|error| format!("{}:{}: {}", file.name, error.at, error.message))?;
    let mut contents = Contents::default();
    let name: Arc<str> = file.name.as_str().into();
    for document in documents {
        let places = Arc::new(document.places);
        let origin =
            |prefix: String| Origin { file: name.clone(), folder: file.folder.clone(), places: places.clone(), prefix };
        match document.value {
            Value::Object(mut list) if list.get("kind").is_some_and(|kind| kind == "List") => {
                let items = list.remove("items").and_then(|items| match items {
                    Value::Array(items) => Some(items),
                    _ => None,
                });
                for (index, item) in items.unwrap_or_default().into_iter().enumerate() {
                    contents.add(item, origin(format!("/items/{index}")), kinds, namespace);
                }
            }
            value => contents.add(value, origin(String::new()), kinds, namespace),
        }
    }
    // A namespace is there before what is in it.
    contents.manifests.sort_by_key(rank);
    Ok(contents)
}

fn rank(manifest: &Manifest) -> u8 {
    u8::from(manifest.id.kind != "Namespace")
}

impl Contents {
    fn add(&mut self, mut object: Value, origin: Origin, kinds: &Kinds, namespace: &str) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        let missing = [("apiVersion", &api_version), ("kind", &kind), ("metadata.name", &name)];
        if let Some((field, _)) = missing.into_iter().find(|(_, value)| value.is_empty()) {
            return self
                .problems
                .push(format!("{}: {field} is missing: this is no object of Kubernetes", origin.at(field)));
        }
        let Some(Kind { namespaced, has_effect, .. }) = kinds.get(&api_version, &kind) else {
            match kinds.other_version(&api_version, &kind) {
                Some(known) => {
                    let at = origin.at("apiVersion");
                    self.problems.push(format!("{at}: {kind} is not known as {api_version}: write {known}"));
                }
                None => {
                    self.without_effect.entry(kind).or_insert(name);
                }
            }
            return;
        };
        if !has_effect {
            self.without_effect.entry(kind.clone()).or_insert_with(|| name.clone());
        }
        let own = text("/metadata/namespace");
        let namespace = match (namespaced, own.is_empty()) {
            (false, _) => String::new(),
            (true, true) => namespace.to_owned(),
            (true, false) => own,
        };
        // Cannot fail: it has a name.
        if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            if *namespaced {
                metadata.insert("namespace".to_owned(), namespace.clone().into());
            }
            if let Some(folder) = &origin.folder {
                let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
                if annotations.is_null() {
                    *annotations = json!({});
                }
                if let Some(annotations) = annotations.as_object_mut() {
                    annotations.insert(DEV_FOLDER.to_owned(), folder.to_string_lossy().into());
                }
            }
        }
        let id = ObjectId { api_version, kind, namespace, name };
        // Without authentication no gateway vouches for a caller, so no request would be answered.
        if let Some(required) = object.pointer_mut(REQUIRE_IDENTITY).filter(|required| **required == true) {
            *required = false.into();
            self.notes.push(format!("{id}: proxy.requireIdentity is off here, where no caller has a name"));
        }
        self.manifests.push(Manifest { id, object, origin });
    }
}

/// Makes the object that stands for none of a file, such as a Secret of the variables.
pub(crate) fn made(id: ObjectId, object: Value, file: &str) -> Manifest {
    let origin = Origin { file: file.into(), folder: None, places: Arc::default(), prefix: String::new() };
    Manifest { id, object, origin }
}

/// Leaves out each object that is there already, and returns what to say of it.
pub(crate) fn without_doubles(manifests: Vec<Manifest>) -> (Vec<Manifest>, Vec<String>) {
    let mut first: BTreeMap<ObjectId, String> = BTreeMap::new();
    let (mut kept, mut problems) = (Vec::new(), Vec::new());
    for manifest in manifests {
        let line = manifest.origin.line();
        match first.get(&manifest.id) {
            Some(known) => problems.push(format!("{} is in {known} and {line}: keep one", manifest.id)),
            None => {
                first.insert(manifest.id.clone(), line);
                kept.push(manifest);
            }
        }
    }
    kept.sort_by_key(rank);
    (kept, problems)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::kinds::example;

    /// Reads the objects of a text, as of a file of this name.
    pub(crate) fn contents(name: &str, text: &str) -> Contents {
        let file = SourceText { name: name.to_owned(), folder: Some("/x".into()), text: text.to_owned() };
        read(&file, &example(), "default").unwrap()
    }

    const AGENT: &str = "apiVersion: agents.recif.dev/v1\nkind: Agent\nmetadata:\n  name: a\nspec:\n  replicas: 11\n";

    #[test]
    fn an_object_gets_its_namespace_and_the_folder_of_its_file() {
        let found = contents("a.yaml", AGENT);
        let [manifest] = found.manifests.as_slice() else { panic!("{found:?}") };
        assert_eq!(manifest.object["metadata"]["namespace"], "default");
        assert_eq!(manifest.object["metadata"]["annotations"][DEV_FOLDER], "/x");
        assert_eq!(manifest.id.to_string(), "agent/a");
        assert_eq!(manifest.origin.at("spec.replicas"), "a.yaml:6:13");
        assert_eq!(manifest.origin.line(), "a.yaml:1");
        let named = contents("a.yaml", &AGENT.replace("name: a", "name: a\n  namespace: team"));
        assert_eq!(named.manifests[0].id.namespace, "team");
    }

    #[test]
    fn the_items_of_a_list_are_objects_and_namespaces_come_first() {
        let text = "kind: List\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    name: c\n  data:\n    x: 1\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: n}\n";
        let found = contents("l.yaml", text);
        let ids: Vec<_> = found.manifests.iter().map(|manifest| manifest.id.to_string()).collect();
        assert_eq!(ids, ["namespace/n", "configmap/c"]);
        assert_eq!(found.manifests[1].origin.at("data.x"), "l.yaml:9:8");
        assert_eq!(found.manifests[0].id.namespace, "");
    }

    #[test]
    fn what_is_no_object_here_is_said() {
        let cases = [
            ("kind: Agent\nmetadata: {name: a}", "a.yaml:1:1: apiVersion is missing: this is no object of Kubernetes"),
            (
                "apiVersion: v1\nkind: Secret\nmetadata:\n  labels: {}",
                "a.yaml:3:1: metadata.name is missing: this is no object of Kubernetes",
            ),
            ("- a", "a.yaml:1:1: apiVersion is missing: this is no object of Kubernetes"),
            (
                "apiVersion: agents.recif.dev/v2\nkind: Agent\nmetadata: {name: a}",
                "a.yaml:1:13: Agent is not known as agents.recif.dev/v2: write agents.recif.dev/v1",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(contents("a.yaml", text).problems, [expected], "{text}");
        }
    }

    #[test]
    fn kinds_without_effect_are_named_once() {
        let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: NAME}\n---\n";
        let text = ingress.replace("NAME", "shop") + &ingress.replace("NAME", "other");
        let policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p}\n";
        let found = contents("a.yaml", &(text + policy));
        let expected =
            [("Ingress", "shop"), ("NetworkPolicy", "p")].map(|(kind, name)| (kind.to_owned(), name.to_owned()));
        assert_eq!(found.without_effect, BTreeMap::from(expected));
        assert_eq!(found.manifests.len(), 1, "the policy is kept");
    }

    #[test]
    fn callers_need_no_name() {
        let found = contents("a.yaml", &format!("{AGENT}  proxy:\n    requireIdentity: true\n"));
        assert_eq!(found.notes, ["agent/a: proxy.requireIdentity is off here, where no caller has a name"]);
        assert_eq!(found.manifests[0].object["spec"]["proxy"]["requireIdentity"], false);
    }

    #[test]
    fn an_object_that_is_there_twice_is_kept_once() {
        let all = [contents("a.yaml", AGENT), contents("b.yaml", &format!("# x\n{AGENT}"))];
        let (kept, problems) = without_doubles(all.into_iter().flat_map(|found| found.manifests).collect());
        assert_eq!(kept.len(), 1);
        assert_eq!(problems, ["agent/a is in a.yaml:1 and b.yaml:2: keep one"]);
    }
}
