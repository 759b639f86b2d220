//! Options of requests: query parameters and, of deletions, the body.

use http::HeaderMap;
use serde_json::Value;

use crate::{
    errors::{FORBIDDEN, INVALID, NOT_SUPPORTED, REQUIRED, StatusError, Violation},
    object::text,
};

/// Query parameters of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the query of a URL.
    pub(crate) fn parse(query: &str) -> Self {
        Self(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// Returns a parameter; empty if it is not there.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// Returns whether a parameter is there, and true. One without a value is true.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.iter().any(|(found, value)| found == name && value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Returns whether a parameter is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(found, _)| found == name)
    }

    /// Returns every value of a parameter.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// Treatment of fields that the schema does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, and the response has a warning.
    Warn,
    /// They are refused.
    Strict,
}

/// Options of a create, update or patch.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    /// Nothing is stored.
    pub(crate) dry_run: bool,
    /// Field manager.
    pub(crate) manager: String,
    /// An apply takes fields of others.
    pub(crate) force: bool,
    /// Treatment of unknown fields.
    pub(crate) validation: FieldValidation,
}

/// Returns the error of one option.
fn invalid(options: &str, reason: &'static str, field: &str, message: impl Into<String>) -> StatusError {
    let error = Violation { reason, field: field.to_owned(), message: message.into() };
    StatusError::invalid("meta.k8s.io", options, "", &[error])
}

impl WriteOptions {
    /// Reads the options; `name` is that of their type, such as `PatchOptions`. Without a field manager it is the program that
    /// the header `User-Agent` names.
    ///
    /// # Errors
    /// 422 for a value that is not allowed, or an apply without field manager.
    pub(crate) fn parse(name: &str, query: &Query, headers: &HeaderMap, is_apply: bool) -> Result<Self, StatusError> {
        let dry_run = is_dry_run(name, query.all("dryRun"))?;
        let validation = match query.get("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                let message =
                    format!("Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"");
                return Err(invalid(name, NOT_SUPPORTED, "fieldValidation", message));
            }
        };
        let mut manager = query.get("fieldManager").to_owned();
        if is_apply && manager.is_empty() {
            let message = "Required value: is required for apply patch";
            return Err(invalid(name, REQUIRED, "fieldManager", message));
        }
        if !is_apply && query.has("force") && name == "PatchOptions" {
            let message = "Forbidden: may not be specified for non-apply patch";
            return Err(invalid(name, FORBIDDEN, "force", message));
        }
        if manager.is_empty() {
            let agent = headers.get("user-agent").and_then(|agent| agent.to_str().ok()).unwrap_or_default();
            manager = agent.split('/').next().unwrap_or_default().chars().take(128).collect();
        }
        Ok(Self { dry_run, manager, force: query.flag("force"), validation })
    }
}

fn is_dry_run<'a>(name: &str, values: impl Iterator<Item = &'a str>) -> Result<bool, StatusError> {
    let values: Vec<&str> = values.filter(|value| !value.is_empty()).collect();
    if values.iter().any(|value| *value != "All") {
        let message = format!("Unsupported value: {}: supported values: \"All\"", serde_json::json!(values));
        return Err(invalid(name, NOT_SUPPORTED, "dryRun", message));
    }
    Ok(!values.is_empty())
}

/// Deletion propagation: what becomes of an object's dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They stay, without owner.
    Orphan,
}

/// Options of a deletion.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    /// Nothing is stored.
    pub(crate) dry_run: bool,
    /// Seconds that a Pod has to end.
    pub(crate) grace: Option<i64>,
    /// Deletion propagation; none leaves the choice to the finalizers of the object.
    pub(crate) propagation: Option<Propagation>,
    /// Only the object with this uid is deleted.
    pub(crate) uid: Option<String>,
    /// Only the object in this version is deleted.
    pub(crate) version: Option<String>,
}

impl DeleteOptions {
    /// Reads the options from the body, or else from the query.
    ///
    /// # Errors
    /// 400 for a body that is no such object, 422 for a value that is not allowed.
    pub(crate) fn parse(query: &Query, body: &[u8]) -> Result<Self, StatusError> {
        let body: Value = match body {
            [] => Value::Null,
            body => serde_json::from_slice(body).map_err(|error| StatusError::bad_request(error.to_string()))?,
        };
        let texts = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let dry_run = is_dry_run("DeleteOptions", query.all("dryRun").chain(texts))?;
        let word = match text(&body, "/propagationPolicy") {
            "" => query.get("propagationPolicy"),
            word => word,
        };
        let orphans = body["orphanDependents"].as_bool();
        let propagation = match (word, orphans) {
            ("Background", _) | ("", Some(false)) => Some(Propagation::Background),
            ("Foreground", _) => Some(Propagation::Foreground),
            ("Orphan", _) | ("", Some(true)) => Some(Propagation::Orphan),
            ("", None) => None,
            (other, _) => {
                let supported = "\"Foreground\", \"Background\", \"Orphan\", \"nil\"";
                let message = format!("Unsupported value: {other:?}: supported values: {supported}");
                return Err(invalid("DeleteOptions", NOT_SUPPORTED, "propagationPolicy", message));
            }
        };
        let grace = body["gracePeriodSeconds"].as_i64().or_else(|| query.get("gracePeriodSeconds").parse().ok());
        let condition = |name: &str| body["preconditions"][name].as_str().map(str::to_owned);
        Ok(Self { dry_run, grace, propagation, uid: condition("uid"), version: condition("resourceVersion") })
    }
}

/// Options of a list or watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListOptions {
    /// Changes are asked for, not a list.
    pub(crate) watch: bool,
    /// Version; none if it is not set.
    pub(crate) version: Option<u64>,
    /// The list is asked for in this very version.
    pub(crate) exact: bool,
    /// The watch begins with what is there, and marks its end.
    pub(crate) initial_events: Option<bool>,
    /// The watch gets bookmarks.
    pub(crate) bookmarks: bool,
    /// Seconds after which the watch ends.
    pub(crate) timeout: Option<u64>,
}

impl ListOptions {
    /// Reads the options.
    ///
    /// # Errors
    /// 422 for a combination that is not allowed, or a version that is no number.
    pub(crate) fn parse(query: &Query) -> Result<Self, StatusError> {
        let (watch, has_match) = (query.flag("watch"), query.has("resourceVersionMatch"));
        let initial_events = query.has("sendInitialEvents").then(|| query.flag("sendInitialEvents"));
        let forbidden = |field, why: &str| Err(invalid("ListOptions", FORBIDDEN, field, format!("Forbidden: {why}")));
        let (exact, version) = (query.get("resourceVersionMatch") == "Exact", query.get("resourceVersion"));
        match (watch, initial_events) {
            (true, None) if has_match => {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                return forbidden("resourceVersionMatch", why);
            }
            (true, Some(_)) if !has_match => {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                return forbidden("resourceVersionMatch", why);
            }
            (false, Some(_)) => return forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"),
            (false, None) if has_match && version.is_empty() => {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                return forbidden("resourceVersionMatch", why);
            }
            _ => {}
        }
        let parsed = || {
            version.parse().map_err(|_| {
                let message =
                    format!("Invalid value: {version:?}: strconv.ParseUint: parsing {version:?}: invalid syntax");
                invalid("ListOptions", INVALID, "resourceVersion", message)
            })
        };
        Ok(Self {
            watch,
            version: if version.is_empty() { None } else { Some(parsed()?) },
            exact,
            initial_events,
            bookmarks: query.flag("allowWatchBookmarks"),
            timeout: query.get("timeoutSeconds").parse().ok(),
        })
    }
}
