//! Relays of Services: a TCP listener on this machine per port of a Service, which passes each connection on to a Pod.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::ResourceExt as _;
use sha2::{Digest as _, Sha256};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    names::ServicePort,
    slices::{self, Readiness, has_selector, is_external},
};

/// Ports of relays.
const RANGE: RangeInclusive<u16> = 20000..=20999;
/// Longest time for which a connection waits for a Pod.
const WAIT: Duration = Duration::from_secs(30);
/// Pause after a failed attempt to accept or to connect.
const RETRY: Duration = Duration::from_millis(50);

/// Relays of every Service. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Relays(Arc<Mutex<RelayTable>>);

#[derive(Default)]
struct RelayTable {
    relays: HashMap<(String, String, u16), ServiceRelay>,
    is_closed: bool,
}

impl fmt::Debug for Relays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relays").finish_non_exhaustive()
    }
}

/// Listener of one port of a Service.
struct ServiceRelay {
    address: SocketAddr,
    backends: watch::Sender<Backends>,
    task: JoinHandle<()>,
}

impl Drop for ServiceRelay {
    fn drop(&mut self) {
        // No new connections; those that are open go on.
        self.task.abort();
    }
}

/// Addresses of the Pods behind a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Backends {
    pub(crate) ready: Vec<SocketAddr>,
    /// Pods that are going and still serve, for the time without a ready one.
    pub(crate) leaving: Vec<SocketAddr>,
}

impl Backends {
    /// Returns the addresses behind a port of a Service: of the Pods that it selects, or those in slices of others.
    fn of(service: &Service, port: u16, pods: &[Arc<Pod>], slices: &[Arc<EndpointSlice>]) -> Self {
        let mut found = Self::default();
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let Some(port) = ports.into_iter().find(|known| known.port == i32::from(port)) else { return found };
        let mut add = |address, readiness| match readiness {
            Readiness::Ready => found.ready.push(address),
            Readiness::Leaving => found.leaving.push(address),
            Readiness::No => {}
        };
        if !has_selector(service) {
            let others = slices.iter().flat_map(|slice| slices::addresses(service, port, slice));
            others.for_each(|(address, readiness)| add(address, readiness));
        }
        for pod in pods.iter().filter(|pod| slices::is_selected(service, pod)) {
            let Some(target) = slices::target_port(pod, port) else { continue };
            let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()?.parse().ok());
            let address = SocketAddr::new(ip.unwrap_or(Ipv4Addr::LOCALHOST.into()), target);
            add(address, slices::readiness(service, pod));
        }
        found
    }

    /// Returns the addresses that are tried: ready ones, else those that still serve.
    fn usable(&self) -> &[SocketAddr] {
        if self.ready.is_empty() { &self.leaving } else { &self.ready }
    }
}

