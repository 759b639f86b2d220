//! Collects the references of an object. They feed the reverse indexes, which find the users of a changed Tool or
//! Secret, and the look-ups that decide whether an object may proceed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::EnvVar;

use crate::{
    ObjectRef,
    tool_choice::ToolChoice,
    tool_server::{ServerHeader, ServerTls},
};

macro_rules! ref_kinds {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        /// Kinds that an object may refer to. They are ordered by their rank: missing objects are named in this order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        #[repr(u8)]
        pub enum RefKind {
            $($($kind = $rank,)?)+
            Secret = 254,
            ConfigMap = 255,
        }

        impl RefKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$($(ref_kinds!(variant $kind $rank),)?)+ Self::Secret, Self::ConfigMap];

            /// Returns the kind as written in manifests.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($(ref_kinds!(variant $kind $rank) => stringify!($kind),)?)+
                    Self::Secret => "Secret",
                    Self::ConfigMap => "ConfigMap",
                }
            }

            /// Reports whether objects of the kind only pass their references on, see [`HasReferences::IS_TRANSITIVE`].
            pub fn is_transitive(self) -> bool {
                match self {
                    $($(ref_kinds!(variant $kind $rank) => <crate::$module::$kind as HasReferences>::IS_TRANSITIVE,)?)+
                    Self::Secret | Self::ConfigMap => false,
                }
            }
        }
    };
    (variant $kind:ident $rank:literal) => { Self::$kind };
}
crate::for_each_kind!(ref_kinds);

impl RefKind {
    /// Returns the kind of this name; `None` if it cannot be referred to.
    pub fn parse(kind: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|found| found.as_str() == kind)
    }
}

impl fmt::Display for RefKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Reference to one object. Displays as `Tool/weather-api`, and with its namespace if that is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// Kind of the object.
    pub kind: RefKind,
    /// Namespace of the object, if it is another one.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
    /// Set if the object may be missing.
    pub optional: bool,
    /// Required keys of a Secret or ConfigMap; tools of a server.
    pub keys: BTreeSet<String>,
    /// Set if everything in a Secret or ConfigMap counts, and not only `keys`; unset for a Model that is a fallback, of which
    /// its own fallbacks do not count.
    pub whole: bool,
    /// Choices of tools of a server that are used as the server lists them; the tools in `keys` must exist.
    pub choices: BTreeSet<ToolChoice>,
}

impl Reference {
    /// Returns a reference to an object that must exist.
    pub fn new(kind: RefKind, name: impl Into<String>) -> Self {
        Self {
            kind,
            namespace: None,
            name: name.into(),
            optional: false,
            keys: BTreeSet::new(),
            whole: true,
            choices: BTreeSet::new(),
        }
    }
}

impl Reference {
    /// Reports whether it is to a Model that stands in for another one.
    pub fn is_fallback(&self) -> bool {
        self.kind == RefKind::Model && !self.whole
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{namespace}/{}", self.kind, self.name),
            None => write!(f, "{}/{}", self.kind, self.name),
        }
    }
}

/// Object that may refer to others. References in `podTemplate` are ignored.
pub trait HasReferences {
    /// Set if objects of the kind only pass their references on: an object that uses one also uses what that one refers to.
    const IS_TRANSITIVE: bool = false;

    /// Returns its references, sorted by kind and name, each object once. A reference is optional only if every mention
    /// of it is.
    fn references(&self) -> Vec<Reference> {
        let mut mentions = ReferenceSet::default();
        self.collect(&mut mentions);
        mentions.0.into_values().collect()
    }

    /// Adds all references to the set.
    fn collect(&self, mentions: &mut ReferenceSet);
}

/// References collected so far. Invariant: one entry per kind, namespace and name.
#[derive(Debug, Default)]
pub struct ReferenceSet(BTreeMap<(RefKind, Option<String>, String), Reference>);

