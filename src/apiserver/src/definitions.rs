//! The definitions of our kinds, as objects of the API.

use serde_json::{Value, json};

use crate::{
    kinds::{Kind, Shape},
    object::set_metadata,
};

/// Returns the CustomResourceDefinition of a kind of ours that was created at a time; none for other kinds.
pub(crate) fn definition(kind: &Kind, created: &str) -> Option<Value> {
    let Shape::Custom { definition, .. } = &kind.shape else { return None };
    let mut object = definition.clone();
    object["apiVersion"] = "apiextensions.k8s.io/v1".into();
    object["kind"] = "CustomResourceDefinition".into();
    set_metadata(&mut object, "creationTimestamp", Some(created.into()));
    set_metadata(&mut object, "uid", Some(format!("definition-{}", kind.plural).into()));
    set_metadata(&mut object, "generation", Some(1.into()));
    let condition = |name: &str| json!({ "type": name, "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": created });
    object["status"] = json!({
        "acceptedNames": object["spec"]["names"], "storedVersions": [kind.version],
        "conditions": [condition("NamesAccepted"), condition("Established")],
    });
    Some(object)
}
