//! All objects of an import: found by name, in the order of their names, and with the names that ours get.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use serde_json::Value;

use crate::{
    input::{ImportError, ImportOptions, ObjectId, SourceObject},
    names,
    source::Source,
};

/// Kind, namespace and name of an object of the output.
pub(crate) type Claim = (String, String, String);

/// Kinds of what an object of a source becomes.
type Targets = fn(Source, &Value) -> &'static [&'static str];

/// All objects of an import.
#[derive(Debug)]
pub(crate) struct World<'a> {
    by_id: BTreeMap<ObjectId, &'a SourceObject>,
    /// Name of what an object becomes.
    names: BTreeMap<ObjectId, String>,
    /// Objects of the output whose names are taken: with their content if several objects may share them.
    claims: RefCell<BTreeMap<Claim, Option<Value>>>,
    /// Objects of the core API that were looked up, by kind, namespace and name.
    asked: RefCell<BTreeSet<Claim>>,
    pub(crate) options: &'a ImportOptions,
    targets: Targets,
}

impl<'a> World<'a> {
    /// Finds the names of all objects.
    ///
    /// # Errors
    /// [`ImportError::Nothing`] if no object is of a source that is taken.
    pub(crate) fn new(
        objects: &'a [SourceObject],
        options: &'a ImportOptions,
        targets: Targets,
    ) -> Result<Self, ImportError> {
        let by_id: BTreeMap<_, _> = objects.iter().map(|object| (ObjectId::of(&object.value), object)).collect();
        let (claims, asked) = (RefCell::default(), RefCell::default());
        let world = Self { by_id, names: BTreeMap::new(), claims, asked, options, targets };
        if world.sources().is_empty() {
            let groups = match options.from {
                Some(source) => source.group().to_owned(),
                None => "kagent.dev, genkit.dev, krypton.ai or agents.recif.dev".to_owned(),
            };
            return Err(ImportError::Nothing(groups));
        }
        Ok(world.named())
    }

    fn named(mut self) -> Self {
        let mut names = BTreeMap::new();
        // Objects that stay as they are keep their names.
        for (id, object) in &self.by_id {
            if matches!(Source::of(&object.value), None | Some(Source::Recif)) {
                let claim = (id.kind.clone(), id.namespace.clone(), id.name.clone());
                self.claims.get_mut().insert(claim, None);
            }
        }
        for (id, object) in &self.by_id {
            let kinds = match Source::of(&object.value).filter(|source| !self.drops(*source)) {
                Some(source) if source != Source::Recif => (self.targets)(source, &object.value),
                _ => &[],
            };
            if kinds.is_empty() {
                continue;
            }
            let fixed = kinds.iter().fold(id.name.clone(), |name, kind| names::fixed(kind, &name));
            let claims = self.claims.get_mut();
            let claim = |kind: &str, name: &str| (kind.to_owned(), id.namespace.clone(), name.to_owned());
            let is_free = |name: &str| !kinds.iter().any(|kind| claims.contains_key(&claim(kind, name)));
            let name = names::numbered(&fixed).find(|name| is_free(name)).unwrap_or_else(|| fixed.clone());
            claims.extend(kinds.iter().map(|kind| (claim(kind, &name), None)));
            names.insert(id.clone(), name);
        }
        self.names = names;
        self
    }

    /// Returns the objects in the order of their names, without those that are only read.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &'a SourceObject> + use<'_, 'a> {
        self.by_id.values().copied().filter(|object| !object.is_context)
    }

    /// Returns the sources of which there are objects that are taken.
    pub(crate) fn sources(&self) -> Vec<Source> {
        let found: BTreeSet<_> = self.objects().filter_map(|object| Source::of(&object.value)).collect();
        found.into_iter().filter(|source| !self.drops(*source)).collect()
    }

    /// Reports whether objects of a source are left out.
    pub(crate) fn drops(&self, source: Source) -> bool {
        self.options.from.is_some_and(|from| from != source)
    }

    /// Returns an object of a source.
    pub(crate) fn find(&self, source: Source, kind: &str, namespace: &str, name: &str) -> Option<&'a SourceObject> {
        let id = ObjectId::new(source.group(), kind, namespace, name);
        let found = self.by_id.get(&id).copied()?;
        (Source::of(&found.value) == Some(source) && !self.drops(source)).then_some(found)
    }

    /// Returns an object of the core API, such as a ConfigMap.
    pub(crate) fn core(&self, kind: &str, namespace: &str, name: &str) -> Option<&'a Value> {
        self.asked.borrow_mut().insert((kind.to_owned(), namespace.to_owned(), name.to_owned()));
        self.by_id.get(&ObjectId::new("", kind, namespace, name)).map(|object| &object.value)
    }

    /// Returns the objects of the core API that were looked up.
    pub(crate) fn asked(self) -> BTreeSet<Claim> {
        self.asked.into_inner()
    }

    /// Reports whether the input has a namespace, or an object in it.
    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        let is_it = |id: &ObjectId| id.group.is_empty() && id.kind == "Namespace" && id.name == name;
        self.by_id.keys().any(|id| id.namespace == name || is_it(id))
    }

    /// Returns the text at a key of a ConfigMap.
    pub(crate) fn config_text(&self, namespace: &str, name: &str, key: &str) -> Option<&'a str> {
        self.core("ConfigMap", namespace, name)?.get("data")?.get(key)?.as_str()
    }

    /// Returns the name that an object of a source has among ours; one that is not in the input has the name that it
    /// would get as `target`.
    pub(crate) fn name_of(&self, source: Source, kind: &str, target: &str, namespace: &str, name: &str) -> String {
        let id = ObjectId::new(source.group(), kind, namespace, name);
        self.names.get(&id).cloned().unwrap_or_else(|| names::fixed(target, name))
    }

    /// Returns the name that an object of the input itself gets.
    pub(crate) fn own_name(&self, id: &ObjectId) -> String {
        self.names.get(id).cloned().unwrap_or_else(|| id.name.clone())
    }

    /// Takes a name for an object that several objects of the input may share: the wanted one, or with a number if an
    /// object of another content has it.
    pub(crate) fn claim(&self, kind: &str, namespace: &str, wanted: &str, content: &Value) -> String {
        let mut claims = self.claims.borrow_mut();
        let claim = |name: &str| (kind.to_owned(), namespace.to_owned(), name.to_owned());
        let fits = |name: &String| match claims.get(&claim(name)) {
            None => true,
            Some(known) => known.as_ref() == Some(content),
        };
        let fixed = names::fixed(kind, wanted);
        let name = names::numbered(&fixed).find(fits).unwrap_or_else(|| fixed.clone());
        claims.insert(claim(&name), Some(content.clone()));
        name
    }

    /// Reports whether an object of the input, or of what it becomes, has a name.
    pub(crate) fn is_taken(&self, kind: &str, namespace: &str, name: &str) -> bool {
        self.claims.borrow().get(&(kind.to_owned(), namespace.to_owned(), name.to_owned())).is_some_and(Option::is_none)
    }

    /// Returns the kind and name by which the output is ordered, for an object of the input.
    pub(crate) fn principal(&self, object: &Value) -> Option<&'static str> {
        (self.targets)(Source::of(object)?, object).first().copied()
    }
}
