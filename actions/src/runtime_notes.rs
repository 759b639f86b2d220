//! Features that an image does not offer. Récif's runner offers a web search only with a search service; nothing is known of other
//! images.

use std::collections::BTreeSet;

use crds::{Tool, provider::provider, reason, tool::ToolType};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use meta::{condition, condition_type};

use crate::references::AvailableVariables;

/// Variable with the address of the search service.
const SEARCH_SERVICE: &str = "SEARXNG_URL";
/// Names of the web search.
const SEARCH_NAMES: [&str; 2] = ["web_search", "web-search"];

/// Returns the sentence on the web search among these tools, if Récif's runner leaves it out with these variables. A tool without
/// an object is a builtin.
pub(crate) fn unserved_search<'a>(
    tools: impl IntoIterator<Item = (&'a str, Option<&'a Tool>)>,
    given: &AvailableVariables,
) -> Option<String> {
    if given.has(SEARCH_SERVICE) {
        return None;
    }
    let mut names = tools.into_iter().filter_map(|(name, tool)| match tool {
        None => Some(name),
        Some(tool) => {
            let is_builtin = tool.spec.enabled && tool.spec.tool_type() == Some(ToolType::Builtin);
            is_builtin.then_some(tool.spec.name.as_str())
        }
    });
    names.find(|name| SEARCH_NAMES.contains(name)).map(|name| {
        format!(
            "tool {name:?} is left out, there is no search service: set {SEARCH_SERVICE} in spec.env to one that speaks the API \
             of SearXNG"
        )
    })
}

/// Returns the condition that names the providers of models, among `types`, that Récif's runner does not know and `image`, which
/// gets them in `place`, must know itself; `None` if there are none.
pub(crate) fn unknown_providers<'a>(
    image: &str,
    place: &str,
    types: impl IntoIterator<Item = &'a str>,
) -> Option<Condition> {
    let unknown: BTreeSet<&str> = types.into_iter().filter(|type_| provider(type_).is_none()).collect();
    if unknown.is_empty() {
        return None;
    }
    let names: Vec<String> = unknown.iter().map(|type_| format!("{type_:?}")).collect();
    let message = format!(
        "Récif's runner does not know the model provider {}: the image {image} gets it as written, in {place}, and must know it",
        names.join(" and ")
    );
    let condition = condition(condition_type::CONFIG_UNDERSTOOD, false, reason::UNKNOWN_PROVIDER, message);
    Some(Condition { status: "Unknown".to_owned(), ..condition })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use crate::fake::{Operator, Sim, agent, agent_id, id, object, settings, tool_id};

    const MINUTE: Duration = Duration::from_secs(60);

    /// Returns status and message of a condition of a running object.
    async fn found(operator: &mut Operator, sim: &Sim, of: &crate::fake::ObjectId, type_: &str) -> Option<[String; 2]> {
        operator.run(MINUTE).await;
        assert_eq!(sim.store().at(of, "/status/phase"), "Running", "{of:?}");
        let conditions = sim.store().at(of, "/status/conditions");
        let found = conditions.as_array().unwrap().iter().find(|found| found["type"] == type_)?;
        Some(["status", "message"].map(|field| found[field].as_str().unwrap().to_owned()))
    }

    fn flow(more: Value) -> Value {
        let mut spec = json!({"prompts": [{"prompt": {"name": "p", "content": "hi"}}], "modelRef": {"name": "m"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object("Flow", spec)
    }

    fn provide_model(sim: &Sim, type_: &str) {
        sim.store().create(&id("PluginConfig", "p"), object("PluginConfig", json!({"type": type_})));
        let model = json!({"provider": type_, "model": "m", "pluginConfigRef": {"name": "p"}});
        sim.store().create(&id("Model", "m"), object("Model", model));
    }

    #[tokio::test(start_paused = true)]
    async fn a_web_search_without_a_service_is_named_until_there_is_one() {
        let sim = Sim::new();
        provide_model(&sim, "stub");
        sim.store().create(&tool_id("find"), object("Tool", json!({"name": "web-search", "type": "builtin"})));
        let ours = json!(settings().runner_image);
        sim.store().create(&agent_id("a"), agent(json!({"tools": ["datetime", "web_search"]})));
        sim.store().create(&agent_id("b"), agent(json!({"image": ours, "tools": ["find"]})));
        sim.store().create(&agent_id("c"), agent(json!({"image": "r/mine:1", "tools": ["web_search"]})));
        sim.store().create(&id("Flow", "f"), flow(json!({"tools": [{"name": "web_search"}]})));
        let mut operator = Operator::start(&sim);
        let sentence = |name: &str| {
            let what = "is left out, there is no search service: set SEARXNG_URL in spec.env to one that speaks the API of SearXNG";
            Some(["False".to_owned(), format!("tool {name:?} {what}")])
        };
        for (of, expected) in [
            (agent_id("a"), sentence("web_search")),
            (agent_id("b"), sentence("web-search")),
            (agent_id("c"), None),
            (id("Flow", "f"), sentence("web_search")),
        ] {
            assert_eq!(found(&mut operator, &sim, &of, "ToolsResolved").await, expected, "{of:?}");
        }
        for of in [agent_id("a"), id("Flow", "f")] {
            let env = json!([{"name": "SEARXNG_URL", "value": "http://searxng:8080"}]);
            sim.store().edit(&of, |body| body["spec"]["env"] = env.clone());
            assert_eq!(found(&mut operator, &sim, &of, "ToolsResolved").await, None, "{of:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_only_an_image_of_its_own_can_know_is_named() {
        let sim = Sim::new();
        provide_model(&sim, "soap");
        let image = json!("r/mine:1");
        let reference = json!({"name": "m"});
        sim.store().create(&agent_id("a"), agent(json!({"image": image, "modelType": "soap"})));
        sim.store().create(&agent_id("b"), agent(json!({"image": image, "modelRef": reference})));
        sim.store().create(&agent_id("c"), agent(json!({"image": image, "modelType": "openai"})));
        sim.store().create(&id("Flow", "f"), flow(json!({"image": image})));
        let mut operator = Operator::start(&sim);
        let sentence = |place: &str| {
            let what =
                "Récif's runner does not know the model provider \"soap\": the image r/mine:1 gets it as written, in";
            Some(["Unknown".to_owned(), format!("{what} {place}, and must know it")])
        };
        for (of, expected) in [
            (agent_id("a"), sentence("its environment")),
            (agent_id("b"), sentence("its environment")),
            (agent_id("c"), None),
            (id("Flow", "f"), sentence("config.json")),
        ] {
            assert_eq!(found(&mut operator, &sim, &of, "ConfigUnderstood").await, expected, "{of:?}");
        }
    }
}
