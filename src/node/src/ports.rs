//! Ports of containers: all Pods share 127.0.0.1, so each declared port becomes a free one.

use std::{
    collections::BTreeMap,
    fmt, mem,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    ops::RangeInclusive,
    sync::{Mutex, PoisonError},
};

/// Ports of containers. The range lies below the one from which the kernel takes the ports of outgoing connections (32768).
const RANGE: RangeInclusive<u16> = 21000..=29999;
/// Annotation of a Pod that says which port each declared one became, such as `8000=21000,8888=21001`.
pub(crate) const PORTS: &str = "recif.dev/dev-ports";

/// Ports that are given out.
#[derive(Debug, Default)]
pub(crate) struct Ports(Mutex<HeldPorts>);

#[derive(Debug, Default)]
struct HeldPorts {
    /// Each with its reservation, which another `recif dev` sees.
    held: BTreeMap<u16, Option<UdpSocket>>,
    /// Offset of the next attempt, so that a port is not used again soon after it was released.
    next: u16,
}

impl Ports {
    /// Makes an allocator that begins at a random port.
    pub(crate) fn new() -> Self {
        let mut bytes = [0; 2];
        // Without random numbers it begins at the first port.
        let _ = getrandom::fill(&mut bytes);
        Self(Mutex::new(HeldPorts { held: BTreeMap::new(), next: u16::from_ne_bytes(bytes) }))
    }

    /// Takes the port that is wanted if it is free, else another one; none if all are taken.
    pub(crate) fn take(&self, wanted: Option<u16>) -> Option<u16> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reserved = |port: u16| {
            let is_usable = !state.held.contains_key(&port)
                && is_free(Ipv4Addr::LOCALHOST, port)
                && is_free(Ipv4Addr::UNSPECIFIED, port);
            is_usable.then(|| reserve(port)).flatten().map(|reservation| (port, reservation))
        };
        let size = RANGE.end() - RANGE.start() + 1;
        let others =
            (0..size).map(|step| RANGE.start() + ((u32::from(state.next) + u32::from(step)) % u32::from(size)) as u16);
        let (port, reservation) = wanted.into_iter().chain(others).find_map(reserved)?;
        if RANGE.contains(&port) {
            state.next = port - RANGE.start() + 1;
        }
        state.held.insert(port, Some(reservation));
        Some(port)
    }

    /// Holds the ports of these Pods, and releases all others.
    pub(crate) fn hold(&self, ports: impl IntoIterator<Item = u16>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = mem::take(&mut state.held);
        let kept = |port| (port, before.remove(&port).flatten().or_else(|| reserve(port)));
        state.held = ports.into_iter().map(kept).collect();
    }
}

/// Reserves a TCP port by the UDP port of the same number, which no program of a Pod is given: a program listens only some time
/// after its port was chosen, and until then another `recif dev` would choose it, too. The system ends it with this process.
fn reserve(port: u16) -> Option<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

/// Reports whether a program could listen on this port now.
pub(crate) fn is_free(address: Ipv4Addr, port: u16) -> bool {
    TcpListener::bind((address, port)).is_ok()
}

/// The port that each declared port became.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PortMap(pub(crate) BTreeMap<u16, u16>);

impl PortMap {
    /// Reads the annotation; none in a Pod that was not made here.
    pub(crate) fn of(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let text = annotations.and_then(|annotations| annotations.get(PORTS)).map_or("", String::as_str);
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        Self(pairs.filter_map(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?))).collect())
    }

    /// Returns the port that a declared one became, or the port itself if it is not declared.
    pub(crate) fn port(&self, declared: i32) -> i32 {
        let found = u16::try_from(declared).ok().and_then(|declared| self.0.get(&declared));
        found.map_or(declared, |port| i32::from(*port))
    }
}

impl fmt::Display for PortMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|(from, to)| format!("{from}={to}")).collect();
        f.write_str(&pairs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_out_once_and_only_if_it_is_free() {
        let ports = Ports::new();
        let [a, b] = [ports.take(None).unwrap(), ports.take(None).unwrap()];
        assert!(a != b && RANGE.contains(&a) && RANGE.contains(&b));
        let wanted = ports.take(Some(a)).unwrap();
        assert!(wanted != a, "it is held");
        ports.hold([b]);
        assert_eq!(ports.take(Some(a)), Some(a), "it was released");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let used = listener.local_addr().unwrap().port();
        assert_ne!(ports.take(Some(used)), Some(used), "a program listens there");
    }

    #[test]
    fn two_nodes_of_a_machine_give_out_no_port_twice() {
        let [one, other] = [Ports::new(), Ports::new()];
        let port = one.take(None).unwrap();
        assert_ne!(other.take(Some(port)), Some(port), "no program listens there yet");
        one.hold([port]);
        assert_ne!(other.take(Some(port)), Some(port), "it is still held");
        one.hold([]);
        assert_eq!(other.take(Some(port)), Some(port));
    }

    #[test]
    fn the_ports_of_a_pod_are_written_and_read() {
        let map = PortMap([(8000, 21000), (8888, 21001)].into());
        assert_eq!(map.to_string(), "8000=21000,8888=21001");
        let read = |text: &str| PortMap::of(Some(&[(PORTS.to_owned(), text.to_owned())].into()));
        assert_eq!(read("8000=21000,8888=21001"), map);
        assert_eq!(read(""), PortMap::default());
        assert_eq!(read("a=1,2=99999,3"), PortMap::default());
        assert_eq!((map.port(8000), map.port(80), map.port(-1)), (21000, 80, -1));
    }
}
