//! `Model` kind. The lifecycle is that of every reference (`crate::reference`): a Model is Available when its PluginConfig is.

use crds::{Model, ReferencePhase};
use machine::{ActionError, Table, TableError};

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
        query.evaluate_reference(query.object::<Self>(), |found| used_digest(&found.spec, &[]))
    }
}

impl ReferenceKind for Model {
    fn validate(&self) -> Result<(), ActionError> {
        Ok(())
    }
}
