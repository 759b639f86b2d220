//! One reference, with all that stands behind it.

use std::{collections::BTreeMap, sync::Arc};

use crds::{
    HasReferences, RefKind, Reference, ReferencePhase, WorkloadPhase, WorkloadStatus, cycle::Node, digest,
    tool::is_builtin,
};
use meta::{Phase, PhasedObject};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Resolution, Resolver};
use crate::{
    discovery::{ToolState, tool_state},
    ports::{CachedChild, ChildKind, ChildRef},
};

/// What came of looking at a reference and at what stands behind it.
#[derive(Debug, Default)]
pub(super) struct Evaluation {
    /// The digest of what is used of it, if all is well.
    digest: Option<String>,
    /// What somebody has to do, as sentences.
    missing: Vec<String>,
    /// What is on its way, as sentences.
    pending: Vec<String>,
}

impl Evaluation {
    fn resolved(digest: impl Into<String>) -> Self {
        Self { digest: Some(digest.into()), ..Self::default() }
    }

    fn missing(sentence: String) -> Self {
        Self { missing: vec![sentence], ..Self::default() }
    }

    fn pending(sentence: String) -> Self {
        Self { pending: vec![sentence], ..Self::default() }
    }

    /// The verdict, everything that is wrong in one sentence.
    pub(super) fn into_resolution(self) -> Resolution {
        let Self { digest, mut missing, pending: not_yet } = self;
        match digest {
            Some(digest) => Resolution::Resolved(digest),
            None if missing.is_empty() => Resolution::Pending(not_yet.join("; ")),
            None => {
                missing.extend(not_yet);
                Resolution::Missing(missing.join("; "))
            }
        }
    }
}

/// How an object is called in sentences: `tool "weather"`, and who refers to it.
struct Subject<'a> {
    kind: RefKind,
    namespace: Option<&'a str>,
    name: &'a str,
    by: Option<(RefKind, &'a str)>,
}

impl Subject<'_> {
    /// `tool "weather" is Resolving (referenced by flow "f")`, from `is Resolving`.
    fn sentence(&self, what: &str) -> String {
        let by = self.by.map(|(kind, name)| format!(" (referenced by {} \"{name}\")", lowercase_kind(kind)));
        let namespace = self.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{} \"{namespace}{}\" {what}{}", lowercase_kind(self.kind), self.name, by.unwrap_or_default())
    }
}

/// Judges a reference. `by` is what refers to it, unless that is the object itself; `on_cycle`: the object stands on a
/// circle, which needs to be named only once.
pub(super) fn evaluate(
    lookup: &Resolver<'_>,
    reference: &Reference,
    by: Option<(RefKind, &str)>,
    on_cycle: bool,
) -> Evaluation {
    let Reference { kind, name, .. } = reference;
    let (views, namespace) = (lookup.cache, lookup.namespace);
    let subject = Subject { kind: *kind, namespace: reference.namespace.as_deref(), name, by };
    if lookup.requires_identity(reference) {
        return Evaluation::missing(subject.sentence(ONLY_GATEWAYS));
    }
    match kind {
        RefKind::Prompt => {
            let prompt = views.prompt(namespace, name);
            evaluate_reference(lookup, &subject, prompt, on_cycle, |prompt| {
                digest::sha256_hex(prompt.spec.content.as_bytes())
            })
        }
        RefKind::Tool => match views.tool(namespace, name) {
            None if by.is_none() && is_builtin(name) => Evaluation::resolved("builtin"),
            Some(tool) if !tool.spec.enabled => Evaluation::resolved("disabled"),
            tool => {
                let cycle = if on_cycle { None } else { lookup.cycle(&Node::new(RefKind::Tool, name)) };
                match cycle {
                    Some(cycle) => Evaluation::missing(subject.sentence(&format!("waits for itself, {cycle}"))),
                    None => evaluate_reference(lookup, &subject, tool, on_cycle, |tool| {
                        spec_digest(&tool.spec, &["category"])
                    }),
                }
            }
        },
        RefKind::Model => {
            let model = views.model(namespace, name);
            evaluate_reference(lookup, &subject, model, on_cycle, |model| spec_digest(&model.spec, &[]))
        }
        RefKind::PluginConfig => {
            let config = views.plugin_config(namespace, name);
            evaluate_reference(lookup, &subject, config, on_cycle, |config| spec_digest(&config.spec, &[]))
        }
        RefKind::Flow => match views.flow(namespace, name) {
            None => evaluate_absent(lookup, &subject),
            Some(flow) => evaluate_workload(&subject, flow.status.as_ref(), flow.metadata.generation),
        },
        RefKind::Agent => match views.agent(namespace, name) {
            None => evaluate_absent(lookup, &subject),
            Some(agent) => evaluate_workload(&subject, agent.status.as_ref(), agent.metadata.generation),
        },
        RefKind::RemoteMCPServer | RefKind::MCPServer => evaluate_server(lookup, &subject, reference),
        RefKind::Secret | RefKind::ConfigMap => evaluate_data(lookup, &subject, reference),
    }
}

