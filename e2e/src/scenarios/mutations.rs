//! Manifests that nobody meant: each is refused, or its object says what to do; none costs more than a request a second.
//!
//! `E2E_MANIFESTS` (120) says how many, `E2E_SEED` (1) which; both are printed with a failure.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use e2e::audit::describe_requests;
use kube::ResourceExt as _;
use serde_json::Value;

use super::{Scenario, number, scenarios};
use crate::{
    env::Env,
    kinds::{DEFINITION, KubeKind, OURS, POD},
    manifests::{documents, files, quota},
    mutate::{Random, mutate},
    namespace::Namespace,
    object::{Object, ObjectExt as _},
    operator,
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Serial:
    every_mutated_manifest_is_refused_or_says_what_to_do,
);

/// How long an object may take to say something, beside a hundred others.
const PHASE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long requests are counted once all have spoken, and how many an object may cost meanwhile.
const WINDOW: Duration = Duration::from_secs(20);
/// What the operator may hold afterwards, in bytes.
const MEMORY: u64 = 60 << 20;

async fn every_mutated_manifest_is_refused_or_says_what_to_do(ns: Namespace) -> Result<()> {
    let count = number("E2E_MANIFESTS", 120)?;
    let seed = number("E2E_SEED", 1)?;
    check_all_report(&ns, count, seed).await.with_context(|| format!("E2E_SEED={seed} E2E_MANIFESTS={count}"))
}

async fn check_all_report(ns: &Namespace, count: u64, seed: u64) -> Result<()> {
    // The node is small: what these objects want is refused beyond a few Pods, which they have to say as well.
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
        // The children of an object carry its name, with a suffix or not.
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

/// Whether the API server refused it, in words. A type error in an apply is a 500 there.
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

/// Whether the object has a phase that speaks of its newest generation and, if it is not ready, says why.
fn reports_status(object: &Object) -> bool {
    let ready = object.condition("Ready");
    let why = ready.is_true() || (ready.is_false() && !ready.message.is_empty());
    !object.phase().is_empty() && object.is_current() && why
}

/// The good manifests, of which mutations are made.
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

/// The fields of each kind's spec, as its definition names them.
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

/// How often containers of the operator's Pods were restarted, by Pod.
async fn restarts(env: &Env) -> Result<BTreeMap<String, i64>> {
    let pods = operator::pods(env).await?;
    Ok(pods.iter().map(|pod| (pod.name_any(), pod.number("/status/containerStatuses/0/restartCount"))).collect())
}

/// The largest resident memory of the operator's Pods, in bytes, as the kubelet tells it.
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
