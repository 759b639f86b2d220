//! Asks an agent in the Agent2Agent protocol.
//!
//! Each message begins a context of its own. The card of the agent is kept for five minutes, or until a request fails. A task
//! that works is asked for each second, also after a failure of the connection or the server; if the call ends before the
//! task, by the timeout of the Tool or because the turn is stopped, the task is cancelled.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ::a2a::{
    A2aInterface, A2aTurn, CARD_PATH, CardError, MAY_WAIT, OutgoingMessage, VERSION_HEADER, cancel_task, get_task,
    send_message,
};
use daemon::ids::random_hex;
use reqwest::{
    Client, RequestBuilder, StatusCode,
    header::{ACCEPT, HeaderMap},
};
use serde_json::{Value, json};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};
use url::Url;

use super::{
    bounded_buffer::truncate_to_cap,
    client::{self, HttpClient},
    error::ToolError,
    headers::{ToolHeaders, ToolVariables},
};

/// Time for which a card is kept.
const CARD_LIFETIME: Duration = Duration::from_secs(300);
/// Interval at which a task that works is asked for.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for the cancellation of a task, which no call waits for.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Interfaces of agents by the address of the agent, each with the time at which its card was read.
#[derive(Default)]
pub(super) struct AgentCards(Mutex<HashMap<Url, (Instant, A2aInterface)>>);

impl AgentCards {
    /// Sends a message to the agent at `url`, and returns its answer.
    ///
    /// # Errors
    /// Any failure, as text for the model.
    pub(super) async fn ask(
        &self,
        url: &Url,
        message: &str,
        headers: &ToolHeaders,
        environment: &ToolVariables<'_>,
        client: &HttpClient,
    ) -> Result<String, ToolError> {
        let (mut own_headers, mut headers) = (headers.expand_own(environment)?, headers.expand(environment)?);
        own_headers.extend(environment.trace().headers());
        headers.extend(environment.trace().headers());
        let agent = A2aAgent { url: url.clone(), own_headers, headers, client: client.for_url(url).await? };
        let interface = match self.known(url) {
            Some(known) => known,
            None => {
                let found = agent.read_card().await?;
                self.keep(url, found.clone());
                found
            }
        };
        let turn = agent.turn(&interface, message).await.inspect_err(|_| self.forget(url))?;
        match turn.failure() {
            Some(why) => Err(ToolError::Failed(truncate_to_cap(&why))),
            None => Ok(turn.text()),
        }
    }

    fn known(&self, url: &Url) -> Option<A2aInterface> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(url).filter(|(read, _)| read.elapsed() < CARD_LIFETIME).map(|(_, interface)| interface.clone())
    }

    fn keep(&self, url: &Url, interface: A2aInterface) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(url.clone(), (Instant::now(), interface));
    }

    fn forget(&self, url: &Url) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(url);
    }
}

/// Agent, and what its requests are sent with.
struct A2aAgent {
    url: Url,
    /// Headers of the tool alone, without those of the caller.
    own_headers: HeaderMap,
    headers: HeaderMap,
    client: Client,
}

/// Task that works. It is cancelled when this is dropped, unless it ended before.
struct RunningTask(Option<RequestBuilder>);

impl Drop for RunningTask {
    fn drop(&mut self) {
        let (Some(cancel), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        runtime.spawn(async move {
            if let Err(error) = cancel.timeout(CANCEL_TIMEOUT).send().await {
                tracing::warn!("the task of an agent cannot be cancelled: {}", error.without_url());
            }
        });
    }
}

impl A2aAgent {
    /// Reads the card and chooses the interface. The card is kept for all callers, so the headers of one are sent only
    /// if the agent refuses it without them.
    async fn read_card(&self) -> Result<A2aInterface, ToolError> {
        let base = self.url.path().trim_end_matches('/');
        let mut url = self.url.clone();
        url.set_path(&format!("{base}{CARD_PATH}"));
        let request = |headers: &HeaderMap| self.client.get(url.clone()).headers(headers.clone());
        let mut response = request(&self.own_headers).send().await.map_err(client::failed)?;
        let is_refused = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if is_refused && self.headers != self.own_headers {
            response = request(&self.headers).send().await.map_err(client::failed)?;
        }
        let is_absent =
            matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE);
        let interface = match is_absent {
            true => Err(CardError::NoCard),
            false => A2aInterface::choose(client::read(response).await?.as_bytes(), base),
        };
        interface.map_err(|error| ToolError::Failed(format!("{} {error}", shown(&self.url))))
    }

    /// Sends a message, and waits until its task ends or stops.
    async fn turn(&self, interface: &A2aInterface, text: &str) -> Result<A2aTurn, ToolError> {
        let id = random_hex::<16>();
        let id = id.map_err(|error| ToolError::Failed(format!("there are no random numbers: {error}")))?;
        let message = OutgoingMessage { id: &id, text, context: None, task: None };
        let mut turn = A2aTurn::default();
        let mut body = send_message(interface.version, &message);
        // No person reads the answer who could approve a call that waits.
        body["params"]["metadata"] = json!({ MAY_WAIT: false });
        self.exchange(interface, &body, &mut turn).await?;
        if !turn.is_working() {
            return Ok(turn);
        }
        let Some(task) = turn.task().map(str::to_owned) else {
            return Err(ToolError::Failed("the agent does not name the task that it works on".into()));
        };
        let mut running = RunningTask(Some(self.request(interface, &cancel_task(interface.version, &task))));
        self.poll(interface, &get_task(interface.version, &task), &mut turn).await?;
        running.0 = None;
        Ok(turn)
    }

    /// Sends a request and reads its answer into the turn.
    async fn exchange(&self, interface: &A2aInterface, body: &Value, turn: &mut A2aTurn) -> Result<(), ToolError> {
        let response = self.request(interface, body).send().await.map_err(client::failed)?;
        read_answer(&client::read(response).await?, turn)
    }

    /// Asks for a task until it ends or stops. It works on while a request fails: where the connection fails or the server answers 5xx, it
    /// is asked for again, until the timeout of the Tool ends the call.
    async fn poll(&self, interface: &A2aInterface, body: &Value, turn: &mut A2aTurn) -> Result<(), ToolError> {
        while turn.is_working() {
            sleep(POLL_INTERVAL).await;
            let response = match self.request(interface, body).send().await {
                Ok(response) => response,
                Err(error) => {
                    tracing::debug!("the task of an agent is asked for again: {}", error.without_url());
                    continue;
                }
            };
            let status = response.status();
            match client::read(response).await {
                Ok(answer) => read_answer(&answer, turn)?,
                // The answer broke off, or it is an error of the server.
                Err(error) if status.is_success() || status.is_server_error() => {
                    tracing::debug!("the task of an agent is asked for again: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn request(&self, interface: &A2aInterface, body: &Value) -> RequestBuilder {
        let mut url = self.url.clone();
        url.set_path(&interface.path);
        let request = self.client.post(url).header(ACCEPT, "application/json").json(body);
        let request = match interface.version.header() {
            Some(version) => request.header(VERSION_HEADER, version),
            None => request,
        };
        request.headers(self.headers.clone())
    }
}

/// Reads an answer into the turn.
fn read_answer(answer: &str, turn: &mut A2aTurn) -> Result<(), ToolError> {
    let read = turn.read(answer);
    read.map(drop).map_err(|error| ToolError::Failed(truncate_to_cap(&error.to_string())))
}

/// Returns the address for a message: without what may be a credential.
fn shown(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}{}", url.scheme(), url.path().trim_end_matches('/'))
}