/// It is not there; without its definition nobody could make it.
fn evaluate_absent(lookup: &Resolver<'_>, subject: &Subject<'_>) -> Evaluation {
    match lookup.cache.is_defined(subject.kind) {
        true => Evaluation::missing(subject.sentence("not found")),
        false => Evaluation::missing(
            subject.sentence("not found: its CustomResourceDefinition is missing, apply config/crd"),
        ),
    }
}

/// A server, of which tools are used.
fn evaluate_server(lookup: &Resolver<'_>, subject: &Subject<'_>, reference: &Reference) -> Evaluation {
    let mut all = Evaluation::default();
    let mut digests = Vec::new();
    for tool in &reference.keys {
        match tool_state(lookup.cache, reference, lookup.namespace, tool) {
            ToolState::Known { digest, .. } => digests.push(digest),
            ToolState::Pending(what) => all.pending.push(subject.sentence(&what)),
            ToolState::Missing(what) | ToolState::NoSuchTool(what) => all.missing.push(subject.sentence(&what)),
        }
    }
    all.digest = (all.missing.is_empty() && all.pending.is_empty()).then(|| digest::digest(&json!(digests)));
    all
}

/// A kind that others refer to: it must be Available as it stands, and so must be what stands behind it.
fn evaluate_reference<K: PhasedObject<Phase = ReferencePhase> + HasReferences>(
    lookup: &Resolver<'_>,
    subject: &Subject<'_>,
    object: Option<Arc<K>>,
    on_cycle: bool,
    used: impl FnOnce(&K) -> String,
) -> Evaluation {
    let Some(object) = object else { return evaluate_absent(lookup, subject) };
    let mut behind = Evaluation::default();
    let mut digests = BTreeMap::new();
    for reference in object.references() {
        let judged = lookup.evaluate(&reference, Some((subject.kind, subject.name)), on_cycle);
        behind.missing.extend(judged.missing);
        behind.pending.extend(judged.pending);
        digests.insert(reference.to_string(), judged.digest);
    }
    if !behind.missing.is_empty() {
        return behind;
    }
    let machine = object.common();
    let current = machine.and_then(|machine| machine.observed_generation) == Some(object.generation());
    match object.phase() {
        Some(ReferencePhase::Error) if current => {
            let conditions = machine.map(|machine| machine.conditions.as_slice()).unwrap_or_default();
            let why = conditions.iter().find(|found| found.type_ == "Ready").map_or("", |ready| ready.message.as_str());
            Evaluation::missing(subject.sentence(&format!("is in phase Error: {why}")))
        }
        _ if !behind.pending.is_empty() => behind,
        Some(ReferencePhase::Available) if current => match digests.is_empty() {
            true => Evaluation::resolved(used(object.as_ref())),
            false => Evaluation::resolved(digest::digest(&json!({ "own": used(object.as_ref()), "behind": digests }))),
        },
        phase => {
            let seen = phase.filter(|_| machine.is_some_and(|machine| machine.written_phase().is_some()));
            let phase = seen.map_or("not yet seen by the operator", Phase::as_str);
            Evaluation::pending(subject.sentence(&format!("is {phase}")))
        }
    }
}

