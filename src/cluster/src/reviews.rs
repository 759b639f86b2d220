//! Client for the reviews of the API server: TokenReview for the identity behind a token, SubjectAccessReview for its rights.
//!
//! Both are objects that are created and never stored: the verdict is their status. They need no Lease, because they change nothing.

use std::{collections::BTreeMap, fmt, sync::Arc};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD};
use http::Method;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    error::RequestError,
    resource::Resource,
    transport::{RequestInfo, Transport, api_request, read_json},
};

/// Audience of tokens that are valid for Récif alone: `kubectl create token NAME --audience recif`. The API server itself accepts none of
/// them, so a stolen one opens nothing else.
pub const AUDIENCE: &str = "recif";

/// Identity that the API server has authenticated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name that roles are bound to.
    pub name: String,
    /// The uid; empty where there is none.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Further attributes from the authenticator, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Right on one object of our group.
#[derive(Debug, Clone, Copy)]
pub struct Right<'a> {
    /// The verb, such as `create`.
    pub verb: &'a str,
    /// The plural, such as `agents`.
    pub resource: &'a str,
    /// The subresource, such as `invoke`.
    pub subresource: &'a str,
    /// The object's namespace.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
}

/// Client for the reviews.
pub struct Reviewer {
    transport: Arc<Transport>,
}

impl fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reviewer").finish_non_exhaustive()
    }
}

impl Reviewer {
    /// Creates a client that sends through `transport`.
    pub fn new(transport: Arc<Transport>) -> Self {
        Self { transport }
    }

