//! Detects an Agent that could not ask the person who has to approve the calls of a tool.
//!
//! An image that does not know `approval` in `CORAIL_TOOLS` would call such a tool like any other. Récif's own runner knows it; of any
//! other image the author of the Agent has to say so. A turn that waits in memory is in one Pod, which the decision would not find
//! among several. Who may approve for others is known by a signature, which the sidecar verifies.

use std::sync::Arc;

use crds::{
    Agent, Tool,
    agent::{AgentSpec, DEFAULT_IMAGE},
    approval::{ASKS, Approval, CALLER},
    reason,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use machine::ActionError;
use meta::{condition, condition_type};

use super::image;
use crate::{
    render::{AGENT, RenderSettings},
    workload::WorkloadKind,
};

/// Returns the value of the annotation that says whether the image of the spec asks, if there is one.
pub(super) fn asks(agent: &Agent) -> Option<&str> {
    agent.annotations().get(ASKS).map(String::as_str)
}

/// Reports whether a tool of the spec has an `approval`, before all references are looked up. `tool` returns a Tool by its name.
pub(super) fn may_ask(spec: &AgentSpec, tool: impl Fn(&str) -> Option<Arc<Tool>>) -> bool {
    spec.tool_servers.iter().any(|entry| entry.approval.is_some())
        || spec.tools.iter().any(|name| tool(name).is_some_and(|tool| tool.spec.approval.is_some()))
}

/// Returns why the person who has to approve calls of one of these tools could not be asked, as a sentence.
pub(super) fn unsupported<'a>(
    agent: &Agent,
    mut tools: impl Iterator<Item = (&'a str, &'a Approval)>,
    settings: &RenderSettings,
) -> Option<String> {
    let unknown = replacement(agent, settings).filter(|_| asks(agent) != Some("true"));
    if let Some((what, remedy)) = unknown {
        let (tool, _) = tools.next()?;
        let remedy = format!("{remedy}, or annotate {ASKS}: \"true\"");
        return Some(format!("tool {tool:?} asks a person, and {what} may not know how: {remedy}"));
    }
    if agent.spec.traffic.proxy.enabled {
        return None;
    }
    let (tool, _) = tools.find(|(_, approval)| approval.by != CALLER)?;
    Some(format!(
        "tool {tool:?} asks an approver, whom the sidecar knows by the gateway's signature: leave out proxy.enabled"
    ))
}

/// Returns what runs in place of Récif's runner, if something does, and how to undo it.
fn replacement(agent: &Agent, settings: &RenderSettings) -> Option<(String, &'static str)> {
    let overlay = agent.spec.pod_template.as_ref();
    let containers = overlay.and_then(|overlay| overlay.pointer("/spec/containers")?.as_array());
    let own = containers.into_iter().flatten().find(|container| container["name"] == AGENT);
    if let Some(container) = own {
        if let Some(image) = container["image"].as_str() {
            return Some((format!("image {image}"), "leave image out of podTemplate"));
        }
        if ["command", "args"].iter().any(|key| container.get(key).is_some()) {
            return Some(("the command of podTemplate".to_owned(), "leave it out"));
        }
    }
    let remedy = match agent.spec.image.as_str() {
        DEFAULT_IMAGE => "start the operator with the same --agent-image and --runner-image",
        _ => "leave image out",
    };
    let named = || (format!("image {}", image::of_container(agent, settings)), remedy);
    (!image::is_known_runner(agent, settings)).then(named)
}

/// Reports whether the spec allows more than one Pod at a time.
pub(super) fn may_have_several_pods(agent: &Agent) -> bool {
    agent.scaling_in_force().map_or(agent.replicas(), |scaling| scaling.max_replicas) > 1
}

