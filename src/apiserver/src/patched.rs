//! Patches as writes: the patched object, and who owns its fields.

use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    admission,
    bodies::{check_name, expect_kind, expect_type},
    errors::{INVALID, StatusError, Violation},
    kinds::Kind,
    managed::{self, Operation},
    object::{self, remove_nulls, set_at, set_metadata, text, time, uid},
    options::WriteOptions,
    patch::{PatchType, json_patch, merge_patch, strategic_patch},
    scale,
    structure::Structure,
    target::Target,
    write::{FieldOwners, Request, Written},
    written_fields::warnings,
};

impl Request<'_> {
    /// Patches an object, or creates it if it is applied and not there.
    ///
    /// # Errors
    /// Those of the API server: 400, 404, 409, 415, 422.
    pub(crate) fn patch(
        &mut self,
        target: &Target,
        form: PatchType,
        patch: &[u8],
        options: &WriteOptions,
    ) -> Result<Written, StatusError> {
        if target.subresource == "scale" {
            return self.patch_scale(target, form, patch, options);
        }
        if form == PatchType::Apply {
            return self.apply(target, read_config(patch)?, options);
        }
        let kind = self.kind(target);
        let old = self.get(target)?;
        // The message repeats the patched object as it was before it was completed.
        let refused = |why: &str| match changed(&old, form, patch) {
            Ok(object) => StatusError::invalid_patch(&object, why),
            Err(error) => error,
        };
        let mut new = expect_kind(kind, changed(&old, form, patch)?).map_err(|error| refused(&error.message))?;
        let unknown = admission::admit(kind, &mut new).map_err(|why| refused(&why))?;
        let warnings = warnings(unknown, options.validation).map_err(|why| refused(&why))?;
        check_name(target, &new)?;
        let writer = self.writer(target, options, Operation::Update);
        self.replace_by_admitted(target, &old, new, FieldOwners::Of(&writer), warnings, options)
    }

    /// Applies a configuration.
    fn apply(&mut self, target: &Target, config: Value, options: &WriteOptions) -> Result<Written, StatusError> {
        let kind = self.kind(target);
        let config = checked_config(kind, target, config)?;
        let writer = self.writer(target, options, Operation::Apply);
        let now = time(self.now);
        let old = match self.get(target) {
            Ok(old) => old,
            Err(_) if target.subresource.is_empty() => {
                let wanted = uid(&config);
                if !wanted.is_empty() {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {wanted}, and no existing object was found"
                    );
                    return Err(StatusError::conflict(kind, &target.name, &why));
                }
                let empty = json!({ "apiVersion": kind.api_version(), "kind": kind.name, "metadata": {} });
                let mut new = managed::apply(Structure(kind), &empty, &config, &writer, options.force, &now)?;
                set_metadata(&mut new, "name", Some(target.name.clone().into()));
                return self.insert(target, new, FieldOwners::Recorded, options);
            }
            Err(missing) => return Err(missing),
        };
        let new = managed::apply(Structure(kind), &old, &config, &writer, options.force, &now)?;
        self.replace(target, &old, new, FieldOwners::Recorded, options)
    }

    /// Replaces the scale of an object.
    ///
    /// # Errors
    /// As for an update.
    pub(crate) fn update_scale(
        &mut self,
        target: &Target,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Written, StatusError> {
        let scale = expect_type("autoscaling/v1", "Scale", body)?;
        check_name(target, &scale)?;
        let old = self.get(target)?;
        let replicas = scale.pointer("/spec/replicas").cloned().unwrap_or_else(|| 0.into());
        self.set_replicas(target, &old, &scale, replicas, options)
    }

    fn patch_scale(
        &mut self,
        target: &Target,
        form: PatchType,
        patch: &[u8],
        options: &WriteOptions,
    ) -> Result<Written, StatusError> {
        let (kind, old) = (self.kind(target), self.get(target)?);
        if form == PatchType::Apply {
            let config = read_config(patch)?;
            let mut wanted = json!({ "metadata": { "name": target.name } });
            if let Some(replicas) = config.pointer("/spec/replicas") {
                let paths = kind.scale().ok_or_else(StatusError::method_not_allowed)?;
                set_at(&mut wanted, &paths.spec, replicas.clone());
            }
            let writer = self.writer(target, options, Operation::Apply);
            let now = time(self.now);
            let new = managed::apply(Structure(kind), &old, &wanted, &writer, options.force, &now)?;
            let written = self.replace(target, &old, new, FieldOwners::Recorded, options)?;
            return self.scaled(target, written);
        }
        let scale = changed(&scale::of(kind, &old)?, form, patch)?;
        let refused = |error: StatusError| StatusError::invalid_patch(&scale, &error.message);
        let scale = expect_type("autoscaling/v1", "Scale", scale.clone()).map_err(refused)?;
        check_name(target, &scale)?;
        let replicas = scale.pointer("/spec/replicas").cloned().unwrap_or_else(|| 0.into());
        self.set_replicas(target, &old, &scale, replicas, options)
    }

    /// Sets the replicas of `old`, if the scale that is written names no other uid or version.
    fn set_replicas(
        &mut self,
        target: &Target,
        old: &Value,
        scale: &Value,
        replicas: Value,
        options: &WriteOptions,
    ) -> Result<Written, StatusError> {
        let kind = self.kind(target);
        if replicas.as_i64().is_none_or(|replicas| replicas < 0) {
            let message = format!("Invalid value: {replicas}: must be greater than or equal to 0");
            let error = Violation { reason: INVALID, field: "spec.replicas".to_owned(), message };
            return Err(StatusError::invalid("autoscaling", "Scale", &target.name, &[error]));
        }
        let mut new = old.clone();
        let paths = kind.scale().ok_or_else(StatusError::method_not_allowed)?;
        set_at(&mut new, &paths.spec, replicas);
        for field in ["uid", "resourceVersion"] {
            let given = text(scale, &format!("/metadata/{field}"));
            if !given.is_empty() {
                set_metadata(&mut new, field, Some(given.into()));
            }
        }
        let writer = self.writer(target, options, Operation::Update);
        let written = self.replace(target, old, new, FieldOwners::Of(&writer), options)?;
        self.scaled(target, written)
    }

    /// Answers with the scale of what was written.
    fn scaled(&self, target: &Target, written: Written) -> Result<Written, StatusError> {
        let object = scale::of(self.kind(target), &written.object)?;
        Ok(Written { code: StatusCode::OK, object, ..written })
    }
}

