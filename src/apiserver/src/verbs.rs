//! Verbs of resources: a request about objects works on the store, and becomes a reply.

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode, header};

use crate::{
    bodies::{expect_kind, read_body},
    errors::StatusError,
    forms::{Form, accept},
    kinds::{Shape, stored},
    lists::Scope,
    logs::LogOptions,
    object::text,
    options::{DeleteOptions, ListOptions, Query, WriteOptions},
    patch::PatchType,
    reply::Reply,
    reviews, scale,
    state::ServerState,
    target::Target,
    watch::{Watch, list_version},
    write::{Request, Written},
};

/// Verbs on the objects of a server.
pub(crate) struct ResourceVerbs<'a> {
    shared: &'a Arc<ServerState>,
}

impl<'a> ResourceVerbs<'a> {
    /// Creates the verbs of the server with this state.
    pub(crate) fn new(shared: &'a Arc<ServerState>) -> Self {
        Self { shared }
    }

    /// Answers a request about a resource.
    pub(crate) fn answer(
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
        let (shared, kinds) = (self.shared, self.shared.kinds);
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
        let shared = self.shared;
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
