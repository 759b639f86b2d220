//! Readings of the installed parts: Deployments, what their Pods answer, the lease, the certificate and the database.

use std::collections::BTreeMap;

use crds::postgres_url::{PostgresUrl, PostgresUrlError};
use futures::{StreamExt as _, stream};
use http::HeaderValue;
use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret};
use serde_json::Value;

use super::{
    api::{ApiReader, Read, Unread, helm_release, is_by_helm, is_true, items, text, unasked},
    views::HelmRelease,
};
use crate::doctor::certificate::not_after;

/// Environment variable with a token that is used instead of the kubeconfig's.
const TOKEN: &str = "RECIF_TOKEN";
/// Name under which the kubelet publishes the port of probes and metrics.
const ADMIN_PORTS: [&str; 2] = ["admin", "http"];

/// Operator, gateway or control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::doctor) struct Part {
    /// Image of its container.
    pub image: String,
    /// Names of the Secrets with which it is pulled.
    pub pull_secrets: Vec<String>,
    /// Version, by the tag of its image or its label; empty: unknown.
    pub version: String,
    /// Number of Pods that it should have.
    pub replicas: i64,
    /// Its ServiceAccount.
    pub account: String,
    /// Arguments of its container.
    pub args: Vec<String>,
    /// Environment of its container, as far as it has texts.
    pub env: BTreeMap<String, String>,
    /// Names of the Secrets that are mounted, by volume.
    pub secrets: BTreeMap<String, String>,
    /// Name and key of the Secret with the URL of its database.
    pub database: Option<(String, String)>,
    /// True if one of its volumes outlives its Pod.
    pub has_claim: bool,
    /// Its Pods.
    pub pods: Vec<PartPod>,
    /// True if the request was made with a token.
    pub signed: bool,
    /// True if it is of a chart.
    pub by_helm: bool,
    /// Release that it is of; `None`: unknown.
    pub release: Option<HelmRelease>,
}

/// Pod of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct PartPod {
    /// Name.
    pub name: String,
    /// True if it is Ready.
    pub ready: bool,
    /// Status and body of `/readyz`.
    pub readyz: Read<(u16, String)>,
    /// Status of a request as users make them; `None`: it serves no users.
    pub answer: Option<Read<u16>>,
    /// Lag of the history in whole seconds, from its metrics.
    pub behind: Option<u64>,
}

/// ServiceAccount by its Deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct Account {
    /// Name.
    pub name: String,
    /// Namespaces in which it works; empty: all.
    pub namespaces: Vec<String>,
}

impl Part {
    /// Returns the Pods that are ready.
    pub(in crate::doctor) fn ready(&self) -> usize {
        self.pods.iter().filter(|pod| pod.ready).count()
    }

    /// Returns the value of a flag, or of its variable.
    pub(in crate::doctor) fn setting(&self, flag: &str, variable: &str) -> Option<&str> {
        let mut args = self.args.iter();
        while let Some(arg) = args.next() {
            match arg.strip_prefix(flag) {
                Some("") => return args.next().map(String::as_str),
                Some(rest) if rest.starts_with('=') => return Some(&rest[1..]),
                _ => {}
            }
        }
        self.env.get(variable).map(String::as_str)
    }

    /// Returns its ServiceAccount.
    pub(in crate::doctor) fn account(&self) -> Account {
        let namespaces = self.setting("--namespaces", "RECIF_NAMESPACES").unwrap_or_default();
        let namespaces = namespaces.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Account { name: self.account.clone(), namespaces }
    }
}

/// Reads a part; `None` if it is not installed.
pub(super) async fn read(api: &ApiReader<'_>, system: &str, name: &str) -> Read<Option<Part>> {
    let path = format!("/apis/apps/v1/namespaces/{system}/deployments/{name}");
    let Some(deployment) = api.get::<Value>("get deployments", &path).await? else { return Ok(None) };
    let mut part = part(&deployment);
    let path = format!("/api/v1/namespaces/{system}/pods");
    let selector = format!("&labelSelector=app.kubernetes.io%2Fname%3D{name}");
    let pods = api.list::<Value>("list pods", &path, &selector).await?.unwrap_or_default();
    let living = pods.iter().filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
    let token = token(api).await;
    part.signed = token.is_some();
    let asked = living.map(|pod| read_pod(api, system, name, pod, token.clone()));
    part.pods = stream::iter(asked.collect::<Vec<_>>()).buffered(4).collect().await;
    Ok(Some(part))
}

