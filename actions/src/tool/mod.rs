//! `Tool` kind: validation and status. The lifecycle is that of every reference (`crate::reference`).

mod description;
mod protocol;

use crds::{
    Agent, HasReferences, RefKind, Reference, ReferencePhase, Tool, ToolSpec, reason,
    tool::{AgentRef, is_builtin},
};
use machine::{ActionError, Table, TableError};
use meta::{PhasedObject, condition, condition_type, update_condition};

use crate::{
    deps::Deps,
    discovery::{ToolState, tool_state},
    kind::{ControlledKind, Registry},
    reference,
    references::{Evaluation, Query, Referable, Resolver, Usage, used_digest},
    render,
};

pub(crate) use description::described;
pub(crate) use protocol::with_protocol;

impl ControlledKind for Tool {
    const TABLE: Table<ReferencePhase> = Table {
        render_version: 1,
        conditions: &[condition_type::AVAILABLE, condition_type::SERVER_REACHABLE],
        ..reference::TABLE
    };

    fn registry() -> Result<Registry<Self>, TableError> {
        reference::registry()
    }
}

impl Referable for Tool {
    fn evaluate(query: &Query<'_>) -> Evaluation {
        match query.object::<Self>() {
            None if query.is_direct() && is_builtin(query.name()) => Evaluation::resolved("builtin"),
            Some(tool) if !tool.spec.enabled => Evaluation::resolved("disabled"),
            tool => query.on_own_cycle().unwrap_or_else(|| {
                query.evaluate_reference(tool, |Tool { spec, .. }| {
                    let agent = |agent: &AgentRef| query.named::<Agent>(agent.namespace(), &agent.name);
                    let own = match description::agent_description(spec, agent) {
                        None => used_digest(spec, &["category"]),
                        description => used_digest(&ToolSpec { description, ..spec.clone() }, &["category"]),
                    };
                    protocol::with_protocol_digest(own, spec, agent)
                })
            }),
        }
    }

    fn references_for(&self, _: Usage) -> Vec<Reference> {
        if self.spec.enabled { self.references() } else { Vec::new() }
    }
}

impl reference::ReferenceKind for Tool {
    fn validate(&self) -> Result<(), ActionError> {
        match render::tool_error(&self.spec) {
            Some(message) => Err(ActionError::terminal(reason::INVALID_SPEC, message)),
            None => Ok(()),
        }
    }

    fn rejection(&self, deps: &Deps) -> Option<ActionError> {
        let key = self.key();
        let lookup = Resolver::new(deps, &key.namespace);
        let references = self.references();
        let called = references.iter().find_map(|called| Some((called, lookup.uncallable(called)?)));
        if let Some((called, why)) = called {
            let namespace = called.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
            let (kind, name) = (called.kind.as_str().to_lowercase(), &called.name);
            let message = format!("{kind} \"{namespace}{name}\" {}", why.what);
            return Some(ActionError::terminal(why.reason, message));
        }
        match server_tool_state(self, deps)? {
            (server, ToolState::NoSuchTool(what)) => {
                let namespace = server.namespace.map(|namespace| namespace + "/").unwrap_or_default();
                let (kind, name) = (server.kind.as_str().to_lowercase(), server.name);
                let message = format!("{kind} \"{namespace}{name}\" {what}");
                Some(ActionError::terminal(reason::TOOL_NOT_FOUND, message))
            }
            _ => None,
        }
    }

    fn report_status(&mut self, deps: &Deps) {
        let condition = match server_tool_state(self, deps) {
            Some((_, ToolState::Known { unreachable: Some((reason, message)), .. })) => {
                condition(condition_type::SERVER_REACHABLE, false, &reason, message)
            }
            Some((_, ToolState::Known { unreachable: None, .. })) => {
                condition(condition_type::SERVER_REACHABLE, true, "Reachable", "")
            }
            // In every other state nothing new is known about the server.
            Some(_) => return,
            None => {
                self.common_mut().conditions.retain(|known| known.type_ != condition_type::SERVER_REACHABLE);
                return;
            }
        };
        update_condition(&mut self.common_mut().conditions, condition);
    }
}

/// Returns the server of a Tool, and the state of the tool there.
fn server_tool_state(tool: &Tool, deps: &Deps) -> Option<(Reference, ToolState)> {
    let (server, name) = tool.spec.served_by()?;
    let namespace = tool.metadata.namespace.as_deref().unwrap_or_default();
    RefKind::parse(&server.kind)?;
    let reference =
        tool.references().into_iter().find(|found| found.keys.contains(name) && found.name == server.name)?;
    Some((reference.clone(), tool_state(deps.cache.as_ref(), &reference, namespace, name)))
}
