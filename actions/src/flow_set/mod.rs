//! `FlowSet` kind: validation, inputs and rendering. The lifecycle is that of every workload (`crate::workload`), except that a
//! set runs without those of its flows that cannot be rendered, and reports them in its status.

mod members;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crds::{FlowSet, HasReferences, Traffic, WorkloadPhase, WorkloadStatus, flow_set::FlowState};
use machine::{ActionError, Table, TableError};
use members::{Member, SERVED, input_name, is_omitted, is_served, members};
use meta::PhasedObject;

use crate::{
    deps::Deps,
    flow::{
        flow_parts, leave_out, name_variables_of_set, offered_images, rendered_contract, settings_digest, terminal,
        understood,
    },
    kind::{ControlledKind, Registry},
    ports::{ChildKind, ChildManifest},
    references::{Inputs, Resolution, Resolver},
    render::{self, FLOW_SET, FlowContract, FlowParts, RenderError, RenderSettings},
    server_tools::LeftOut,
    unserved_fallbacks::UnservedFallbacks,
    workload::{self, Degradable, RenderedWorkload, WorkloadKind, is_available},
};

impl ControlledKind for FlowSet {
    const TABLE: Table<WorkloadPhase> = Table { render_version: 2, ..workload::TABLE };
    const CHILDREN: &'static [ChildKind] = ChildKind::ALL;
    const HAS_PODS: bool = true;

    fn registry() -> Result<Registry<Self>, TableError> {
        workload::registry()
    }
}

impl WorkloadKind for FlowSet {
    const LABEL: &'static str = FLOW_SET.label;

    fn replicas(&self) -> i32 {
        self.spec.runtime.replicas
    }

    fn traffic(&self) -> &Traffic {
        &self.spec.runtime.traffic
    }

    fn status(&self) -> Option<&WorkloadStatus> {
        self.status.as_ref().map(|status| &status.workload)
    }

    fn status_mut(&mut self) -> &mut WorkloadStatus {
        &mut self.status.get_or_insert_default().workload
    }

    fn validate(&self, settings: &RenderSettings) -> Result<(), ActionError> {
        for flow in &self.spec.flows {
            render::check_names(&flow.name, &flow.definition)
                .map_err(|error| terminal(RenderError::InFlow { flow: flow.name.clone(), error: Box::new(error) }))?;
        }
        rendered(self, &[], &BTreeMap::new(), settings, None)?.check_pod_security(settings)
    }

    /// Collects the references of the flows that can be rendered, each object once, and for each flow whether it is served.
    fn inputs(&self, deps: &Deps) -> Inputs {
        let key = self.key();
        let lookup = Resolver::new(deps, &key.namespace);
        let mut inputs = lookup.inputs(None, &self.spec.runtime.references());
        inputs.add("Settings", Resolution::Resolved(settings_digest(&deps.settings)));
        let members = members(self, deps);
        let any = members.iter().any(|(_, member)| matches!(member, Member::Ready(_)));
        for (name, member) in members {
            let prefixed = |sentence| format!("{}{sentence}", prefix(name));
            let found = match member {
                Member::Ready(used) => {
                    for (reference, found) in used.0 {
                        match inputs.get(&reference) {
                            Some(known) if *known == found => {}
                            // Two flows may use different tools of a server, or different keys of a Secret.
                            Some(_) => inputs.add(format!("{}/{reference}", input_name(name)), found),
                            None => inputs.add(reference, found),
                        }
                    }
                    Resolution::Resolved(SERVED.to_owned())
                }
                Member::Pending(sentence) if !any || !is_omitted(self, name) => Resolution::Pending(prefixed(sentence)),
                Member::Broken(sentence) if !any => Resolution::Missing(prefixed(sentence)),
                Member::Pending(sentence) | Member::Broken(sentence) => Resolution::Omitted(prefixed(sentence)),
            };
            inputs.add(input_name(name), found);
        }
        inputs
    }

    fn degradable(&self) -> Option<&dyn Degradable> {
        Some(self)
    }

    fn degradable_mut(&mut self) -> Option<&mut dyn Degradable> {
        Some(self)
    }

    fn render(&self, deps: &Deps, replicas: Option<i32>) -> Result<RenderedWorkload, ActionError> {
        let key = self.key();
        let served = self.spec.flows.iter().filter(|flow| is_served(self, &flow.name));
        let parts = served.map(|flow| flow_parts(deps, &key.namespace, &flow.name, &flow.definition));
        let mut parts: Vec<_> = parts.collect();
        name_variables_of_set(&mut parts);
        let mut unserved = UnservedFallbacks::default();
        for flow in &mut parts {
            leave_out(flow, &mut unserved, deps, &key.namespace, &self.spec.runtime);
        }
        let data = Resolver::new(deps, &key.namespace).data(&self.spec.runtime.references());
        let mut rendered = rendered(self, &parts, &data, &deps.settings, replicas)?;
        rendered.conditions.extend(unserved.condition());
        workload::with_policies(self, deps, rendered)
    }

