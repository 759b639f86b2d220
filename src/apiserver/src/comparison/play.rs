//! Plays the script to one server, with watches throughout.

use bytes::Buf as _;
use futures::{StreamExt as _, future::try_join};
use http::{Request, Response, header};
use http_body::Body;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::{BoxError, Service, ServiceExt as _};

use super::{
    player::{Player, RecordedResponse},
    script::script,
};

/// Watches that run during the script: of all ConfigMaps but that which a controller puts into each namespace, and of those with
/// a label, which some gain and lose.
const WATCHES: &[(&str, &str)] =
    &[("watch", "fieldSelector=metadata.name%21%3Dkube-root-ca.crt"), ("watch of a label", "labelSelector=l%3Dx")];

/// Name of the ConfigMap that the last step creates: a watch has seen all when it sees this one.
const LAST: &str = "end";

/// Plays the script in a namespace that is there, and returns the name and answer of each step, and last what each watch saw.
///
/// # Errors
/// A request or watch that fails without a response.
pub async fn play<S, Q, B>(server: S, namespace: &str) -> Result<Vec<(String, RecordedResponse)>, BoxError>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    Q: From<Vec<u8>>,
    B: Body,
    B::Error: Into<BoxError>,
{
    let mut watches = Vec::new();
    for (_, selector) in WATCHES {
        let target = format!("/api/v1/namespaces/{namespace}/configmaps?watch=true&{selector}");
        let request = Request::get(target).header(header::ACCEPT, "application/json").body(Q::from(Vec::new()))?;
        let response = server.clone().oneshot(request).await.map_err(Into::into)?;
        watches.push(seen(response.into_body()));
    }
    let steps = async {
        let (mut player, mut answers) = (Player::new(namespace), Vec::new());
        for step in script()? {
            let response = server.clone().oneshot(player.request(&step)?).await.map_err(Into::into)?;
            let code = response.status().as_u16();
            let body = response.into_body().collect().await.map_err(Into::into)?.to_bytes();
            answers.push((step.name.clone(), player.answer(&step, code, &body)));
        }
        Ok((player, answers))
    };
    let ((mut player, mut answers), seen) = try_join(steps, futures::future::try_join_all(watches)).await?;
    for ((name, _), mut body) in WATCHES.iter().zip(seen) {
        player.mask("", &mut body);
        answers.push(((*name).to_owned(), RecordedResponse { code: 200, body }));
    }
    Ok(answers)
}

/// Reads a watch until it has seen the last object.
async fn seen<B>(body: B) -> Result<Value, BoxError>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let (mut data, mut rest, mut events) = (std::pin::pin!(body.into_data_stream()), Vec::new(), Vec::new());
    while let Some(chunk) = data.next().await {
        let mut chunk = chunk.map_err(Into::into)?;
        rest.extend_from_slice(&chunk.copy_to_bytes(chunk.remaining()));
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line)?;
            let is_last = event["object"]["metadata"]["name"] == LAST;
            events.push(event);
            if is_last {
                return Ok(events.into());
            }
        }
    }
    Err(format!("a watch ended early, after {events:?}").into())
}
