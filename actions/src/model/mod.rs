//! `Model` kind. The lifecycle is that of every reference (`crate::reference`): a Model is Available when its PluginConfig is, and
//! its fallbacks are there.

use crds::{Model, ReferencePhase, model::OWN_FALLBACK, reason};
use machine::{ActionError, Table, TableError};
use meta::PhasedObject as _;

use crate::{
    kind::{ControlledKind, Registry},
    reference::{self, ReferenceKind},
    references::{Evaluation, Query, Referable, used_digest},
};

impl ControlledKind for Model {
    const TABLE: Table<ReferencePhase> = Table { render_version: 1, ..reference::TABLE };

    fn registry() -> Result<Registry<Self>, TableError> {
        reference::registry()
    }
}

impl Referable for Model {
    fn evaluate(query: &Query<'_>) -> Evaluation {
        let found = query.object::<Self>();
        if query.is_fallback() {
            return query.evaluate_fallback(found);
        }
        query.evaluate_reference(found, |found| used_digest(&found.spec, &["price"]))
    }
}

impl ReferenceKind for Model {
    fn validate(&self) -> Result<(), ActionError> {
        let name = self.key().name;
        // Same as the validation rule of the CRD, for objects that are older than the rule.
        match self.spec.fallback_refs.iter().any(|fallback| fallback.name == name) {
            true => Err(ActionError::terminal(reason::INVALID_SPEC, OWN_FALLBACK)),
            false => Ok(()),
        }
    }
}
