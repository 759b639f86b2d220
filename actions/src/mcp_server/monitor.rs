//! `monitor`: as of every workload, and in Running, while a Pod serves, the server is asked for its tools: at once when it has
//! never told them or its Pods changed, then in turn. Failing to answer is said in a condition and keeps the last tools.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{MCPServer, WorkloadPhase, digest, tool_server::ServerTls};
use machine::{Action, ActionError, ApiError, RECHECK};
use meta::{PhasedObject, condition, update_condition};
use serde_json::json;

use super::{ANSWERS_HTTP, UNAUTHORIZED};
use crate::{
    deps::Deps,
    discovery::{DISCOVERED, DiscoveryTarget, Schedule, ToolServer as _, store_tools},
    kind::Context,
    workload::{self, WorkloadKind as _, is_available, note_unready},
};

/// How long a stream that only listens may be silent: the bridge says something every 15 s.
const SILENCE: Duration = Duration::from_secs(300);

/// When its tools are looked at again after a request about them failed.
const SOON: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Monitor;

#[async_trait]
impl Action<MCPServer, Deps> for Monitor {
    fn name(&self) -> &'static str {
        "monitor"
    }

    fn phases(&self) -> &'static [WorkloadPhase] {
        &[WorkloadPhase::Running, WorkloadPhase::Terminated]
    }

    fn recheck(&self, _cr: &MCPServer) -> Option<Duration> {
        Some(RECHECK)
    }

    async fn handle(&self, cx: &Context, cr: Arc<MCPServer>) -> Result<Option<MCPServer>, ActionError> {
        let watched = workload::Monitor.handle(cx, cr.clone()).await?;
        let mut next = watched.unwrap_or_else(|| cr.as_ref().clone());
        let unready = next.unready();
        let looked = match next.phase() == Some(WorkloadPhase::Running) && is_available(&next) {
            true => discover(cx, &mut next).await,
            false => Ok(()),
        };
        match looked {
            Ok(()) => {}
            // What is wrong with its tools takes no server out of Running that serves.
            Err(ActionError::Terminal { reason, message }) => set_undiscovered(&mut next, reason, &message),
            Err(ActionError::Api(ApiError::Invalid(message) | ApiError::Refused(message))) => {
                set_undiscovered(&mut next, "Refused", &message)
            }
            Err(error) if next.phase() == cr.phase() && next.status == cr.status => return Err(error),
            // What was observed of the Pods is stored first.
            Err(_) => cx.notes.requeue_after(SOON),
        }
        // What it said just now counts.
        if let Some(before) = unready {
            cx.notes.withdraw(before.reason);
            note_unready(cx, &next);
        }
        Ok((next.phase() != cr.phase() || next.status != cr.status).then_some(next))
    }
}

fn set_undiscovered(next: &mut MCPServer, reason: &'static str, message: &str) {
    update_condition(&mut next.common_mut().conditions, condition(DISCOVERED, false, reason, message));
}

async fn discover(cx: &Context, next: &mut MCPServer) -> Result<(), ActionError> {
    let known = next.tools_status().is_some_and(|told| told.tools_digest.is_some());
    let when = if known { Schedule::OnResync } else { Schedule::Now };
    match cx.discovery.query(&target(cx, next), when).as_deref() {
        None => {}
        Some(Ok(found)) => {
            store_tools(cx, next, found).await?;
        }
        Some(Err(failed)) => {
            let conditions = next.common().map(|machine| machine.conditions.as_slice()).unwrap_or_default();
            let known = conditions.iter().any(|it| it.type_ == DISCOVERED && it.message == failed.message);
            // It answered, and wants to know its callers, of whom the operator is none. Older words of it stay.
            let signs_in =
                ["401", "403"].iter().any(|code| failed.message.starts_with(&format!("{ANSWERS_HTTP} {code}")));
            match signs_in && !known {
                true => set_undiscovered(next, UNAUTHORIZED, &failed.message),
                false if known => {}
                false => set_undiscovered(next, failed.reason, &failed.message),
            }
        }
    }
    Ok(())
}

/// How the server is asked: by its Service. Other Pods are another server, and one that goes may still be who answers until it
/// is gone.
fn target(cx: &Context, server: &MCPServer) -> DiscoveryTarget {
    let key = server.key();
    let pods = cx.cache.pods(MCPServer::KIND, &key.namespace, &key.name);
    let serving = pods.iter().filter(|pod| pod.ready || pod.terminating);
    let serving: Vec<_> = serving.map(|pod| (pod.uid.as_str(), pod.terminating)).collect();
    DiscoveryTarget {
        kind: MCPServer::KIND,
        key,
        uid: server.uid().to_owned(),
        url: server.endpoint(&cx.settings),
        headers: Vec::new(),
        tls: ServerTls::default(),
        sse: false,
        silence: SILENCE,
        terminates: true,
        timeout: server.spec.timeout(),
        resync: server.spec.resync(),
        data: [("Pods".to_owned(), digest::digest(&json!(serving)))].into(),
    }
}