    fn images(&self, settings: &RenderSettings) -> BTreeMap<String, String> {
        offered_images(self, FLOW_SET, &self.spec.runtime, settings)
    }

    fn network_policy(&self) -> ChildManifest {
        render::network_policy(self, Self::LABEL, self.spec.runtime.port)
    }

    fn disruption_budget(&self) -> ChildManifest {
        render::disruption_budget(self, Self::LABEL)
    }

    fn pod_template(&self) -> Option<&serde_json::Value> {
        self.spec.runtime.pod_template.as_ref()
    }

    fn endpoint(&self, settings: &RenderSettings) -> String {
        render::endpoint(self, self.spec.runtime.port, settings)
    }
}

impl Degradable for FlowSet {
    fn report_members(&mut self, inputs: &Inputs) -> bool {
        let phase = self.phase().map(|phase| phase.to_string()).unwrap_or_default();
        let (running, available) = (self.phase() == Some(WorkloadPhase::Running), is_available(self));
        let before = self.status.clone().unwrap_or_default();
        let state = |name: &str| {
            let was_ready = before.flows.iter().any(|state| state.name == name && state.ready);
            let broken = match inputs.get(&input_name(name)) {
                Some(Resolution::Missing(sentence) | Resolution::Omitted(sentence)) => Some(sentence),
                Some(Resolution::Pending(sentence)) if is_omitted(self, name) => Some(sentence),
                _ => None,
            };
            // Pods of the last good configuration serve until the new Pods do.
            let serves = is_served(self, name) && available && (running || was_ready);
            let (ready, phase, message) = match broken {
                Some(sentence) => (false, WorkloadPhase::Resolving.to_string(), without_prefix(name, sentence)),
                None => (serves, phase.clone(), String::new()),
            };
            FlowState { name: name.to_owned(), ready, phase, message }
        };
        let flows: Vec<_> = self.spec.flows.iter().map(|flow| state(&flow.name)).collect();
        let count = |count: usize| i32::try_from(count).ok();
        let status = self.status.get_or_insert_default();
        status.ready_flows = count(flows.iter().filter(|flow| flow.ready).count());
        status.total_flows = count(flows.len());
        status.flows = flows;
        *status != before
    }

    fn degraded(&self) -> Option<String> {
        let flows = self.status.as_ref().map(|status| status.flows.as_slice()).unwrap_or_default();
        let broken = flows.iter().filter(|flow| !flow.message.is_empty());
        let sentences: Vec<_> = broken.map(|flow| format!("{}{}", prefix(&flow.name), flow.message)).collect();
        (!sentences.is_empty()).then(|| sentences.join("; "))
    }

    fn omit_pending(&self, inputs: Inputs) -> Inputs {
        if !inputs.0.iter().any(|(_, found)| *found == Resolution::Resolved(SERVED.to_owned())) {
            return inputs;
        }
        let without = |found| if let Resolution::Pending(why) = found { Resolution::Omitted(why) } else { found };
        Inputs(inputs.0.into_iter().map(|(name, found)| (name, without(found))).collect())
    }
}

/// Returns the prefix of a sentence about one flow.
fn prefix(flow: &str) -> String {
    format!("flow {flow:?}: ")
}

/// Returns a sentence about a flow without that prefix, for a field that belongs to the flow.
fn without_prefix(flow: &str, sentence: &str) -> String {
    sentence.strip_prefix(&prefix(flow)).unwrap_or(sentence).to_owned()
}

fn rendered(
    set: &FlowSet,
    flows: &[FlowParts],
    data: &BTreeMap<String, String>,
    settings: &RenderSettings,
    replicas: Option<i32>,
) -> Result<RenderedWorkload, ActionError> {
    let contract = FlowContract::of_set(&set.key().name, flows, data).map_err(terminal)?;
    let rendered = rendered_contract(set, FLOW_SET, &set.spec.runtime, contract, settings, replicas)?;
    let left_out = LeftOut::of_flows(flows.iter().map(|flow| (flow.name.as_str(), &flow.left_out)));
    let left_out = left_out.as_ref().map(LeftOut::condition);
    let conditions = left_out.into_iter().chain(understood(flows, &set.spec.runtime, settings)).collect();
    Ok(RenderedWorkload { conditions, ..rendered })
}
