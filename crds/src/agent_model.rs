//! Which model an agent asks, for people.

use serde_json::Value;

/// The model of an Agent as lists show it: what its status says it was rendered with, such as `openai/seller`. Before the first
/// write of an operator that knows the field: the name of the Model that it refers to, or the model's id in its own spec.
pub fn agent_model(agent: &Value) -> Option<String> {
    // `spec.modelId` has a default, which says nothing where `modelRef` brings the model.
    let paths = ["/status/model", "/spec/modelRef/name", "/spec/modelId"];
    let found = paths.iter().filter_map(|path| agent.pointer(path)?.as_str());
    found.map(str::to_owned).find(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_goes_before_the_spec_and_a_reference_before_the_default() {
        let spec = json!({ "modelId": "stub-echo", "modelRef": { "name": "seller" } });
        for (agent, expected) in [
            (json!({ "spec": spec, "status": { "model": "openai/gpt-5" } }), Some("openai/gpt-5")),
            (json!({ "spec": spec, "status": { "model": null } }), Some("seller")),
            (json!({ "spec": spec }), Some("seller")),
            (json!({ "spec": { "modelId": "gpt-5" }, "status": { "model": "" } }), Some("gpt-5")),
            (json!({ "metadata": {} }), None),
        ] {
            assert_eq!(agent_model(&agent).as_deref(), expected, "{agent}");
        }
    }
}
