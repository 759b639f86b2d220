//! One Secret of our own namespace, with its values: read, created, and replaced in the version that was read.

use std::{collections::BTreeMap, sync::Arc};

use http::Method;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::{
    error::RequestError,
    resource::Resource,
    transport::{RequestInfo, Transport, api_request, read_json},
};

/// Secret of this name in the cluster.
#[derive(Debug)]
pub struct SecretObject {
    transport: Arc<Transport>,
    namespace: String,
    name: &'static str,
}

impl SecretObject {
    /// Creates the client of the Secret `name` in `namespace`.
    pub fn new(transport: Arc<Transport>, namespace: String, name: &'static str) -> Self {
        Self { transport, namespace, name }
    }

    /// Reads the Secret; `None`: it does not exist.
    ///
    /// # Errors
    /// The failure of the request.
    pub async fn get(&self) -> Result<Option<Secret>, RequestError> {
        match self.send("get", Method::GET, self.path(), None).await {
            Ok(secret) => Ok(Some(secret)),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the Secret, and reports whether it did: one may exist already.
    ///
    /// # Errors
    /// The failure of the request.
    pub async fn create(&self, data: BTreeMap<String, ByteString>) -> Result<bool, RequestError> {
        let labels = [
            ("app.kubernetes.io/name", self.name),
            ("app.kubernetes.io/part-of", "recif"),
            ("app.kubernetes.io/managed-by", crds::MANAGED_BY),
        ];
        let metadata = ObjectMeta {
            name: Some(self.name.to_owned()),
            labels: Some(labels.map(|(label, value)| (label.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        };
        let secret = Secret { metadata, data: Some(data), ..Secret::default() };
        let path = Resource::SECRET.collection(Some(&self.namespace));
        match self.send("create", Method::POST, path, Some(&secret)).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(409) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Replaces the Secret, bound to its resource version (optimistic concurrency).
    ///
    /// # Errors
    /// The failure of the request.
    pub async fn replace(&self, secret: &Secret) -> Result<Secret, RequestError> {
        self.send("update", Method::PUT, self.path(), Some(secret)).await
    }

    fn path(&self) -> String {
        Resource::SECRET.object(&self.namespace, self.name)
    }

    async fn send(
        &self,
        verb: &'static str,
        method: Method,
        path: String,
        body: Option<&Secret>,
    ) -> Result<Secret, RequestError> {
        let call = RequestInfo { verb, kind: "Secret", object: format!("{}/{}", self.namespace, self.name) };
        let unreadable = |error: serde_json::Error| RequestError::Unreadable {
            what: format!("{verb} Secret {}", self.name),
            cause: error.to_string(),
        };
        let body = body.map(serde_json::to_vec).transpose().map_err(unreadable)?.unwrap_or_default();
        let answer = self.transport.call(&call, api_request(method, path, Some("application/json"), body)).await?;
        read_json(&call, &answer)
    }
}
