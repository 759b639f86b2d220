//! Sender of spans: the Pod whose token is shown, or else the one Pod that has the peer's address. Gateway and operator are known by
//! their accounts: their spans are about the objects of others, which each of them names.

use std::{net::IpAddr, sync::Arc};

use cluster::{
    access::{Access, Penalties, Reviews, TokenState, Unavailable, bearer},
    reviews::Identity,
};
use crds::{ApiKind, Role};
use http::{HeaderMap, StatusCode, header};
use meta::Key;
use store::ObjectKey;
use telemetry::{
    otlp::{KeyValue, text_attribute},
    semconv::{K8S_NAMESPACE_NAME, RECIF_KIND, RECIF_NAME, SERVICE_NAME},
};

use crate::{api::problem::Problem, app::AppState, related::PodRecord};

/// Audience of the tokens by which Pods say who they are. Neither the API server nor a gateway accepts one.
const TOKEN_AUDIENCE: &str = "recif-telemetry";
/// Longest name of an object, in bytes.
const MAX_NAME: usize = 253;
/// Attribute of an identity with the uid of the Pod that its token is bound to.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// Identification of senders. Without reviews a process's own attributes say which workload it is: callers are not authenticated then.
pub(crate) struct SpanSenders(Option<ReviewedTokens>);

/// Reviews of the tokens of Pods.
struct ReviewedTokens {
    access: Access<()>,
    penalties: Penalties,
    /// Names of the accounts of gateway and operator.
    accounts: Vec<String>,
}

/// Sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SpanSender {
    /// Pod of this workload.
    Workload(ObjectKey),
    /// Gateway or operator, each of whose spans names an object.
    Platform,
    /// Process that names its workload.
    SelfNamed,
}

impl SpanSenders {
    /// Creates the identification, with the accounts of gateway and operator; `None`: callers are not authenticated.
    pub(crate) fn new(reviews: Option<Arc<dyn Reviews>>, accounts: Vec<String>) -> Self {
        let reviewed = |reviews| ReviewedTokens {
            access: Access::new(reviews, vec![TOKEN_AUDIENCE.to_owned()], |_| ()),
            penalties: Penalties::default(),
            accounts,
        };
        Self(reviews.map(reviewed))
    }

    /// Refuses requests of web pages where senders are not identified, as the API does.
    ///
    /// # Errors
    /// The request comes from a page of another site, or its `Host` names another machine.
    pub(super) fn refuse_pages(&self, app: &AppState, fields: &HeaderMap) -> Result<(), Problem> {
        if self.0.is_none() { app.auth.caller(fields).map(drop) } else { Ok(()) }
    }

    /// Returns the sender of a request with these header fields, from this address.
    ///
    /// # Errors
    /// The token is not valid, or neither a workload's Pod nor the gateway or operator is known to be the sender.
    pub(super) async fn identify(
        &self,
        app: &AppState,
        fields: &HeaderMap,
        peer: Option<IpAddr>,
    ) -> Result<SpanSender, Problem> {
        let Some(reviewed) = &self.0 else { return Ok(SpanSender::SelfNamed) };
        let mut values = fields.get_all(header::AUTHORIZATION).iter();
        let pod = match (values.next(), values.next()) {
            (None, _) => pod_at(app, peer)?,
            (Some(value), None) => {
                let token = bearer(value.as_bytes()).ok_or_else(invalid_token)?;
                let identity = reviewed.identify(token, peer).await?;
                if reviewed.accounts.contains(&identity.name) {
                    return Ok(SpanSender::Platform);
                }
                let uid = identity.extra.get(POD_UID).and_then(|uids| uids.first());
                uid.and_then(|uid| app.related.pod_with_uid(uid)).ok_or_else(stranger)?
            }
            _ => return Err(invalid_token()),
        };
        let (kind, key) = pod.workload().ok_or_else(stranger)?;
        Ok(SpanSender::Workload(object_key(kind, key)))
    }
}

impl ReviewedTokens {
    async fn identify(&self, token: &str, peer: Option<IpAddr>) -> Result<Arc<Identity>, Problem> {
        let is_unknown = self.access.token_state(token) == TokenState::Unknown;
        if is_unknown && peer.is_some_and(|peer| self.penalties.is_blocked(peer)) {
            let detail = "too many tokens from this address were refused: wait for 10 s, then send one that is right";
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail));
        }
        match self.access.identify(token).await {
            Ok(Ok(identity)) => Ok(identity),
            Ok(Err(_)) => {
                if let Some(peer) = peer {
                    self.penalties.record_refusal(peer, token);
                }
                Err(invalid_token())
            }
            Err(Unavailable) => {
                let detail = "the API server could not review the token: try again";
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail))
            }
        }
    }
}

/// Returns the one Pod with this address. Pods that have ended are left out: another one may have got their address.
fn pod_at(app: &AppState, peer: Option<IpAddr>) -> Result<Arc<PodRecord>, Problem> {
    let mut pods = peer.map(|peer| app.related.pods_at(peer)).unwrap_or_default();
    pods.retain(|pod| !matches!(&*pod.state, "Failed" | "Succeeded"));
    match <[_; 1]>::try_from(pods) {
        Ok([pod]) => Ok(pod),
        Err(_) => Err(stranger()),
    }
}

/// Returns the workload that a process with these attributes says it is; `None` if it does not exist.
pub(super) fn named_workload(app: &AppState, attributes: &[KeyValue]) -> Option<ObjectKey> {
    let (kind, key) = named(attributes, SERVICE_NAME).filter(|(kind, _)| kind.role == Role::Workload)?;
    app.fleet.get(kind, &key).map(|_| object_key(kind, &key))
}

/// Returns the object that a span of the gateway or operator with these attributes is about. It may be gone, or not known here yet.
pub(super) fn named_object(attributes: &[KeyValue]) -> Option<ObjectKey> {
    named(attributes, RECIF_NAME).map(|(kind, key)| object_key(kind, &key))
}

/// Reports whether a process with these attributes says that it is the gateway or the operator.
pub(super) fn is_platform(attributes: &[KeyValue]) -> bool {
    matches!(text_attribute(attributes, RECIF_KIND), Some("gateway" | "operator"))
}

/// Returns kind and key of the object whose name is in this attribute; `None` if no object can have that key.
fn named(attributes: &[KeyValue], name: &str) -> Option<(&'static ApiKind, Key)> {
    let kind = ApiKind::find(text_attribute(attributes, RECIF_KIND)?)?;
    // The queue is bounded by the size of documents, which have no name.
    let text = |name| text_attribute(attributes, name).filter(|text| (1..=MAX_NAME).contains(&text.len()));
    Some((kind, Key::new(text(K8S_NAMESPACE_NAME)?, text(name)?)))
}

fn object_key(kind: &ApiKind, key: &Key) -> ObjectKey {
    ObjectKey { kind: kind.name, namespace: key.namespace.clone(), name: key.name.clone() }
}

fn invalid_token() -> Problem {
    let how = format!("send one of audience {TOKEN_AUDIENCE} that is bound to a Pod, or none");
    Problem::new(StatusCode::UNAUTHORIZED, format!("the token is not valid here: {how}"))
}

fn stranger() -> Problem {
    let detail =
        "spans are taken from Pods of workloads, gateway and operator: none of these is known to be the sender";
    Problem::new(StatusCode::FORBIDDEN, detail)
}
