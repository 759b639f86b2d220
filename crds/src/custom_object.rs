//! Trait by which generic code builds an object of any kind from its parts: [`CustomObject`].

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::PhasedObject;
use serde::de::DeserializeOwned;

use crate::HasReferences;

/// Object of a kind of the API. Generic code reads it from JSON part by part, and finds its address in the API.
pub trait CustomObject: PhasedObject + HasReferences {
    /// Type of its spec.
    type Spec: DeserializeOwned;
    /// Type of its status.
    type Status: DeserializeOwned;

    /// Plural, as in the URL: `agents`.
    const PLURAL: &'static str;

    /// Returns the object with these parts.
    fn from_parts(metadata: ObjectMeta, spec: Self::Spec, status: Option<Self::Status>) -> Self;
}
