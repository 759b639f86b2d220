//! The events of a watch under faults: one JSON document per line.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    SinkExt as _, Stream, StreamExt as _,
    channel::mpsc::{self, Sender},
};
use http_body::Frame;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{Call, Fault, Lost, Plan};

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

/// The events of a watch as the faults leave them, for as long as those are in force.
pub(super) fn disturbed(mut frames: Frames, call: Call, faults: Vec<Fault>, plan: Arc<Plan>) -> Frames {
    let (mut out, events) = mpsc::channel(16);
    tokio::spawn(async move {
        let (mut number, mut rest) = (0_u64, Vec::new());
        let was_deaf = faults.contains(&Fault::Deaf);
        loop {
            if was_deaf && !plan.still(Fault::Deaf) {
                let _ = out.send(Ok(gone())).await;
                return;
            }
            // Looks again whether the faults are over although nothing comes.
            let Ok(frame) = timeout(LOOK, frames.next()).await else { continue };
            let Some(Ok(frame)) = frame else { return };
            rest.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                number += 1;
                let in_force: Vec<_> = faults.iter().copied().filter(|fault| plan.still(*fault)).collect();
                let drawn = plan.draw((&call, number));
                if pass(&mut out, line, &in_force, drawn).await.is_none() {
                    return;
                }
            }
        }
    });
    Box::pin(events)
}

/// Passes one event on; `None`: the watch is over.
async fn pass(out: &mut Sender<Result<Frame<Bytes>, Lost>>, line: Vec<u8>, faults: &[Fault], drawn: f64) -> Option<()> {
    let event: Event = serde_json::from_slice(&line).ok()?;
    let is_bookmark = event.type_ == "BOOKMARK";
    let line = Bytes::from(line);
    let mut times = 1;
    for fault in faults {
        match fault {
            Fault::Late(length) => sleep(*length).await,
            Fault::Duplicate(chance) if drawn < *chance => times = 2,
            Fault::Deaf if !is_bookmark => times = 0,
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

/// The event that says that a watch is too old to go on.
fn gone() -> Frame<Bytes> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    Frame::data((json!({"type": "ERROR", "object": status}).to_string() + "\n").into())
}
