//! Port for requests about children.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machine::ApiError;
use meta::Key;

use super::child::{CachedChild, ChildManifest, ChildRef};

/// Owner as the API server holds it, as far as a step depends on it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnerState {
    /// Metadata.
    pub meta: ObjectMeta,
    /// Number of the last entry of `status.history`; 0: there is none.
    pub seq: i64,
}

/// Client for requests about children. Every call has a deadline; no call is retried inside.
#[async_trait]
pub trait ChildClient: Send + Sync {
    /// Reads a child's metadata by one GET, past the cache.
    ///
    /// # Errors
    /// The API server's error; absence is `Ok(None)`.
    async fn get(&self, child: &ChildRef) -> Result<Option<Arc<CachedChild>>, ApiError>;

    /// Reads an owner by one GET, past the cache.
    ///
    /// # Errors
    /// The API server's error; absence is `Ok(None)`.
    async fn get_owner(&self, kind: &'static str, owner: &Key) -> Result<Option<OwnerState>, ApiError>;

    /// Reads the `data` of a ConfigMap or Secret by one GET, past the cache, which holds no values: key to text, of Secrets as
    /// the API server returns it (base64).
    ///
    /// # Errors
    /// The API server's error.
    async fn get_data(&self, child: &ChildRef) -> Result<BTreeMap<String, String>, ApiError>;

    /// Sends one server-side apply. With a uid it is bound to the object with this uid, with `None` to the absence of an object
    /// of that name: anything else is [`ApiError::WrongUid`].
    ///
    /// # Errors
    /// The API server's error.
    async fn apply(&self, manifest: &ChildManifest, uid: Option<&str>) -> Result<Arc<CachedChild>, ApiError>;

    /// Sends the request of [`ChildClient::apply`] as a dry run, which stores nothing.
    ///
    /// # Errors
    /// [`ApiError::Invalid`] or [`ApiError::Refused`] if the API server would reject it.
    async fn dry_run(&self, manifest: &ChildManifest) -> Result<(), ApiError>;

    /// Sends one server-side apply of the replicas of the Deployment with this uid and of nothing else, as the field manager
    /// [`crate::workload::REPLICAS`]; `None`: this manager gives the field up, and another manager that has applied it keeps it.
    ///
    /// # Errors
    /// The API server's error.
    async fn set_replicas(
        &self,
        deployment: &ChildRef,
        uid: &str,
        replicas: Option<i32>,
    ) -> Result<Arc<CachedChild>, ApiError>;

    /// Sends one DELETE with foreground propagation, bound to the uid; an object that does not exist is no error.
    ///
    /// # Errors
    /// The API server's error.
    async fn delete(&self, child: &ChildRef, uid: &str) -> Result<(), ApiError>;
}
