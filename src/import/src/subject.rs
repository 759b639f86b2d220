//! One object of the input while it is turned into ours.

use std::{cell::RefCell, collections::BTreeSet};

use serde_json::{Value, json};

use crate::{
    fields::Fields,
    input::{ObjectId, SourceObject, shown},
    line::{Line, Notes},
    metadata, output,
    output::OutputObject,
    source::Source,
    world::{Claim, World},
};

/// Kinds of ours that run Pods.
const WORKLOADS: [&str; 4] = ["Agent", "Flow", "FlowSet", "MCPServer"];

/// One object of the input, with what was reported of it and made from it.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) world: &'a World<'a>,
    pub(crate) object: &'a Value,
    pub(crate) id: ObjectId,
    /// Name of what it becomes.
    pub(crate) name: String,
    pub(crate) notes: Notes,
    of: String,
    outputs: RefCell<Vec<OutputObject>>,
    /// Objects of the output that a field refers to, with the objects of the input that they are made from.
    references: RefCell<Vec<FieldReference>>,
}

/// Reference of a field to an object of the output.
#[derive(Debug)]
struct FieldReference {
    field: String,
    /// Object of the input, as lines name it.
    from: String,
    to: Claim,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(object: &'a SourceObject, world: &'a World<'a>) -> Self {
        let id = ObjectId::of(&object.value);
        let version = object.value["apiVersion"].as_str().unwrap_or_default();
        Self {
            world,
            object: &object.value,
            name: world.own_name(&id),
            notes: Notes::default(),
            of: format!("{version} {}", id.kind),
            id,
            outputs: RefCell::default(),
            references: RefCell::default(),
        }
    }

    pub(crate) fn source(&self) -> Option<Source> {
        Source::of(self.object)
    }

    /// Returns the namespace; empty if none is given.
    pub(crate) fn namespace(&self) -> &str {
        &self.id.namespace
    }

    /// Returns the fields of the spec.
    pub(crate) fn spec(&self) -> Fields<'_> {
        let fields = Fields::new(self.object, &self.of, &self.notes);
        for key in ["apiVersion", "kind", "metadata", "status"] {
            fields.value(key);
        }
        fields.part("spec")
    }

    /// Adds the object of ours that this one becomes, with its labels and annotations.
    pub(crate) fn emit(&self, kind: &str, spec: Value) {
        let metadata = metadata::of(self.object, &self.name);
        self.add(kind, &self.name, json!({ "metadata": metadata, "spec": spec }));
    }

    /// Adds the object of ours that this one becomes, of which the spec was kept as it is; reports the fields that its
    /// type does not have.
    pub(crate) fn emit_own(&self, kind: &str, spec: Value) {
        let before = self.outputs.borrow().len();
        self.emit(kind, spec.clone());
        if let Some(made) = self.outputs.borrow().get(before) {
            for field in output::unknown(&spec, made.value.get("spec"), "spec") {
                self.notes.skip(&field, format!("is no field of {}", self.of));
            }
        }
    }

    /// Adds an object in the same namespace that this one makes necessary; several may add the same one.
    pub(crate) fn emit_more(&self, kind: &str, name: &str, fields: Value) {
        let mut body = json!({ "metadata": { "name": name } });
        if let (Some(body), Value::Object(fields)) = (body.as_object_mut(), fields) {
            body.extend(fields);
        }
        if !self.namespace().is_empty() {
            body["metadata"]["namespace"] = self.namespace().into();
        }
        self.add(kind, name, body);
    }

    fn add(&self, kind: &str, name: &str, body: Value) {
        let namespace = self.namespace().to_owned();
        match output::typed(kind, body) {
            Some(value) => {
                let output = OutputObject { kind: kind.to_owned(), namespace, name: name.to_owned(), value };
                self.outputs.borrow_mut().push(output);
            }
            None => self.notes.loss("", format!("left out: it has a value that no {kind} takes")),
        }
    }

    /// Adds an object of the input as it is.
    pub(crate) fn emit_as_is(&self, value: &Value) {
        let (kind, namespace, name) = (self.id.kind.clone(), self.id.namespace.clone(), self.id.name.clone());
        self.outputs.borrow_mut().push(OutputObject { kind, namespace, name, value: output::plain(value) });
    }

    /// Reports that an object of the same namespace that a field names is not in the input.
    pub(crate) fn needs(&self, field: &str, kind: &str, name: &str) {
        // Neither is read from a cluster.
        let is_hidden = matches!(kind, "Secret" | "ServiceAccount") && self.world.options.live;
        if !is_hidden && self.world.core(kind, self.namespace(), name).is_none() {
            self.missing(field, kind, self.namespace(), name);
        }
    }

    /// Reports that an object that a field names is not in the input.
    pub(crate) fn missing(&self, field: &str, kind: &str, namespace: &str, name: &str) {
        self.notes.todo(field, format!("{} is not in the input", shown(kind, namespace, name)));
    }

    /// Keeps that a field refers to what an object of the input becomes: a kind and name of ours.
    pub(crate) fn refers(&self, field: &str, from: String, to: Claim) {
        self.references.borrow_mut().push(FieldReference { field: field.to_owned(), from, to });
    }

    /// Returns the objects of the output that this one became.
    pub(crate) fn made(&self) -> Vec<Claim> {
        let outputs = self.outputs.borrow();
        let claim = |output: &OutputObject| (output.kind.clone(), output.namespace.clone(), output.name.clone());
        outputs.iter().map(claim).collect()
    }

    /// Reports references to objects of the input that became nothing.
    pub(crate) fn tell_left_out(&self, made: &BTreeSet<Claim>) {
        // Of an object that is left out itself, nothing refers to anything.
        if self.outputs.borrow().is_empty() {
            return;
        }
        for FieldReference { field, from, to } in &*self.references.borrow() {
            if !made.contains(to) {
                self.notes.todo(field, format!("{from} is left out: create it, or take the reference out"));
            }
        }
    }

    /// Returns the lines and the objects.
    pub(crate) fn finish(self) -> (Vec<Line>, Vec<OutputObject>) {
        let outputs = self.outputs.into_inner();
        let notes = Notes::default();
        let is_own = |output: &&OutputObject| output.name == self.name;
        if self.name != self.id.name && outputs.iter().any(|output| is_own(&output)) {
            notes.change("metadata.name", format!("is now {:?}", self.name));
        }
        let workload = outputs.iter().filter(is_own).any(|output| WORKLOADS.contains(&output.kind.as_str()));
        if self.world.options.live && workload && self.id.group != crds::GROUP {
            self.notes.todo(
                "",
                format!(
                    "its Deployment and Service of this name are there: delete {}'s object first, or ours stays in \
                     NameConflict",
                    self.id.group
                ),
            );
        }
        let principal = self.world.principal(self.object);
        let order = (output::rank(principal.unwrap_or_default()), self.id.namespace.clone(), self.name.clone());
        let shown = self.id.shown();
        let mut lines = notes.lines(&shown, &order);
        lines.extend(self.notes.lines(&shown, &order));
        (lines, outputs)
    }
}