/// A workload that is called: Pods of an older configuration serve as well, so its phase is only told.
fn evaluate_workload(subject: &Subject<'_>, status: Option<&WorkloadStatus>, generation: Option<i64>) -> Evaluation {
    let unseen = WorkloadStatus::default();
    let WorkloadStatus { machine, endpoint, .. } = status.unwrap_or(&unseen);
    let condition = |type_: &str| machine.conditions.iter().find(|found| found.type_ == type_);
    let available = condition("Available").is_some_and(|found| found.status == "True");
    let phase = machine.written_phase().and_then(WorkloadPhase::parse);
    match (endpoint, phase) {
        (Some(endpoint), _) if available => Evaluation::resolved(endpoint),
        (_, Some(WorkloadPhase::Failed)) if machine.observed_generation == generation => {
            let why = condition("Ready").map_or("", |ready| ready.message.as_str());
            Evaluation::missing(subject.sentence(&format!("is in phase Failed: {why}")))
        }
        (_, Some(phase)) => Evaluation::pending(subject.sentence(&format!("is {phase}, not available"))),
        (_, None) => Evaluation::pending(subject.sentence("is not yet seen by the operator")),
    }
}

fn evaluate_data(lookup: &Resolver<'_>, subject: &Subject<'_>, reference: &Reference) -> Evaluation {
    let Some(data) = lookup.data_of(reference) else {
        return match reference.optional {
            true => Evaluation::resolved("absent"),
            false => Evaluation::missing(subject.sentence("not found")),
        };
    };
    let missing = reference.keys.iter().filter(|key| !data.data.contains_key(*key));
    let missing: Vec<_> = missing.map(|key| subject.sentence(&format!("has no key \"{key}\""))).collect();
    match missing.is_empty() {
        true => Evaluation::resolved(data_digest(reference, &data)),
        false => Evaluation { missing, ..Evaluation::default() },
    }
}

/// Said of a workload with `proxy.requireIdentity`, which no Pod can call by itself.
pub(crate) const ONLY_GATEWAYS: &str = "answers only requests through the gateway (proxy.requireIdentity)";

impl Resolver<'_> {
    /// Whether what is referred to is a workload that answers only what a gateway vouches for.
    pub(crate) fn requires_identity(&self, reference: &Reference) -> bool {
        let (namespace, name) = (reference.namespace.as_deref().unwrap_or(self.namespace), reference.name.as_str());
        let required = match reference.kind {
            RefKind::Flow => self.cache.flow(namespace, name).map(|it| it.spec.runtime.traffic.proxy.require_identity),
            RefKind::Agent => self.cache.agent(namespace, name).map(|it| it.spec.traffic.proxy.require_identity),
            RefKind::MCPServer => self.cache.mcp_server(namespace, name).map(|it| it.spec.proxy.require_identity),
            _ => None,
        };
        required.unwrap_or_default()
    }

    /// The Secret or ConfigMap that is referred to.
    pub(super) fn data_of(&self, reference: &Reference) -> Option<Arc<CachedChild>> {
        let kind = if reference.kind == RefKind::Secret { ChildKind::Secret } else { ChildKind::ConfigMap };
        let (namespace, name) = (self.namespace.to_owned(), reference.name.clone());
        self.cache.child(&ChildRef { kind, namespace, name })
    }
}

/// The digest of what is read of a Secret or ConfigMap.
pub(super) fn data_digest(reference: &Reference, data: &CachedChild) -> String {
    let read = |key: &String| reference.whole || reference.keys.contains(key);
    let read: BTreeMap<_, _> = data.data.iter().filter(|(key, _)| read(key)).collect();
    digest::digest(&json!(read))
}

/// The digest of a spec, without what people sort by, so that editing that rolls nobody.
///
/// It is pinned in the users' statuses, so of the same spec every build has to make the same one, or an upgrade would move all
/// of them. A field that is added must not be written where it has its default (`skip_serializing_if`); a test holds that.
fn spec_digest(spec: &impl Serialize, without: &[&str]) -> String {
    let mut spec = serde_json::to_value(spec).unwrap_or(Value::Null);
    if let Some(fields) = spec.as_object_mut() {
        without.iter().for_each(|name| drop(fields.remove(*name)));
    }
    digest::digest(&spec)
}

fn lowercase_kind(kind: RefKind) -> String {
    kind.as_str().to_lowercase()
}
