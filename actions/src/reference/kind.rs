//! Description of a kind that other objects refer to.

use crds::{HasReferences, RefKind, ReferencePhase, cycle::Node};
use machine::ActionError;

use crate::{
    deps::Deps,
    kind::ControlledKind,
    references::{Inputs, Resolver, Unresolved},
};

/// Kind that other objects refer to.
pub trait ReferenceKind: ControlledKind<Phase = ReferencePhase> + HasReferences {
    /// Validates what the CRD cannot.
    ///
    /// # Errors
    /// [`ActionError::Terminal`], which says what to change.
    fn validate(&self) -> Result<(), ActionError>;

    /// Returns the error of an object that can never be used as things stand, although all references exist.
    fn rejection(&self, _deps: &Deps) -> Option<ActionError> {
        None
    }

    /// Returns what a person has to accept before the object can be used, although all references exist.
    fn unaccepted(&self, _deps: &Deps) -> Option<Unresolved> {
        None
    }

    /// Writes the kind's own fields into the status, while the object can be used.
    fn report_status(&mut self, _deps: &Deps) {}

    /// Resolves everything it refers to, by presence only. An edit of a reference does not concern this object: the objects that
    /// use it resolve the references behind it themselves.
    fn inputs(&self, deps: &Deps) -> Inputs {
        let key = self.key();
        let node = RefKind::parse(Self::KIND).map(|kind| Node::new(kind, key.name));
        Resolver::new(deps, &key.namespace).inputs(node.as_ref(), &self.references()).by_presence()
    }
}
