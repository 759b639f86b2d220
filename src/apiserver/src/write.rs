//! Create, update and the common end of every write: system fields, preconditions, owners of fields, rules, storage.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    admission,
    bodies::{check_name, check_namespace, expect_kind},
    builtin,
    errors::StatusError,
    generated_names::{MAX_BASE, new_uid, suffix},
    key::StoreKey,
    kinds::{Kind, stored},
    managed::{self, ManagerIdentifier, Operation, without_times},
    object::{self, finalizers, is_deleting, metadata, number, set_field, set_metadata, text, time},
    options::WriteOptions,
    store::Store,
    structure::Structure,
    target::Target,
    written_fields::{admit, check_preconditions, prepare},
};

/// Names that are tried for one `generateName`.
const NAME_ATTEMPTS: usize = 8;

/// Answer to a write.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) code: StatusCode,
    pub(crate) object: Value,
    /// Texts of the header `Warning`.
    pub(crate) warnings: Vec<String>,
}

/// Source of the owners of the fields.
#[derive(Clone, Copy)]
pub(crate) enum FieldOwners<'a> {
    /// They follow from the difference.
    Of(&'a ManagerIdentifier),
    /// An apply has recorded them.
    Recorded,
}

/// One request at work on the store.
pub(crate) struct Request<'a> {
    pub(crate) kinds: &'static [Kind],
    pub(crate) store: &'a mut Store,
    pub(crate) now: Timestamp,
}

