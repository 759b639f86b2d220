//! Tests every field of an Agent in turn (P48): an agent to which the field was added ends in the state of one that was
//! created with it, and one from which the field was removed ends in the state of one that never had it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use e2e::local_operator::operator::OperatorProcess;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{Api, core::DynamicObject};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    counts::is_change,
    fault_env::FaultEnv,
    masked,
    script::{ScriptNamespace, resource},
};

/// Name of the scenario.
pub(crate) const NAME: &str = "P48-walk";
/// Time without a write after which the agents count as settled.
const QUIET: Duration = Duration::from_secs(8);
/// Longest wait until the agents have settled.
const TIMEOUT: Duration = Duration::from_secs(240);
/// Limit of concurrent requests of the test.
const AT_ONCE: usize = 16;

/// Field with one value.
#[derive(Debug, Clone)]
struct FieldCase {
    /// Name of its agents.
    name: String,
    /// Merge patch of the spec.
    patch: Value,
}

/// Plays the scenario.
pub(crate) async fn play(env: &FaultEnv) -> Result<String> {
    let definitions: Api<DynamicObject> = Api::all_with(env.client.clone(), &resource("CustomResourceDefinition"));
    let definition = definitions.get("agents.agents.recif.dev").await.context("read the Agents' definition")?;
    let schema = &definition.data["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let cases = cases(schema);
    ensure!(cases.len() > 100, "only {} fields with values", cases.len());
    let namespaces = env.create_namespaces(NAME, 4).await?;
    let played = play_in(env, cases, &namespaces).await;
    for namespace in &namespaces {
        namespace.remove().await?;
    }
    played
}

async fn play_in(env: &FaultEnv, cases: Vec<FieldCase>, namespaces: &[ScriptNamespace]) -> Result<String> {
    let [with, edited, without, taken] = namespaces else { anyhow::bail!("four namespaces") };
    let (proxy, log) = (env.proxy().await?, env.log(NAME));
    let mut operator = env.operator(&proxy, &log, "walk", None).await?;
    let all = cases.len();
    // Values that the API server refuses are left out here.
    let cases = create_agents(with, cases, |case| case.patch.clone()).await?;
    for (namespace, has_it) in [(edited, false), (without, false), (taken, true)] {
        let fields = |case: &FieldCase| if has_it { case.patch.clone() } else { json!({}) };
        let names = create_agents(namespace, cases.clone(), fields).await?;
        ensure!(names.len() == cases.len(), "{}: {} of {} agents", namespace.name, names.len(), cases.len());
    }
    await_quiet(&proxy, &mut operator).await?;
    let cases = edit_agents(edited, cases, |case| case.patch.clone()).await?;
    let cases = edit_agents(taken, cases, |case| removal_patch(&case.patch)).await?;
    ensure!(cases.len() > 100, "only {} values were taken", cases.len());
    await_quiet(&proxy, &mut operator).await?;
    let mut differences = Vec::new();
    let (mut compared, mut fields) = (0, fields(&cases));
    for (fresh, changed) in [(with, edited), (without, taken)] {
        let (fresh, changed) =
            (normalized(masked::masked_state(fresh).await?), normalized(masked::masked_state(changed).await?));
        for case in &cases {
            let of = |state: &BTreeMap<String, Value>| -> BTreeMap<String, Value> {
                let is_its = |key: &String| key.split('/').nth(1).is_some_and(|name| name.starts_with(&case.name));
                state.iter().filter(|(key, _)| is_its(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            let (fresh, changed) = (of(&fresh), of(&changed));
            let phase = &fresh[&format!("Agent/{}", case.name)]["status"]["phase"];
            // An agent that waits or has failed keeps its earlier children.
            if phase != "Running" && phase != "Terminated" {
                continue;
            }
            compared += 1;
            fields.retain(|field| case.patch.get(field).is_none());
            if let Some(difference) = masked::difference(&fresh, &changed) {
                differences.push(format!("{}: {difference}", case.patch));
            }
        }
    }
    operator.stop().await?;
    ensure!(differences.is_empty(), "{} of {compared} differ:\n  {}", differences.len(), differences.join("\n  "));
    ensure!(compared > cases.len(), "only {compared} states of {} agents were compared", 2 * cases.len());
    Ok(format!("{} of {all} values taken, {compared} states compared; of {fields:?} none", cases.len()))
}

/// Returns the fields of the cases.
fn fields(cases: &[FieldCase]) -> BTreeSet<String> {
    cases.iter().filter_map(|case| Some(case.patch.as_object()?.keys().next()?.clone())).collect()
}

/// Removes the parts that may depend on the order of changes: the order of lists, the owner of the replica count, and the
/// references of a stopped workload, which may have been resolved before it was stopped.
fn normalized(mut state: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    for value in state.values_mut() {
        let is_stopped = value["status"]["phase"] == "Terminated";
        for (list, names) in [("children", ["kind", "name"].as_slice()), ("conditions", &["type"])] {
            if let Some(list) = value["status"][list].as_array_mut() {
                list.sort_by_key(|entry| names.iter().map(|name| entry[*name].to_string()).collect::<Vec<_>>());
            }
        }
        let conditions = value["status"]["conditions"].as_array_mut().into_iter().flatten();
        for resolved in conditions.filter(|entry| is_stopped && entry["type"] == "ReferencesResolved") {
            resolved["reason"] = Value::Null;
        }
        if let Some(managers) = value["metadata"]["managedFields"].as_object_mut() {
            managers.retain(|manager, _| !manager.contains("recif-replicas"));
            for fields in managers.values_mut() {
                *fields = fields.as_str().unwrap_or_default().replace(r#""f:replicas":{},"#, "").into();
            }
        }
    }
    state
}

/// Creates the agents; returns the cases that the API server accepted.
async fn create_agents(
    namespace: &ScriptNamespace,
    cases: Vec<FieldCase>,
    fields: impl Fn(&FieldCase) -> Value,
) -> Result<Vec<FieldCase>> {
    let created =
        stream::iter(cases).map(|case| {
            let fields = fields(&case);
            async move {
                was_accepted(namespace.create("Agent", &case.name, fields).await).map(|taken| taken.then_some(case))
            }
        });
    created.buffered(AT_ONCE).try_filter_map(|case| async { Ok(case) }).try_collect().await
}

/// Edits the agents; returns the cases whose edit the API server accepted.
async fn edit_agents(
    namespace: &ScriptNamespace,
    cases: Vec<FieldCase>,
    patch: impl Fn(&FieldCase) -> Value,
) -> Result<Vec<FieldCase>> {
    let patched = stream::iter(cases).map(|case| {
        let patch = json!({"spec": patch(&case)});
        async move { was_accepted(namespace.patch("Agent", &case.name, patch).await).map(|taken| taken.then_some(case)) }
    });
    patched.buffered(AT_ONCE).try_filter_map(|case| async { Ok(case) }).try_collect().await
}

/// Reports whether the API server accepted the request; 400 and 422 are refusals, anything else is an error.
fn was_accepted(outcome: Result<()>) -> Result<bool> {
    let Err(error) = outcome else { return Ok(true) };
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Ok(false),
        _ => Err(error),
    }
}

/// Waits until the operator has written nothing for [`QUIET`].
async fn await_quiet(proxy: &e2e::fault::FaultProxy, operator: &mut OperatorProcess) -> Result<()> {
    let begun = Instant::now();
    loop {
        let mark = proxy.faults.log.now();
        sleep(QUIET).await;
        let entries = proxy.faults.log.since(mark);
        if !entries.iter().any(is_change) {
            return Ok(());
        }
        ensure!(operator.exit_status()?.is_none(), "the operator ended");
        ensure!(begun.elapsed() < TIMEOUT, "it still writes after {TIMEOUT:?}");
    }
}

/// Returns the patch that removes the top-level fields of another patch.
fn removal_patch(patch: &Value) -> Value {
    let fields = patch.as_object().into_iter().flatten();
    Value::Object(fields.map(|(field, _)| (field.clone(), Value::Null)).collect())
}

/// Returns each optional field of a schema with values at the limits of its range.
fn cases(schema: &Value) -> Vec<FieldCase> {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().into_iter().flatten();
    let optional = fields.filter(|(field, _)| !required.contains(&Value::from(field.as_str())));
    let patches = optional.flat_map(|(field, schema)| {
        values(schema).into_iter().map(move |value| Value::Object(Map::from_iter([(field.clone(), value)])))
    });
    patches.enumerate().map(|(at, patch)| FieldCase { name: format!("w{at:04}"), patch }).collect()
}

/// Returns values of a schema: its limits, the words of its enum, and empty values.
fn values(schema: &Value) -> Vec<Value> {
    if let Some(words) = schema["enum"].as_array() {
        return words.clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return vec![json!(1), json!("25%"), json!("100m")];
    }
    match schema["type"].as_str() {
        Some("boolean") => vec![json!(true), json!(false)],
        Some("integer" | "number") => {
            let limits = ["minimum", "maximum"].into_iter().filter_map(|limit| schema.get(limit).cloned());
            limits.chain([json!(0), json!(1)]).collect()
        }
        Some("string") => ["", "x", "5s", "https://a.example/b", "a/b:c"].map(Value::from).to_vec(),
        Some("array") => {
            let items = values(&schema["items"]);
            let one = items.iter().map(|item| json!([item]));
            one.chain([json!([]), Value::Array(items.iter().take(2).cloned().collect())]).collect()
        }
        Some("object") => objects(schema),
        _ => Vec::new(),
    }
}

/// Returns objects of a schema: one with only the required fields, and for each field those and this field.
fn objects(schema: &Value) -> Vec<Value> {
    let Some(fields) = schema["properties"].as_object() else {
        let of = schema.get("additionalProperties").map(values).unwrap_or_default();
        return of.into_iter().map(|value| json!({"key": value})).chain([json!({})]).collect();
    };
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let is_required = |field: &&String| required.contains(&Value::from(field.as_str()));
    let first = |field: &String| (field.clone(), values(&fields[field]).pop().unwrap_or_default());
    let least: Map<String, Value> = fields.keys().filter(is_required).map(first).collect();
    let with = fields.iter().flat_map(|(field, schema)| {
        let least = &least;
        values(schema).into_iter().map(move |value| {
            let mut object = least.clone();
            object.insert(field.clone(), value);
            Value::Object(object)
        })
    });
    with.chain([Value::Object(least.clone())]).collect()
}
