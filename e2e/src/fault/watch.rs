//! Applies faults to the events of a watch: one JSON document per line.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    SinkExt as _, StreamExt as _,
    channel::mpsc::{self, Sender, UnboundedSender},
};
use http_body::Frame;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    body::{BodyFrames, ConnectionLostError},
    call::ApiCall,
    log::CallLog,
    schedule::{FaultSchedule, ProxyFault},
};

/// Interval of the checks whether the faults are over.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Type of an event, the only part that the faults read.
#[derive(Deserialize)]
struct WatchEventType {
    #[serde(rename = "type")]
    type_: String,
}

/// Returns the events of a watch under the faults, for as long as these are active. `number` is the index of the watch in
/// the log.
pub(super) fn disturb_events(
    frames: BodyFrames,
    call: ApiCall,
    met: Vec<ProxyFault>,
    (plan, log): (Arc<FaultSchedule>, Arc<CallLog>),
    number: usize,
) -> BodyFrames {
    let (mut out, events) = mpsc::channel(16);
    let (read, mut lines) = mpsc::unbounded();
    let reading = tokio::spawn(read_lines(frames, read));
    tokio::spawn(async move {
        let mut ordinal = 0_u64;
        let lossy = met.iter().copied().find(ProxyFault::is_lossy);
        loop {
            if out.is_closed() {
                break;
            }
            if lossy.is_some_and(|fault| !plan.is_in_force(fault)) {
                let _ = out.send(Ok(expired_event())).await;
                break;
            }
            // The timeout makes the loop check whether the faults are over although no event arrives.
            let Ok(line) = timeout(POLL_INTERVAL, lines.next()).await else { continue };
            let (arrived, line) = match line {
                Some(Ok(line)) => line,
                Some(Err(lost)) => {
                    let _ = out.send(Err(lost)).await;
                    break;
                }
                None => {
                    // The client may have a bookmark that is newer than the events that were lost.
                    if lossy.is_some() {
                        let _ = out.send(Ok(expired_event())).await;
                    }
                    break;
                }
            };
            ordinal += 1;
            let (is_bookmark, drawn) = (is_bookmark(&line), plan.draw((&call, ordinal)));
            let in_force = met.iter().copied().filter(|fault| plan.is_in_force(*fault));
            let of_event: Vec<_> = in_force.filter(|fault| is_about(*fault, is_bookmark, drawn)).collect();
            if !of_event.is_empty() {
                log.count_changed_event(number);
            }
            if forward_event(&mut out, arrived, line, &of_event).await.is_none() {
                break;
            }
        }
        reading.abort();
    });
    Box::pin(events)
}

/// Reads the events, each with its time of arrival.
async fn read_lines(mut frames: BodyFrames, lines: UnboundedSender<Result<(Instant, Vec<u8>), ConnectionLostError>>) {
    let mut rest = Vec::new();
    while let Some(frame) = frames.next().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(lost) => {
                let _ = lines.unbounded_send(Err(lost));
                return;
            }
        };
        rest.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            if lines.unbounded_send(Ok((Instant::now(), rest.drain(..=end).collect()))).is_err() {
                return;
            }
        }
    }
}

fn is_bookmark(line: &[u8]) -> bool {
    serde_json::from_slice::<WatchEventType>(line).is_ok_and(|event| event.type_ == "BOOKMARK")
}

/// Reports whether a fault applies to an event; `drawn` is from 0 to 1.
fn is_about(fault: ProxyFault, is_bookmark: bool, drawn: f64) -> bool {
    match fault {
        ProxyFault::Duplicate(chance) => drawn < chance,
        ProxyFault::Deaf => !is_bookmark,
        ProxyFault::Garble(chance) => !is_bookmark && drawn < chance,
        _ => true,
    }
}

/// Forwards one event; `None`: the watch is over.
async fn forward_event(
    out: &mut Sender<Result<Frame<Bytes>, ConnectionLostError>>,
    arrived: Instant,
    line: Vec<u8>,
    faults: &[ProxyFault],
) -> Option<()> {
    let mut line = Bytes::from(line);
    let mut times = 1;
    for fault in faults {
        match fault {
            ProxyFault::Late(length) => sleep_until(arrived + *length).await,
            ProxyFault::Duplicate(_) => times = 2,
            ProxyFault::Deaf => times = 0,
            ProxyFault::Garble(_) => line = garbled(&line)?,
            ProxyFault::End => return None,
            ProxyFault::Gone => {
                out.send(Ok(expired_event())).await.ok()?;
                return None;
            }
            _ => {}
        }
    }
    for _ in 0..times {
        out.send(Ok(Frame::data(line.clone()))).await.ok()?;
    }
    Some(())
}

/// Returns the event with labels of a wrong type.
fn garbled(line: &[u8]) -> Option<Bytes> {
    let mut event: Value = serde_json::from_slice(line).ok()?;
    event["object"]["metadata"]["labels"] = 7.into();
    Some((event.to_string() + "\n").into())
}

/// Returns the ERROR event for a resource version that is too old.
fn expired_event() -> Frame<Bytes> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    Frame::data((json!({"type": "ERROR", "object": status}).to_string() + "\n").into())
}
