//! Client of the control plane: at its address on this machine, or through the API server to one of its Pods.

use cluster::access::OWN_AUTHORIZATION;
use http::{HeaderValue, StatusCode};
use serde_json::Value;

use crate::{
    chat::{caller_token, token_client},
    cluster::{ForwardError, PodError, UserClient, error_chain},
    error::CliError,
    ui::SERVICE,
};

/// Name of the control plane in messages.
const COMPONENT: &str = "control plane";
/// Largest response that is read, in bytes.
const MAX_BODY: usize = 4 << 20;

/// Sends a GET to the control plane, and returns the JSON of its response.
///
/// # Errors
/// It cannot be reached, or refuses the request.
pub(crate) async fn get(live: &UserClient, system_namespace: &str, path: &str) -> Result<Value, CliError> {
    let token = caller_token(&live.caller).await?;
    let (status, body) = match &live.dev {
        Some(dev) => {
            let url = format!("{}{path}", dev.control_plane.as_str().trim_end_matches('/'));
            get_local(&url, token).await.map_err(|error| unreachable(error_chain(&error)))?
        }
        None => {
            let forward = live.forward(system_namespace, SERVICE);
            let found = forward.ready_pod().await;
            let (pod, port) = found.map_err(|error| CliError::unreachable_part(COMPONENT, error, ""))?;
            let answer = live.ask_pod((system_namespace, &pod, port), path, token).await;
            answer.map_err(|error| match error {
                PodError::Read(error) => CliError::unreachable_part(COMPONENT, ForwardError::Read(error), ""),
                PodError::Broken(why) => unreachable(why),
            })?
        }
    };
    read(status, &body)
}

/// Sends a GET to an address of this machine.
async fn get_local(url: &str, token: Option<HeaderValue>) -> Result<(StatusCode, String), reqwest::Error> {
    let mut request = token_client(true)?.get(url);
    if let Some(token) = token {
        request = request.header(OWN_AUTHORIZATION, token);
    }
    let response = request.send().await?;
    Ok((response.status(), response.text().await?))
}

fn unreachable(why: String) -> CliError {
    CliError::Unreachable { part: COMPONENT, why }
}

/// Returns the JSON of a response, or the error in the words of the control plane.
fn read(status: StatusCode, body: &str) -> Result<Value, CliError> {
    let document: Option<Value> = serde_json::from_str(body).ok().filter(|_| body.len() <= MAX_BODY);
    let detail = || {
        let detail = document.as_ref().and_then(|problem| problem["detail"].as_str());
        detail.map_or_else(|| format!("the {COMPONENT} answers with status {status}"), str::to_owned)
    };
    match status.as_u16() {
        200 => {
            document.clone().ok_or_else(|| CliError::FailedAnswer(format!("the {COMPONENT} does not answer with JSON")))
        }
        400 => Err(CliError::Usage(detail())),
        401 | 403 => Err(CliError::Forbidden(detail())),
        404 => Err(CliError::NotFound(detail())),
        _ => Err(CliError::FailedAnswer(detail())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_server() {
        for (status, body, code, text) in [
            (400, r#"{"detail":"since=x: say a time"}"#, Exit::Usage, "since=x: say a time"),
            (403, r#"{"detail":"you may not list"}"#, Exit::Forbidden, "you may not list"),
            (404, r#"{"detail":"no run a is known"}"#, Exit::Missing, "no run a is known"),
            (404, "", Exit::Missing, "status 404"),
            (503, r#"{"detail":"the database does not answer: try again"}"#, Exit::Failed, "try again"),
            (502, "<html>", Exit::Failed, "502"),
            (200, "<html>", Exit::Failed, "JSON"),
        ] {
            let error = read(StatusCode::from_u16(status).unwrap(), body).unwrap_err();
            assert!(error.code() == code && error.to_string().contains(text), "{status}: {error}");
        }
        assert_eq!(read(StatusCode::OK, "[1]").unwrap(), serde_json::json!([1]));
    }
}
