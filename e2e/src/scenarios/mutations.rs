//! Tests mutated manifests: each is refused, or its object reports the problem, and none costs more than one request per
//! second.
//!
//! `E2E_MANIFESTS` (120) is the number of manifests, `E2E_SEED` (1) the seed; both are printed with a failure.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use e2e::audit::describe_requests;
use kube::ResourceExt as _;
use serde_json::Value;

use crate::{
    env::Env,
    kinds::{DEFINITION, KubeKind, OURS, POD},
    manifests::{documents, files, quota},
    mutate::{Random, mutate},
    namespace::Namespace,
    object::{Object, ObjectExt as _},
    operator,
    scenario::{Scenario, number, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Serial:
    every_mutated_manifest_is_refused_or_says_what_to_do,
);

/// Longest wait until an object reports a status, next to a hundred others.
const PHASE_TIMEOUT: Duration = Duration::from_secs(90);
/// Time for which requests are counted after all objects have reported, and limit of requests per object in it: one per
/// second.
const WINDOW: Duration = Duration::from_secs(20);
/// Limit of the operator's memory afterwards, in bytes.
const MEMORY: u64 = 60 << 20;

async fn every_mutated_manifest_is_refused_or_says_what_to_do(ns: Namespace) -> Result<()> {
    let count = number("E2E_MANIFESTS", 120)?;
    let seed = number("E2E_SEED", 1)?;
    check_all_report(&ns, count, seed).await.with_context(|| format!("E2E_SEED={seed} E2E_MANIFESTS={count}"))
}

async fn check_all_report(ns: &Namespace, count: u64, seed: u64) -> Result<()> {
    // The node is small: the quota refuses more than a few Pods, which the objects must report as well.
    ns.apply(&quota("count/pods", "6")).await?;
    let restarts = restarts(&ns.env).await?;
    let bases = bases(&ns.env)?;
    let fields = fields(&ns.env).await?;
    let mut random = Random::new(seed);
    let (mut taken, mut refused) = (Vec::new(), 0);
    for index in 0..count {
        let (kind, mut manifest) = bases[random.below(bases.len())].clone();
        let name = format!("mutant-{index}");
        manifest["metadata"] = serde_json::json!({ "name": name });
        mutate(&mut random, &mut manifest["spec"], &fields[kind.kind]);
        match ns.apply(&manifest).await {
            Ok(_) => taken.push((kind, name)),
            Err(error) => {
                refusal(&error).with_context(|| format!("{} {name}: {}", kind.kind, manifest["spec"]))?;
                refused += 1;
            }
        }
    }
    ensure!(
        refused > 0 && !taken.is_empty(),
        "{refused} were refused and {} taken: the mutations do nothing",
        taken.len()
    );
    for (kind, name) in &taken {
        poll(PHASE_TIMEOUT, &format!("{} {name} has a phase, and says why it is not ready", kind.kind), || async {
            let object = ns.get(*kind, name).await?;
            ensure!(reports_status(&object), "{}", object.describe());
            Ok(Some(()))
        })
        .await?;
    }
    let mark = ns.env.audit.mark().await?;
    tokio::time::sleep(WINDOW).await;
    let requests = ns.operator_requests(mark).await?;
    let mut by_object: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for request in requests {
        // The children of an object have its name, with or without a suffix.
        let name: Vec<&str> = request.name().splitn(3, ['-', '.']).take(2).collect();
        by_object.entry(name.join("-")).or_default().push(request);
    }
    for (name, requests) in &by_object {
        let most = WINDOW.as_secs() as usize;
        ensure!(requests.len() <= most, "{name} costs more than a request a second: {}", describe_requests(requests));
    }
    ensure!(restarts == self::restarts(&ns.env).await?, "the operator was restarted");
    let memory = memory(ns).await?;
    ensure!(memory <= MEMORY, "the operator holds {memory} bytes afterwards");
    Ok(())
}

/// Checks that the API server refused the object with a message. A type error in an apply is a 500.
fn refusal(error: &anyhow::Error) -> Result<()> {
    let status = error.downcast_ref::<kube::Error>().and_then(|error| match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    });
    let status = status.with_context(|| format!("not refused but failed: {error:#}"))?;
    let typed = status.code == 500 && status.message.starts_with("failed to create");
    ensure!((400..500).contains(&status.code) || typed, "answered {}: {}", status.code, status.message);
    ensure!(!status.message.is_empty(), "refused without a word");
    Ok(())
}

/// Reports whether the status has a phase of the current generation and, if the object is not ready, a message.
fn reports_status(object: &Object) -> bool {
    let ready = object.condition("Ready");
    let why = ready.is_true() || (ready.is_false() && !ready.message.is_empty());
    !object.phase().is_empty() && object.is_current() && why
}

/// Returns the valid manifests, which are the base of the mutations.
fn bases(env: &Env) -> Result<Vec<(KubeKind, Value)>> {
    let mut all = Vec::new();
    for folder in ["e2e/manifests/accept", "config/samples"] {
        for (path, text) in files(&env.file(folder))? {
            for document in documents(&text).with_context(|| path.display().to_string())? {
                if let Some(kind) = KubeKind::of(&document).filter(|kind| OURS.contains(kind)) {
                    all.push((kind, document));
                }
            }
        }
    }
    Ok(all)
}

/// Returns the fields of each kind's spec, from its CustomResourceDefinition.
async fn fields(env: &Env) -> Result<BTreeMap<&'static str, Vec<String>>> {
    let mut all = BTreeMap::new();
    for kind in OURS {
        let name = format!("{}.{}", kind.plural, crds::GROUP);
        let definition = env.all(DEFINITION).get(&name).await?;
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let names = definition.at(spec).as_object().with_context(|| format!("{name} has no fields"))?;
        all.insert(kind.kind, names.keys().cloned().collect());
    }
    Ok(all)
}

/// Returns the restart count of the operator's containers, by Pod.
async fn restarts(env: &Env) -> Result<BTreeMap<String, i64>> {
    let pods = operator::pods(env).await?;
    Ok(pods.iter().map(|pod| (pod.name_any(), pod.number("/status/containerStatuses/0/restartCount"))).collect())
}

/// Returns the largest resident memory of the operator's Pods in bytes, as reported by the kubelet.
async fn memory(ns: &Namespace) -> Result<u64> {
    let mut largest = None;
    for pod in ns.env.within(operator::NAMESPACE, POD).list(&Default::default()).await?.items {
        if !pod.name_any().starts_with(operator::NAME) {
            continue;
        }
        let path = format!("/api/v1/nodes/{}/proxy/stats/summary", pod.text("/spec/nodeName"));
        let summary: Value = serde_json::from_str(&ns.env.kubectl(&["get", "--raw", &path]).await?)?;
        let pods = summary["pods"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = pods.iter().find(|it| it["podRef"]["name"] == pod.name_any());
        largest = largest.max(found.and_then(|it| it["memory"]["rssBytes"].as_u64()));
    }
    largest.context("the kubelet tells no memory of the operator")
}
