//! Credentials of the kubeconfig, for servers in the cluster that accept the cluster's tokens.

use std::sync::Arc;

use futures::{FutureExt as _, future::BoxFuture};
use http::{HeaderValue, Request, Response, header::AUTHORIZATION};
use kube::{
    Config,
    client::{Body, ConfigExt as _},
};
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};

use super::read_error::ReadError;

type TokenSource = dyn Fn() -> BoxFuture<'static, Result<Option<HeaderValue>, String>> + Send + Sync;

/// Source of the kubeconfig's token. It is queried for each request, because tokens expire and exec plugins create new
/// ones.
#[derive(Clone)]
pub(crate) struct CallerCredentials(Option<Arc<TokenSource>>);

impl CallerCredentials {
    /// Returns the credentials of this configuration.
    pub(super) fn from_config(config: &Config) -> Result<Self, ReadError> {
        let layer = config.auth_layer().map_err(|error| ReadError::Kubeconfig(error.to_string()))?;
        Ok(Self(layer.map(|layer| {
            // The layer adds the header to a request; this service returns it.
            let service = layer.layer(service_fn(|request: Request<Body>| async move {
                Ok::<_, BoxError>(Response::new(request.headers().get(AUTHORIZATION).cloned()))
            }));
            let ask = move || {
                let answer = service.clone().oneshot(Request::new(Body::empty()));
                answer.map(|answer| answer.map(Response::into_body).map_err(|error| error.to_string())).boxed()
            };
            Arc::new(ask) as Arc<TokenSource>
        })))
    }

    /// Returns credentials without a token.
    pub(crate) fn anonymous() -> Self {
        Self(None)
    }

    /// Returns the value of `Authorization`, marked as sensitive; `None` if the kubeconfig authenticates by other means
    /// than a token.
    ///
    /// # Errors
    /// [`ReadError::Kubeconfig`] when the program that makes tokens fails.
    pub(crate) async fn bearer(&self) -> Result<Option<HeaderValue>, ReadError> {
        let Some(ask) = &self.0 else { return Ok(None) };
        let value = ask().await.map_err(ReadError::Kubeconfig)?;
        Ok(value.filter(|value| value.as_bytes().starts_with(b"Bearer ")).map(|mut value| {
            value.set_sensitive(true);
            value
        }))
    }
}

impl std::fmt::Debug for CallerCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallerCredentials").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use kube::config::AuthInfo;

    use super::*;

    async fn bearer(user: &str) -> Option<String> {
        let mut config = Config::new("https://localhost".parse().unwrap());
        config.auth_info = serde_json::from_str::<AuthInfo>(user).unwrap();
        let value = CallerCredentials::from_config(&config).unwrap().bearer().await.unwrap()?;
        assert!(value.is_sensitive());
        Some(value.to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn a_token_is_found_wherever_the_kubeconfig_has_it() {
        assert_eq!(bearer(r#"{"token": "abc"}"#).await.as_deref(), Some("Bearer abc"));
        assert_eq!(bearer(r#"{"username": "u", "password": "p"}"#).await, None);
        assert_eq!(bearer("{}").await, None);
        let exec = r#"{"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "echo", "interactiveMode": "Never",
            "args": ["{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"made\"}}"]}}"#;
        assert_eq!(bearer(exec).await.as_deref(), Some("Bearer made"));
    }
}
