//! Exchange of admissions with the other gateways: one POST to the admin port of each, which carries the counts of both.

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use cluster::{
    ObjectMap, ObjectVersion, WatchSource, Watches,
    endpoint_slice::{EndpointSlice, EndpointState},
    resource::Resource,
};
use http1::{QueryError, query};
use identity::{CALLER_HEADER, LIMITS_AUDIENCE, LIMITS_PATH, TokenCache};
use tokio::{
    net::TcpStream,
    sync::Notify,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, timeout},
};

use super::{LimitReport, LimitTime};
use crate::state::GatewayContext;

/// Longest time between two exchanges with a gateway.
const INTERVAL: Duration = Duration::from_millis(500);
/// Shortest time between two exchanges with a gateway.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest time of one exchange.
const DEADLINE: Duration = Duration::from_millis(300);
/// Largest report, in bytes.
pub(crate) const MAX_REPORT: usize = 16 << 20;

/// Admin addresses of all gateways, by EndpointSlice.
type AdminAddresses = ObjectMap<Vec<SocketAddr>>;

/// Starts the watch of the Pods behind the Service of the admin ports, and exchanges admissions with them.
pub(crate) fn follow_gateways(
    shared: &Arc<GatewayContext>,
    watches: &Watches,
    (namespace, service): (String, String),
    tasks: &mut JoinSet<()>,
) {
    let slices = Arc::<AdminAddresses>::default();
    let changed = Arc::new(Notify::new());
    let notify = changed.clone();
    slices.subscribe(move |_| notify.notify_one());
    let decode = Arc::new(move |_: &ObjectVersion, json: &str| addresses(&service, json));
    let source = WatchSource { resource: Resource::ENDPOINT_SLICE, labels: None, fields: None, decode };
    watches.watch_in(Some(namespace), source, &slices, tasks);
    tasks.spawn(exchange_with_all(shared.clone(), slices, changed));
}

/// Returns the addresses of a slice, if it belongs to the Service.
fn addresses(service: &str, json: &str) -> Result<Vec<SocketAddr>, serde_json::Error> {
    let slice = EndpointSlice::read(json)?;
    let (Some(_), Some(port)) = (slice.service(service), slice.first_port()) else { return Ok(Vec::new()) };
    // One that is shutting down still admits requests.
    let serving = slice.endpoints().filter(|pod| pod.state >= EndpointState::Leaving);
    Ok(serving.map(|pod| SocketAddr::new(pod.ip, port)).collect())
}

/// Exchanges admissions with every gateway, one task each.
async fn exchange_with_all(shared: Arc<GatewayContext>, slices: Arc<AdminAddresses>, changed: Arc<Notify>) {
    let mut tasks = JoinSet::new();
    let mut running: HashMap<SocketAddr, AbortHandle> = HashMap::new();
    loop {
        let each = slices.keys().into_iter().filter_map(|key| slices.get(&key));
        let mut listed: Vec<_> = each.flat_map(|slice| slice.to_vec()).collect();
        listed.sort_unstable();
        listed.dedup();
        shared.limits.list(&listed);
        running.retain(|address, task| {
            let stays = listed.contains(address);
            if !stays {
                task.abort();
            }
            stays
        });
        for address in listed {
            running.entry(address).or_insert_with(|| tasks.spawn(exchange_with(shared.clone(), address)));
        }
        changed.notified().await;
        while tasks.try_join_next().is_some() {}
    }
}

/// Exchanges admissions with the gateway at this address, until that turns out to be this one.
async fn exchange_with(shared: Arc<GatewayContext>, address: SocketAddr) {
    let limits = &shared.limits;
    if limits.is_used.subscribe().wait_for(|is_used| *is_used).await.is_err() {
        return;
    }
    let tokens = TokenCache::default();
    let mut pokes = limits.pokes.subscribe();
    let mut kept = None;
    loop {
        let more = match timeout(DEADLINE, exchange(&shared, address, kept.take(), &tokens)).await {
            Ok(Ok((more, connection))) => {
                kept = connection;
                more
            }
            Ok(Err(error)) => {
                if error.is_refused() {
                    limits.peers.set_absent(address);
                }
                tracing::debug!(%address, %error, "admissions were not exchanged with a gateway");
                false
            }
            Err(_) => {
                tracing::debug!(%address, "a gateway did not answer in time: limits are shared with it meanwhile");
                false
            }
        };
        if limits.peers.is_own(address) {
            return;
        }
        sleep(PAUSE).await;
        if !more {
            // The sender lives as long as `shared`.
            let _ = timeout(INTERVAL, pokes.changed()).await;
        }
    }
}

/// Exchanges admissions once. Returns whether there is more to exchange, and the connection for the next time.
async fn exchange(
    shared: &GatewayContext,
    address: SocketAddr,
    kept: Option<TcpStream>,
    tokens: &TokenCache,
) -> Result<(bool, Option<TcpStream>), QueryError> {
    let unreadable = |_| QueryError::Unreadable("it is no report of a gateway");
    let question = shared.limits.question(address, LimitTime::now(&shared.clock));
    let body = serde_json::to_vec(&question).map_err(unreadable)?;
    let token =
        shared.keys.get().map(|keys| tokens.get_or_sign(None, false, &keys, Instant::now(), || LIMITS_AUDIENCE.into()));
    let token = token.map(|token| format!("{CALLER_HEADER}: {token}\r\n")).unwrap_or_default();
    let mut request = format!(
        "POST {LIMITS_PATH} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: recif\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{token}\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(&body);
    let response = query(address, kept, &request, MAX_REPORT).await?;
    if response.status != 200 {
        return Err(QueryError::Status(response.status));
    }
    let answer: LimitReport = serde_json::from_slice(&response.body).map_err(unreadable)?;
    let more = shared.limits.take_answer(address, &answer, LimitTime::now(&shared.clock));
    Ok((more || question.more, response.connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_the_pods_behind_their_own_service() {
        let json = r#"{"metadata":{"name":"g-x","namespace":"recif-system","uid":"u","resourceVersion":"7",
            "labels":{"kubernetes.io/service-name":"g",
            "endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"},
            "ownerReferences":[{"apiVersion":"v1","kind":"Service","name":"g","uid":"s","controller":true}]},
            "ports":[{"name":"admin","port":8081}],"endpoints":[{"addresses":["10.0.0.2"]},
            {"addresses":["10.0.0.3"],"conditions":{"ready":false,"serving":false,"terminating":true}}]}"#;
        assert_eq!(addresses("g", json).unwrap(), [SocketAddr::from(([10, 0, 0, 2], 8081))]);
        assert!(addresses("other", json).unwrap().is_empty());
    }
}
