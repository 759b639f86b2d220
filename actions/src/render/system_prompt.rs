//! Renders the system prompt that is in a ConfigMap or Secret: the kubelet makes the variable of its key.

use crds::system_prompt::SystemPromptSource;
use serde_json::json;

use super::model::SecretVariable;

/// Variable with the system prompt.
pub(super) const SYSTEM_PROMPT: &str = "CORAIL_SYSTEM_PROMPT";

/// Returns the variable as an entry of a container's `env`; `None` if the source names no key.
pub(super) fn system_prompt(source: &SystemPromptSource) -> Option<SecretVariable> {
    let (kind, data) = match (&source.config_map_key_ref, &source.secret_key_ref) {
        (Some(data), _) => ("configMapKeyRef", data),
        (None, data) => ("secretKeyRef", data.as_ref()?),
    };
    let from = json!({ kind: { "name": data.name, "key": data.key } });
    Some((SYSTEM_PROMPT.to_owned(), json!({ "name": SYSTEM_PROMPT, "valueFrom": from })))
}
