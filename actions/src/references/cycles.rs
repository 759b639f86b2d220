//! Cycles of objects that call each other, also across namespaces.

use crds::{
    RefKind,
    cycle::{Node, cycle_through},
};

use super::evaluate::{Resolver, Usage, references_for};

impl Resolver<'_> {
    /// Returns the dependency cycle of an object of the resolver's namespace, as a sentence.
    pub(super) fn cycle(&self, of: &Node) -> Option<String> {
        cycle_through(of, |node| {
            let namespace = node.namespace.as_deref().unwrap_or(self.namespace);
            let of = (node.kind, namespace, node.name.as_str());
            let references = references_for(self.cache, of, Usage::Calls).into_iter();
            let calls = references.filter(|it| matches!(it.kind, RefKind::Tool | RefKind::Flow | RefKind::Agent));
            let node = |kind, called: Option<String>, name| {
                let called = called.unwrap_or_else(|| namespace.to_owned());
                Node { kind, namespace: (called != self.namespace).then_some(called), name }
            };
            calls.map(|it| node(it.kind, it.namespace, it.name)).collect()
        })
    }
}
