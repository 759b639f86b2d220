//! Integration tests of flows: files in a folder, with a real server in front of them.

mod captured;
mod chat;
mod draining;
mod judging;
mod models;
mod prompts;
mod serving;
mod sets;
mod tools;

use std::{
    fs,
    future::{Future, pending},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;

use super::Runner;
use crate::{flow, mode::Mode};

/// Content of `config.json` for a flow with the stub model and the entry prompt `main`.
const CONFIG: &str = r#"{
  "defaultModel": {"provider": "stub", "model": "stub-echo"},
  "plugin": {"type": "stub"},
  "entrypoint": "main"
}"#;

/// Folder with the files of a contract, removed when dropped.
struct ContractFolder(PathBuf);

impl ContractFolder {
    /// Creates an empty folder.
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("recif-contract-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Creates a flow of these prompts with the stub model.
    fn flow(prompts: &[(&str, &str)]) -> Self {
        Self::new().with_flow("", prompts)
    }

    /// Creates a set of flows, each with one prompt `main` of the given text.
    fn set(flows: &[(&str, &str)]) -> Self {
        let entries =
            flows.iter().map(|(name, _)| format!(r#"{{"name":"{name}","entrypoint":"main","dir":"flows/{name}"}}"#));
        let entries = entries.collect::<Vec<_>>().join(",\n");
        let manifest = Self::new().with("manifest.json", &format!("{{\"flows\":[\n{entries}\n]}}"));
        flows.iter().fold(manifest, |set, (name, text)| set.with_flow(&format!("flows/{name}/"), &[("main", text)]))
    }

    fn with_flow(self, folder: &str, prompts: &[(&str, &str)]) -> Self {
        let with = self.with(&format!("{folder}config.json"), CONFIG);
        prompts.iter().fold(with, |all, (name, text)| all.with(&format!("{folder}prompts/{name}.prompt"), text))
    }

    /// Adds or replaces a file.
    fn with(self, file: &str, text: &str) -> Self {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Adds an HTTP tool to the flow in `folder`.
    fn with_tool(self, folder: &str, name: &str, url: &str) -> Self {
        let tool = serde_json::json!({
            "name": name, "description": "d", "inputSchema": {"type": "object"},
            "implementation": {"http": {"url": url, "method": "GET"}},
        });
        self.with(&format!("{folder}tools/{name}.json"), &tool.to_string())
    }

    /// Reads the mode of a process with these files.
    fn mode(&self, variables: &[(&'static str, &str)]) -> Mode {
        let lookup = self.lookup(variables);
        Mode::read(&*lookup).unwrap()
    }

    fn lookup(&self, variables: &[(&'static str, &str)]) -> Arc<crate::Lookup> {
        let mut table: Vec<(&str, String)> = variables.iter().map(|(name, value)| (*name, (*value).into())).collect();
        table.push(("RECIF_CONTRACT_ROOT", self.0.to_str().unwrap().into()));
        Arc::new(move |name: &str| table.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()))
    }

    async fn serve(&self, variables: &[(&'static str, &str)]) -> Runner {
        self.serve_until(variables, pending(), Duration::ZERO).await
    }

    async fn serve_until(
        &self,
        variables: &[(&'static str, &str)],
        stop: impl Future<Output = ()> + Send + 'static,
        grace: Duration,
    ) -> Runner {
        let Mode::Flows(settings) = self.mode(variables) else { panic!("an agent") };
        Runner::serve(flow::service(&settings, self.lookup(variables)), stop, grace).await
    }
}

impl Drop for ContractFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Runner {
    async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> (u16, String) {
        let response = self.client.post(self.url(path)).body(body).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// Posts a request that fails and returns its status and error text.
    async fn refused(&self, path: &str, body: &str) -> (u16, String) {
        let (status, text) = self.post(path, body.to_owned()).await;
        let error: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        (status, error["error"].as_str().unwrap().to_owned())
    }
}
