//! The flows of a set: which of them can be rendered.

use crds::{FlowSet, Refers, WorkloadPhase};
use meta::PhasedObject;

use crate::{
    deps::World,
    flow::{flow_parts, never_answers, refused},
    prompt::inline_problem,
    references::{Found, Inputs, Lookup},
    render::{FLOW_SET, check_member},
    workload::Workload,
};

/// Pinned for a flow that is rendered.
pub(super) const SERVED: &str = "served";
/// How a flow is.
#[derive(Debug)]
pub(super) enum Member {
    /// It can be rendered, from these.
    Fine(Inputs),
    /// Something that it refers to is on its way; what.
    Late(String),
    /// Somebody has to act; why.
    Broken(String),
}

/// Each flow by name, in the order of the spec.
pub(super) fn members<'a>(set: &'a FlowSet, world: &World) -> Vec<(&'a str, Member)> {
    let key = set.key();
    let lookup = Lookup::new(world, &key.namespace);
    let resolving = set.phase() == Some(WorkloadPhase::Resolving);
    let flows = set.spec.flows.iter().map(|flow| {
        let inputs = lookup.inputs(None, &flow.definition.references());
        // One that is served goes on until the set is resolved anew: nothing about it has changed.
        let anew = resolving || !is_served(set, &flow.name);
        let member = match inputs.waiting_for() {
            Some(wait) if wait.missing => Member::Broken(wait.sentence),
            Some(wait) => Member::Late(wait.sentence),
            None if anew && let Some(problem) = inline_problem(&flow.definition) => Member::Broken(problem),
            None => {
                let parts = flow_parts(world, &key.namespace, &flow.name, &flow.definition);
                match check_member(&key.name, &parts) {
                    Ok(()) if anew => {
                        let runtime = &set.spec.runtime;
                        let never = never_answers(world, &key.namespace, runtime, &flow.definition);
                        match never.or_else(|| refused(world, FLOW_SET, runtime, &parts, set.spec.flows.len())) {
                            None => Member::Fine(inputs),
                            Some(sentence) => Member::Broken(sentence),
                        }
                    }
                    Ok(()) => Member::Fine(inputs),
                    Err(error) => Member::Broken(error.to_string()),
                }
            }
        };
        (flow.name.as_str(), member)
    });
    flows.collect()
}

/// The name of a flow among the inputs.
pub(super) fn input(flow: &str) -> String {
    format!("flow/{flow}")
}

/// What was pinned for a flow.
fn pinned<'a>(set: &'a FlowSet, flow: &str) -> Option<&'a str> {
    set.pinned()?.get(&input(flow)).map(String::as_str)
}

/// Whether the flow is rendered.
pub(super) fn is_served(set: &FlowSet, flow: &str) -> bool {
    pinned(set, flow) == Some(SERVED)
}

/// Whether the set runs without the flow.
pub(super) fn is_left_out(set: &FlowSet, flow: &str) -> bool {
    pinned(set, flow).is_some_and(Found::is_left_out)
}
