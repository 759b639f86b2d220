//! Tests the files that the runner reads of flows.

use std::{collections::BTreeMap, sync::Arc};

use crds::{Flow, FlowSet, flow::FlowDefinition, tool_server::CaSecret};
use proptest::{collection::btree_map, prelude::*};
use serde_json::{Value, json};

use super::tool;
use crate::{
    ports::ChildManifest,
    render::{
        Credentials, FLOW, FLOW_SET, FlowContract, FlowImages, FlowModel, FlowParts, FlowTool, check_member,
        check_names, flow_config_children, flow_workload_children,
    },
};

type Texts = BTreeMap<String, String>;
/// Changed part, and the change.
type Change<'a> = (&'static str, &'a dyn Fn(&mut FlowParts));

fn model(provider: &str, credentials: Option<Credentials>) -> FlowModel {
    let keys = credentials.iter().flat_map(|found| found.values.keys().cloned()).collect::<Vec<_>>();
    FlowModel {
        model: serde_json::from_value(json!({
            "provider": provider, "model": "big", "pluginConfigRef": { "name": "p" },
            "info": { "label": "Big", "supports": { "tools": true, "media": false } },
            "defaultConfig": { "topK": 4, "temperature": 0.5 },
        }))
        .unwrap(),
        plugin: serde_json::from_value(json!({
            "type": provider, "region": "eu", "credentialKeys": keys,
            "extraConfig": { "baseUrl": "http://models/v1", "a": [2, 1] },
        }))
        .unwrap(),
        credentials,
        header_values: BTreeMap::new(),
        fallbacks: Vec::new(),
    }
}

fn keys(secret: &str, values: &[(&str, &str)]) -> Credentials {
    let values = values.iter().map(|(key, digest)| ((*key).to_owned(), (*digest).to_owned())).collect();
    Credentials { secret: secret.to_owned(), values }
}

fn object(spec: Value, url: Option<&str>, values: &[(&str, &str)]) -> FlowTool {
    let header_values = values.iter().map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned())).collect();
    FlowTool::Object { tool: Arc::new(tool("t", spec)), url: url.map(str::to_owned), header_values }
}

/// Builds a flow with every kind of tool.
fn parts(name: &str) -> FlowParts {
    let prompt = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let parameters = json!([
        { "name": "city", "description": "Name of the city", "required": true },
        { "name": "days", "type": "integer", "default": 3 },
    ]);
    let weather = json!({
        "name": "weather", "description": "Weather of a city", "endpoint": "http://weather/{city}",
        "parameters": parameters, "outputSchema": { "type": "object" }, "timeout": 5,
    });
    let shop = json!({
        "name": "shop", "endpoint": "http://shop", "method": "POST", "headers": { "X-Team": "blue" },
        "headersFrom": [{ "name": "X-Api-Key", "secretKeyRef": { "name": "shop-keys", "key": "api" } }],
        "parameters": parameters, "inputSchema": { "type": "object", "properties": { "b": {}, "a": {} } },
    });
    let ask = json!({ "name": "ask", "type": "agent", "agentRef": { "name": "ask" } });
    let tools = [
        ("weather", object(weather, None, &[])),
        ("shop", object(shop, None, &[("TOOL_SHOP_X_API_KEY", "11")])),
        ("search", object(json!({ "name": "search", "type": "mcp", "mcpEndpoint": "http://mcp/mcp" }), None, &[])),
        ("plan", object(json!({ "name": "plan", "type": "flow" }), Some("http://plan.ns.svc.cluster.local:8080"), &[])),
        ("ask", object(ask, Some("http://ask.ns.svc.cluster.local:8000"), &[])),
        ("ls", object(json!({ "name": "ls", "type": "cli", "binary": "ls", "allowedCommands": ["-l"] }), None, &[])),
        ("sums", object(json!({ "name": "calculator", "type": "builtin" }), None, &[])),
        ("datetime", FlowTool::Builtin),
    ];
    FlowParts {
        name: name.to_owned(),
        prompts: vec![prompt("hello", "---\nmodel: x\n---\nHello {{name}}\n"), prompt("style", "Be brief.")],
        tools: tools.map(|(name, tool)| (name.to_owned(), tool)).into(),
        model: Some(model("openai", Some(keys("openai-keys", &[("OPENAI_API_KEY", "22")])))),
        left_out: None,
    }
}

fn flow(spec: Value) -> Flow {
    let mut base = json!({ "prompts": [{ "promptRef": { "name": "hello" } }], "modelRef": { "name": "m" } });
    super::merge(&mut base, spec);
    let metadata = json!({ "name": "f", "namespace": "default", "uid": "6f1c", "generation": 1 });
    serde_json::from_value(json!({ "metadata": metadata, "spec": base })).unwrap()
}

