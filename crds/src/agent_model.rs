//! Resolves the model of an agent as text for lists.

use serde_json::Value;

/// Returns the model of an Agent as lists show it: `status.model`, with which it was last rendered, such as
/// `openai/seller`. Before an operator has written that field: the name of the Model in `spec.modelRef`, else
/// `spec.modelId`.
pub fn agent_model(agent: &Value) -> Option<String> {
    // `spec.modelId` has a default, which means nothing where `modelRef` sets the model.
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
