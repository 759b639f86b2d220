//! Counting requests, from the API server's audit log.
//!
//! The log has one JSON line per request, written once the answer is given. A mark is a place in the file; what was asked
//! since then is read up to a request of our own, so that nothing is still on its way into the file.

use std::{
    fmt,
    io::SeekFrom,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use kube::{Api, Client};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use crate::{operator, watch};

/// The audit log of the API server.
pub(crate) struct Audit {
    client: Client,
    path: PathBuf,
    fences: AtomicU64,
}

/// A place in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(u64);

/// One request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Request {
    stage: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub(crate) verb: String,
    user: User,
    object_ref: Target,
    response_status: Answer,
    #[serde(rename = "requestURI")]
    uri: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Target {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Answer {
    code: u16,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target { namespace, name, .. } = &self.object_ref;
        write!(f, "{} {} {namespace}/{name} {}", self.verb, self.resource(), self.response_status.code)
    }
}

impl Request {
    /// Plural and subresource, such as `agents/status`.
    pub(crate) fn resource(&self) -> String {
        let Target { resource, subresource, .. } = &self.object_ref;
        if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") }
    }

    /// Name of the object; empty for a create.
    pub(crate) fn name(&self) -> &str {
        &self.object_ref.name
    }

    /// Whether it stores something.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
            && !self.uri.contains("dryRun=")
    }

    /// Whether the API server did it.
    pub(crate) fn succeeded(&self) -> bool {
        (200..300).contains(&self.response_status.code)
    }

    /// Whether it is part of what runs all the time: watches, the lease, reviews of its own rights, and paths that name no
    /// object.
    pub(crate) fn is_upkeep(&self) -> bool {
        let Target { resource, .. } = &self.object_ref;
        self.verb == "watch" || resource == "leases" || resource.is_empty()
    }
}

impl Audit {
    pub(crate) fn new(client: Client, path: PathBuf) -> Self {
        Self { client, path, fences: AtomicU64::new(0) }
    }

    /// Everything that was asked before this call is before the mark.
    pub(crate) async fn mark(&self) -> Result<Mark> {
        let start = tokio::fs::metadata(&self.path).await.with_context(|| format!("find {}", self.path.display()))?;
        let (_, end) = self.read_to_fence(Mark(start.len())).await?;
        Ok(Mark(end))
    }

    /// The operator's requests in one namespace since the mark, or in every namespace.
    pub(crate) async fn by_operator(&self, since: Mark, namespace: Option<&str>) -> Result<Vec<Request>> {
        self.by(operator::ACCOUNT, since, namespace).await
    }

    /// A user's requests in one namespace since the mark, or in every namespace.
    pub(crate) async fn by(&self, user: &str, since: Mark, namespace: Option<&str>) -> Result<Vec<Request>> {
        let (text, _) = self.read_to_fence(since).await?;
        let requests = text.lines().filter(|line| line.contains(user));
        let requests = requests.filter_map(|line| serde_json::from_str::<Request>(line).ok());
        Ok(requests
            .filter(|request| request.user.username == user && request.stage == "ResponseComplete")
            .filter(|request| namespace.is_none_or(|namespace| request.object_ref.namespace == namespace))
            .collect())
    }

    /// Whether the operator asks for nothing in a namespace from the mark until `window` from now is over. That something does
    /// not happen can only be watched for a while.
    pub(crate) async fn quiet(&self, since: Mark, namespace: &str, window: Duration) -> Result<()> {
        let asked = || async {
            let mut requests = self.by_operator(since, Some(namespace)).await?;
            requests.retain(|request| !request.is_upkeep());
            Ok((!requests.is_empty()).then_some(requests))
        };
        let found = match watch::poll(window, "a request", asked).await {
            Ok(requests) => Some(requests),
            Err(_) => asked().await?,
        };
        found.map_or(Ok(()), |requests| bail!("the operator asked for {}", listed(&requests)))
    }

    /// Reads from the mark to the line of a request that is made now; also gives the place after that line.
    async fn read_to_fence(&self, since: Mark) -> Result<(String, u64)> {
        let number = self.fences.fetch_add(1, Ordering::Relaxed);
        let fence = format!("e2e-fence-{}-{number}", std::process::id());
        let api: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(self.client.clone(), "default");
        api.get_opt(&fence).await.context("send the request that ends the count")?;
        watch::poll(Duration::from_secs(10), "our own request in the audit log", || async {
            let text = self.read(since).await?;
            let Some(at) = text.find(&fence) else { return Ok(None) };
            let end = text[at..].find('\n').map_or(text.len(), |line| at + line + 1);
            Ok(Some((text[..end].to_owned(), since.0 + end as u64)))
        })
        .await
    }

    async fn read(&self, since: Mark) -> Result<String> {
        let mut file =
            tokio::fs::File::open(&self.path).await.with_context(|| format!("open {}", self.path.display()))?;
        file.seek(SeekFrom::Start(since.0)).await?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).await?;
        Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }
}

/// The requests as one text, for the message of a failed count.
pub(crate) fn listed<'a>(requests: impl IntoIterator<Item = &'a Request>) -> String {
    let lines: Vec<String> = requests.into_iter().map(ToString::to_string).collect();
    if lines.is_empty() { "no request".into() } else { lines.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: &str, target: &str, uri: &str) -> Request {
        let line = format!(
            r#"{{"stage":"ResponseComplete","verb":"{verb}","requestURI":"{uri}","objectRef":{{{target}}},
                "user":{{"username":"{}","uid":"1"}},"responseStatus":{{"metadata":{{}},"code":200}}}}"#,
            operator::ACCOUNT
        );
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn a_dry_run_is_no_write() {
        let target = r#""resource":"deployments","namespace":"a","name":"b""#;
        assert!(request("patch", target, "/b?fieldManager=m").is_write());
        assert!(!request("patch", target, "/b?dryRun=All&fieldManager=m").is_write());
        assert!(!request("get", target, "/b").is_write());
    }

    #[test]
    fn watches_and_the_lease_are_upkeep() {
        assert!(request("watch", r#""resource":"agents""#, "/agents?watch=true").is_upkeep());
        assert!(request("update", r#""resource":"leases","name":"l""#, "/l").is_upkeep());
        assert!(request("get", "", "/version").is_upkeep());
        assert!(!request("list", r#""resource":"agents""#, "/agents").is_upkeep());
    }

    #[test]
    fn a_subresource_is_part_of_the_resource() {
        let target = r#""resource":"agents","subresource":"status","namespace":"a","name":"b""#;
        let request = request("patch", target, "/status");
        assert_eq!(request.resource(), "agents/status");
        assert_eq!(request.to_string(), "patch agents/status a/b 200");
    }
}
