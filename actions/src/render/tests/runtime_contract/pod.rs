//! Compares the ports, the probes and the end of a Pod.

use crds::{MCPServer, Traffic};
use serde_json::{Value, json};

use super::{PAGE, PROXY, agent_container, code, flow_container, flow_of, running, set_container, set_of, table};
use crate::render::{
    AgentParts, ServerImages, agent_config, agent_workload_children, mcp_server_workload_children,
    tests::{agent, images, settings, template},
};

fn server_of(deployment: Value, http: Value) -> MCPServer {
    let spec = json!({ "transportType": "http", "deployment": deployment, "httpTransport": http });
    serde_json::from_value(json!({ "metadata": { "name": "m", "namespace": "ns" }, "spec": spec })).unwrap()
}

fn server_container(server: &MCPServer) -> (Value, Value) {
    let images = ServerImages { bridge: "proxy:1", proxy: PROXY };
    running(mcp_server_workload_children(server, &Traffic::default(), "h", images, Some(1)).unwrap())
}

/// Returns the three probes as the page writes them.
fn probes(container: &Value) -> [String; 3] {
    ["startupProbe", "livenessProbe", "readinessProbe"].map(|probe| {
        match container[probe]["httpGet"]["path"].as_str() {
            Some(path) => format!("GET `{path}`"),
            None => {
                assert!(container[probe]["tcpSocket"]["port"].is_string(), "{container}");
                "TCP".to_owned()
            }
        }
    })
}

#[test]
fn the_page_says_where_the_probes_go_and_how_long_a_start_may_take() {
    let rows = table("### Probes", "");
    let server = server_of(json!({ "image": "i" }), json!({}));
    let with = |readiness: Value| {
        let spec = json!({ "readiness": readiness });
        let all = [agent_container(spec.clone()), flow_container(&flow_of(spec.clone())), set_container(&set_of(spec))];
        let [one, others @ ..] = all.map(|(container, _)| probes(&container));
        assert!(others.iter().all(|other| *other == one), "{others:?}");
        one
    };
    let expected = [
        probes(&agent_container(json!({})).0),
        probes(&flow_container(&flow_of(json!({}))).0),
        probes(&set_container(&set_of(json!({}))).0),
        probes(&server_container(&server).0),
        with(json!({})),
        with(json!({ "path": "/up" })),
    ];
    assert_eq!(rows.len(), expected.len());
    for (row, expected) in rows.iter().zip(expected) {
        assert_eq!(row[1..], expected, "{}", row[0]);
    }
    let startup = &agent_container(json!({})).0["startupProbe"];
    let seconds = startup["periodSeconds"].as_i64().unwrap() * startup["failureThreshold"].as_i64().unwrap();
    assert!(PAGE.contains(&format!("the start may take {seconds} s")), "{seconds}");
}

#[test]
fn the_page_says_where_the_image_and_its_service_listen() {
    let rows = table("### Ports", "");
    let server = |deployment: Value, http: Value| server_container(&server_of(deployment, http));
    let found = [
        (agent_container(json!({})), agent_container(json!({ "port": 9000 }))),
        (flow_container(&flow_of(json!({}))), flow_container(&flow_of(json!({ "port": 9000 })))),
        (set_container(&set_of(json!({}))), set_container(&set_of(json!({ "port": 9000 })))),
        (server(json!({ "image": "i" }), json!({})), server(json!({ "image": "i", "port": 9000 }), json!({}))),
    ];
    assert_eq!(rows.len(), found.len());
    let listens = |container: &Value| container["ports"][0]["containerPort"].to_string();
    for (row, ((plain, service), (set, set_service))) in rows.iter().zip(&found) {
        assert_eq!(code(row[1])[0], listens(plain), "{}", row[0]);
        assert_eq!(listens(set), "9000", "{}", row[0]);
        let told = if row[2] == "the same" { listens(plain) } else { code(row[2])[0].to_owned() };
        assert_eq!(told, service.to_string(), "{}", row[0]);
        assert_eq!(
            *set_service == json!(9000),
            row[2] == "the same" || row[2].contains("deployment.port"),
            "{}",
            row[0]
        );
    }
    let (container, service) = server(json!({ "image": "i" }), json!({ "targetPort": 9000 }));
    assert_eq!((listens(&container).as_str(), service), ("9000", json!(3000)));
}

#[test]
fn the_page_says_how_long_the_end_takes() {
    let agent = agent(json!({}));
    let config = agent_config(&agent, &AgentParts::default(), &settings()).unwrap();
    let [_, deployment] = agent_workload_children(&agent, &config, images(&agent, PROXY), Some(1)).unwrap();
    let pod = &deployment.body["spec"]["template"]["spec"];
    let env = pod["initContainers"][0]["env"].as_array().unwrap();
    let of = |name: &str| {
        let value = env.iter().find(|variable| variable["name"] == name).unwrap()["value"].as_str().unwrap();
        value.trim_end_matches('s').parse::<i64>().unwrap()
    };
    let (duck, drain) = (of("RECIF_LAME_DUCK"), of("RECIF_SHUTDOWN_TIMEOUT"));
    let rows = table("### The end", "");
    assert!(rows[0][0].contains(&format!("for {duck} s")) && rows[1][1].contains(&format!("({drain} s)")));
    let after = rows[3][0].split(' ').next().unwrap().parse::<i64>().unwrap();
    assert!(duck + drain + after <= pod["terminationGracePeriodSeconds"].as_i64().unwrap());
    let alone = template(json!({ "proxy": { "enabled": false } })).unwrap();
    let grace = &alone["spec"]["terminationGracePeriodSeconds"];
    assert!(PAGE.contains(&format!("SIGTERM comes at once, and the kill after {grace} s")));
    let timeout = of("RECIF_TIMEOUT");
    assert!(PAGE.contains(&format!("`spec.timeout` ({timeout} s)")));
}
