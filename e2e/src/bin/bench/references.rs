//! Measures the cost of a change to an object that flows refer to: its users are rolled out once, and no other flow is
//! reconciled.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use e2e::audit::AuditEvent;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::json;

use crate::{
    agents::{await_all, is_running},
    bench_env::BenchEnv,
    counts::RequestCounts,
    flows::{FlowNamespace, OWN_PROMPT, flow, last_seq, transitions_after},
    table::BenchMeasurement,
};

/// Number of flows that use the Secret.
const KEYED: usize = 100;
const EVENTS: usize = 3;
/// Children of a flow that are written for a changed prompt: the ConfigMap with its prompts, and the Deployment with the
/// content hash.
const CHILDREN: usize = 2;

/// Edits a Prompt that only one of many flows uses.
pub(crate) async fn prompt_edit(env: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    let flows = env.many();
    env.remove_agents().await?;
    let mill = FlowNamespace::ensure(&env.client, "flows").await?;
    mill.start_flows(flows).await?;
    env.settle().await?;
    let name = flow(0);
    let prompt = mill.prompts.get(OWN_PROMPT).await.context("get the Prompt")?;
    let before = mill.flows.get(&name).await.context("get the flow")?;

    let mark = env.audit.mark().await?;
    let edit = Patch::Merge(json!({"spec": {"content": format!("Say {{{{word}}}} at {mark:?}.")}}));
    mill.prompts.patch(OWN_PROMPT, &PatchParams::default(), &edit).await.context("edit the Prompt")?;
    await_all(&mill.flows, 1, "run with the edited Prompt", |it| it.name_any() == name && is_renewed(it, &before))
        .await?;
    env.settle().await?;
    let requests = env.requests(mark).await?;
    let counts = RequestCounts::of(&requests);
    let moves = transitions_after(&mill.prompts.get(OWN_PROMPT).await?, last_seq(&prompt))
        + transitions_after(&mill.flows.get(&name).await?, last_seq(&before));
    mill.clear().await?;

    // Events have generated names.
    let about_it = |request: &&AuditEvent| {
        let of_flow = request.name().strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        of_flow || request.name() == OWN_PROMPT || request.resource() == "events"
    };
    let others = requests.iter().filter(|request| !about_it(request)).count();
    let goal = format!("0 reads, {moves} moves + {CHILDREN} children + ≤ {EVENTS} events, no other client");
    let ok = counts.reads == 0
        && (counts.status, counts.children) == (moves, CHILDREN)
        && (counts.metadata, counts.other_writes, counts.dry_runs, others) == (0, 0, 0, 0)
        && counts.events <= EVENTS;
    let row = BenchMeasurement::new(format!("Prompt of 1 of {flows} flows edited"), goal, counts.to_string(), ok);
    Ok(vec![row.with_note(&format!("{}; {others} about others", counts.breakdown()))])
}

/// Rotates a Secret with the credentials of 100 flows.
pub(crate) async fn secret_rotation(env: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    let flows = env.many().min(KEYED);
    env.remove_agents().await?;
    let mill = FlowNamespace::ensure(&env.client, "keyed").await?;
    mill.start_flows(flows).await?;
    env.settle().await?;
    let before: BTreeMap<String, DynamicObject> = by_name(&mill.flows).await?;
    let generations = generations(&mill.deployments).await?;

    let mark = env.audit.mark().await?;
    mill.rotate(&format!("{mark:?}")).await?;
    let renewed = |it: &DynamicObject| before.get(&it.name_any()).is_some_and(|before| is_renewed(it, before));
    await_all(&mill.flows, flows, "run with the new Secret", renewed).await?;
    env.settle().await?;
    let counts = env.counts(mark).await?;
    let mut times: BTreeMap<i64, usize> = BTreeMap::new();
    for (name, generation) in self::generations(&mill.deployments).await? {
        let rolled = generation - generations.get(&name).copied().unwrap_or_default();
        *times.entry(rolled).or_default() += 1;
    }
    mill.clear().await?;

    let ok = times == BTreeMap::from([(1, flows)]);
    let measured: Vec<String> = times.iter().map(|(times, flows)| format!("{flows} flows {times}×")).collect();
    let row =
        BenchMeasurement::new(format!("Secret of {flows} flows rotated: rolls"), "each once", measured.join(", "), ok);
    Ok(vec![row.with_note(&format!("{counts}: {}", counts.breakdown()))])
}

/// Reports whether a flow is Running with another content hash than before.
fn is_renewed(flow: &DynamicObject, before: &DynamicObject) -> bool {
    let hash = |flow: &DynamicObject| flow.data["status"]["contentHash"].as_str().map(str::to_owned);
    is_running(flow) && hash(flow) != hash(before)
}

async fn by_name(api: &Api<DynamicObject>) -> Result<BTreeMap<String, DynamicObject>> {
    let all = api.list(&ListParams::default()).await.context("list flows")?;
    Ok(all.items.into_iter().map(|object| (object.name_any(), object)).collect())
}

/// Returns `metadata.generation` of each object, which increases with every change of its spec.
async fn generations(api: &Api<DynamicObject>) -> Result<BTreeMap<String, i64>> {
    let all = api.list_metadata(&ListParams::default()).await.context("list Deployments")?;
    let generation =
        |object: &kube::core::PartialObjectMeta<DynamicObject>| object.metadata.generation.unwrap_or_default();
    Ok(all.items.iter().map(|object| (object.name_any(), generation(object))).collect())
}