impl Request<'_> {
    pub(crate) fn kind(&self, target: &Target) -> &'static Kind {
        &self.kinds[target.kind]
    }

    pub(crate) fn key(&self, target: &Target) -> StoreKey {
        let kind = stored(self.kinds, target.kind);
        StoreKey { kind, namespace: target.namespace.clone(), name: target.name.clone() }
    }

    /// Returns the object in the form of the kind that the request names.
    ///
    /// # Errors
    /// 404 if it is not there.
    pub(crate) fn get(&self, target: &Target) -> Result<Value, StatusError> {
        let kind = self.kind(target);
        let found = self.store.object(&self.key(target)).ok_or_else(|| StatusError::not_found(kind, &target.name))?;
        Ok(builtin::to_view(kind, found))
    }

    /// Returns the writer that a request is recorded as.
    pub(crate) fn writer(&self, target: &Target, options: &WriteOptions, operation: Operation) -> ManagerIdentifier {
        ManagerIdentifier {
            operation,
            manager: options.manager.clone(),
            api_version: self.kind(target).api_version(),
            subresource: target.subresource.clone(),
        }
    }

    /// Creates an object from a body.
    ///
    /// # Errors
    /// Those of the API server: 400, 403, 404 of the namespace, 409, 422.
    pub(crate) fn create(
        &mut self,
        target: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Written, StatusError> {
        let kind = self.kind(target);
        let object = expect_kind(kind, body)?;
        check_namespace(target, &object)?;
        if !text(&object, "/metadata/resourceVersion").is_empty() {
            return Err(StatusError::unknown("resourceVersion should not be set on objects to be created"));
        }
        let writer = self.writer(target, options, Operation::Update);
        self.insert(target, object, FieldOwners::Of(&writer), options)
    }

    /// Stores a new object.
    ///
    /// # Errors
    /// As for [`Request::create`].
    pub(crate) fn insert(
        &mut self,
        target: &Target,
        mut object: Value,
        owners: FieldOwners<'_>,
        options: &WriteOptions,
    ) -> Result<Written, StatusError> {
        let kind = self.kind(target);
        let managed = object.pointer("/metadata/managedFields").cloned();
        if kind.traits.status {
            set_field(&mut object, "status", None);
        }
        let warnings = admit(kind, &mut object, options)?;
        let generate = text(&object, "/metadata/generateName").to_owned();
        let mut name = object::name(&object).to_owned();
        for _ in 0..NAME_ATTEMPTS {
            if object::name(&object).is_empty() && !generate.is_empty() {
                name = format!("{}{}", generate.chars().take(MAX_BASE).collect::<String>(), suffix()?);
            }
            if self.store.get(&self.key(&Target { name: name.clone(), ..target.clone() })).is_none() {
                break;
            }
        }
        self.check_place(kind, &target.namespace, &name)?;

        let system = ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];
        metadata(&mut object).retain(|field, _| !system.contains(&field.as_str()));
        set_metadata(&mut object, "uid", Some(new_uid()?.into()));
        set_metadata(&mut object, "name", Some(name.clone().into()));
        set_metadata(&mut object, "creationTimestamp", Some(time(self.now).into()));
        let namespace = (!kind.traits.cluster).then(|| target.namespace.clone().into());
        set_metadata(&mut object, "namespace", namespace);
        if kind.traits.generation {
            set_metadata(&mut object, "generation", Some(1.into()));
        }
        match owners {
            FieldOwners::Of(writer) => {
                set_metadata(&mut object, "managedFields", None);
                managed::update(Structure(kind), &kind.empty(), &mut object, writer, &time(self.now));
            }
            FieldOwners::Recorded => set_metadata(&mut object, "managedFields", managed),
        }
        admission::validate(kind, &object, None)?;
        let key = self.key(&Target { name: name.clone(), ..target.clone() });
        if self.store.get(&key).is_some() {
            return Err(StatusError::already_exists(kind, &name));
        }
        let object = self.keep(kind, key, object, options);
        Ok(Written { code: StatusCode::CREATED, object, warnings })
    }

    /// Checks that a namespace takes new objects.
    fn check_place(&self, kind: &Kind, namespace: &str, name: &str) -> Result<(), StatusError> {
        if kind.traits.cluster {
            return Ok(());
        }
        let index = self.kinds.iter().position(|kind| kind.name == "Namespace").unwrap_or_default();
        let key = StoreKey { kind: index, namespace: String::new(), name: namespace.to_owned() };
        match self.store.get(&key) {
            None => Err(StatusError::not_found(&self.kinds[index], namespace)),
            Some(found) if found.is_deleting => Err(StatusError::namespace_terminating(kind, name, namespace)),
            Some(_) => Ok(()),
        }
    }

    /// Replaces an object by a body.
    ///
    /// # Errors
    /// Those of the API server: 400, 404, 409, 422.
    pub(crate) fn update(
        &mut self,
        target: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Written, StatusError> {
        let object = expect_kind(self.kind(target), body)?;
        check_name(target, &object)?;
        let old = self.get(target)?;
        let writer = self.writer(target, options, Operation::Update);
        self.replace(target, &old, object, FieldOwners::Of(&writer), options)
    }

    /// Replaces the object `old` by another one: the end of updates and applies.
    ///
    /// # Errors
    /// 400 for a field of another type, 409 if the new one names another uid or version, 422 for violations.
    pub(crate) fn replace(
        &mut self,
        target: &Target,
        old: &Value,
        mut new: Value,
        owners: FieldOwners<'_>,
        options: &WriteOptions,
    ) -> Result<Written, StatusError> {
        let warnings = admit(self.kind(target), &mut new, options)?;
        self.replace_by_admitted(target, old, new, owners, warnings, options)
    }

    /// Replaces the object `old` by one that is complete.
    ///
    /// # Errors
    /// 409 if the new one names another uid or version, 422 for violations.
    pub(crate) fn replace_by_admitted(
        &mut self,
        target: &Target,
        old: &Value,
        mut new: Value,
        owners: FieldOwners<'_>,
        warnings: Vec<String>,
        options: &WriteOptions,
    ) -> Result<Written, StatusError> {
        let kind = self.kind(target);
        check_preconditions(kind, old, &new)?;
        prepare(kind, &target.subresource, old, &mut new);
        if let FieldOwners::Of(writer) = owners {
            managed::update(Structure(kind), old, &mut new, writer, &time(self.now));
        }
        admission::validate(kind, &new, Some(old))?;
        // Nothing is written for times alone.
        if without_times(&new) == without_times(old) {
            return Ok(Written { code: StatusCode::OK, object: old.clone(), warnings });
        }
        let key = self.key(target);
        let is_over = is_deleting(&new)
            && finalizers(&new).next().is_none()
            && number(&new, "/metadata/deletionGracePeriodSeconds").unwrap_or_default() == 0
            && kind.name != "Namespace";
        let object = if is_over && !options.dry_run {
            self.store.remove(&key);
            new
        } else {
            self.keep(kind, key, new, options)
        };
        Ok(Written { code: StatusCode::OK, object, warnings })
    }

    /// Stores an object unless it is a dry run. Returns it as stored.
    fn keep(&mut self, kind: &Kind, key: StoreKey, object: Value, options: &WriteOptions) -> Value {
        if options.dry_run {
            return object;
        }
        builtin::to_view(kind, self.store.put(key, builtin::to_stored(kind, object), self.now))
    }
}
