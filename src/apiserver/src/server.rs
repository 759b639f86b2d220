//! The service: requests to verbs, results to answers.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderMap, Method, Request as HttpRequest, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::{BoxError, Service};

use crate::{
    bodies::{MAX_BODY, expect_kind, read_body},
    definitions::definition,
    delete::NAMESPACES,
    discovery,
    errors::StatusError,
    forms::Form,
    key::StoreKey,
    kinds::{Shape, stored},
    lists::Scope,
    logs::{LogOptions, PodLogs},
    object::{text, time},
    openapi,
    options::{DeleteOptions, ListOptions, Query, WriteOptions},
    patch::PatchType,
    reply::{Reply, ResponseBody},
    reviews,
    routes::{ApiRoute, route},
    scale,
    state::ServerState,
    target::Target,
    watch::{Watch, list_version},
    write::{Request, Written},
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
            Some(ApiRoute::Resource(target)) => self.resource(method, &target, &query, headers, body),
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

    /// Answers a request about a resource.
    fn resource(
        &self,
        method: &Method,
        target: &Target,
        query: &Query,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Reply, StatusError> {
        let (kinds, now) = (self.shared.kinds, self.shared.now());
        let kind = &kinds[target.kind];
        let is_collection = target.name.is_empty();
        let is_known = match (&kind.shape, method.as_str()) {
            (Shape::Review, method) => method == "POST" && is_collection,
            (_, "GET") => true,
            _ if target.subresource == "log" => false,
            _ if kind.traits.read_only => false,
            // A collection of all namespaces is only read.
            (_, "POST") => is_collection && (kind.traits.cluster || !target.namespace.is_empty()),
            (_, "PUT" | "PATCH") => !is_collection,
            (_, "DELETE") => {
                let is_one_collection = kind.traits.cluster || !target.namespace.is_empty();
                target.subresource.is_empty() && (!is_collection || (is_one_collection && kind.name != "Namespace"))
            }
            _ => false,
        };
        if !is_known {
            return Err(StatusError::method_not_allowed());
        }
        let media_type =
            headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("application/json");
        let form = if target.subresource == "scale" {
            Form::Whole
        } else {
            Form::of(accept(headers), query.get("includeObject"))
        };
        let written = |written: Written| {
            Reply::Object(written.code, form.object(kind, written.object, now, true), written.warnings)
        };
        match *method {
            Method::GET if is_collection => self.list(target, query, form),
            Method::GET if target.subresource == "log" => self.log(target, query),
            Method::GET if target.subresource == "scale" => {
                let object = self.with(|request| request.get(target))?;
                Ok(Reply::object(scale::of(kind, &object)?))
            }
            Method::GET => self.with(|request| {
                let found = request.store.get(&request.key(target));
                let object = found.ok_or_else(|| StatusError::not_found(kind, &target.name))?;
                Ok(Reply::json(form.stored_object(kind, &kinds[stored(kinds, target.kind)], object, now)))
            }),
            Method::POST => {
                let options = WriteOptions::parse("CreateOptions", query, headers, false)?;
                let object = read_body(kind, media_type, body)?;
                if matches!(kind.shape, Shape::Review) {
                    let review = reviews::answer(kind, expect_kind(kind, object)?, self.shared.account());
                    return Ok(Reply::Object(StatusCode::CREATED, review, Vec::new()));
                }
                self.with(|request| request.create(target, object, &options)).map(written)
            }
            Method::PUT => {
                let options = WriteOptions::parse("UpdateOptions", query, headers, false)?;
                let object = read_body(kind, media_type, body)?;
                let update = |request: &mut Request<'_>| match target.subresource.as_str() {
                    "scale" => request.update_scale(target, object.clone(), &options),
                    _ => request.update(target, object.clone(), &options),
                };
                self.with(update).map(written)
            }
            Method::PATCH => {
                let form = PatchType::of(media_type, kind)?;
                let options = WriteOptions::parse("PatchOptions", query, headers, form == PatchType::Apply)?;
                self.with(|request| request.patch(target, form, body, &options)).map(written)
            }
            _ => self.delete(target, query, body),
        }
    }

    fn list(&self, target: &Target, query: &Query, form: Form) -> Result<Reply, StatusError> {
        let (shared, kinds) = (&self.shared, self.shared.kinds);
        let (scope, options) = (Scope::parse(kinds, target, query)?, ListOptions::parse(query)?);
        self.with(|request| {
            let store = &*request.store;
            if options.watch {
                let watch = Watch::new(shared.clone(), store, scope, form, &options);
                return Ok(Reply::Watch(Box::new(watch)));
            }
            let version = list_version(store, &options)?;
            let objects = scope.snapshots(kinds, store);
            let (kind, stored) = (scope.kind(kinds), &kinds[scope.stored_kind(kinds)]);
            Ok(Reply::json(form.list(kind, stored, &objects, version, request.now)))
        })
    }

    /// Answers with the log of a container.
    fn log(&self, target: &Target, query: &Query) -> Result<Reply, StatusError> {
        let options = LogOptions::parse(&target.name, query, self.shared.now())?;
        let pod = self.with(|request| request.get(target))?;
        let options = options.of(&pod)?;
        let node = text(&pod, "/spec/nodeName");
        if node.is_empty() {
            return Ok(Reply::Empty);
        }
        // The real one, too, says so of a node that is not there.
        let logs = self.shared.logs().ok_or_else(|| StatusError::not_found(&self.shared.kinds[target.kind], node))?;
        let log = logs.read(&target.namespace, &target.name, &options);
        let log = log.map_err(|error| error.into_status_error(&target.name, &options.container))?;
        Ok(Reply::Log(options.limited(log)))
    }

    fn delete(&self, target: &Target, query: &Query, body: &[u8]) -> Result<Reply, StatusError> {
        let options = DeleteOptions::parse(query, body)?;
        if !target.name.is_empty() {
            let (code, body) = self.with(|request| request.delete(target, &options))?;
            return Ok(Reply::Object(code, body, Vec::new()));
        }
        let scope = Scope::parse(self.shared.kinds, target, query)?;
        let list = self.with(|request| {
            let objects = scope.list(request.kinds, request.store);
            request.delete_all(target, objects, &options)
        })?;
        Ok(Reply::object(list))
    }

    /// Runs one request on the store without the Events that have expired, lets the collector do what follows, and wakes the
    /// watches of the kinds that have changed.
    fn with<T>(&self, work: impl FnOnce(&mut Request<'_>) -> T) -> T {
        let shared = &self.shared;
        let now = shared.now();
        let mut store = shared.store();
        store.expire(now);
        let mut request = Request { kinds: shared.kinds, store: &mut store, now };
        let result = work(&mut request);
        request.settle();
        let changed = store.take_changed();
        drop(store);
        changed.into_iter().for_each(|kind| shared.wake(kind));
        result
    }
}

/// Returns the header `Accept`.
fn accept(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default()
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
