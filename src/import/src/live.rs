//! Selection of what is read from a cluster: the kinds of each source, and the objects of the core API that their objects name.

use std::collections::BTreeSet;

use crate::{
    ImportError, ImportOptions, SourceObject, convert, source::Source, subject::Subject, targets, world::World,
};

/// Kind of a source that is listed in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedKind {
    /// API group.
    pub group: &'static str,
    /// Versions of which the first one that is served is read.
    pub versions: &'static [&'static str],
    /// Kind.
    pub kind: &'static str,
    /// Plural of the kind, as in URLs.
    pub plural: &'static str,
}

/// Returns the kinds of a source, in the order in which they are listed.
pub fn listed_kinds(source: Source) -> Vec<ListedKind> {
    let kinds: &[(&str, &str)] = match source {
        Source::Kagent => &[
            ("ModelConfig", "modelconfigs"),
            ("ModelProviderConfig", "modelproviderconfigs"),
            ("Agent", "agents"),
            ("SandboxAgent", "sandboxagents"),
            ("ScheduledRun", "scheduledruns"),
            ("RemoteMCPServer", "remotemcpservers"),
            ("MCPServer", "mcpservers"),
            ("ToolServer", "toolservers"),
            ("Memory", "memories"),
        ],
        Source::Genkit => &[
            ("PluginConfig", "pluginconfigs"),
            ("Model", "models"),
            ("Prompt", "prompts"),
            ("Tool", "tools"),
            ("Flow", "flows"),
            ("FlowSet", "flowsets"),
            ("Dataset", "datasets"),
            ("Eval", "evals"),
        ],
        Source::Krypton => &[("Agent", "agents"), ("Model", "models")],
        // Upstream has no other kinds.
        Source::Recif => &[("Agent", "agents"), ("Tool", "tools")],
    };
    let (group, versions) = (source.group(), source.versions());
    kinds.iter().map(|(kind, plural)| ListedKind { group, versions, kind, plural }).collect()
}

/// Object of the core API that objects of a source name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedObject {
    /// ConfigMap or Service.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Returns the ConfigMaps and Services that the objects name; never a Secret.
///
/// # Errors
/// As [`crate::import()`].
pub fn named_objects(objects: &[SourceObject], options: &ImportOptions) -> Result<Vec<NamedObject>, ImportError> {
    crate::input::check(objects)?;
    let world = World::new(objects, options, targets)?;
    for object in world.objects() {
        convert(&Subject::new(object, &world));
    }
    let asked: BTreeSet<_> = world.asked();
    let is_read = |kind: &str| matches!(kind, "ConfigMap" | "Service");
    let named = asked.into_iter().filter(|(kind, namespace, _)| is_read(kind) && !namespace.is_empty());
    Ok(named.map(|(kind, namespace, name)| NamedObject { kind, namespace, name }).collect())
}
