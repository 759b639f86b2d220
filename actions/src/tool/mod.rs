//! `Tool`: what is its own. Its life is that of every reference (`crate::reference`).

use crds::{MachineStatus, ReferencePhase, Tool};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{
    machine::{ActionError, BadTable, Edge, Machine, Registry},
    ports::World,
    reference::{self, Reference},
    render,
    workload::Inputs,
};

impl Machine for Tool {
    type Phase = ReferencePhase;
    type World = World;

    const KIND: &'static str = "Tool";
    const FINALIZER: Option<&'static str> = None;
    const RENDER_VERSION: i64 = 1;
    const EDGES: &'static [Edge<ReferencePhase>] = reference::EDGES;
    const NOT_BY_TIME: &'static [&'static str] = reference::NOT_BY_TIME;
    const CONDITIONS: &'static [&'static str] = &["Available"];
    const AVAILABLE_BY_PHASE: bool = true;

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
    fn machine(&self) -> Option<&MachineStatus> {
        self.status.as_ref().map(|status| &status.machine)
    }
    fn machine_mut(&mut self) -> &mut MachineStatus {
        &mut self.status.get_or_insert_default().machine
    }
    fn status_json(&self) -> Value {
        let mut json = serde_json::to_value(&self.status).unwrap_or_default();
        if let Some(status) = &self.status {
            status.machine.restore_verbatim(&mut json);
        }
        json
    }
    fn spec_digest(&self) -> String {
        self.spec.digest()
    }
    fn same_spec(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Reference for Tool {
    fn validate(&self) -> Result<(), ActionError> {
        match render::tool_error(&self.spec) {
            Some(message) => Err(ActionError::terminal("InvalidSpec", message)),
            None => Ok(()),
        }
    }

    fn inputs(&self, _world: &World) -> Inputs {
        Inputs::default()
    }
}

/// The actions of a Tool.
///
/// # Errors
/// A fault in the table of edges or the list of actions.
pub fn registry() -> Result<Registry<Tool>, BadTable> {
    Registry::new(reference::actions())
}
