//! One reference, with all that stands behind it.

use std::{collections::BTreeMap, sync::Arc};

use crds::{
    RefKind, Reference, ReferencePhase, Refers, WorkloadPhase, WorkloadStatus, cycle::Node, digest, tool::is_builtin,
};
use meta::{Phase, PhasedObject};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Found, Lookup};
use crate::{
    discovery::{Standing, standing},
    ports::{Child, ChildKind, ChildRef},
};

/// What came of looking at a reference and at what stands behind it.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// The digest of what is used of it, if all is well.
    digest: Option<String>,
    /// What somebody has to do, as sentences.
    missing: Vec<String>,
    /// What is on its way, as sentences.
    not_yet: Vec<String>,
}

impl Judged {
    fn here(digest: impl Into<String>) -> Self {
        Self { digest: Some(digest.into()), ..Self::default() }
    }

    fn missing(sentence: String) -> Self {
        Self { missing: vec![sentence], ..Self::default() }
    }

    fn not_yet(sentence: String) -> Self {
        Self { not_yet: vec![sentence], ..Self::default() }
    }

    /// The verdict, everything that is wrong in one sentence.
    pub(super) fn found(self) -> Found {
        let Self { digest, mut missing, not_yet } = self;
        match digest {
            Some(digest) => Found::Here(digest),
            None if missing.is_empty() => Found::NotYet(not_yet.join("; ")),
            None => {
                missing.extend(not_yet);
                Found::Missing(missing.join("; "))
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
    fn says(&self, what: &str) -> String {
        let by = self.by.map(|(kind, name)| format!(" (referenced by {} \"{name}\")", lower(kind)));
        let namespace = self.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{} \"{namespace}{}\" {what}{}", lower(self.kind), self.name, by.unwrap_or_default())
    }
}

/// Judges a reference. `by` is what refers to it, unless that is the object itself; `on_cycle`: the object stands on a
/// circle, which needs to be named only once.
pub(super) fn judge(lookup: &Lookup<'_>, reference: &Reference, by: Option<(RefKind, &str)>, on_cycle: bool) -> Judged {
    let Reference { kind, name, .. } = reference;
    let (views, namespace) = (lookup.views, lookup.namespace);
    let subject = Subject { kind: *kind, namespace: reference.namespace.as_deref(), name, by };
    if lookup.requires_identity(reference) {
        return Judged::missing(subject.says(ONLY_GATEWAYS));
    }
    match kind {
        RefKind::Prompt => {
            let prompt = views.prompt(namespace, name);
            of_reference(lookup, &subject, prompt, on_cycle, |prompt| {
                digest::sha256_hex(prompt.spec.content.as_bytes())
            })
        }
        RefKind::Tool => match views.tool(namespace, name) {
            None if by.is_none() && is_builtin(name) => Judged::here("builtin"),
            Some(tool) if !tool.spec.enabled => Judged::here("disabled"),
            tool => {
                let cycle = if on_cycle { None } else { lookup.cycle(&Node::new(RefKind::Tool, name)) };
                match cycle {
                    Some(cycle) => Judged::missing(subject.says(&format!("waits for itself, {cycle}"))),
                    None => of_reference(lookup, &subject, tool, on_cycle, |tool| used(&tool.spec, &["category"])),
                }
            }
        },
        RefKind::Model => {
            let model = views.model(namespace, name);
            of_reference(lookup, &subject, model, on_cycle, |model| used(&model.spec, &[]))
        }
        RefKind::PluginConfig => {
            let config = views.plugin_config(namespace, name);
            of_reference(lookup, &subject, config, on_cycle, |config| used(&config.spec, &[]))
        }
        RefKind::Flow => match views.flow(namespace, name) {
            None => absent(lookup, &subject),
            Some(flow) => of_workload(&subject, flow.status.as_ref(), flow.metadata.generation),
        },
        RefKind::Agent => match views.agent(namespace, name) {
            None => absent(lookup, &subject),
            Some(agent) => of_workload(&subject, agent.status.as_ref(), agent.metadata.generation),
        },
        RefKind::RemoteMCPServer | RefKind::MCPServer => of_server(lookup, &subject, reference),
        RefKind::Secret | RefKind::ConfigMap => of_data(lookup, &subject, reference),
    }
}

/// It is not there; without its definition nobody could make it.
fn absent(lookup: &Lookup<'_>, subject: &Subject<'_>) -> Judged {
    match lookup.views.is_defined(subject.kind) {
        true => Judged::missing(subject.says("not found")),
        false => Judged::missing(subject.says("not found: its CustomResourceDefinition is missing, apply config/crd")),
    }
}

/// A server, of which tools are used.
fn of_server(lookup: &Lookup<'_>, subject: &Subject<'_>, reference: &Reference) -> Judged {
    let mut all = Judged::default();
    let mut digests = Vec::new();
    for tool in &reference.keys {
        match standing(lookup.views, reference, lookup.namespace, tool) {
            Standing::Known { digest, .. } => digests.push(digest),
            Standing::NotYet(what) => all.not_yet.push(subject.says(&what)),
            Standing::Missing(what) | Standing::Gone(what) => all.missing.push(subject.says(&what)),
        }
    }
    all.digest = (all.missing.is_empty() && all.not_yet.is_empty()).then(|| digest::digest(&json!(digests)));
    all
}

/// A kind that others refer to: it must be Available as it stands, and so must be what stands behind it.
fn of_reference<K: PhasedObject<Phase = ReferencePhase> + Refers>(
    lookup: &Lookup<'_>,
    subject: &Subject<'_>,
    object: Option<Arc<K>>,
    on_cycle: bool,
    used: impl FnOnce(&K) -> String,
) -> Judged {
    let Some(object) = object else { return absent(lookup, subject) };
    let mut behind = Judged::default();
    let mut digests = BTreeMap::new();
    for reference in object.references() {
        let judged = lookup.judge(&reference, Some((subject.kind, subject.name)), on_cycle);
        behind.missing.extend(judged.missing);
        behind.not_yet.extend(judged.not_yet);
        digests.insert(reference.to_string(), judged.digest);
    }
    if !behind.missing.is_empty() {
        return behind;
    }
    let machine = object.machine();
    let current = machine.and_then(|machine| machine.observed_generation) == Some(object.generation());
    match object.phase() {
        Some(ReferencePhase::Error) if current => {
            let conditions = machine.map(|machine| machine.conditions.as_slice()).unwrap_or_default();
            let why = conditions.iter().find(|found| found.type_ == "Ready").map_or("", |ready| ready.message.as_str());
            Judged::missing(subject.says(&format!("is in phase Error: {why}")))
        }
        _ if !behind.not_yet.is_empty() => behind,
        Some(ReferencePhase::Available) if current => match digests.is_empty() {
            true => Judged::here(used(object.as_ref())),
            false => Judged::here(digest::digest(&json!({ "own": used(object.as_ref()), "behind": digests }))),
        },
        phase => {
            let seen = phase.filter(|_| machine.is_some_and(|machine| machine.seen_phase().is_some()));
            let phase = seen.map_or("not yet seen by the operator", Phase::as_str);
            Judged::not_yet(subject.says(&format!("is {phase}")))
        }
    }
}

/// A workload that is called: Pods of an older configuration serve as well, so its phase is only told.
fn of_workload(subject: &Subject<'_>, status: Option<&WorkloadStatus>, generation: Option<i64>) -> Judged {
    let unseen = WorkloadStatus::default();
    let WorkloadStatus { machine, endpoint, .. } = status.unwrap_or(&unseen);
    let condition = |type_: &str| machine.conditions.iter().find(|found| found.type_ == type_);
    let available = condition("Available").is_some_and(|found| found.status == "True");
    let phase = machine.seen_phase().and_then(WorkloadPhase::parse);
    match (endpoint, phase) {
        (Some(endpoint), _) if available => Judged::here(endpoint),
        (_, Some(WorkloadPhase::Failed)) if machine.observed_generation == generation => {
            let why = condition("Ready").map_or("", |ready| ready.message.as_str());
            Judged::missing(subject.says(&format!("is in phase Failed: {why}")))
        }
        (_, Some(phase)) => Judged::not_yet(subject.says(&format!("is {phase}, not available"))),
        (_, None) => Judged::not_yet(subject.says("is not yet seen by the operator")),
    }
}

fn of_data(lookup: &Lookup<'_>, subject: &Subject<'_>, reference: &Reference) -> Judged {
    let Some(data) = lookup.data_of(reference) else {
        return match reference.optional {
            true => Judged::here("absent"),
            false => Judged::missing(subject.says("not found")),
        };
    };
    let missing = reference.keys.iter().filter(|key| !data.data.contains_key(*key));
    let missing: Vec<_> = missing.map(|key| subject.says(&format!("has no key \"{key}\""))).collect();
    match missing.is_empty() {
        true => Judged::here(data_digest(reference, &data)),
        false => Judged { missing, ..Judged::default() },
    }
}

/// Said of a workload with `proxy.requireIdentity`, which no Pod can call by itself.
pub(crate) const ONLY_GATEWAYS: &str = "answers only requests through the gateway (proxy.requireIdentity)";

impl Lookup<'_> {
    /// Whether what is referred to is a workload that answers only what a gateway vouches for.
    pub(crate) fn requires_identity(&self, reference: &Reference) -> bool {
        let (namespace, name) = (reference.namespace.as_deref().unwrap_or(self.namespace), reference.name.as_str());
        let required = match reference.kind {
            RefKind::Flow => self.views.flow(namespace, name).map(|it| it.spec.runtime.traffic.proxy.require_identity),
            RefKind::Agent => self.views.agent(namespace, name).map(|it| it.spec.traffic.proxy.require_identity),
            RefKind::MCPServer => self.views.mcp_server(namespace, name).map(|it| it.spec.proxy.require_identity),
            _ => None,
        };
        required.unwrap_or_default()
    }

    /// The Secret or ConfigMap that is referred to.
    pub(super) fn data_of(&self, reference: &Reference) -> Option<Arc<Child>> {
        let kind = if reference.kind == RefKind::Secret { ChildKind::Secret } else { ChildKind::ConfigMap };
        let (namespace, name) = (self.namespace.to_owned(), reference.name.clone());
        self.views.child(&ChildRef { kind, namespace, name })
    }
}

/// The digest of what is read of a Secret or ConfigMap.
pub(super) fn data_digest(reference: &Reference, data: &Child) -> String {
    let read = |key: &String| reference.whole || reference.keys.contains(key);
    let read: BTreeMap<_, _> = data.data.iter().filter(|(key, _)| read(key)).collect();
    digest::digest(&json!(read))
}

/// The digest of a spec, without what people sort by, so that editing that rolls nobody.
///
/// It is pinned in the users' statuses, so of the same spec every build has to make the same one, or an upgrade would move all
/// of them. A field that is added must not be written where it has its default (`skip_serializing_if`); a test holds that.
fn used(spec: &impl Serialize, without: &[&str]) -> String {
    let mut spec = serde_json::to_value(spec).unwrap_or(Value::Null);
    if let Some(fields) = spec.as_object_mut() {
        without.iter().for_each(|name| drop(fields.remove(*name)));
    }
    digest::digest(&spec)
}

fn lower(kind: RefKind) -> String {
    kind.as_str().to_lowercase()
}
