//! Requests of the leader election for its Lease: the port, and its implementation in the cluster.

use std::sync::Arc;

use async_trait::async_trait;
use http::Method;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    error::RequestError,
    resource::Resource,
    transport::{RequestInfo, Transport, api_request, read_json},
    watch_health::WatchHealth,
};

/// Port for the three requests of a leader election.
#[async_trait]
pub trait LeaseApi: Send + Sync {
    /// Reads the lease; `None`: it does not exist.
    async fn get(&self) -> Result<Option<Lease>, RequestError>;
    /// Creates the lease.
    async fn create(&self, spec: LeaseSpec) -> Result<Lease, RequestError>;
    /// Replaces the lease, bound to its resource version (optimistic concurrency).
    async fn replace(&self, lease: &Lease) -> Result<Lease, RequestError>;
}

/// Lease of this name in the cluster.
#[derive(Debug)]
pub struct LeaseObject {
    transport: Arc<Transport>,
    namespace: String,
    name: String,
    watch_health: Arc<WatchHealth>,
}

impl LeaseObject {
    /// Creates the client of the lease `name` in `namespace`; `board` receives the store's version.
    pub fn new(transport: Arc<Transport>, namespace: String, name: String, board: Arc<WatchHealth>) -> Self {
        Self { transport, namespace, name, watch_health: board }
    }

    async fn send(
        &self,
        verb: &'static str,
        method: Method,
        path: String,
        body: Option<&Lease>,
    ) -> Result<Lease, RequestError> {
        let call = RequestInfo { verb, kind: "Lease", object: format!("{}/{}", self.namespace, self.name) };
        let unreadable = |error: serde_json::Error| RequestError::Unreadable {
            what: format!("{verb} Lease {}", self.name),
            cause: error.to_string(),
        };
        let body = body.map(serde_json::to_vec).transpose().map_err(unreadable)?.unwrap_or_default();
        let request = api_request(method, path, Some("application/json"), body);
        let answer = self.transport.call(&call, request).await?;
        let lease: Lease = read_json(&call, &answer)?;
        let version = lease.metadata.resource_version.as_ref().and_then(|version| version.parse().ok());
        version.into_iter().for_each(|version| self.watch_health.record_store_version(version));
        Ok(lease)
    }
}

#[async_trait]
impl LeaseApi for LeaseObject {
    async fn get(&self) -> Result<Option<Lease>, RequestError> {
        let path = Resource::LEASE.object(&self.namespace, &self.name);
        match self.send("get", Method::GET, path, None).await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, spec: LeaseSpec) -> Result<Lease, RequestError> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let lease = Lease { metadata, spec: Some(spec) };
        let path = Resource::LEASE.collection(Some(&self.namespace));
        self.send("create", Method::POST, path, Some(&lease)).await
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, RequestError> {
        let path = Resource::LEASE.object(&self.namespace, &self.name);
        self.send("update", Method::PUT, path, Some(lease)).await
    }
}