fn bodies(children: impl IntoIterator<Item = ChildManifest>) -> Vec<Value> {
    children.into_iter().map(|child| child.body).collect()
}

fn images(runner: &str) -> FlowImages<'_> {
    FlowImages { runner, proxy: "proxy:1".into() }
}

#[test]
fn a_flow_with_everything() {
    let mut flow = flow(json!({
        "replicas": 2, "port": 9000, "serviceType": "NodePort", "imagePullPolicy": "Always",
        "env": [{ "name": "LANG", "value": "C" }],
        "resources": { "requests": { "cpu": "100m" } },
        "podTemplate": { "spec": { "containers": [{ "name": "flow", "env": [{ "name": "A", "value": "1" }] }] } },
    }));
    flow.metadata.annotations = Some([(crds::ROLLOUT_AT.to_owned(), "2026-01-01T00:00:00Z".to_owned())].into());
    let contract = FlowContract::of_flow(&parts("f"), &Texts::new()).unwrap();
    let runtime = &flow.spec.runtime;
    let mut children = flow_config_children(&flow, FLOW, runtime, &contract);
    children.extend(flow_workload_children(&flow, FLOW, runtime, &contract, images("runner:1"), Some(2)).unwrap());
    insta::assert_yaml_snapshot!(bodies(children));
}