/// Returns the condition on turns that wait for a person because of `tool`, if they do not survive their Pod.
///
/// # Errors
/// [`ActionError::Terminal`]: the turns are in memory, and there may be several Pods.
pub(super) fn durability(agent: &Agent, tool: &str, is_stored: bool) -> Result<Option<Condition>, ActionError> {
    if is_stored {
        return Ok(None);
    }
    if may_have_several_pods(agent) {
        let what = "with more than one possible replica set storage to postgresql";
        return Err(ActionError::terminal(
            reason::APPROVAL_UNSUPPORTED,
            format!("tool {tool:?} asks a person: {what}"),
        ));
    }
    let message = "turns that wait for a person are lost with their Pod: set storage to postgresql to keep them";
    Ok(Some(condition(condition_type::APPROVALS_DURABLE, false, reason::IN_MEMORY, message)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        fake::{Operator, Sim, agent, agent_id, child_id, id, object, settings, tool_id},
        kind::ControlledKind,
    };

    const MINUTE: Duration = Duration::from_secs(60);

    /// Returns the tool `pay`, whose calls change something.
    fn pay(approval: Value) -> Value {
        let spec = json!({
            "name": "pay", "type": "http", "endpoint": "http://bank/payments", "method": "POST", "approval": approval,
        });
        object("Tool", spec)
    }

    /// Returns phase, reason and message of the Agent `a`.
    fn told(sim: &Sim) -> [String; 3] {
        let conditions = sim.store().at(&agent_id("a"), "/status/conditions");
        let ready = conditions.as_array().and_then(|all| all.iter().find(|found| found["type"] == "Ready")).cloned();
        let ready = ready.unwrap_or_default();
        let phase = sim.store().at(&agent_id("a"), "/status/phase");
        [&phase, &ready["reason"], &ready["message"]].map(|text| text.as_str().unwrap_or_default().to_owned())
    }

    /// Returns an Agent with Récif's runner.
    fn with_runner(mut more: Value) -> Value {
        more["image"] = settings().runner_image.into();
        agent(more)
    }

    fn tools(sim: &Sim) -> Value {
        let text = sim.store().at(&child_id("ConfigMap"), "/data/CORAIL_TOOLS");
        text.as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
    }

    #[test]
    fn an_agent_may_ask_if_one_of_its_tools_or_servers_has_an_approval() {
        let tools = [("pay", pay(json!({"when": "Always"}))), ("free", pay(Value::Null))];
        let find = |name: &str| -> Option<Arc<Tool>> {
            let (_, body) = tools.iter().find(|(known, _)| *known == name)?;
            Some(Arc::new(serde_json::from_value(body.clone()).unwrap()))
        };
        for (fields, expected) in [
            (json!({}), false),
            (json!({"tools": ["free", "calculator"], "toolServers": [{"name": "docs"}]}), false),
            (json!({"tools": ["free", "pay"]}), true),
            (json!({"toolServers": [{"name": "docs"}, {"name": "bank", "approval": {"when": "Always"}}]}), true),
        ] {
            let found: Agent = serde_json::from_value(agent(fields.clone())).unwrap();
            assert_eq!(may_ask(&found.spec, find), expected, "{fields}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn recifs_runner_is_told_which_calls_wait_for_whom_and_for_how_long() {
        for (approval, expected) in [
            (json!({"when": "OnWrite"}), json!({"when": "OnWrite", "by": "Caller", "timeout": 3600})),
            (
                json!({"when": "Always", "by": "Caller", "timeout": "90s"}),
                json!({"when": "Always", "by": "Caller", "timeout": 90}),
            ),
            (json!({"when": "Never"}), Value::Null),
        ] {
            let sim = Sim::new();
            sim.store().create(&tool_id("pay"), pay(approval.clone()));
            sim.store().create(&agent_id("a"), with_runner(json!({"tools": ["pay"]})));
            Operator::start(&sim).run(MINUTE).await;
            assert_eq!(told(&sim)[0], "Running", "{approval}");
            assert_eq!(tools(&sim)[0]["approval"], expected, "{approval}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_image_that_may_not_ask_gets_no_such_tool_until_its_author_says_that_it_does() {
        let ours = settings().runner_image;
        let overlay = |container: Value| json!({"podTemplate": {"spec": {"containers": [container]}}});
        for (spec, what) in [
            (json!({"image": "r/mine:1"}), Some("image r/mine:1 may not know how: leave image out")),
            (
                overlay(json!({"name": "agent", "image": "r/other:1"})),
                Some("image r/other:1 may not know how: leave image out of podTemplate"),
            ),
            (
                overlay(json!({"name": "agent", "command": ["/mine"]})),
                Some("the command of podTemplate may not know how: leave it out"),
            ),
            (json!({}), Some("image corail:latest may not know how: start the operator with the same --agent-image")),
            (
                {
                    let mut spec = overlay(json!({"name": "agent", "tty": true}));
                    spec["image"] = json!(ours);
                    spec
                },
                None,
            ),
            (json!({"image": ours}), None),
        ] {
            let sim = Sim::new();
            let mut more = spec.clone();
            more["tools"] = json!(["pay"]);
            sim.store().create(&tool_id("pay"), pay(json!({"when": "Always"})));
            sim.store().create(&agent_id("a"), agent(more));
            let mut operator = Operator::start(&sim);
            operator.run(MINUTE).await;
            let Some(what) = what else {
                assert_eq!(told(&sim)[0], "Running", "{spec}");
                continue;
            };
            let [phase, reason, message] = told(&sim);
            assert_eq!((phase.as_str(), reason.as_str()), ("Failed", "ApprovalUnsupported"), "{spec}");
            assert!(message.contains(&format!("tool \"pay\" asks a person, and {what}")), "{message}");
            assert!(message.contains(", or annotate recif.dev/asks"), "{message}");
            assert_eq!(tools(&sim), Value::Null, "nothing was rendered for {spec}");
            operator.run(10 * MINUTE).await;
            assert_eq!(told(&sim)[0], "Failed", "time changes nothing for {spec}");
            let says = json!({"recif.dev/asks": "true"});
            sim.store().edit(&agent_id("a"), |body| body["metadata"]["annotations"] = says);
            operator.run(MINUTE).await;
            assert_eq!(told(&sim)[0], "Running", "{spec}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_without_an_image_asks_where_the_operators_default_is_the_runner() {
        let ours = settings().runner_image;
        for (default, expected) in [(ours.as_str(), "Running"), ("r/other:1", "Failed"), ("", "Failed")] {
            let sim = Sim::new();
            sim.store().create(&tool_id("pay"), pay(json!({"when": "Always"})));
            sim.store().create(&agent_id("a"), agent(json!({"tools": ["pay"]})));
            let settings = RenderSettings { agent_image: default.to_owned(), ..settings() };
            Operator::with(&sim, Agent::registry().unwrap(), settings).run(MINUTE).await;
            assert_eq!(told(&sim)[0], expected, "{default}: {:?}", told(&sim));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_recovers_once_the_operators_default_is_its_runner() {
        let sim = Sim::new();
        sim.store().create(&tool_id("pay"), pay(json!({"when": "Always"})));
        sim.store().create(&agent_id("a"), agent(json!({"tools": ["pay"]})));
        let ours = settings().runner_image;
        for (default, expected) in [("r/other:1", "Failed"), (ours.as_str(), "Running")] {
            let settings = RenderSettings { agent_image: default.to_owned(), ..settings() };
            Operator::with(&sim, Agent::registry().unwrap(), settings).run(MINUTE).await;
            assert_eq!(told(&sim)[0], expected, "{default}: {:?}", told(&sim));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_approver_is_asked_where_a_sidecar_knows_who_that_is() {
        let ours = settings().runner_image;
        for (image, by, sidecar, expected) in [
            (ours.as_str(), "Approver", true, "Running"),
            (ours.as_str(), "Approver", false, "Failed"),
            (ours.as_str(), "Caller", false, "Running"),
            ("r/mine:1", "Approver", true, "Running"),
            ("r/mine:1", "Approver", false, "Failed"),
        ] {
            let sim = Sim::new();
            sim.store().create(&tool_id("pay"), pay(json!({"when": "Always", "by": by})));
            let mut body = agent(json!({"image": image, "tools": ["pay"], "proxy": {"enabled": sidecar}}));
            body["metadata"]["annotations"] = json!({"recif.dev/asks": "true"});
            sim.store().create(&agent_id("a"), body);
            let mut operator = Operator::start(&sim);
            operator.run(MINUTE).await;
            let [phase, reason, message] = told(&sim);
            assert_eq!(phase, expected, "{image} {by} {sidecar}: {message}");
            if expected == "Running" {
                assert_eq!(tools(&sim)[0]["approval"]["by"], by, "{image} {sidecar}");
                continue;
            }
            assert_eq!((reason.as_str(), tools(&sim)), ("ApprovalUnsupported", Value::Null), "{image}");
            assert!(message.contains("tool \"pay\" asks an approver"), "{message}");
            assert!(message.contains("leave out proxy.enabled"), "{message}");
            sim.store().edit(&agent_id("a"), |body| body["spec"]["proxy"] = json!({"enabled": true}));
            operator.run(MINUTE).await;
            assert_eq!(told(&sim)[0], "Running", "{image}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_status_says_whether_calls_wait_for_a_person() {
        let sim = Sim::new();
        sim.store().create(&tool_id("pay"), pay(json!({"when": "OnWrite", "by": "Approver"})));
        sim.store().create(&agent_id("a"), with_runner(json!({"tools": ["pay"]})));
        let mut operator = Operator::start(&sim);
        for (method, expected) in [("POST", json!(true)), ("GET", Value::Null), ("DELETE", json!(true))] {
            sim.store().edit(&tool_id("pay"), |body| body["spec"]["method"] = method.into());
            operator.run(MINUTE).await;
            assert_eq!(told(&sim)[0], "Running", "{method}");
            assert_eq!(sim.store().at(&agent_id("a"), "/status/approvals"), expected, "{method}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_recovers_when_the_tool_asks_nobody_any_more() {
        let sim = Sim::new();
        sim.store().create(&tool_id("pay"), pay(json!({"when": "Always"})));
        sim.store().create(&agent_id("a"), agent(json!({"image": "r/mine:1", "tools": ["pay"]})));
        let mut operator = Operator::start(&sim);
        operator.run(MINUTE).await;
        assert_eq!(told(&sim)[0], "Failed");
        sim.store().edit(&tool_id("pay"), |body| body["spec"]["approval"] = json!({"when": "Never"}));
        operator.run(MINUTE).await;
        assert_eq!(told(&sim)[0], "Running");
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_replica_is_refused_before_it_has_a_pod() {
        let sim = Sim::new();
        sim.store().create(&tool_id("pay"), pay(json!({"when": "Always"})));
        sim.store().create(&agent_id("a"), with_runner(json!({"tools": ["pay"]})));
        let mut operator = Operator::start(&sim);
        for (replicas, expected) in [(1, "Running"), (2, "Failed"), (1, "Running")] {
            sim.store().edit(&agent_id("a"), |body| body["spec"]["replicas"] = replicas.into());
            operator.run(MINUTE).await;
            let [phase, _, message] = told(&sim);
            assert_eq!(phase, expected, "{replicas}: {message}");
            assert_eq!(sim.store().at(&child_id("Deployment"), "/spec/replicas"), 1, "{replicas}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn turns_wait_in_memory_only_where_there_is_one_pod() {
        let database = json!({"databaseUrl": "postgresql://u:p@db/x"});
        let one = json!({});
        let scaled = |most: i32| json!({"scaling": {"minReplicas": 1, "maxReplicas": most}});
        // A scaled Deployment waits for the scaler, which these tests do not run.
        for (spec, expected, durable) in [
            (one, "Running", json!("InMemory")),
            (scaled(1), "Deploying", json!("InMemory")),
            (json!({"replicas": 2}), "Failed", Value::Null),
            (scaled(2), "Failed", Value::Null),
            (database.clone(), "Running", Value::Null),
        ] {
            let sim = Sim::new();
            let mut more = spec.clone();
            more["tools"] = json!(["pay"]);
            sim.store().create(&tool_id("pay"), pay(json!({"when": "Always"})));
            sim.store().create(&agent_id("a"), with_runner(more));
            let mut operator = Operator::start(&sim);
            operator.run(MINUTE).await;
            let conditions = sim.store().at(&agent_id("a"), "/status/conditions");
            let found = conditions.as_array().and_then(|all| all.iter().find(|it| it["type"] == "ApprovalsDurable"));
            let found = found.map_or(Value::Null, |found| found["reason"].clone());
            assert_eq!((told(&sim)[0].as_str(), found), (expected, durable), "{spec}");
            if expected == "Failed" {
                let message = &told(&sim)[2];
                assert!(message.contains("with more than one possible replica set storage to postgresql"), "{message}");
                sim.store().edit(&agent_id("a"), |body| body["spec"]["databaseUrl"] = database["databaseUrl"].clone());
                operator.run(MINUTE).await;
                let well = if spec.get("scaling").is_some() { "Deploying" } else { "Running" };
                assert_eq!(told(&sim)[0], well, "{spec}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_gets_no_tool_that_asks_a_person() {
        let sim = Sim::new();
        sim.store().create(&id("PluginConfig", "p"), object("PluginConfig", json!({"type": "stub"})));
        let model = json!({"provider": "stub", "model": "m", "pluginConfigRef": {"name": "p"}});
        sim.store().create(&id("Model", "m"), object("Model", model));
        sim.store().create(&tool_id("pay"), pay(json!({"when": "OnWrite"})));
        let prompts = json!([{"prompt": {"name": "p", "content": "hi"}}]);
        let spec = json!({"prompts": prompts, "modelRef": {"name": "m"}, "tools": [{"name": "pay"}]});
        sim.store().create(&id("Flow", "f"), object("Flow", spec));
        let mut operator = Operator::start(&sim);
        operator.run(MINUTE).await;
        let status = |pointer: &str| sim.store().at(&id("Flow", "f"), &format!("/status{pointer}"));
        assert_eq!((status("/phase"), status("/failure/reason")), (json!("Failed"), json!("ApprovalUnsupported")));
        sim.store().edit(&tool_id("pay"), |body| body["spec"]["method"] = json!("GET"));
        operator.run(MINUTE).await;
        assert_eq!(status("/phase"), "Running", "a GET changes nothing");
    }
}
