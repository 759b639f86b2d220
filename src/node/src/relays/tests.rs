use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

fn service(name: &str, port: u16) -> Service {
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "ns" },
        "spec": { "selector": { "app": name }, "ports": [{ "port": port, "targetPort": "http" }] },
    }))
    .unwrap()
}

fn pod(name: &str, port: u16, is_ready: bool) -> Arc<Pod> {
    let ready = if is_ready { "True" } else { "False" };
    Arc::new(
        serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "ns", "labels": { "app": name } },
            "spec": { "containers": [{ "name": "c", "ports": [{ "name": "http", "containerPort": port }] }] },
            "status": { "podIP": "127.0.0.1", "conditions": [{ "type": "Ready", "status": ready }] },
        }))
        .unwrap(),
    )
}

fn address(relays: &Relays, name: &str, port: u16) -> Option<SocketAddr> {
    relays.address(&ServicePort { namespace: "ns".to_owned(), name: name.to_owned(), port })
}

/// Answers each connection with a text.
async fn server(text: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    });
    port
}

async fn ask(address: SocketAddr) -> String {
    let mut text = String::new();
    TcpStream::connect(address).await.unwrap().read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn a_connection_goes_to_a_ready_pod_and_waits_until_there_is_one() {
    let (relays, service) = (Relays::default(), Arc::new(service("relay-a", 8000)));
    assert!(relays.sync([service.as_ref()].into_iter()).is_empty());
    let at = address(&relays, "relay-a", 8000).unwrap();
    assert!(RANGE.contains(&at.port()) && address(&relays, "relay-a", 9).is_none());
    let services = [service];
    let waiting = tokio::spawn(ask(at));
    let [first, second] = [server("one").await, server("two").await];
    relays.update(&services, &[pod("relay-a", first, false)], &[]);
    assert!(
        timeout(Duration::from_millis(50), async {
            while !waiting.is_finished() {
                sleep(RETRY).await
            }
        })
        .await
        .is_err()
    );
    relays.update(&services, &[pod("relay-a", first, true)], &[]);
    assert_eq!(waiting.await.unwrap(), "one");
    relays.update(&services, &[pod("relay-a", first, true), pod("relay-a", second, true)], &[]);
    let answers = BTreeSet::from([ask(at).await, ask(at).await]);
    assert_eq!(answers.len(), 2, "in turn");
    // A Pod that refuses is passed over.
    let free = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    relays.update(&services, &[pod("relay-a", free, true), pod("relay-a", second, true)], &[]);
    assert_eq!([ask(at).await, ask(at).await], ["two", "two"]);
    relays.update(&[], &[], &[]);
    assert!(TcpStream::connect(at).await.is_err() || ask(at).await.is_empty());
    assert_eq!(address(&relays, "relay-a", 8000), None);
}

#[tokio::test]
async fn a_port_follows_from_the_name_and_a_clash_moves_it_on() {
    let key = ("ns".to_owned(), "relay-b".to_owned(), 80);
    let order: Vec<u16> = candidates(&key).collect();
    assert_eq!(order, candidates(&key).collect::<Vec<_>>());
    assert_eq!(BTreeSet::from_iter(&order).len(), 1000);
    // Whatever has the first port: another program, or this one.
    let _taken = StdListener::bind((Ipv4Addr::LOCALHOST, order[0]));
    let relays = Relays::default();
    relays.sync([&service("relay-b", 80)].into_iter());
    assert_ne!(address(&relays, "relay-b", 80).unwrap().port(), order[0]);
    relays.close();
    relays.sync([&service("relay-c", 80)].into_iter());
    assert_eq!(address(&relays, "relay-c", 80), None, "the node is ending");
}

#[test]
fn a_pod_that_is_going_serves_only_while_none_is_ready() {
    let mut leaving = pod("a", 1, true).as_ref().clone();
    leaving.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap());
    let (leaving, ready) = (Arc::new(leaving), pod("a", 2, true));
    let usable = |pods: &[Arc<Pod>]| {
        Backends::of(&service("a", 80), 80, pods, &[]).usable().iter().map(SocketAddr::port).collect::<Vec<_>>()
    };
    assert_eq!(usable(&[leaving.clone(), ready]), [2]);
    assert_eq!(usable(std::slice::from_ref(&leaving)), [1]);
    assert_eq!(usable(&[pod("a", 3, false)]), Vec::<u16>::new());
}
