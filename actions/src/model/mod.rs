//! `Model`: what is its own. Its life is that of every reference (`crate::reference`): it is Available when its
//! PluginConfig is.

use crds::{Model, ReferencePhase};
use machine::{ActionError, Table, TableError};

use crate::{
    kind::{ControlledKind, Registry},
    reference::{self, ReferenceKind},
};

impl ControlledKind for Model {
    const TABLE: Table<ReferencePhase> = Table { render_version: 1, ..reference::TABLE };

    fn registry() -> Result<Registry<Self>, TableError> {
        reference::registry()
    }
}

impl ReferenceKind for Model {
    fn validate(&self) -> Result<(), ActionError> {
        Ok(())
    }
}
