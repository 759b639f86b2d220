//! Creates flows and the objects that they refer to in bulk, waits for them and deletes them.

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Value, json};

use crate::agents::{AT_ONCE, await_all, clear, create, custom, is_running, manifest, namespace, resource};

/// Prompt of the first flow.
pub(crate) const OWN_PROMPT: &str = "own";
/// Prompt of all other flows.
const SHARED_PROMPT: &str = "shared";
/// Model of all flows.
const MODEL: &str = "echo";
/// PluginConfig of the Model.
const PLUGIN_CONFIG: &str = "stub";
/// Secret with the credentials of the PluginConfig.
const SECRET: &str = "credentials";

/// Flows of one namespace, all with one Model whose credentials are in one Secret.
pub(crate) struct FlowNamespace {
    pub(crate) flows: Api<DynamicObject>,
    pub(crate) prompts: Api<DynamicObject>,
    models: Api<DynamicObject>,
    plugin_configs: Api<DynamicObject>,
    secrets: Api<DynamicObject>,
    pub(crate) deployments: Api<DynamicObject>,
}

impl FlowNamespace {
    /// Creates the namespace and the objects that all flows refer to, if they do not exist.
    pub(crate) async fn ensure(client: &Client, name: &str) -> Result<Self> {
        let api = |kind, plural| Api::namespaced_with(client.clone(), name, &custom(kind, plural));
        let mill = Self {
            flows: api("Flow", "flows"),
            prompts: api("Prompt", "prompts"),
            models: api("Model", "models"),
            plugin_configs: api("PluginConfig", "pluginconfigs"),
            secrets: Api::namespaced_with(client.clone(), name, &resource("", "v1", "Secret", "secrets")),
            deployments: Api::namespaced_with(
                client.clone(),
                name,
                &resource("apps", "v1", "Deployment", "deployments"),
            ),
        };
        namespace(client, name).await?;
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": {"KEY": "first"}});
        create(&mill.secrets, secret).await?;
        let provider = json!({"type": "stub", "credentialsRef": {"name": SECRET}, "credentialKeys": ["KEY"]});
        create(&mill.plugin_configs, manifest("PluginConfig", PLUGIN_CONFIG, provider)).await?;
        let model = json!({"provider": "stub", "model": "echo", "pluginConfigRef": {"name": PLUGIN_CONFIG}});
        create(&mill.models, manifest("Model", MODEL, model)).await?;
        for prompt in [OWN_PROMPT, SHARED_PROMPT] {
            create(&mill.prompts, manifest("Prompt", prompt, json!({"content": "Say {{word}}."}))).await?;
        }
        Ok(mill)
    }

    /// Creates this many flows concurrently and waits until they are Running.
    pub(crate) async fn start_flows(&self, count: usize) -> Result<()> {
        tokio::try_join!(self.make(count), await_all(&self.flows, count, "run", is_running))?;
        Ok(())
    }

    async fn make(&self, count: usize) -> Result<()> {
        let names = stream::iter((0..count).map(flow)).map(Ok::<_, anyhow::Error>);
        names.try_for_each_concurrent(AT_ONCE, async |name| self.flow(&name).await).await
    }

    async fn flow(&self, name: &str) -> Result<()> {
        let prompt = if name == flow(0) { OWN_PROMPT } else { SHARED_PROMPT };
        let spec = json!({"prompts": [{"promptRef": {"name": prompt}}], "modelRef": {"name": MODEL}});
        create(&self.flows, manifest("Flow", name, spec)).await
    }

    /// Rotates the Secret to this value.
    pub(crate) async fn rotate(&self, value: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"stringData": {"KEY": value}}));
        self.secrets.patch(SECRET, &PatchParams::default(), &patch).await.context("rotate the Secret").map(drop)
    }

    /// Deletes all flows and waits until they are gone.
    pub(crate) async fn clear(&self) -> Result<()> {
        clear(&self.flows).await
    }
}

/// Returns the name of a flow.
pub(crate) fn flow(number: usize) -> String {
    format!("flow-{number:04}")
}

/// Returns the highest `seq` in `status.history`.
pub(crate) fn last_seq(object: &DynamicObject) -> i64 {
    history(object).filter_map(|entry| entry["seq"].as_i64()).max().unwrap_or_default()
}

/// Counts the phase changes after this entry of `status.history`.
pub(crate) fn transitions_after(object: &DynamicObject, seq: i64) -> usize {
    history(object).filter(|entry| entry["seq"].as_i64() > Some(seq) && entry["from"] != entry["to"]).count()
}

fn history(object: &DynamicObject) -> impl Iterator<Item = &Value> {
    object.data["status"]["history"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_the_entries_that_change_the_phase() {
        let mut object = DynamicObject::new("f", &custom("Flow", "flows"));
        object.data = json!({"status": {"history": [
            {"seq": 4, "from": "Deploying", "to": "Running"},
            {"seq": 5, "from": "Running", "to": "Resolving"},
            {"seq": 6, "from": "Resolving", "to": "Resolving"},
            {"seq": 7, "from": "Resolving", "to": "Rendering"},
        ]}});
        assert_eq!(last_seq(&object), 7);
        assert_eq!(transitions_after(&object, 4), 2);
        assert_eq!(transitions_after(&object, 7), 0);
    }
}
