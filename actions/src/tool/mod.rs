//! `Tool`: what is its own. Its life is that of every reference (`crate::reference`).

use crds::{HasReferences, RefKind, Reference, ReferencePhase, Tool};
use machine::{ActionError, Table, TableError};
use meta::{PhasedObject, condition, update_condition};

use crate::{
    deps::Deps,
    discovery::{ToolState, tool_state},
    kind::{ControlledKind, Registry},
    reference,
    references::{ONLY_GATEWAYS, Resolver},
    render,
};

/// The condition that says whether the server of a discovered tool answers.
const REACHABLE: &str = "ServerReachable";

impl ControlledKind for Tool {
    const TABLE: Table<ReferencePhase> =
        Table { render_version: 1, conditions: &["Available", REACHABLE], ..reference::TABLE };

    fn registry() -> Result<Registry<Self>, TableError> {
        reference::registry()
    }
}

impl reference::ReferenceKind for Tool {
    fn validate(&self) -> Result<(), ActionError> {
        match render::tool_error(&self.spec) {
            Some(message) => Err(ActionError::terminal("InvalidSpec", message)),
            None => Ok(()),
        }
    }

    fn rejection(&self, world: &Deps) -> Option<ActionError> {
        let key = self.key();
        let lookup = Resolver::new(world, &key.namespace);
        if let Some(called) = self.references().iter().find(|reference| lookup.requires_identity(reference)) {
            let message = format!("{} \"{}\" {ONLY_GATEWAYS}", called.kind.as_str().to_lowercase(), called.name);
            return Some(ActionError::terminal(IDENTITY_REQUIRED, message));
        }
        match server_tool_state(self, world)? {
            (server, ToolState::NoSuchTool(what)) => {
                let namespace = server.namespace.map(|namespace| namespace + "/").unwrap_or_default();
                let (kind, name) = (server.kind.as_str().to_lowercase(), server.name);
                let message = format!("{kind} \"{namespace}{name}\" {what}");
                Some(ActionError::terminal(NOT_FOUND, message))
            }
            _ => None,
        }
    }

    fn report_status(&mut self, world: &Deps) {
        let said = match server_tool_state(self, world) {
            Some((_, ToolState::Known { unreachable: Some((reason, message)), .. })) => {
                condition(REACHABLE, false, &reason, message)
            }
            Some((_, ToolState::Known { unreachable: None, .. })) => condition(REACHABLE, true, "Reachable", ""),
            // What is on its way says nothing new.
            Some(_) => return,
            None => {
                self.common_mut().conditions.retain(|known| known.type_ != REACHABLE);
                return;
            }
        };
        update_condition(&mut self.common_mut().conditions, said);
    }
}

/// The reason of a Tool whose server has no such tool.
const NOT_FOUND: &str = "ToolNotFound";

/// The reason of a Tool that calls what only gateways may call.
const IDENTITY_REQUIRED: &str = "IdentityRequired";

/// The server of a Tool, and how it stands.
fn server_tool_state(tool: &Tool, world: &Deps) -> Option<(Reference, ToolState)> {
    let (server, name) = tool.spec.served_by()?;
    let namespace = tool.metadata.namespace.as_deref().unwrap_or_default();
    RefKind::parse(&server.kind)?;
    let reference =
        tool.references().into_iter().find(|found| found.keys.contains(name) && found.name == server.name)?;
    Some((reference.clone(), tool_state(world.cache.as_ref(), &reference, namespace, name)))
}
