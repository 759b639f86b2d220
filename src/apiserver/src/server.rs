//! The service: requests to verbs, results to responses.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request as HttpRequest, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody, combinators::UnsyncBoxBody};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::{BoxError, Service};

use crate::{
    bodies::expect_kind,
    discovery,
    errors::ApiError,
    forms::Form,
    kinds::{self, Kind, Shape},
    lists::Scope,
    object::{set_metadata, time},
    options::{DeleteOptions, ListOptions, Query, WriteOptions},
    patch::PatchType,
    reviews,
    routes::{Route, route},
    scale,
    store::{Key, Store},
    watch::{Watch, list_version},
    write::{Request, Target, Written},
};

/// Body of a response.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// Largest body of a request, in bytes; a JSON Patch copies no more than this either.
pub(crate) const MAX_BODY: usize = 3 * 1024 * 1024;

/// Namespaces that are there from the beginning and cannot be deleted.
pub(crate) const NAMESPACES: &[&str] = &["default", "kube-system"];

/// A Kubernetes API server in memory. Clones share their objects.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

/// Returns the name of the account that a token belongs to.
pub(crate) type Account = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What the clones and watches of a server share.
pub(crate) struct Shared {
    pub(crate) kinds: Vec<Kind>,
    store: Mutex<Store>,
    /// Version of the store, for watches that wait.
    pub(crate) versions: watch::Sender<u64>,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    account: Box<Account>,
}

