//! `Model`: what is its own. Its life is that of every reference (`crate::reference`): it is Available when its
//! PluginConfig is.

use crds::Model;

use crate::{
    kind,
    machine::{ActionError, BadTable, Registry},
    reference::{self, Reference},
};

kind::reference!(Model, render version 1);

impl Reference for Model {
    fn validate(&self) -> Result<(), ActionError> {
        Ok(())
    }
}

/// The actions of a Model.
///
/// # Errors
/// A fault in the table of edges or the list of actions.
pub fn registry() -> Result<Registry<Model>, BadTable> {
    Registry::new(reference::actions())
}
