//! Brings the objects of the API server to what the files hold: by server-side apply, each object that changed; last, what no file
//! names any more is deleted.

use std::collections::{BTreeMap, BTreeSet};

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    kinds::{Kind, Kinds},
    manifest::{Manifest, ObjectId},
    refusal::{refusal, words},
};

/// Field manager of what is applied.
pub(crate) const MANAGER: &str = "recif-dev";

/// Annotation of a Pod template by which kubectl restarts a Deployment.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
/// Field manager of namespaces that are made on the way.
const NAMESPACES: &str = "recif-dev-namespaces";

/// Applies objects, and knows what it has applied.
pub(crate) struct Applier {
    client: Client,
    kinds: Kinds,
    /// Objects as they were last applied.
    applied: BTreeMap<ObjectId, Value>,
    namespaces: BTreeSet<String>,
}

/// Result of applying a set of objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ApplyReport {
    /// Objects that were created or changed.
    pub(crate) changed: Vec<ObjectId>,
    /// Objects that were deleted.
    pub(crate) deleted: Vec<ObjectId>,
    /// Objects that were refused.
    pub(crate) refused: Vec<ObjectId>,
    /// Causes of the refusals, with places, and what else went wrong.
    pub(crate) problems: Vec<String>,
}

impl Applier {
    /// Makes an applier that has applied nothing.
    pub(crate) fn new(client: Client, kinds: Kinds) -> Self {
        Self { client, kinds, applied: BTreeMap::new(), namespaces: BTreeSet::new() }
    }

    /// Applies the objects that changed, and deletes those that are not among them any more.
    pub(crate) async fn apply(&mut self, manifests: &[Manifest]) -> ApplyReport {
        let mut outcome = ApplyReport::default();
        for manifest in changed(&self.applied, manifests) {
            if let Err(problem) = self.make_namespace(&manifest.id.namespace).await {
                outcome.problems.push(problem);
                outcome.refused.push(manifest.id.clone());
                continue;
            }
            match self.apply_one(manifest).await {
                Ok(()) => {
                    self.applied.insert(manifest.id.clone(), manifest.object.clone());
                    outcome.changed.push(manifest.id.clone());
                }
                Err(problems) => {
                    outcome.problems.extend(problems);
                    outcome.refused.push(manifest.id.clone());
                }
            }
        }
        for id in gone(&self.applied, manifests) {
            match self.delete(&id).await {
                Ok(()) => {
                    self.applied.remove(&id);
                    outcome.deleted.push(id);
                }
                Err(error) => outcome.problems.push(format!("{id} cannot be deleted: {}", words(&error))),
            }
        }
        outcome
    }

    /// Has the Pods of a workload replaced, as `recif rollout` does, and `kubectl rollout restart` for a Deployment.
    ///
    /// # Errors
    /// The API server refuses.
    pub(crate) async fn restart(&self, id: &ObjectId, now: &str) -> Result<(), kube::Error> {
        let Some(api) = self.api(id) else { return Ok(()) };
        let patch = match id.kind.as_str() {
            "Deployment" => json!({ "spec": { "template": { "metadata": { "annotations": { RESTARTED_AT: now } } } } }),
            _ => json!({ "metadata": { "annotations": { crds::ROLLOUT_AT: now } } }),
        };
        api.patch(&id.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    fn api(&self, id: &ObjectId) -> Option<Api<DynamicObject>> {
        let Kind { resource, namespaced, .. } = self.kinds.get(&id.api_version, &id.kind)?;
        Some(match namespaced {
            true => Api::namespaced_with(self.client.clone(), &id.namespace, resource),
            false => Api::all_with(self.client.clone(), resource),
        })
    }

    async fn apply_one(&self, manifest: &Manifest) -> Result<(), Vec<String>> {
        // Objects of other kinds are not kept, and so are none of these.
        let Some(api) = self.api(&manifest.id) else { return Ok(()) };
        let params = PatchParams::apply(MANAGER).force().validation_strict();
        let sent = api.patch(&manifest.id.name, &params, &Patch::Apply(&manifest.object)).await;
        sent.map(drop).map_err(|error| refusal(&manifest.id, &manifest.origin, &error))
    }

    /// Creates a namespace on the way to an object in it.
    async fn make_namespace(&mut self, name: &str) -> Result<(), String> {
        if name.is_empty() || self.namespaces.contains(name) {
            return Ok(());
        }
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let id = ObjectId {
            api_version: "v1".to_owned(),
            kind: "Namespace".to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
        };
        // An apply that says nothing but the name takes no field from one that a file has.
        if let Some(api) = self.api(&id) {
            let made = api.patch(name, &PatchParams::apply(NAMESPACES), &Patch::Apply(object)).await;
            made.map_err(|error| format!("namespace {name} cannot be made: {}", words(&error)))?;
        }
        self.namespaces.insert(name.to_owned());
        Ok(())
    }

    async fn delete(&mut self, id: &ObjectId) -> Result<(), kube::Error> {
        let Some(api) = self.api(id) else { return Ok(()) };
        if id.kind == "Namespace" {
            self.namespaces.remove(&id.name);
        }
        match api.delete(&id.name, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => deleted.map(drop),
        }
    }
}

/// Returns the objects that are not yet applied as they are.
fn changed<'m>(applied: &BTreeMap<ObjectId, Value>, manifests: &'m [Manifest]) -> Vec<&'m Manifest> {
    manifests.iter().filter(|manifest| applied.get(&manifest.id) != Some(&manifest.object)).collect()
}

/// Returns the objects that were applied and are not named any more; namespaces last, with which all in them goes.
fn gone(applied: &BTreeMap<ObjectId, Value>, manifests: &[Manifest]) -> Vec<ObjectId> {
    let named: BTreeSet<_> = manifests.iter().map(|manifest| &manifest.id).collect();
    let mut gone: Vec<_> = applied.keys().filter(|id| !named.contains(id)).cloned().collect();
    gone.sort_by_key(|id| id.kind == "Namespace");
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::contents;

    fn manifest() -> Manifest {
        contents("agent.yaml", "apiVersion: agents.recif.dev/v1\nkind: Agent\nmetadata:\n  name: my-agent\n")
            .manifests
            .remove(0)
    }

    #[test]
    fn only_what_changed_is_applied_and_what_is_gone_is_deleted_last() {
        let (one, mut two) = (manifest(), manifest());
        two.id.name = "two".to_owned();
        let id = |kind: &str| ObjectId { kind: kind.to_owned(), name: "gone".to_owned(), ..one.id.clone() };
        let applied =
            [&one.id, &two.id, &id("Namespace"), &id("Agent")].map(|id| (id.clone(), one.object.clone())).into();
        two.object["spec"]["replicas"] = 2.into();
        let manifests = [one, two];
        assert_eq!(
            changed(&applied, &manifests).iter().map(|found| found.id.name.as_str()).collect::<Vec<_>>(),
            ["two"]
        );
        assert_eq!(
            gone(&applied, &manifests).iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["agent/gone", "namespace/gone"]
        );
    }
}
