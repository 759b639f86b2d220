//! `Model`: what is its own. Its life is that of every reference (`crate::reference`): it is Available when its
//! PluginConfig is.

use crate::kind::ControlledKind;
use crds::Model;
use crds::ReferencePhase;
use machine::Table;
use machine::{ActionError, BadTable};

use crate::{
    kind::Registry,
    reference::{self, Reference},
};

impl ControlledKind for Model {
    const TABLE: Table<ReferencePhase> = Table { render_version: 1, ..reference::TABLE };

    fn registry() -> Result<Registry<Self>, BadTable> {
        reference::registry()
    }
}

impl Reference for Model {
    fn validate(&self) -> Result<(), ActionError> {
        Ok(())
    }
}
