//! Tests the driver's rules over the simulated cluster, with one of an Agent's actions replaced.

mod attempts;
mod clock;
mod loops;
mod missed;
mod registry;
mod repair_backoff;
mod rules;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{Agent, WorkloadPhase};
use machine::{Action, ActionError};
use serde_json::json;

use crate::{
    deps::Deps,
    fake::{Operator, Sim, agent, agent_id, settings},
    kind::{Context, ControlledKind, Registry},
    workload,
};

type Work = Arc<dyn Fn(Arc<Agent>) -> Result<Option<Agent>, ActionError> + Send + Sync>;

/// Action with the behaviour that a test wants, in Resolving unless the test sets other phases.
pub(super) struct Does {
    name: &'static str,
    phases: &'static [WorkloadPhase],
    willing: bool,
    hangs: bool,
    work: Work,
}

impl Does {
    fn new(work: impl Fn(Arc<Agent>) -> Result<Option<Agent>, ActionError> + Send + Sync + 'static) -> Self {
        let phases = &[WorkloadPhase::Resolving];
        Self { name: "resolve", phases, willing: true, hangs: false, work: Arc::new(work) }
    }
}

#[async_trait]
impl Action<Agent, Deps> for Does {
    fn name(&self) -> &'static str {
        self.name
    }
    fn phases(&self) -> &'static [WorkloadPhase] {
        self.phases
    }
    fn can_handle(&self, _cr: &Agent) -> bool {
        self.willing
    }
    async fn handle(&self, _cx: &Context, cr: Arc<Agent>) -> Result<Option<Agent>, ActionError> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        (self.work)(cr)
    }
}

/// Returns the actions of an Agent, with the one of this name replaced.
fn registry_with(action: Does) -> Registry<Agent> {
    let action: Arc<dyn Action<Agent, Deps>> = Arc::new(action);
    let actions = workload::actions().into_iter();
    let actions = actions.map(|usual| if usual.name() == action.name() { action.clone() } else { usual });
    Registry::new(Agent::TABLE, actions.collect(), workload::external_digest).expect("a sound table")
}

/// Starts an operator with this action, over a cluster with the new Agent `a`.
fn operator(sim: &Sim, action: Does) -> Operator {
    if sim.store().get(&agent_id("a")).is_none() {
        sim.store().create(&agent_id("a"), agent(json!({})));
    }
    Operator::with(sim, registry_with(action), settings())
}

const MINUTE: Duration = Duration::from_secs(60);

fn status(sim: &Sim, pointer: &str) -> serde_json::Value {
    sim.store().at(&agent_id("a"), &format!("/status{pointer}"))
}

fn ready(sim: &Sim) -> (String, String) {
    let conditions = status(sim, "/conditions");
    let ready = conditions.as_array().and_then(|list| list.iter().find(|found| found["type"] == json!("Ready")));
    let text = |field: &str| ready.and_then(|ready| ready[field].as_str()).unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}
