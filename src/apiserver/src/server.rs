//! The service: a request to its route, and the reply to a response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderMap, Method, Request as HttpRequest, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::{BoxError, Service};

use crate::{
    bodies::MAX_BODY,
    definitions::definition,
    delete::NAMESPACES,
    discovery,
    errors::StatusError,
    forms::accept,
    key::StoreKey,
    logs::PodLogs,
    object::time,
    openapi,
    options::Query,
    reply::{Reply, ResponseBody},
    routes::{ApiRoute, route},
    state::ServerState,
    verbs::ResourceVerbs,
};

/// A Kubernetes API server in memory. Clones share their objects.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<ServerState>,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Makes a server with the definitions of our kinds and the namespaces `default` and `kube-system`. `clock` tells the time of
    /// creations, deletions and owners of fields; `account` returns the name of the account that a token belongs to, for
    /// TokenReviews.
    pub fn new(
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
        account: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let server = Self { shared: Arc::new(ServerState::new(clock, account)) };
        server.add_definitions();
        for name in NAMESPACES {
            let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            let body = body.to_string().into_bytes();
            // Fails only if the system has no random numbers for the uid; then there is no such namespace.
            let _ = server.answer(&Method::POST, "/api/v1/namespaces", "", &HeaderMap::new(), &body);
        }
        server
    }

    /// Serves the logs of a node's containers, on all clones. Without it, each Pod is on a node that is not there.
    #[must_use]
    pub fn with_logs(self, logs: Arc<dyn PodLogs>) -> Self {
        self.shared.set_logs(logs);
        self
    }

    /// Adds the definitions of our kinds.
    fn add_definitions(&self) {
        let (now, kinds) = (self.shared.now(), self.shared.kinds);
        let mut store = self.shared.store();
        let index = kinds.iter().position(|kind| kind.name == "CustomResourceDefinition").unwrap_or_default();
        for object in kinds.iter().filter_map(|kind| definition(kind, &time(now))) {
            let name = crate::object::name(&object).to_owned();
            store.put(StoreKey { kind: index, namespace: String::new(), name }, object, now);
        }
    }

    /// Answers one request.
    fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Reply, StatusError> {
        let (kinds, query) = (self.shared.kinds, Query::parse(query));
        let found = |object: Option<Value>| object.map_or_else(Reply::missing, Reply::object);
        let accepts = accept(headers);
        let is_aggregated = accepts.contains("as=APIGroupDiscoveryList") && accepts.contains("v=v2;");
        let aggregated = |is_core| {
            let text = discovery::aggregated(kinds, is_core).to_string();
            Reply::Text(StatusCode::OK, discovery::AGGREGATED, text)
        };
        match route(kinds, path) {
            None => Ok(Reply::missing()),
            Some(ApiRoute::Resource(target)) => {
                ResourceVerbs::new(&self.shared).answer(method, &target, &query, headers, body)
            }
            Some(_) if method != Method::GET => Err(StatusError::method_not_allowed()),
            Some(ApiRoute::Health) => Ok(Reply::healthy()),
            Some(ApiRoute::Version) => Ok(Reply::object(discovery::version())),
            Some(ApiRoute::CoreVersions) if is_aggregated => Ok(aggregated(true)),
            Some(ApiRoute::Groups) if is_aggregated => Ok(aggregated(false)),
            Some(ApiRoute::CoreVersions) => Ok(Reply::object(discovery::core_versions())),
            Some(ApiRoute::Groups) => Ok(Reply::object(discovery::groups(kinds))),
            Some(ApiRoute::Group(name)) => Ok(found(discovery::group(kinds, &name))),
            Some(ApiRoute::Resources(group, version)) => Ok(found(discovery::resources(kinds, &group, &version))),
            Some(ApiRoute::OpenApiV2) => {
                let (media_type, document) = openapi::v2(accepts);
                Ok(Reply::Text(StatusCode::OK, media_type, document))
            }
            Some(ApiRoute::OpenApi) => Ok(Reply::object(openapi::index(self.shared.hashes()))),
            Some(ApiRoute::OpenApiOf(path)) => Ok(self.document(&path, query.get("hash"))),
        }
    }

    /// Answers with a document of OpenAPI. A client that names another hash is sent to the right one.
    fn document(&self, path: &str, hash: &str) -> Reply {
        match openapi::document(self.shared.kinds, path) {
            None => Reply::missing(),
            Some(document) if hash.is_empty() || hash == document.hash => Reply::Document(document, !hash.is_empty()),
            Some(document) => Reply::Redirect(openapi::address(path, &document.hash)),
        }
    }
}

impl<B> Service<HttpRequest<B>> for ApiServer
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
            let reply = match Limited::new(body, MAX_BODY).collect().await {
                Ok(body) => server.answer(&parts.method, path, query, &parts.headers, &body.to_bytes()),
                Err(error) if error.is::<LengthLimitError>() => {
                    Err(StatusError::too_large(format!("limit is {MAX_BODY}")))
                }
                Err(error) => return Err(error),
            };
            Ok(reply.unwrap_or_else(Reply::from).into_response())
        })
    }
}
