//! `Tool`: what is its own. Its life is that of every reference (`crate::reference`).

use crds::Tool;

use crate::{
    kind,
    machine::{ActionError, BadTable, Registry},
    reference::{self, Reference},
    render,
};

kind::reference!(Tool, render version 1);

impl Reference for Tool {
    fn validate(&self) -> Result<(), ActionError> {
        match render::tool_error(&self.spec) {
            Some(message) => Err(ActionError::terminal("InvalidSpec", message)),
            None => Ok(()),
        }
    }
}

/// The actions of a Tool.
///
/// # Errors
/// A fault in the table of edges or the list of actions.
pub fn registry() -> Result<Registry<Tool>, BadTable> {
    Registry::new(reference::actions())
}
