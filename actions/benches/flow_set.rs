//! Measures the rendering and hashing of a FlowSet of 50 flows, which every step of the set does.

use std::{collections::BTreeMap, hint::black_box, sync::Arc};

use actions::render::{
    FLOW_SET, FlowContract, FlowImages, FlowModel, FlowParts, FlowTool, flow_config_children, flow_workload_children,
};
use crds::FlowSet;
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};

/// Deserializes a value of the API from JSON that is known to fit.
fn typed<T: serde::de::DeserializeOwned>(json: Value) -> Option<T> {
    serde_json::from_value(json).ok()
}

/// Builds a flow with two prompts of 2 KiB and two tools.
fn flow(nth: usize) -> Option<FlowParts> {
    let text = format!("---\nmodel: stub/echo\n---\n{}", "Answer in one sentence. ".repeat(85));
    let tool = |name: &str| {
        let parameters = json!([{ "name": "city", "required": true }, { "name": "days", "type": "integer" }]);
        let spec =
            json!({ "name": name, "type": "http", "endpoint": "http://weather/{city}", "parameters": parameters });
        let object = FlowTool::Object {
            tool: Arc::new(typed(json!({ "metadata": { "name": name }, "spec": spec }))?),
            url: None,
            header_values: BTreeMap::new(),
        };
        Some((name.to_owned(), object))
    };
    let reference = json!({ "name": "p" });
    Some(FlowParts {
        name: format!("flow-{nth}"),
        prompts: vec![("answer".to_owned(), text.clone()), ("style".to_owned(), text)],
        tools: vec![tool("weather")?, tool("forecast")?],
        model: Some(FlowModel {
            model: typed(json!({ "provider": "stub", "model": "echo", "pluginConfigRef": reference }))?,
            plugin: typed(json!({ "type": "stub", "extraConfig": { "delay": 3 } }))?,
            credentials: None,
            header_values: BTreeMap::new(),
            fallbacks: Vec::new(),
        }),
        left_out: None,
    })
}

fn render(criterion: &mut Criterion) {
    let metadata = json!({ "name": "s", "namespace": "ns", "uid": "1" });
    let set: Option<FlowSet> = typed(json!({ "metadata": metadata, "spec": { "flows": [] } }));
    let flows: Option<Vec<_>> = (0..50).map(flow).collect();
    let (Some(set), Some(flows)) = (set, flows) else {
        eprintln!("the objects to measure with do not fit the API");
        std::process::exit(1);
    };
    let data = BTreeMap::new();
    let images = FlowImages { runner: "runner", proxy: "proxy".into() };
    criterion.bench_function("render and hash a FlowSet of 50 flows", |bencher| {
        bencher.iter(|| {
            let contract = FlowContract::of_set("s", black_box(&flows), &data);
            contract.map(|contract| {
                let runtime = &set.spec.runtime;
                let config = flow_config_children(&set, FLOW_SET, runtime, &contract);
                (config, flow_workload_children(&set, FLOW_SET, runtime, &contract, images, Some(1)))
            })
        });
    });
    criterion.bench_function("hash a FlowSet of 50 flows", |bencher| {
        bencher.iter(|| FlowContract::of_set("s", black_box(&flows), &data));
    });
}

criterion_group!(benches, render);
criterion_main!(benches);
