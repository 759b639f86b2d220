//! Resolves the references of an object, for every kind alike: each can be used, is pending, or needs a user.
//!
//! Tools, Models and PluginConfigs pass on their own references: an object that uses a Model uses the Secret with its
//! credentials. So they are evaluated together with the references behind them, and a missing one is named in place of their own
//! wait: `secret "keys" not found (referenced by pluginconfig "openai")`. Flows and Agents are only checked for their
//! availability and address.

mod credentials;
mod cycles;
mod evaluate;
pub(crate) mod inputs;
mod model_settings;
#[cfg(test)]
mod tests;
mod uncallable;

use std::collections::BTreeMap;

use crds::{RefKind, Reference, cycle::Node};

pub(crate) use credentials::AvailableVariables;
pub use evaluate::Resolver;
pub(crate) use evaluate::{Evaluation, Query, Referable, Usage, used_digest};
pub use inputs::{Inputs, Resolution, Unresolved};
pub(crate) use model_settings::model_setting_problem;
pub(crate) use uncallable::{ONLY_GATEWAYS, PLAIN_HTTP, Uncallable};

use crate::ports::CacheReader;

impl Query<'_> {
    /// Returns the informer caches.
    pub(crate) fn cache(&self) -> &dyn CacheReader {
        self.resolver.cache
    }
}

impl Resolver<'_> {
    /// Resolves all references of an object. `of` is the object if other objects may call it, so that it may be on a dependency
    /// cycle.
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

    /// Resolves one reference.
    pub fn find(&self, reference: &Reference) -> Resolution {
        self.evaluate(reference, None, false).into_resolution()
    }

    /// Returns the digests of the existing Secrets and ConfigMaps, those behind Tools, Models and PluginConfigs included: the
    /// path to each (`Secret/keys`, `Model/m/PluginConfig/p/Secret/keys`) to the digest of the keys that are read.
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
                _ => {
                    // A server of another namespace reads that one's Secrets, which its callers cannot.
                    let is_near = reference.namespace.as_deref().is_none_or(|other| other == self.namespace);
                    let behind = if is_near { self.references_for(reference, Usage::Data) } else { Vec::new() };
                    self.collect_data(&format!("{here}/"), &behind, found);
                }
            }
        }
    }

    fn references_for(&self, reference: &Reference, usage: Usage) -> Vec<Reference> {
        let found = evaluate::references_for(self.cache, (reference.kind, self.namespace, &reference.name), usage);
        if reference.is_fallback() { evaluate::without_fallbacks(found) } else { found }
    }

    fn evaluate(&self, reference: &Reference, by: Option<(RefKind, &str)>, on_cycle: bool) -> Evaluation {
        evaluate::evaluate(&Query { resolver: self, reference, by, on_cycle })
    }
}