impl Shared {
    /// Returns the store. A request that panicked leaves it as it is: each write is one step.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

/// What a request is answered with.
enum Reply {
    Json(StatusCode, Value, Vec<String>),
    Typed(&'static str, Value),
    Text(StatusCode, &'static str),
    Watch(Box<Watch>),
}

impl ApiServer {
    /// Makes a server with the definitions of our kinds and the namespaces `default` and `kube-system`. `clock` tells the time of
    /// creations, deletions and owners of fields; `account` returns the name of the account that a token belongs to, for
    /// TokenReviews.
    pub fn new(
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
        account: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let kinds = kinds::all();
        let mut store = Store::new();
        let mut add = |name: &str, object: Value| {
            let kind = kinds.iter().position(|kind| kind.name == name).unwrap_or_default();
            let key = Key { kind, namespace: String::new(), name: crate::object::name(&object).to_owned() };
            store.put(key, object);
        };
        let created = time(clock());
        for kind in &kinds {
            if let Shape::Custom { definition, .. } = &kind.shape {
                let mut object = definition.clone();
                object["apiVersion"] = "apiextensions.k8s.io/v1".into();
                object["kind"] = "CustomResourceDefinition".into();
                set_metadata(&mut object, "creationTimestamp", Some(created.clone().into()));
                set_metadata(&mut object, "uid", Some(format!("definition-{}", kind.plural).into()));
                set_metadata(&mut object, "generation", Some(1.into()));
                let condition = |name: &str| json!({ "type": name, "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": created });
                object["status"] = json!({
                    "acceptedNames": object["spec"]["names"], "storedVersions": [kind.version],
                    "conditions": [condition("NamesAccepted"), condition("Established")],
                });
                add("CustomResourceDefinition", object);
            }
        }
        let (versions, _) = watch::channel(store.version());
        let server = Self {
            shared: Arc::new(Shared {
                kinds,
                store: Mutex::new(store),
                versions,
                clock: Box::new(clock),
                account: Box::new(account),
            }),
        };
        for name in NAMESPACES {
            let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            let body = body.to_string().into_bytes();
            // Fails only if the system has no random numbers for the uid; then there is no such namespace.
            let _ = server.answer(&Method::POST, "/api/v1/namespaces", "", &HeaderMap::new(), &body);
        }
        server
    }

    /// Answers one request.
    fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Reply, ApiError> {
        let kinds = &self.shared.kinds;
        let missing = || Reply::Text(StatusCode::NOT_FOUND, "404 page not found\n");
        let plain =
            |found: Option<Value>| found.map_or_else(missing, |found| Reply::Json(StatusCode::OK, found, Vec::new()));
        let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let is_aggregated = accepts.contains("as=APIGroupDiscoveryList") && accepts.contains("v=v2;");
        let aggregated = |is_core| Reply::Typed(discovery::AGGREGATED, discovery::aggregated(kinds, is_core));
        match route(kinds, path) {
            None => Ok(missing()),
            Some(Route::Resource(target)) => self.resource(method, &target, &Query::parse(query), headers, body),
            Some(_) if method != Method::GET => Err(ApiError::method_not_allowed()),
            Some(Route::Health) => Ok(Reply::Text(StatusCode::OK, "ok")),
            Some(Route::Version) => Ok(plain(Some(discovery::version()))),
            Some(Route::CoreVersions) if is_aggregated => Ok(aggregated(true)),
            Some(Route::Groups) if is_aggregated => Ok(aggregated(false)),
            Some(Route::CoreVersions) => Ok(plain(Some(discovery::core_versions()))),
            Some(Route::Groups) => Ok(plain(Some(discovery::groups(kinds)))),
            Some(Route::Group(name)) => Ok(plain(discovery::group(kinds, &name))),
            Some(Route::Resources(group, version)) => Ok(plain(discovery::resources(kinds, &group, &version))),
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
    ) -> Result<Reply, ApiError> {
        let kind = &self.shared.kinds[target.kind];
        let is_collection = target.name.is_empty();
        let is_known = match (&kind.shape, method.as_str()) {
            (Shape::Review, method) => method == "POST" && is_collection,
            (_, "GET") => true,
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
            return Err(ApiError::method_not_allowed());
        }
        let media_type =
            headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("application/json");
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let form =
            if target.subresource == "scale" { Form::Whole } else { Form::of(accept, query.get("includeObject")) };
        let written = |written: Written| {
            let object = form.object(kind, written.object, self.shared.now(), true);
            Reply::Json(written.code, object, written.warnings)
        };
        match *method {
            Method::GET if is_collection => self.list(target, query, form),
            Method::GET => {
                let object = self.with(|request| request.get(target))?;
                let object = if target.subresource == "scale" { scale::of(kind, &object)? } else { object };
                Ok(Reply::Json(StatusCode::OK, form.object(kind, object, self.shared.now(), true), Vec::new()))
            }
            Method::POST => {
                let options = WriteOptions::parse("CreateOptions", query, headers, false)?;
                let object = read_body(media_type, body)?;
                if matches!(kind.shape, Shape::Review) {
                    let review = reviews::answer(kind, expect_kind(kind, object)?, &*self.shared.account);
                    return Ok(Reply::Json(StatusCode::CREATED, review, Vec::new()));
                }
                self.with(|request| request.create(target, object, &options)).map(written)
            }
            Method::PUT => {
                let options = WriteOptions::parse("UpdateOptions", query, headers, false)?;
                let object = read_body(media_type, body)?;
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

    fn list(&self, target: &Target, query: &Query, form: Form) -> Result<Reply, ApiError> {
        let shared = &self.shared;
        let (scope, options) = (Scope::parse(&shared.kinds, target, query)?, ListOptions::parse(query)?);
        if options.watch {
            return Ok(Reply::Watch(Box::new(Watch::new(shared.clone(), scope, form, &options))));
        }
        let store = shared.store();
        let version = list_version(&store, &options)?;
        let objects = scope.list(&shared.kinds, &store);
        let list = form.list(scope.kind(&shared.kinds), objects, version, shared.now());
        Ok(Reply::Json(StatusCode::OK, list, Vec::new()))
    }

    fn delete(&self, target: &Target, query: &Query, body: &[u8]) -> Result<Reply, ApiError> {
        let options = DeleteOptions::parse(query, body)?;
        if !target.name.is_empty() {
            let (code, body) = self.with(|request| request.delete(target, &options))?;
            return Ok(Reply::Json(code, body, Vec::new()));
        }
        let scope = Scope::parse(&self.shared.kinds, target, query)?;
        let list = self.with(|request| {
            let objects = scope.list(request.kinds, request.store);
            request.delete_all(target, objects, &options)
        })?;
        Ok(Reply::Json(StatusCode::OK, list, Vec::new()))
    }

    /// Runs one request on the store, and wakes the watches.
    fn with<T>(&self, work: impl FnOnce(&mut Request<'_>) -> T) -> T {
        let shared = &self.shared;
        let now = shared.now();
        let mut store = shared.store();
        let result = work(&mut Request { kinds: &shared.kinds, store: &mut store, now });
        let version = store.version();
        drop(store);
        shared.versions.send_if_modified(|known| {
            let is_newer = version > *known;
            *known = version.max(*known);
            is_newer
        });
        result
    }
}

/// Reads a body in JSON or YAML.
fn read_body(media_type: &str, body: &[u8]) -> Result<Value, ApiError> {
    match media_type.split(';').next().unwrap_or_default().trim() {
        "application/json" | "" => {
            serde_json::from_slice(body).map_err(|error| ApiError::bad_request(error.to_string()))
        }
        "application/yaml" => serde_yaml::from_slice(body).map_err(|error| ApiError::bad_request(error.to_string())),
        _ => Err(ApiError::unsupported_media_type("application/json, application/yaml")),
    }
}

impl Reply {
    fn into_response(self) -> Response<ResponseBody> {
        let full = |text: String| Full::new(Bytes::from(text)).boxed_unsync();
        let (code, media_type, body, warnings) = match self {
            Self::Json(code, body, warnings) => (code, "application/json", full(body.to_string()), warnings),
            Self::Typed(media_type, body) => (StatusCode::OK, media_type, full(body.to_string()), Vec::new()),
            Self::Text(code, text) => (code, "text/plain; charset=utf-8", full(text.to_owned()), Vec::new()),
            Self::Watch(watch) => {
                let body = StreamBody::new(watch.into_frames()).boxed_unsync();
                (StatusCode::OK, "application/json", body, Vec::new())
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = code;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        for warning in warnings {
            if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
        response
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
                    Err(ApiError::too_large(format!("limit is {MAX_BODY}")))
                }
                Err(error) => return Err(error),
            };
            Ok(reply.unwrap_or_else(|error| Reply::Json(error.code, error.status(), Vec::new())).into_response())
        })
    }
}