impl ReferenceSet {
    /// Adds an object that must exist.
    pub(crate) fn add(&mut self, kind: RefKind, name: &str) {
        self.add_data(kind, name, None, None);
    }

    /// Adds an Agent that is asked.
    pub(crate) fn add_agent(&mut self, namespace: Option<&str>, name: &str) {
        let namespace = namespace.map(str::to_owned);
        self.join(Reference { namespace, ..Reference::new(RefKind::Agent, name) });
    }

    /// Adds the fallbacks of a model.
    pub(crate) fn add_fallbacks(&mut self, fallbacks: &[ObjectRef]) {
        for fallback in fallbacks {
            self.join(Reference { whole: false, ..Reference::new(RefKind::Model, &fallback.name) });
        }
    }

    /// Adds one key of a Secret or ConfigMap whose other content does not count.
    pub(crate) fn add_key(&mut self, kind: RefKind, name: &str, key: &str) {
        let mut reference = Reference::new(kind, name);
        (reference.keys, reference.whole) = (BTreeSet::from([key.to_owned()]), false);
        self.join(reference);
    }

    /// Adds a tool of a server.
    pub(crate) fn add_tool(&mut self, kind: RefKind, (namespace, name): (Option<&str>, &str), tool: &str) {
        let mut reference = Reference::new(kind, name);
        reference.namespace = namespace.filter(|namespace| !namespace.is_empty()).map(str::to_owned);
        (reference.keys, reference.whole) = (BTreeSet::from([tool.to_owned()]), false);
        self.join(reference);
    }

    /// Adds a choice of tools of a server.
    pub(crate) fn add_choice(&mut self, kind: RefKind, (namespace, name): (Option<&str>, &str), choice: ToolChoice) {
        let mut reference = Reference::new(kind, name);
        reference.namespace = namespace.map(str::to_owned);
        (reference.choices, reference.whole) = (BTreeSet::from([choice]), false);
        self.join(reference);
    }

    /// Adds a Secret or ConfigMap as a whole, and a key that it must have unless it is optional.
    pub(crate) fn add_data(&mut self, kind: RefKind, name: &str, key: Option<&str>, optional: Option<bool>) {
        let optional = optional.unwrap_or(false);
        let keys = key.filter(|_| !optional).map(str::to_owned).into_iter().collect();
        self.join(Reference { optional, keys, ..Reference::new(kind, name) });
    }

    /// Adds what the headers of a server and the verification of its certificate are read from.
    pub(crate) fn add_server(&mut self, headers: &[ServerHeader], tls: Option<&ServerTls>) {
        for source in headers.iter().filter_map(|header| header.value_from.as_ref()) {
            let kind = if source.is_secret() { RefKind::Secret } else { RefKind::ConfigMap };
            self.add_key(kind, &source.name, &source.key);
        }
        if let Some(ca) = tls.and_then(|tls| tls.ca_secret_ref.as_ref()) {
            self.add_key(RefKind::Secret, &ca.name, &ca.key);
        }
    }

    pub(crate) fn add_env(&mut self, env: &[EnvVar]) {
        for source in env.iter().filter_map(|variable| variable.value_from.as_ref()) {
            if let Some(key) = &source.secret_key_ref {
                self.add_data(RefKind::Secret, &key.name, Some(&key.key), key.optional);
            }
            if let Some(key) = &source.config_map_key_ref {
                self.add_data(RefKind::ConfigMap, &key.name, Some(&key.key), key.optional);
            }
        }
    }

    fn join(&mut self, new: Reference) {
        if new.name.is_empty() {
            return;
        }
        let place = (new.kind, new.namespace.clone(), new.name.clone());
        match self.0.get_mut(&place) {
            Some(known) => {
                known.optional &= new.optional;
                known.whole |= new.whole;
                known.keys.extend(new.keys);
                known.choices.extend(new.choices);
            }
            None => drop(self.0.insert(place, new)),
        }
    }
}