impl Relays {
    /// Makes the relays that these Services need and are not there, and none other. Returns the Services whose relay could not be
    /// made, with the reason.
    pub(crate) fn sync<'a>(&self, services: impl Iterator<Item = &'a Service>) -> Vec<(String, String)> {
        let mut failed = Vec::new();
        for (service, port) in services.filter(|service| !is_external(service)).flat_map(tcp_ports) {
            if let Err(error) = self.ensure(service, port) {
                failed.push((format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any()), error));
            }
        }
        failed
    }

    fn ensure(&self, service: &Service, port: u16) -> Result<(), String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (service.namespace().unwrap_or_default(), service.name_any(), port);
        if state.is_closed || state.relays.contains_key(&key) {
            return Ok(());
        }
        let used: BTreeSet<u16> = state.relays.values().map(|relay| relay.address.port()).collect();
        let candidates = candidates(&key).filter(|port| !used.contains(port));
        let bound = candidates.map(|port| StdListener::bind((Ipv4Addr::LOCALHOST, port))).find_map(Result::ok);
        let listener =
            bound.ok_or_else(|| "every port from 20000 to 20999 is taken: close other programs".to_owned())?;
        let listen = || {
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((address, TcpListener::from_std(listener)?))
        };
        let (address, listener) = listen().map_err(|error: std::io::Error| error.to_string())?;
        let backends = watch::Sender::default();
        let task = tokio::spawn(accept(listener, backends.subscribe()));
        state.relays.insert(key, ServiceRelay { address, backends, task });
        Ok(())
    }

    /// Gives the relays the Pods behind them, and removes those of Services that are gone.
    pub(crate) fn update(&self, services: &[Arc<Service>], pods: &[Arc<Pod>], slices: &[Arc<EndpointSlice>]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known: BTreeMap<(String, String), &Service> = services
            .iter()
            .map(|service| ((service.namespace().unwrap_or_default(), service.name_any()), service.as_ref()))
            .collect();
        state.relays.retain(|(namespace, name, port), relay| {
            let Some(service) = known.get(&(namespace.clone(), name.clone())) else { return false };
            if is_external(service) || !tcp_ports(service).any(|(_, known)| known == *port) {
                return false;
            }
            let backends = Backends::of(service, *port, pods, slices);
            relay.backends.send_if_modified(|old| {
                let is_new = *old != backends;
                *old = backends;
                is_new
            });
            true
        });
    }

    /// Returns where a port of a Service is relayed.
    pub(crate) fn address(&self, service: &ServicePort) -> Option<SocketAddr> {
        let key = (service.namespace.clone(), service.name.clone(), service.port);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).relays.get(&key).map(|relay| relay.address)
    }

    /// Closes every listener; open connections go on.
    pub(crate) fn close(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_closed = true;
        state.relays.clear();
    }
}

/// Returns the TCP ports of a Service.
pub(crate) fn tcp_ports(service: &Service) -> impl Iterator<Item = (&Service, u16)> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let tcp = ports.filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    tcp.filter_map(move |port| Some((service, u16::try_from(port.port).ok()?)))
}

/// Returns the ports that are tried for a relay: first the one that follows from its name, so that it is the same after a restart.
fn candidates((namespace, name, port): &(String, String, u16)) -> impl Iterator<Item = u16> + use<> {
    let digest = Sha256::digest(format!("{namespace}/{name}:{port}"));
    let size = RANGE.end() - RANGE.start() + 1;
    let first = u16::from_be_bytes([digest[0], digest[1]]) % size;
    (0..size).map(move |step| RANGE.start() + (first + step) % size)
}

/// Accepts connections for ever.
async fn accept(listener: TcpListener, backends: watch::Receiver<Backends>) {
    let turn = Arc::new(AtomicUsize::new(0));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(relay(stream, backends.clone(), turn.clone()))),
            // Usually too many open files.
            Err(error) => {
                tracing::warn!(%error, "accept a connection to a Service");
                sleep(RETRY).await;
            }
        }
    }
}

/// Passes a connection on to a Pod, and waits for one if none is there.
async fn relay(mut client: TcpStream, backends: watch::Receiver<Backends>, turn: Arc<AtomicUsize>) {
    // Without a Pod in time the connection is closed.
    let Ok(Some(mut server)) = timeout(WAIT, connect(backends, &turn)).await else { return };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    // An error of one side ends both.
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

/// Connects to a Pod, each time to the next one; none if the Service is gone.
async fn connect(mut backends: watch::Receiver<Backends>, turn: &AtomicUsize) -> Option<TcpStream> {
    loop {
        let usable = backends.borrow_and_update().usable().to_vec();
        let first = turn.fetch_add(1, Ordering::Relaxed);
        for step in 0..usable.len() {
            let address = usable[(first + step) % usable.len()];
            if let Ok(stream) = TcpStream::connect(address).await {
                return Some(stream);
            }
        }
        if usable.is_empty() {
            backends.changed().await.ok()?;
        } else if let Ok(Err(_)) = timeout(RETRY, backends.changed()).await {
            // The Service is gone. Otherwise a Pod that has just gone refuses until that is known.
            return None;
        }
    }
}

#[cfg(test)]
mod tests;