    /// Returns the identity behind a token; `None` if the token is invalid, or meant for none of `audiences` (none: the API server's own,
    /// and [`AUDIENCE`]).
    ///
    /// # Errors
    /// Fails without a verdict. The error does not hold the token.
    pub async fn identify(&self, token: &str, audiences: &[String]) -> Result<Option<Identity>, RequestError> {
        // The token's own claim only selects the audience to ask for: the verdict of the API server counts.
        let own = [AUDIENCE.to_owned()];
        let audiences = if audiences.is_empty() && names_audience(token, AUDIENCE) { &own } else { audiences };
        let wanted = (!audiences.is_empty()).then(|| audiences.to_vec());
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: wanted };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = self.create(Resource::TOKEN_REVIEW, &review).await;
        let status = answer.map_err(|error| redacted(token, error))?.status.unwrap_or_default();
        // An authenticator without audiences leaves them out: its tokens are the API server's.
        let meant = audiences.is_empty()
            || status.audiences.iter().flatten().any(|audience| audiences.iter().any(|wanted| wanted == audience));
        let user = status.user.filter(|_| status.authenticated == Some(true) && meant).unwrap_or_default();
        let identity = user.username.filter(|name| !name.is_empty()).map(|name| Identity {
            name,
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        });
        Ok(identity)
    }

    /// Reports whether an identity has a right.
    ///
    /// # Errors
    /// Fails without a verdict.
    pub async fn is_allowed(&self, who: &Identity, right: &Right<'_>) -> Result<bool, RequestError> {
        let attributes = ResourceAttributes {
            group: Some(crds::GROUP.to_owned()),
            version: Some(crds::VERSION.to_owned()),
            verb: Some(right.verb.to_owned()),
            resource: Some(right.resource.to_owned()),
            subresource: Some(right.subresource.to_owned()),
            namespace: Some(right.namespace.to_owned()),
            name: Some(right.name.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(who.name.clone()),
            uid: (!who.uid.is_empty()).then(|| who.uid.clone()),
            groups: Some(who.groups.clone()),
            extra: Some(who.extra.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = self.create(Resource::SUBJECT_ACCESS_REVIEW, &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }

    async fn create<T: Serialize + DeserializeOwned>(&self, resource: Resource, review: &T) -> Result<T, RequestError> {
        let call = RequestInfo { verb: "create", kind: resource.kind, object: String::new() };
        let body = serde_json::to_vec(review).map_err(|error| RequestError::Unreadable {
            what: format!("create {}", resource.kind),
            cause: error.to_string(),
        })?;
        let request = api_request(Method::POST, resource.collection(None), Some("application/json"), body);
        read_json(&call, &self.transport.call(&call, request).await?)
    }
}

/// Reports whether a token is a JWT that claims this audience (RFC 7519, section 4.1.3). Nothing of it is verified.
fn names_audience(token: &str, audience: &str) -> bool {
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let claims = URL_SAFE_NO_PAD.decode(claims).unwrap_or_default();
    let claims: Value = serde_json::from_slice(&claims).unwrap_or_default();
    match &claims["aud"] {
        Value::String(one) => one == audience,
        Value::Array(several) => several.iter().any(|one| one == audience),
        _ => false,
    }
}

/// Removes the token from the error, should the response repeat it.
fn redacted(token: &str, mut error: RequestError) -> RequestError {
    match &mut error {
        _ if token.is_empty() => {}
        RequestError::Refused { status, .. } => status.message = status.message.replace(token, "***"),
        RequestError::Unreadable { cause, .. } | RequestError::Transport { cause, .. } => {
            *cause = cause.replace(token, "***");
        }
        RequestError::Timeout { .. } | RequestError::NotLeading { .. } => {}
    }
    error
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{response, scripted};

    fn known(audiences: serde_json::Value) -> String {
        let user = json!({"username": "alice", "uid": "7", "groups": ["a", "b"], "extra": {"k": ["v"]}});
        json!({"spec": {}, "status": {"authenticated": true, "user": user, "audiences": audiences}}).to_string()
    }

    fn alice() -> Identity {
        Identity {
            name: "alice".into(),
            uid: "7".into(),
            groups: vec!["a".into(), "b".into()],
            extra: BTreeMap::from([("k".into(), vec!["v".into()])]),
        }
    }

    #[tokio::test]
    async fn a_token_is_reviewed_for_the_audiences() {
        let (transport, mut asked) = scripted(vec![response(201, known(json!(["recif"])))]);
        let found = Reviewer::new(transport).identify("secret", &["recif".into()]).await.unwrap();
        assert_eq!(found, Some(alice()));
        let asked = asked.recv().await.unwrap();
        assert_eq!(asked.line, "POST /apis/authentication.k8s.io/v1/tokenreviews");
        assert_eq!(asked.body["spec"], json!({"token": "secret", "audiences": ["recif"]}));
    }

    #[tokio::test]
    async fn a_token_for_us_alone_is_reviewed_as_such_without_being_asked_for() {
        let jwt = |claims: serde_json::Value| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let default = "https://kubernetes.default.svc";
        for (token, audiences) in [
            (jwt(json!({"aud": ["recif"]})), json!(["recif"])),
            (jwt(json!({"aud": "recif"})), json!(["recif"])),
            (jwt(json!({"aud": [default, "recif"]})), json!(["recif"])),
            (jwt(json!({"aud": [default]})), json!(null)),
            (jwt(json!({})), json!(null)),
            ("opaque".into(), json!(null)),
            ("a.%.c".into(), json!(null)),
        ] {
            let (transport, mut asked) = scripted(vec![response(201, known(audiences.clone()))]);
            assert_eq!(Reviewer::new(transport).identify(&token, &[]).await.unwrap(), Some(alice()), "{token}");
            assert_eq!(asked.recv().await.unwrap().body["spec"]["audiences"], audiences, "{token}");
        }
        // With audiences in the query, only those count.
        let (transport, mut asked) = scripted(vec![response(201, known(json!(["other"])))]);
        let token = jwt(json!({"aud": ["recif"]}));
        Reviewer::new(transport).identify(&token, &["other".into()]).await.unwrap();
        assert_eq!(asked.recv().await.unwrap().body["spec"]["audiences"], json!(["other"]));
    }

    #[tokio::test]
    async fn a_token_counts_only_if_it_is_authenticated_for_us() {
        let unknown = json!({"spec": {}, "status": {"authenticated": false, "error": "expired"}}).to_string();
        let nameless = json!({"spec": {}, "status": {"authenticated": true, "user": {}}}).to_string();
        let none = json!({"spec": {}}).to_string();
        let elsewhere = known(json!(["https://kubernetes.default.svc"]));
        // Without audiences in the response the token is the API server's, not ours.
        for body in [unknown, nameless, none, elsewhere, known(json!(null))] {
            let (transport, _asked) = scripted(vec![response(201, body.clone())]);
            let found = Reviewer::new(transport).identify("secret", &["recif".into()]).await.unwrap();
            assert_eq!(found, None, "{body}");
        }
        let (transport, _asked) = scripted(vec![response(201, known(json!(null)))]);
        assert_eq!(Reviewer::new(transport).identify("secret", &[]).await.unwrap(), Some(alice()));
    }

    #[tokio::test]
    async fn a_right_is_asked_for_with_everything_known_of_the_caller() {
        let allowed = json!({"spec": {}, "status": {"allowed": true}}).to_string();
        let denied = json!({"spec": {}, "status": {"allowed": false, "reason": "no role"}}).to_string();
        let (transport, mut asked) = scripted(vec![response(201, allowed), response(201, denied)]);
        let reviewer = Reviewer::new(transport);
        let right = Right { verb: "create", resource: "agents", subresource: "invoke", namespace: "ns", name: "a" };
        assert!(reviewer.is_allowed(&alice(), &right).await.unwrap());
        assert!(!reviewer.is_allowed(&alice(), &right).await.unwrap());
        let asked = asked.recv().await.unwrap();
        assert_eq!(asked.line, "POST /apis/authorization.k8s.io/v1/subjectaccessreviews");
        let expected = json!({
            "user": "alice", "uid": "7", "groups": ["a", "b"], "extra": {"k": ["v"]},
            "resourceAttributes": {
                "group": "agents.recif.dev", "version": "v1", "verb": "create", "resource": "agents",
                "subresource": "invoke", "namespace": "ns", "name": "a",
            },
        });
        assert_eq!(asked.body["spec"], expected);
    }

    #[tokio::test]
    async fn an_error_does_not_hold_the_token() {
        let body = json!({"message": "cannot read secret-token", "code": 400}).to_string();
        let (transport, _asked) = scripted(vec![response(400, body)]);
        let error = Reviewer::new(transport).identify("secret-token", &[]).await.unwrap_err();
        assert_eq!(error.to_string(), "create TokenReview: cannot read *** (400)");
    }
}
