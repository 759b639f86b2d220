//! Flows of a set, classified by whether they can be rendered.

use crds::{FlowSet, HasReferences, WorkloadPhase};
use meta::PhasedObject;

use crate::{
    deps::Deps,
    flow::{flow_parts, model_problem, rejection},
    prompt::inline_problem,
    references::{Inputs, Resolution, Resolver},
    render::{FLOW_SET, check_member},
    workload::WorkloadKind,
};

/// Value that is pinned for a flow that is rendered.
pub(super) const SERVED: &str = "served";
/// Classification of a flow.
#[derive(Debug)]
pub(super) enum Member {
    /// The flow can be rendered, from these inputs.
    Ready(Inputs),
    /// A reference of the flow is not ready yet, as the sentence says.
    Pending(String),
    /// The user has to act, for the reason in the sentence.
    Broken(String),
}

/// Classifies each flow; returns them by name, in the order of the spec.
pub(super) fn members<'a>(set: &'a FlowSet, deps: &Deps) -> Vec<(&'a str, Member)> {
    let key = set.key();
    let lookup = Resolver::new(deps, &key.namespace);
    let resolving = set.phase() == Some(WorkloadPhase::Resolving);
    let flows = set.spec.flows.iter().map(|flow| {
        let inputs = lookup.inputs(None, &flow.definition.references());
        // A flow that is served is not evaluated again until the set is resolved anew: nothing about it has changed.
        let anew = resolving || !is_served(set, &flow.name);
        let member = match inputs.waiting_for() {
            Some(wait) if wait.needs_user => Member::Broken(wait.sentence),
            Some(wait) => Member::Pending(wait.sentence),
            None if anew && let Some(problem) = inline_problem(&flow.definition) => Member::Broken(problem),
            None => {
                let parts = flow_parts(deps, &key.namespace, &flow.name, &flow.definition);
                match check_member(&key.name, &parts) {
                    Ok(()) if anew => {
                        let runtime = &set.spec.runtime;
                        let never = model_problem(deps, &key.namespace, FLOW_SET, runtime, &flow.definition);
                        match never.or_else(|| rejection(deps, FLOW_SET, runtime, &parts, set.spec.flows.len())) {
                            None => Member::Ready(inputs),
                            Some(sentence) => Member::Broken(sentence),
                        }
                    }
                    Ok(()) => Member::Ready(inputs),
                    Err(error) => Member::Broken(error.to_string()),
                }
            }
        };
        (flow.name.as_str(), member)
    });
    flows.collect()
}

/// Returns the name of a flow among the inputs.
pub(super) fn input_name(flow: &str) -> String {
    format!("flow/{flow}")
}

/// Returns the value that was pinned for a flow.
fn pinned<'a>(set: &'a FlowSet, flow: &str) -> Option<&'a str> {
    set.pinned()?.get(&input_name(flow)).map(String::as_str)
}

/// Reports whether the flow is rendered.
pub(super) fn is_served(set: &FlowSet, flow: &str) -> bool {
    pinned(set, flow) == Some(SERVED)
}

/// Reports whether the set runs without the flow.
pub(super) fn is_omitted(set: &FlowSet, flow: &str) -> bool {
    pinned(set, flow).is_some_and(Resolution::is_omitted)
}
