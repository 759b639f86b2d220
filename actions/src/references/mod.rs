//! Judges what an object refers to, for every kind the same: may it be used, is it on its way, or must somebody act?
//!
//! Tools, Models and PluginConfigs pass on what they refer to: whoever uses a Model uses the Secret with its credentials.
//! So they are judged together with what stands behind them, and what is missing there is named in place of their own
//! wait: `secret "keys" not found (referenced by pluginconfig "openai")`. Flows and Agents are asked only whether they
//! are available, and where.

mod credentials;
mod evaluate;
pub(crate) mod inputs;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crds::{
    HasReferences, RefKind, Reference,
    cycle::{Node, cycle_through},
};

use evaluate::Evaluation;

pub(crate) use credentials::AvailableVariables;
pub(crate) use evaluate::ONLY_GATEWAYS;

pub use inputs::{Inputs, Resolution, Unresolved};

use crate::{deps::Deps, ports::CacheReader};

/// Looks up what objects of one namespace refer to.
#[derive(Clone, Copy)]
pub struct Resolver<'a> {
    cache: &'a dyn CacheReader,
    namespace: &'a str,
}

impl std::fmt::Debug for Resolver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl<'a> Resolver<'a> {
    /// For the objects of this namespace.
    pub fn new(world: &'a Deps, namespace: &'a str) -> Self {
        Self { cache: world.cache.as_ref(), namespace }
    }

    /// Everything that an object refers to. `of` is the object if it may be called by another one, and so may stand on a
    /// circle.
    pub fn inputs(&self, of: Option<&Node>, references: &[Reference]) -> Inputs {
        let cycle = of.and_then(|of| self.cycle(of));
        let mut inputs = Inputs::default();
        for reference in references {
            inputs.add(reference.to_string(), self.evaluate(reference, None, cycle.is_some()).into_resolution());
        }
        if let Some(cycle) = cycle {
            inputs.add("cycle", Resolution::Cycle(cycle));
        }
        inputs
    }

    /// One reference.
    pub fn find(&self, reference: &Reference) -> Resolution {
        self.evaluate(reference, None, false).into_resolution()
    }

    /// The digests of the Secrets and ConfigMaps that are there, those behind Tools, Models and PluginConfigs included: the
    /// way to each (`Secret/keys`, `Model/m/PluginConfig/p/Secret/keys`) to the digest of what is read of it.
    pub fn data(&self, references: &[Reference]) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        self.collect_data("", references, &mut found);
        found
    }

    fn collect_data(&self, way: &str, references: &[Reference], found: &mut BTreeMap<String, String>) {
        for reference in references {
            let here = format!("{way}{reference}");
            match reference.kind {
                RefKind::Secret | RefKind::ConfigMap => {
                    if let Some(data) = self.data_of(reference) {
                        found.insert(here, evaluate::data_digest(reference, &data));
                    }
                }
                RefKind::RemoteMCPServer => {
                    self.collect_data(&format!("{here}/"), &self.server_references(reference), found);
                }
                _ => self.collect_data(
                    &format!("{here}/"),
                    &self.transitive_references(reference.kind, &reference.name),
                    found,
                ),
            }
        }
    }

    /// What an object that passes on what it refers to has behind it; a Tool that is switched off has nothing.
    fn transitive_references(&self, kind: RefKind, name: &str) -> Vec<Reference> {
        let (views, namespace) = (self.cache, self.namespace);
        let behind = match kind {
            RefKind::Tool => views.tool(namespace, name).filter(|tool| tool.spec.enabled).map(|it| it.references()),
            RefKind::Model => views.model(namespace, name).map(|it| it.references()),
            RefKind::PluginConfig => views.plugin_config(namespace, name).map(|it| it.references()),
            _ => None,
        };
        behind.unwrap_or_default()
    }

    /// What a server's headers and authorities are read from, if whoever calls it may read it: in its own namespace.
    fn server_references(&self, server: &Reference) -> Vec<Reference> {
        let here = server.namespace.as_deref().is_none_or(|namespace| namespace == self.namespace);
        let server = self.cache.remote_mcp_server(self.namespace, &server.name).filter(|_| here);
        server.map(|server| server.references()).unwrap_or_default()
    }

    /// The circle on which an object stands, as a sentence.
    fn cycle(&self, of: &Node) -> Option<String> {
        cycle_through(of, |node| {
            let references = match node.kind {
                RefKind::Agent => self.cache.agent(self.namespace, &node.name).map(|it| it.references()),
                RefKind::Flow => self.cache.flow(self.namespace, &node.name).map(|it| it.references()),
                kind => Some(self.transitive_references(kind, &node.name)),
            };
            let references = references.into_iter().flatten();
            let calls = references.filter(|it| matches!(it.kind, RefKind::Tool | RefKind::Flow | RefKind::Agent));
            calls.map(|it| Node::new(it.kind, it.name)).collect()
        })
    }

    fn evaluate(&self, reference: &Reference, by: Option<(RefKind, &str)>, on_cycle: bool) -> Evaluation {
        evaluate::evaluate(self, reference, by, on_cycle)
    }
}
