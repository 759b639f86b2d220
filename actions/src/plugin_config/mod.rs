//! `PluginConfig`: what is its own. Its life is that of every reference (`crate::reference`): it is Available when the
//! Secret with the credentials exists and has every key.

use crds::PluginConfig;

use crate::{
    kind,
    machine::{ActionError, BadTable, Registry},
    reference::{self, Reference},
};

kind::reference!(PluginConfig, render version 1);

impl Reference for PluginConfig {
    /// As the CRD's rule, for an object that is older than the rule.
    fn validate(&self) -> Result<(), ActionError> {
        let spec = &self.spec;
        if spec.credentials_ref.is_some() || spec.is_keyless() {
            return Ok(());
        }
        let message = format!("type {} needs credentials: set credentialsRef to a Secret with them", spec.type_);
        Err(ActionError::terminal("InvalidSpec", message))
    }
}

/// The actions of a PluginConfig.
///
/// # Errors
/// A fault in the table of edges or the list of actions.
pub fn registry() -> Result<Registry<PluginConfig>, BadTable> {
    Registry::new(reference::actions())
}
