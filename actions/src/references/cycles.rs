//! Cycles of objects that call each other, also across namespaces. A call that an Agent does not admit is none, so that no other
//! namespace can put the Agent on a cycle.

use crds::{
    RefKind,
    cycle::{Node, cycle_through},
};

use super::evaluate::{Resolver, Usage, references_for};
use crate::allowed_namespaces::admits;

impl Resolver<'_> {
    /// Returns the dependency cycle of an object of the resolver's namespace, as a sentence.
    pub(super) fn cycle(&self, of: &Node) -> Option<String> {
        cycle_through(of, |node| {
            let namespace = node.namespace.as_deref().unwrap_or(self.namespace);
            let of = (node.kind, namespace, node.name.as_str());
            let references = references_for(self.cache, of, Usage::Calls).into_iter();
            let is_called = |kind: RefKind| matches!(kind, RefKind::Tool | RefKind::Flow | RefKind::Agent);
            let calls = references.filter(|it| is_called(it.kind) && admits(self.cache, it, namespace));
            let node = |kind, called: Option<String>, name| {
                let called = called.unwrap_or_else(|| namespace.to_owned());
                Node { kind, namespace: (called != self.namespace).then_some(called), name }
            };
            calls.map(|it| node(it.kind, it.namespace, it.name)).collect()
        })
    }
}