/// Returns the user's token: that of the environment, else that of the kubeconfig.
async fn token(api: &ApiReader<'_>) -> Option<HeaderValue> {
    let own = std::env::var(TOKEN).ok().filter(|token| !token.trim().is_empty());
    match own.and_then(|token| HeaderValue::try_from(format!("Bearer {}", token.trim())).ok()) {
        Some(own) => Some(own),
        None => api.live.caller.bearer().await.ok().flatten(),
    }
}

async fn read_pod(api: &ApiReader<'_>, system: &str, part: &str, pod: &Value, token: Option<HeaderValue>) -> PartPod {
    let (name, ready) = (text(pod, "/metadata/name"), is_true(pod, "Ready"));
    if text(pod, "/status/phase") != "Running" {
        let waits = Unread::Failed("its containers do not run".to_owned());
        return PartPod { name, ready, readyz: Err(waits), answer: None, behind: None };
    }
    let ask = async |ports: &[&str], path: &str, token: Option<HeaderValue>| {
        let port = ports.iter().find_map(|port| port_number(pod, port));
        let port = port.ok_or_else(|| Unread::Failed("it has no port for this".to_owned()))?;
        let asked =
            async { api.live.ask_pod((system, &name, port), path, token).await.map_err(|error| unasked(&error)) };
        api.within(asked).await.map(|(status, body)| (status.as_u16(), body))
    };
    let readyz = ask(&ADMIN_PORTS, "/readyz", None).await;
    // Without a right to forward connections, the others would be refused too.
    let forbidden = matches!(readyz, Err(Unread::Forbidden(_)));
    let path = match part {
        "recif-gateway" => format!("/v1/agents/{system}/recif-doctor"),
        _ => "/v1/me".to_owned(),
    };
    let answer = match part {
        "recif-operator" => None,
        _ if forbidden => Some(readyz.clone().map(|(status, _)| status)),
        _ => Some(ask(&["http"], &path, token).await.map(|(status, _)| status)),
    };
    let metrics = match part {
        "recif-control-plane" if !forbidden => ask(&ADMIN_PORTS, "/metrics", None).await.ok(),
        _ => None,
    };
    let behind =
        metrics.and_then(|(_, text)| gauge(&text, "recif_mirror_behind_seconds")).map(|seconds| seconds as u64);
    PartPod { name, ready, readyz, answer, behind }
}

/// Returns the value of a metric without labels.
fn gauge(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn port_number(pod: &Value, name: &str) -> Option<u16> {
    let mut ports = items(pod, "/spec/containers").flat_map(|container| items(container, "/ports"));
    ports.find(|port| port["name"] == name)?["containerPort"].as_u64()?.try_into().ok()
}

/// Returns the part of a Deployment, without Pods.
pub(super) fn part(deployment: &Value) -> Part {
    let container = items(deployment, "/spec/template/spec/containers").next().unwrap_or(&Value::Null);
    let image = text(container, "/image");
    let label = text(deployment, "/metadata/labels/app.kubernetes.io~1version");
    // The label is of the chart, whose values may name another tag.
    let version = tag(&image).map_or(label, str::to_owned);
    let volumes = || items(deployment, "/spec/template/spec/volumes");
    let mounted = volumes().map(|volume| (text(volume, "/name"), text(volume, "/secret/secretName")));
    let env = items(container, "/env")
        .filter_map(|variable| Some((variable["name"].as_str()?.to_owned(), variable["value"].as_str()?.to_owned())));
    let database = items(container, "/env").find(|variable| variable["name"] == "DATABASE_URL").and_then(|variable| {
        let reference = variable.pointer("/valueFrom/secretKeyRef")?;
        Some((text(reference, "/name"), text(reference, "/key")))
    });
    let pull_secrets = items(deployment, "/spec/template/spec/imagePullSecrets").map(|secret| text(secret, "/name"));
    Part {
        pull_secrets: pull_secrets.collect(),
        database,
        version,
        replicas: deployment.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1),
        account: text(deployment, "/spec/template/spec/serviceAccountName"),
        args: items(container, "/args").filter_map(|arg| arg.as_str().map(str::to_owned)).collect(),
        env: env.collect(),
        secrets: mounted.filter(|(_, secret)| !secret.is_empty()).collect(),
        has_claim: volumes().any(|volume| volume.get("persistentVolumeClaim").is_some()),
        pods: Vec::new(),
        signed: false,
        by_helm: is_by_helm(deployment),
        release: helm_release(deployment),
        image,
    }
}

