//! Builds `podTemplate`: what our kinds have no field for, as an overlay on the Pod template.

use serde_json::{Map, Value, json};

use crate::{
    env::{set, set_list},
    fields::Fields,
    needs,
    subject::Subject,
};

/// Overlay on the Pod template of a workload.
#[derive(Debug)]
pub(crate) struct Overlay {
    /// Name of the workload's own container.
    container_name: &'static str,
    template: Value,
    container: Map<String, Value>,
    others: Vec<Value>,
}

impl Overlay {
    /// Returns an empty overlay for a workload of a kind.
    pub(crate) fn of(kind: &str) -> Self {
        let container_name = match kind {
            "Flow" => "flow",
            "FlowSet" => "flowset",
            "MCPServer" => "mcpserver",
            _ => "agent",
        };
        Self { container_name, template: json!({}), container: Map::new(), others: Vec::new() }
    }

    /// Returns the overlay with what a spec has already; `None` if that is none.
    pub(crate) fn on(kind: &str, template: Option<&Value>) -> Option<Self> {
        let mut overlay = Self::of(kind);
        let given = template.cloned().unwrap_or_else(|| json!({}));
        if !given.is_object() || given.get("spec").is_some_and(|spec| !spec.is_object()) {
            return None;
        }
        overlay.template = given;
        let containers = overlay.template.pointer_mut("/spec/containers").and_then(Value::as_array_mut);
        for container in containers.map(std::mem::take).into_iter().flatten() {
            match container {
                Value::Object(fields) if fields.get("name") == Some(&json!(overlay.container_name)) => {
                    overlay.container = fields;
                }
                other => overlay.others.push(other),
            }
        }
        Some(overlay)
    }

    /// Copies what a deployment of kagent or kmcp says of its Pods beyond our fields.
    pub(crate) fn take(&mut self, subject: &Subject<'_>, fields: &Fields<'_>) {
        self.take_metadata(subject, fields, "labels");
        self.take_metadata(subject, fields, "annotations");
        for key in ["tolerations", "volumes"] {
            let items = fields.items(key);
            if key == "volumes" {
                needs::volumes(subject, &fields.path(key), items);
            }
            self.add_to_pod(key, items.to_vec());
        }
        for (key, target) in
            [("affinity", "affinity"), ("nodeSelector", "nodeSelector"), ("podSecurityContext", "securityContext")]
        {
            let part = fields.value(key).filter(|value| value.is_object());
            self.set_in_pod(target, part.cloned());
        }
        let context = fields.value("securityContext").filter(|value| value.is_object());
        set(&mut self.container, "securityContext", context.cloned());
        let mounts = fields.items("volumeMounts").to_vec();
        self.mount(mounts);
    }

    /// Adds containers beside the workload's own.
    pub(crate) fn take_containers(&mut self, subject: &Subject<'_>, fields: &Fields<'_>, key: &str) {
        for (index, container) in fields.items(key).iter().enumerate() {
            let path = format!("{}[{index}]", fields.path(key));
            match container["name"].as_str() {
                Some(name) if name == self.container_name || name == crds::PROXY_CONTAINER => {
                    subject.notes.loss(&path, "the name is ours");
                }
                Some(_) => {
                    needs::container(subject, &path, container);
                    self.others.push(container.clone());
                }
                None => subject.notes.skip(&path, "has no name"),
            }
        }
    }

    fn take_metadata(&mut self, subject: &Subject<'_>, fields: &Fields<'_>, key: &str) {
        for (name, value) in fields.entries(key) {
            let path = format!("{}[{name}]", fields.path(key));
            let is_ours = name == "app.kubernetes.io/name"
                || name == "app.kubernetes.io/managed-by"
                || name == crds::ROLLOUT_AT
                || name == "recif.dev/config-hash"
                || name == "recif.dev/content-hash"
                || matches!(name, "recif.dev/agent" | "recif.dev/flow" | "recif.dev/flowset" | "recif.dev/mcpserver");
            if is_ours {
                subject.notes.loss(&path, "the name is ours");
            } else if value.is_string() {
                self.template["metadata"][key][name] = value.clone();
            } else {
                subject.notes.skip(&path, "is no text");
            }
        }
    }

    /// Sets a field of the Pod.
    pub(crate) fn set_in_pod(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.template["spec"][key] = value.into();
        }
    }

    /// Adds items to a list of the Pod.
    pub(crate) fn add_to_pod(&mut self, key: &str, items: Vec<Value>) {
        append(&mut self.template["spec"][key], items);
        prune(&mut self.template, key);
    }

    /// Sets a field of the workload's container.
    pub(crate) fn set_in_container(&mut self, key: &str, value: Option<impl Into<Value>>) {
        set(&mut self.container, key, value);
    }

    /// Adds items to a list of the workload's container.
    pub(crate) fn add_to_container(&mut self, key: &str, items: Vec<Value>) {
        if !items.is_empty() {
            append(self.container.entry(key).or_insert(Value::Null), items);
        }
    }

    /// Adds mounts to the workload's container.
    pub(crate) fn mount(&mut self, mounts: Vec<Value>) {
        self.add_to_container("volumeMounts", mounts);
    }

    /// Gives the Pods the token of their account, as they had it.
    pub(crate) fn keep_token(&mut self, subject: &Subject<'_>, field: &str) {
        self.set_in_pod("automountServiceAccountToken", Some(true));
        subject.notes.change(field, "podTemplate mounts the token of the account, as it was");
    }

    /// Returns the overlay; `None` if it is empty.
    pub(crate) fn finish(self) -> Option<Value> {
        let Self { container_name, mut template, mut container, others } = self;
        let mut containers = Vec::new();
        container.remove("name");
        if !container.is_empty() {
            container.insert("name".to_owned(), container_name.into());
            containers.push(Value::Object(container));
        }
        containers.extend(others);
        if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("containers");
            set_list(spec, "containers", containers);
        } else if !containers.is_empty() {
            template["spec"] = json!({ "containers": containers });
        }
        Some(template).filter(|template| template.as_object().is_some_and(|fields| !fields.is_empty()))
    }
}

fn append(list: &mut Value, items: Vec<Value>) {
    match list {
        Value::Array(known) => known.extend(items),
        other if !items.is_empty() => *other = Value::Array(items),
        _ => {}
    }
}

/// Removes a field of the Pod that stayed empty, and the Pod if nothing else is in it.
fn prune(template: &mut Value, key: &str) {
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get(key).is_some_and(Value::is_null) {
        spec.remove(key);
    }
    if spec.is_empty()
        && let Some(fields) = template.as_object_mut()
    {
        fields.remove("spec");
    }
}

/// Reports what is different for an image that is not ours; it is said of the object, as the image itself stays.
pub(crate) fn tell_image(subject: &Subject<'_>) {
    subject
        .notes
        .change("", "runs as uid 1000, restricted; podTemplate.spec.securityContext if the image needs its own user");
}