#[test]
fn the_authorities_of_a_tools_server_are_a_variable_of_the_container() {
    let mut search = tool("t", json!({ "name": "search", "type": "mcp", "mcpEndpoint": "https://mcp/mcp" }));
    search.spec.call.tls.ca_secret_ref = Some(CaSecret { name: "ca".into(), key: "ca.crt".into() });
    let header_values = [("TOOL_SEARCH_TLS_CA".to_owned(), "33".to_owned())].into();
    let search = FlowTool::Object { tool: Arc::new(search), url: None, header_values };
    let parts = FlowParts { tools: [("search".to_owned(), search)].into(), ..parts("f") };
    let (flow, contract) = (flow(json!({})), FlowContract::of_flow(&parts, &Texts::new()).unwrap());
    let runtime = &flow.spec.runtime;
    let config = bodies(flow_config_children(&flow, FLOW, runtime, &contract));
    let file = config.iter().find_map(|body| body["data"]["search.json"].as_str()).unwrap();
    insta::assert_snapshot!(file, @r#"
    {
      "name": "search",
      "description": "",
      "timeout": 30,
      "implementation": {
        "mcp": {
          "url": "https://mcp/mcp",
          "tool": "search",
          "tls": {
            "ca": "$TOOL_SEARCH_TLS_CA"
          }
        }
      }
    }
    "#);
    let running = flow_workload_children(&flow, FLOW, runtime, &contract, images("runner:1"), Some(1)).unwrap();
    let env: Vec<Value> = bodies(running)
        .iter()
        .filter_map(|body| body.pointer("/spec/template/spec/containers/0/env")?.as_array().cloned())
        .flatten()
        .collect();
    let variable = env.iter().find(|variable| variable["name"] == "TOOL_SEARCH_TLS_CA").unwrap();
    assert_eq!(variable["valueFrom"]["secretKeyRef"], json!({ "name": "ca", "key": "ca.crt" }));
}

#[test]
fn a_set_whose_flows_share_a_secret() {
    let spec = json!({ "flows": [], "serviceAccountName": "robot" });
    let metadata = json!({ "name": "s", "namespace": "default", "uid": "6f1c", "generation": 1 });
    let set: FlowSet = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
    let with = |name: &str, credentials| FlowParts {
        tools: Vec::new(),
        model: Some(model("openai", credentials)),
        ..parts(name)
    };
    let shared = || Some(keys("openai-keys", &[("OPENAI_API_KEY", "22"), ("ORG", "33")]));
    let flows = [with("write", shared()), with("read", shared()), with("echo", None), parts("act")];
    let contract = FlowContract::of_set("s", &flows, &Texts::new()).unwrap();
    let mut children = flow_config_children(&set, FLOW_SET, &set.spec.runtime, &contract);
    children.extend(
        flow_workload_children(&set, FLOW_SET, &set.spec.runtime, &contract, images("reg/runner"), None).unwrap(),
    );
    insta::assert_yaml_snapshot!(bodies(children));
}

/// Pods must not be replaced because a new build writes the same content in another way.
#[test]
fn the_content_hash_is_the_same_in_every_build() {
    let hash = |parts| FlowContract::of_flow(&parts, &Texts::new()).unwrap().content_hash;
    insta::assert_snapshot!(hash(parts("f")));
}

#[test]
fn whatever_the_containers_read_moves_the_content_hash() {
    let hash = |change: &dyn Fn(&mut FlowParts)| {
        let mut parts = parts("f");
        change(&mut parts);
        FlowContract::of_flow(&parts, &Texts::new()).unwrap().content_hash
    };
    let first = hash(&|_| {});
    let credentials = |parts: &mut FlowParts, change: &dyn Fn(&mut Credentials)| {
        change(parts.model.as_mut().unwrap().credentials.as_mut().unwrap());
    };
    let changes: [Change<'_>; 10] = [
        ("a prompt's text", &|parts| parts.prompts[1].1.push('!')),
        ("a prompt more", &|parts| parts.prompts.push(("more".into(), "More".into()))),
        ("a prompt less", &|parts| drop(parts.prompts.pop())),
        ("a prompt's name", &|parts| parts.prompts[1].0 = "other".into()),
        ("which prompt is first", &|parts| parts.prompts.swap(0, 1)),
        ("texts that change places", &|parts| {
            let text = parts.prompts[0].1.clone();
            parts.prompts[0].1 = std::mem::replace(&mut parts.prompts[1].1, text);
        }),
        ("a tool less", &|parts| drop(parts.tools.pop())),
        ("the value of a credential", &|parts| {
            credentials(parts, &|found| *found.values.values_mut().next().unwrap() = "23".into())
        }),
        ("a credential more", &|parts| {
            credentials(parts, &|found| drop(found.values.insert("ORG".into(), "1".into())))
        }),
        ("the value of a header", &|parts| {
            let FlowTool::Object { header_values, .. } = &mut parts.tools[1].1 else { panic!("no object") };
            header_values.insert("TOOL_SHOP_X_API_KEY".into(), "12".into());
        }),
    ];
    for (what, change) in changes {
        assert_ne!(hash(change), first, "{what}");
    }
    assert_eq!(hash(&|parts| parts.tools.reverse()), first, "the order of tools is not read");
    let data = |digest: &str| Texts::from([("Secret/env".to_owned(), digest.to_owned())]);
    let hash_with = |data| FlowContract::of_flow(&parts("f"), &data).unwrap().content_hash;
    assert_ne!(hash_with(data("1")), hash_with(data("2")), "the data of the environment");
}

fn texts() -> impl Strategy<Value = Texts> {
    btree_map("[ab]{1,2}", "[ab\\x00]{0,2}", 1..4)
}

proptest! {
    #[test]
    fn two_flows_have_the_same_hash_only_if_they_have_the_same_files(one in texts(), other in texts()) {
        let hash = |texts: &Texts| {
            let prompts: Vec<_> = texts.clone().into_iter().collect();
            let flow = FlowParts { name: "f".into(), prompts, tools: Vec::new(), model: None, left_out: None };
            FlowContract::of_flow(&flow, &Texts::new()).unwrap().content_hash
        };
        prop_assert_eq!(hash(&one) == hash(&other), one == other);
    }

    #[test]
    fn the_order_in_which_files_come_never_changes_the_hash(
        prompts in texts().prop_map(Vec::from_iter).prop_shuffle(),
        tools in texts().prop_map(Vec::from_iter).prop_shuffle(),
    ) {
        let hash = |prompts: Vec<(String, String)>, names: Vec<String>| {
            let tools = names.into_iter().map(|name| (name, FlowTool::Builtin)).collect();
            let flow = FlowParts { name: "f".into(), prompts, tools, model: None, left_out: None };
            FlowContract::of_flow(&flow, &Texts::new()).unwrap().content_hash
        };
        let names = |tools: &[(String, String)]| tools.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let mut sorted = (prompts.clone(), tools.clone());
        sorted.0.sort();
        sorted.1.sort();
        prop_assert_eq!(hash(prompts, names(&tools)), hash(sorted.0, names(&sorted.1)));
    }

    #[test]
    fn moving_a_file_to_another_flow_changes_the_hash(mut one in texts(), mut other in texts(), which in 0..3usize) {
        let hash = |one: &Texts, other: &Texts| {
            let flow = |name: &str, texts: &Texts| {
                let prompts = texts.clone().into_iter().collect();
                FlowParts { name: name.into(), prompts, tools: Vec::new(), model: None, left_out: None }
            };
            FlowContract::of_set("s", &[flow("one", one), flow("other", other)], &Texts::new()).unwrap().content_hash
        };
        let before = hash(&one, &other);
        let name = one.keys().nth(which % one.len()).unwrap().clone();
        let text = one.remove(&name).unwrap();
        other.insert(format!("moved-{name}"), text);
        prop_assert_ne!(hash(&one, &other), before);
    }
}

fn refused(prompts: Value, flow: &str) -> Option<String> {
    let definition: FlowDefinition = serde_json::from_value(json!({ "prompts": prompts })).unwrap();
    check_names(flow, &definition).err().map(|error| format!("{}: {error}", error.reason()))
}

#[test]
fn names_must_do_as_files_and_routes() {
    let inline = |name: &str| json!({ "prompt": { "name": name, "content": "x" } });
    assert_eq!(refused(json!([inline("a.b-c_D"), { "promptRef": { "name": "b" } }]), "f"), None);
    for (prompts, flow, why) in [
        (json!([inline("a"), { "promptRef": { "name": "a" } }]), "f", "prompt \"a\" is listed twice"),
        (json!([inline("../a")]), "f", "prompt \"../a\" is not a file name"),
        (json!([inline(".a")]), "f", "prompt \".a\" is not a file name"),
        (json!([inline("")]), "f", "prompt \"\" is not a file name"),
        (json!([inline("v1")]), "f", "prompt \"v1\" is a route of the runner's own"),
        (json!([inline("a")]), "chat", "flow \"chat\" is a route of the runner's own"),
        (json!([inline(&"a".repeat(247))]), "f", "is too long for a key of a ConfigMap"),
        (json!([]), "f", "a flow needs a prompt"),
    ] {
        let message = refused(prompts, flow).unwrap_or_default();
        assert!(message.starts_with("InvalidSpec: ") && message.contains(why), "{why}: {message}");
    }
}

#[test]
fn what_the_runner_could_not_use_is_refused() {
    let prompt = |size: usize| FlowParts { prompts: vec![("a".into(), "x".repeat(size))], ..parts("f") };
    let name = "a.prompt".len();
    assert!(FlowContract::of_flow(&prompt(1024 * 1024 - name), &Texts::new()).is_ok());
    let message = |result: Result<(), crate::render::RenderError>| result.unwrap_err().to_string();
    let alone = |parts: &FlowParts| message(FlowContract::of_flow(parts, &Texts::new()).map(drop));
    assert!(alone(&prompt(1024 * 1024)).starts_with("ConfigMap/f-prompts would hold 1048584 bytes"));
    assert!(message(check_member("s", &prompt(1024 * 1024))).starts_with("ConfigMap/s-f-prompts would hold"));

    let alike = |name: &str| object(json!({ "name": name, "endpoint": "http://a" }), None, &[]);
    let two = FlowParts { tools: vec![("a".into(), alike("x")), ("b".into(), alike("x"))], ..parts("f") };
    assert!(alone(&two).starts_with(r#"tools "a" and "b" both have the name "x""#), "{}", alone(&two));

    let secret = |name: &str, secret: &str| {
        let source = json!([{ "name": "Key", "secretKeyRef": { "name": secret, "key": "k" } }]);
        object(json!({ "name": name, "endpoint": "http://a", "headersFrom": source }), None, &[])
    };
    let clash = |one, other| FlowParts { tools: vec![("a".into(), one), ("b".into(), other)], ..parts("f") };
    assert!(alone(&clash(secret("a-b", "x"), secret("a_b", "y"))).contains("TOOL_A_B_KEY"));
    assert!(FlowContract::of_flow(&clash(secret("a-b", "x"), secret("a_b", "x")), &Texts::new()).is_ok());
    let sets = [
        FlowParts { tools: vec![("a".into(), secret("a-b", "x"))], ..parts("one") },
        FlowParts { tools: vec![("a".into(), secret("a_b", "y"))], ..parts("other") },
    ];
    assert!(message(FlowContract::of_set("s", &sets, &Texts::new()).map(drop)).contains("TOOL_A_B_KEY"));
}

#[test]
fn a_variable_of_ours_cannot_be_set_by_the_user() {
    let contract = FlowContract::of_flow(&parts("f"), &Texts::new()).unwrap();
    for name in ["PORT", "RECIF_FLOW_NAME", "RECIF_CONTRACT_VERSION", "TOOL_SHOP_X_API_KEY"] {
        let env = json!([{ "name": name, "value": "1" }]);
        let overlay = json!({ "spec": { "containers": [{ "name": "flow", "env": env }] } });
        for spec in [json!({ "env": env }), json!({ "podTemplate": overlay })] {
            let flow = flow(spec);
            let error =
                flow_workload_children(&flow, FLOW, &flow.spec.runtime, &contract, images("runner"), None).unwrap_err();
            assert!(error.to_string().contains(&format!("sets {name}, which the operator renders for this flow")));
        }
    }
}