/// Returns the tag of an image.
fn tag(image: &str) -> Option<&str> {
    let named = image.split('@').next()?;
    let (_, name) = named.rsplit_once('/').unwrap_or(("", named));
    name.split_once(':').map(|(_, tag)| tag)
}

/// Reads the holder of the operator's lease, and the time of its last renewal.
pub(super) async fn lease(
    api: &ApiReader<'_>,
    system: &str,
    operator: Option<&Part>,
) -> Read<Option<(String, Option<Timestamp>)>> {
    let name = operator.and_then(|part| part.setting("--lease-name", "RECIF_LEASE_NAME")).unwrap_or("recif-operator");
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{system}/leases/{name}");
    let lease = api.get::<Lease>("get leases", &path).await?;
    Ok(lease
        .and_then(|lease| lease.spec)
        .map(|spec| (spec.holder_identity.unwrap_or_default(), spec.renew_time.map(|time| time.0))))
}

/// Database of the control plane, by its URL, which may hold a password and is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::doctor) enum Database {
    /// A file of SQLite.
    File,
    /// PostgreSQL, if the URL can be read.
    Postgres(Result<(), PostgresUrlError>),
}

impl Database {
    fn at(url: &str) -> Self {
        if url.starts_with("sqlite:") { Self::File } else { Self::Postgres(PostgresUrl::read(url).map(drop)) }
    }
}

/// Reads which database the control plane has; without a URL it is a file.
pub(super) async fn database(api: &ApiReader<'_>, system: &str, control_plane: Option<&Part>) -> Read<Database> {
    let Some(part) = control_plane else { return Err(Unread::NotInstalled) };
    if let Some(url) = part.setting("--database-url", "DATABASE_URL") {
        return Ok(Database::at(url));
    }
    let Some((name, key)) = &part.database else { return Ok(Database::File) };
    let url = secret(api, system, name).await?.and_then(|secret| secret.data?.remove(key));
    Ok(url.map_or(Database::File, |url| Database::at(&String::from_utf8_lossy(&url.0))))
}

/// Reads when the certificate of the gateway ends.
pub(super) async fn certificate(api: &ApiReader<'_>, system: &str, gateway: Option<&Part>) -> Read<Option<Timestamp>> {
    let Some(name) = gateway.and_then(|part| part.secrets.get("tls")) else { return Ok(None) };
    let Some(secret) = secret(api, system, name).await? else {
        return Err(Unread::Failed(format!("the Secret {name} is not there")));
    };
    let end = secret.data.and_then(|mut data| not_after(&data.remove("tls.crt")?.0));
    end.map(Some).ok_or_else(|| Unread::Failed(format!("tls.crt in the Secret {name} is no certificate")))
}

async fn secret(api: &ApiReader<'_>, system: &str, name: &str) -> Read<Option<Secret>> {
    api.get("get secrets", &format!("/api/v1/namespaces/{system}/secrets/{name}")).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_is_read_from_its_deployment() {
        let deployment = json!({ "metadata": { "labels": {} }, "spec": { "replicas": 2, "template": { "spec": {
            "serviceAccountName": "recif-gateway",
            "containers": [{ "image": "ghcr.io:443/x/recif:0.4.0@sha256:00",
                "args": ["gateway", "--namespaces=a,b"], "env": [{ "name": "X", "value": "y" }, { "name": "Z" }] }],
            "volumes": [{ "name": "tls", "secret": { "secretName": "cert" } }, { "name": "data", "persistentVolumeClaim": {} }],
        } } } });
        let part = part(&deployment);
        assert_eq!((part.version.as_str(), part.replicas, part.has_claim), ("0.4.0", 2, true));
        assert_eq!(part.account(), Account { name: "recif-gateway".into(), namespaces: vec!["a".into(), "b".into()] });
        assert_eq!((part.secrets["tls"].as_str(), part.setting("--x", "X")), ("cert", Some("y")));
    }

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        assert_eq!(gauge("recif_x_total 1\nrecif_x 61.5\n", "recif_x"), Some(61.5));
        assert_eq!(gauge("# TYPE recif_x gauge\n", "recif_x"), None);
    }
}
