//! Deletions: preconditions, grace period of Pods, finalizers, and what becomes of dependents.

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    builtin,
    errors::{StatusError, details},
    key::StoreKey,
    object::{self, field, finalizers, is_deleting, number, set_at, set_finalizers, set_metadata, text, time, uid},
    options::{DeleteOptions, Propagation},
    target::Target,
    write::Request,
};

/// Namespaces that are there from the beginning and cannot be deleted.
pub(crate) const NAMESPACES: &[&str] = &["default", "kube-system"];
/// Finalizer of an object whose dependents are deleted before it.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an object whose dependents lose it as owner before it goes.
pub(crate) const ORPHAN: &str = "orphan";
/// Grace period of a Pod that names none, in seconds.
const GRACE: i64 = 30;
/// Longest grace period, in seconds (68 years); a later end could not be written as a time.
const MAX_GRACE: i64 = i32::MAX as i64;

/// Result of the deletion of an object.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// It is not there any more; this is how it was last.
    Gone(Value),
    /// It is marked, and waits for its end.
    Pending(Value),
}

impl Request<'_> {
    /// Deletes an object, and returns the code and body of the response.
    ///
    /// # Errors
    /// 404 if it is not there, 409 if it is not the one that the options name, 403 for a namespace that stays.
    pub(crate) fn delete(
        &mut self,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<(StatusCode, Value), StatusError> {
        let kind = self.kind(target);
        let old = self.get(target)?;
        let conflict = |what: &str, wanted: &str, found: &str, then: &str| {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might \
                 have been {then}"
            );
            Err(StatusError::conflict_of_kind(kind, &target.name, &why))
        };
        if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid(&old)) {
            return conflict("UID", wanted, uid(&old), "deleted and then recreated");
        }
        let version = text(&old, "/metadata/resourceVersion");
        if let Some(wanted) = options.version.as_deref().filter(|wanted| *wanted != version) {
            return conflict("ResourceVersion", wanted, version, "modified");
        }
        if kind.name == "Namespace" && NAMESPACES.contains(&target.name.as_str()) {
            return Err(StatusError::namespace_stays(kind, &target.name));
        }
        let key = self.key(target);
        match self.mark(&key, options) {
            Some(Deleted::Pending(object)) => Ok((StatusCode::OK, builtin::to_view(kind, object))),
            Some(Deleted::Gone(object)) if kind.traits.returns_deleted => {
                Ok((StatusCode::OK, builtin::to_view(kind, object)))
            }
            _ => {
                let mut details = details(kind, &target.name);
                details["uid"] = uid(&old).into();
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                });
                Ok((StatusCode::OK, status))
            }
        }
    }

    /// Removes an object, or marks it if something has to happen before. Returns none if it is not there.
    pub(crate) fn mark(&mut self, key: &StoreKey, options: &DeleteOptions) -> Option<Deleted> {
        let old = self.store.object(key)?;
        let mut new = old.clone();
        set_finalizers(&mut new, &with_propagation(&old, options.propagation));
        let name = self.kinds.get(key.kind).map_or("", |kind| kind.name);
        let grace = if name == "Pod" { pod_grace(&old, options.grace) } else { 0 };
        let goes = grace == 0 && finalizers(&new).next().is_none() && name != "Namespace";
        // A Pod that goes is marked, too: it is deleted gracefully, with no time.
        if !goes || name == "Pod" {
            set_end(&old, &mut new, grace, self.now);
        }
        if name == "Namespace" && !is_deleting(&old) {
            set_at(&mut new, "/status/phase", "Terminating".into());
        }
        if goes {
            if !options.dry_run {
                self.store.remove(key);
            }
            return Some(Deleted::Gone(new));
        }
        if options.dry_run || new == old {
            return Some(Deleted::Pending(new));
        }
        Some(Deleted::Pending(self.store.put(key.clone(), new, self.now)))
    }

    /// Deletes each of some objects, and returns them as a list.
    ///
    /// # Errors
    /// As for one object; one that is gone meanwhile is passed over.
    pub(crate) fn delete_all(
        &mut self,
        target: &Target,
        objects: Vec<Value>,
        options: &DeleteOptions,
    ) -> Result<Value, StatusError> {
        let kind = self.kind(target);
        for object in &objects {
            let one = Target {
                namespace: text(object, "/metadata/namespace").to_owned(),
                name: object::name(object).to_owned(),
                ..target.clone()
            };
            match self.delete(&one, options) {
                Err(error) if error.code != StatusCode::NOT_FOUND => return Err(error),
                _ => {}
            }
        }
        let mut list =
            json!({ "kind": format!("{}List", kind.name), "apiVersion": kind.api_version(), "metadata": {} });
        list["metadata"]["resourceVersion"] = self.store.version().to_string().into();
        *field(&mut list, "items") = objects.into();
        Ok(list)
    }
}

/// Sets when an object ends that is deleted at a time; an end that is set already can only come sooner.
fn set_end(old: &Value, new: &mut Value, grace: i64, now: Timestamp) {
    let pending = number(old, "/metadata/deletionGracePeriodSeconds");
    let end = if !is_deleting(old) {
        if let Some(generation) = number(old, "/metadata/generation") {
            set_metadata(new, "generation", Some((generation + 1).into()));
        }
        now + SignedDuration::from_secs(grace)
    } else if let Some(pending) = pending.filter(|pending| grace < *pending) {
        let begin = text(old, "/metadata/deletionTimestamp").parse().unwrap_or(now);
        begin - SignedDuration::from_secs(pending - grace)
    } else {
        return;
    };
    set_metadata(new, "deletionTimestamp", Some(time(end).into()));
    set_metadata(new, "deletionGracePeriodSeconds", Some(grace.into()));
}

/// Returns the finalizers of an object that is deleted: those that say what becomes of dependents follow from the options.
fn with_propagation(object: &Value, propagation: Option<Propagation>) -> Vec<String> {
    let wanted = match propagation {
        None => return finalizers(object).map(str::to_owned).collect(),
        Some(Propagation::Background) => None,
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
    };
    let others = finalizers(object).filter(|name| ![FOREGROUND, ORPHAN].contains(name));
    others.chain(wanted).map(str::to_owned).collect()
}

/// Returns the seconds that a Pod gets to end. One that runs nowhere, or has ended, goes at once.
fn pod_grace(pod: &Value, wanted: Option<i64>) -> i64 {
    let is_over = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
    if text(pod, "/spec/nodeName").is_empty() || is_over {
        return 0;
    }
    let own = number(pod, "/spec/terminationGracePeriodSeconds").unwrap_or(GRACE);
    // A negative one counts as 1, as in the API server.
    let grace = match wanted.unwrap_or(own) {
        ..0 => 1,
        grace => grace.min(MAX_GRACE),
    };
    // A deletion that is under way can only be made shorter.
    match number(pod, "/metadata/deletionGracePeriodSeconds").filter(|_| is_deleting(pod)) {
        Some(pending) if wanted.is_some() => grace.min(pending),
        Some(pending) => pending,
        None => grace,
    }
}
