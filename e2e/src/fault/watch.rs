//! The events of a watch under faults: one JSON document per line.

use std::{pin::Pin, time::Duration};

use bytes::Bytes;
use futures::{
    SinkExt as _, Stream, StreamExt as _,
    channel::mpsc::{self, Sender, UnboundedSender},
};
use http_body::Frame;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use super::{Call, Fault, Faults, Lost};

/// The parts of an answer's body.
pub(super) type Frames = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Lost>> + Send>>;

/// How often is looked whether faults are over.
const LOOK: Duration = Duration::from_millis(500);

/// An event, as far as faults look at it.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    type_: String,
}

/// The events of a watch as the faults leave them, for as long as those are in force. `number` is that of the watch in the log.
pub(super) fn disturbed(frames: Frames, call: Call, met: Vec<Fault>, faults: &Faults, number: usize) -> Frames {
    let (mut out, events) = mpsc::channel(16);
    let (read, mut lines) = mpsc::unbounded();
    let (plan, log) = (faults.plan.clone(), faults.log.clone());
    let reading = tokio::spawn(read_lines(frames, read));
    tokio::spawn(async move {
        let mut ordinal = 0_u64;
        let lossy = met.iter().copied().find(Fault::is_lossy);
        loop {
            if out.is_closed() {
                break;
            }
            if lossy.is_some_and(|fault| !plan.still(fault)) {
                let _ = out.send(Ok(gone())).await;
                break;
            }
            // Looks again whether the faults are over although nothing comes.
            let Ok(line) = timeout(LOOK, lines.next()).await else { continue };
            let (arrived, line) = match line {
                Some(Ok(line)) => line,
                Some(Err(lost)) => {
                    let _ = out.send(Err(lost)).await;
                    break;
                }
                None => {
                    // A bookmark may have led past what was not passed on.
                    if lossy.is_some() {
                        let _ = out.send(Ok(gone())).await;
                    }
                    break;
                }
            };
            ordinal += 1;
            let (is_bookmark, drawn) = (is_bookmark(&line), plan.draw((&call, ordinal)));
            let in_force = met.iter().copied().filter(|fault| plan.still(*fault));
            let of_event: Vec<_> = in_force.filter(|fault| is_about(*fault, is_bookmark, drawn)).collect();
            if !of_event.is_empty() {
                log.disturbed(number);
            }
            if pass(&mut out, arrived, line, &of_event).await.is_none() {
                break;
            }
        }
        reading.abort();
    });
    Box::pin(events)
}

/// Reads events with the time at which each arrived.
async fn read_lines(mut frames: Frames, lines: UnboundedSender<Result<(Instant, Vec<u8>), Lost>>) {
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
    serde_json::from_slice::<Event>(line).is_ok_and(|event| event.type_ == "BOOKMARK")
}

/// Whether an event meets a fault; `drawn` is from 0 to 1.
fn is_about(fault: Fault, is_bookmark: bool, drawn: f64) -> bool {
    match fault {
        Fault::Duplicate(chance) => drawn < chance,
        Fault::Deaf => !is_bookmark,
        Fault::Garble(chance) => !is_bookmark && drawn < chance,
        _ => true,
    }
}

/// Passes one event on; `None`: the watch is over.
async fn pass(
    out: &mut Sender<Result<Frame<Bytes>, Lost>>,
    arrived: Instant,
    line: Vec<u8>,
    faults: &[Fault],
) -> Option<()> {
    let mut line = Bytes::from(line);
    let mut times = 1;
    for fault in faults {
        match fault {
            Fault::Late(length) => sleep_until(arrived + *length).await,
            Fault::Duplicate(_) => times = 2,
            Fault::Deaf => times = 0,
            Fault::Garble(_) => line = garbled(&line)?,
            Fault::End => return None,
            Fault::Gone => {
                out.send(Ok(gone())).await.ok()?;
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

/// The event with labels of a type that labels do not have.
fn garbled(line: &[u8]) -> Option<Bytes> {
    let mut event: Value = serde_json::from_slice(line).ok()?;
    event["object"]["metadata"]["labels"] = 7.into();
    Some((event.to_string() + "\n").into())
}

/// The event that says that a watch is too old to go on.
fn gone() -> Frame<Bytes> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    Frame::data((json!({"type": "ERROR", "object": status}).to_string() + "\n").into())
}
