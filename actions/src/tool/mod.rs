//! `Tool` kind: validation and status. The lifecycle is that of every reference (`crate::reference`).

mod description;
mod digest_pin;
mod protocol;

use crds::{
    Agent, HasReferences, RefKind, Reference, ReferencePhase, Tool, ToolSpec,
    cycle::Node,
    reason,
    tool::{AgentRef, is_builtin},
};
use machine::{ActionError, Table, TableError};
use meta::{PhasedObject, condition, condition_type, update_condition};

use crate::{
    deps::Deps,
    discovery::{ToolState, tool_state},
    kind::{ControlledKind, Registry},
    ports::CacheReader,
    reference,
    references::{Evaluation, Inputs, Query, Referable, Resolution, Resolver, Unresolved, Usage, used_digest},
    render,
};

pub(crate) use description::described;
pub(crate) use protocol::with_protocol;

impl ControlledKind for Tool {
    const TABLE: Table<ReferencePhase> = Table {
        render_version: 1,
        conditions: &[condition_type::AVAILABLE, condition_type::SERVER_REACHABLE, condition_type::DEFINITION_CURRENT],
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
            tool => {
                let refused = || {
                    let why = digest_pin::mismatch(query.cache(), tool.as_deref()?)?;
                    Some(query.missing(&format!("may not be used: {why}")))
                };
                query.on_own_cycle().or_else(refused).unwrap_or_else(|| {
                    query.evaluate_reference(tool, |Tool { spec, .. }| {
                        let spec = digest_pin::without_digest(spec);
                        let agent = |agent: &AgentRef| query.named::<Agent>(agent.namespace(), &agent.name);
                        let own = match description::agent_description(&spec, agent) {
                            None => used_digest(&*spec, &["category"]),
                            description => {
                                used_digest(&ToolSpec { description, ..spec.clone().into_owned() }, &["category"])
                            }
                        };
                        protocol::with_protocol_digest(own, &spec, agent)
                    })
                })
            }
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
            return Some(ActionError::terminal(why.reason, format!("{} {}", subject(called), why.what)));
        }
        match server_tool_state(self, deps.cache.as_ref())? {
            (server, ToolState::NoSuchTool(what)) => {
                Some(ActionError::terminal(reason::TOOL_NOT_FOUND, format!("{} {what}", subject(&server))))
            }
            _ => {
                let why = digest_pin::mismatch(deps.cache.as_ref(), self)?;
                Some(ActionError::terminal(reason::TOOL_CHANGED, why))
            }
        }
    }

    fn unaccepted(&self, deps: &Deps) -> Option<Unresolved> {
        match server_tool_state(self, deps.cache.as_ref())? {
            (server, ToolState::NotAccepted { reason, what }) => {
                Some(Unresolved { reason, sentence: format!("{} {what}", subject(&server)), needs_user: true })
            }
            _ => None,
        }
    }

    fn report_status(&mut self, deps: &Deps) {
        let state = server_tool_state(self, deps.cache.as_ref());
        let conditions = &mut self.common_mut().conditions;
        let Some((server, state)) = state else {
            let ours = [condition_type::SERVER_REACHABLE, condition_type::DEFINITION_CURRENT];
            conditions.retain(|known| !ours.contains(&known.type_.as_str()));
            return;
        };
        // In every other state nothing new is known about the server.
        let ToolState::Known { held, unreachable, .. } = state else { return };
        let reachable = match unreachable {
            Some((reason, message)) => condition(condition_type::SERVER_REACHABLE, false, &reason, message),
            None => condition(condition_type::SERVER_REACHABLE, true, "Reachable", ""),
        };
        update_condition(conditions, reachable);
        match held {
            Some((reason, what)) => {
                let message = format!("{} {what}", subject(&server));
                update_condition(conditions, condition(condition_type::DEFINITION_CURRENT, false, reason, message));
            }
            None => conditions.retain(|known| known.type_ != condition_type::DEFINITION_CURRENT),
        }
    }

    /// Adds the digest that it names: another definition is a change, which its presence does not show.
    fn inputs(&self, deps: &Deps) -> Inputs {
        let key = self.key();
        let node = Node::new(RefKind::Tool, &key.name);
        let mut inputs = Resolver::new(deps, &key.namespace).inputs(Some(&node), &self.references()).by_presence();
        if let Some(why) = digest_pin::mismatch(deps.cache.as_ref(), self) {
            inputs.add("digest", Resolution::Missing(why));
        }
        inputs
    }
}

/// Returns the server of a Tool, and the state of the tool there.
fn server_tool_state(tool: &Tool, cache: &dyn CacheReader) -> Option<(Reference, ToolState)> {
    let (server, name) = tool.spec.served_by()?;
    let namespace = tool.metadata.namespace.as_deref().unwrap_or_default();
    RefKind::parse(&server.kind)?;
    let reference =
        tool.references().into_iter().find(|found| found.keys.contains(name) && found.name == server.name)?;
    Some((reference.clone(), tool_state(cache, &reference, namespace, name)))
}

/// Returns `remotemcpserver "everything"`.
fn subject(server: &Reference) -> String {
    let namespace = server.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{} \"{namespace}{}\"", server.kind.as_str().to_lowercase(), server.name)
}
