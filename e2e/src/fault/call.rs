//! Request to the API server, classified by verb and object.

use std::fmt;

use http::{Method, Uri};

/// Request by verb and object. Every part except the verb may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ApiCall {
    /// `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
    /// Plural, such as `deployments`.
    pub resource: String,
    /// Subresource, such as `status`.
    pub subresource: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// True for a dry run.
    pub is_dry_run: bool,
}

impl ApiCall {
    /// Parses method and URI; a path that is not a resource gets its first segment as resource.
    pub fn read(method: &Method, uri: &Uri) -> Self {
        let mut parts = uri.path().split('/').filter(|part| !part.is_empty());
        let groups = match parts.next() {
            Some("api") => 1,
            Some("apis") => 2,
            other => {
                let resource = other.unwrap_or_default().to_owned();
                return Self { resource, ..Self::of(method, uri, false) };
            }
        };
        let rest: Vec<&str> = parts.skip(groups).collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() && !is_of_namespaces(rest) => (*namespace, rest),
            rest => ("", rest),
        };
        let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        let call = Self::of(method, uri, rest.len() > 1);
        Self { resource: part(0), name: part(1), subresource: part(2), namespace: namespace.to_owned(), ..call }
    }

    /// Reports whether the request is a write and not a dry run.
    pub fn is_write(&self) -> bool {
        !self.is_dry_run && !matches!(self.verb, "get" | "list" | "watch")
    }

    fn of(method: &Method, uri: &Uri, is_named: bool) -> Self {
        let query = uri.query().unwrap_or_default();
        let has = |wanted: &[&str]| query.split('&').any(|pair| wanted.contains(&pair));
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ if has(&["watch=true", "watch=1"]) => "watch",
            _ if is_named => "get",
            _ => "list",
        };
        let empty = String::new;
        let is_dry_run = has(&["dryRun=All"]);
        Self { verb, resource: empty(), subresource: empty(), namespace: empty(), name: empty(), is_dry_run }
    }
}

impl fmt::Display for ApiCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} {}", if self.is_dry_run { "dry-run " } else { "" }, self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        match (self.namespace.as_str(), self.name.as_str()) {
            ("", "") => Ok(()),
            ("", name) => write!(f, " {name}"),
            (namespace, name) => write!(f, " {namespace}/{name}"),
        }
    }
}

/// Reports whether the rest is a subresource of a Namespace, which looks like a resource in that namespace.
fn is_of_namespaces(rest: &[&str]) -> bool {
    matches!(rest, ["status" | "finalize"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_by_what_it_is_about() {
        for (method, path, expected) in [
            ("GET", "/api/v1/pods?watch=true&allowWatchBookmarks=true", "watch pods"),
            ("GET", "/apis/apps/v1/namespaces/a/deployments?limit=1", "list deployments a/"),
            ("GET", "/apis/apps/v1/namespaces/a/deployments/d", "get deployments a/d"),
            ("PATCH", "/apis/agents.recif.dev/v1/namespaces/a/agents/x/status", "patch agents/status a/x"),
            ("POST", "/api/v1/namespaces/a/events", "create events a/"),
            ("DELETE", "/api/v1/namespaces/a", "delete namespaces a"),
            ("PUT", "/api/v1/namespaces/a/finalize", "update namespaces/finalize a"),
            ("PATCH", "/api/v1/namespaces/a/secrets/s?fieldManager=m&dryRun=All", "dry-run patch secrets a/s"),
            ("GET", "/readyz", "list readyz"),
        ] {
            let call = ApiCall::read(&method.parse().unwrap(), &path.parse().unwrap());
            assert_eq!(call.to_string(), expected);
            let is_read = ["get", "list", "watch", "dry-run"].iter().any(|verb| expected.starts_with(verb));
            assert_eq!(call.is_write(), !is_read, "{expected}");
        }
    }
}