/// Returns the patched object.
fn changed(old: &Value, form: PatchType, patch: &[u8]) -> Result<Value, StatusError> {
    match form {
        PatchType::Json => json_patch(old, patch),
        PatchType::Merge => merge_patch(old, patch),
        PatchType::Strategic | PatchType::Apply => strategic_patch(old, patch),
    }
}

/// Reads a configuration, which is YAML or JSON.
fn read_config(patch: &[u8]) -> Result<Value, StatusError> {
    let unreadable = |error: String| StatusError::bad_request(format!("error decoding YAML: {error}"));
    match serde_json::from_slice(patch) {
        Ok(config) => Ok(config),
        Err(_) => serde_yaml::from_slice(patch).map_err(|error| unreadable(error.to_string())),
    }
}

/// Checks what a configuration must and must not name, and that the schema knows its fields.
fn checked_config(kind: &Kind, target: &Target, mut config: Value) -> Result<Value, StatusError> {
    let mismatch = |what: &str, given: &str, wanted: &str| {
        StatusError::bad_request(format!(
            "the {what} of the object ({given}) does not match the {what} on the URL ({wanted})"
        ))
    };
    let (version, name) = (text(&config, "/apiVersion"), text(&config, "/kind"));
    if version.is_empty() || name.is_empty() {
        return Err(StatusError::bad_request("Object 'apiVersion' and 'kind' must be set in the configuration"));
    }
    let (given, wanted) = (format!("{version}, Kind={name}"), format!("{}, Kind={}", kind.api_version(), kind.name));
    if given != wanted {
        let message = format!("invalid object type: {given} is not {wanted}");
        return Err(StatusError::bad_request(message));
    }
    if config.pointer("/metadata/managedFields").is_some_and(|managed| !managed.is_null()) {
        return Err(StatusError::bad_request("metadata.managedFields must be nil"));
    }
    let given = object::name(&config);
    if !given.is_empty() && given != target.name {
        return Err(mismatch("name", given, &target.name));
    }
    let given = text(&config, "/metadata/namespace");
    if !given.is_empty() && given != target.namespace {
        return Err(mismatch("namespace", given, &target.namespace));
    }
    remove_nulls(&mut config);
    let mut errors = Vec::new();
    if let Some(schema) = kind.schema() {
        errors = schema.map_err(StatusError::unknown)?.check_types(&config);
    }
    if errors.is_empty() {
        match admission::admit(kind, &mut config.clone()) {
            Ok(unknown) => errors.extend(unknown.first().map(|path| format!(".{path}: field not declared in schema"))),
            Err(why) => errors.push(why),
        }
    }
    let errors = match errors.as_slice() {
        [] => return Ok(config),
        [error] => error.clone(),
        errors => format!("errors:\n  {}", errors.join("\n  ")),
    };
    let object = format!("{}/{}; {wanted}", text(&config, "/metadata/namespace"), object::name(&config));
    Err(StatusError::unknown(format!("failed to create typed patch object ({object}): {errors}")))
}
