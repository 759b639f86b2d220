//! Renders the Helm charts, and compares them with config/, object by object.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use serde::Deserialize as _;
use serde_json::{Value, json};
use testing::tools;

/// Objects by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a tool, with nothing of the user's around it.
fn run(name: &str, arguments: &[&str]) -> Output {
    static PATHS: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
    let path = PATHS[usize::from(name == "helm")].get_or_init(|| tools::path(name));
    let mut command = Command::new(path);
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm"));
    }
    command.env_remove("KUBECONFIG").current_dir(root()).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs a tool that must succeed, and returns its output.
fn successful(name: &str, arguments: &[&str]) -> String {
    let output = run(name, arguments);
    assert!(output.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    text(&output)
}

fn template<'a>(chart: &'a str, namespace: &'a str, sets: &[&'a str]) -> Output {
    let folder = format!("config/helm/{chart}");
    let mut arguments = vec!["template", chart, &folder, "--namespace", namespace];
    sets.iter().for_each(|set| arguments.extend(["--set-json", set]));
    run("helm", &arguments)
}

fn rendered(chart: &str, sets: &[&str]) -> String {
    let output = template(chart, "recif-system", sets);
    assert!(output.status.success(), "{chart} {sets:?}: {}", String::from_utf8_lossy(&output.stderr));
    text(&output)
}

/// Returns the error of an installation that is refused.
fn refused(sets: &[&str]) -> String {
    let output = template("recif", "recif-system", sets);
    assert!(!output.status.success(), "{sets:?} is accepted");
    String::from_utf8(output.stderr).unwrap()
}

fn objects(manifests: &str) -> Objects {
    let documents = serde_yaml::Deserializer::from_str(manifests).map(|document| Value::deserialize(document).unwrap());
    let mut found = Objects::new();
    for object in documents.filter(|document| !document.is_null()) {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let key = format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
        assert!(found.insert(key.clone(), object).is_none(), "{key} is there twice");
    }
    found
}

/// Removes what differs by intent.
fn comparable(manifests: &str) -> Objects {
    let mut objects = objects(manifests);
    objects.retain(|key, object| {
        !key.starts_with("Namespace ") && object["metadata"]["annotations"]["helm.sh/hook"].is_null()
    });
    for object in objects.values_mut() {
        if let Some(labels) = object["metadata"].get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove("helm.sh/chart");
            for name in ["managed-by", "instance", "version"] {
                labels.remove(&format!("app.kubernetes.io/{name}"));
            }
            if labels.is_empty() {
                object["metadata"].as_object_mut().unwrap().remove("labels");
            }
        }
        for container in
            object.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut).into_iter().flatten()
        {
            container["image"] = Value::Null;
            let Some(variables) = container.get_mut("env").and_then(Value::as_array_mut) else { continue };
            for variable in variables {
                if ["RECIF_AGENT_IMAGE", "RECIF_RUNNER_IMAGE", "RECIF_PROXY_IMAGE"]
                    .iter()
                    .any(|name| variable["name"] == *name)
                {
                    variable["value"] = Value::Null;
                }
            }
        }
    }
    objects
}

/// Checks that both charts with these values make what the folder of a kustomization makes.
fn same(folder: &str, sets: &[&str]) {
    let ours = rendered("recif-crds", &["keep=false"]) + "\n---\n" + &rendered("recif", sets);
    let (ours, theirs) = (comparable(&ours), comparable(&successful("kustomize", &["build", folder])));
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "the objects of {folder}");
    assert!(theirs.len() > 40, "{} objects", theirs.len());
    for (key, object) in &theirs {
        assert_eq!(ours[key], *object, "{key} of the chart (left) and of {folder} (right)");
    }
}

#[test]
fn the_defaults_are_config_default() {
    same("config/default", &[]);
}

#[test]
fn watched_namespaces_are_config_namespaced() {
    same("config/namespaced", &[r#"watchNamespaces=["team-a"]"#]);
}

/// Checks that both charts with these values make config/default with a component of config/.
fn same_with(component: &str, sets: &[&str]) {
    // A kustomization refers to others by relative paths.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("with").join(component);
    let up: PathBuf = folder.components().skip(1).map(|_| "..").collect();
    let config = up.join(root().strip_prefix("/").unwrap()).join("config");
    fs::create_dir_all(&folder).unwrap();
    let (default, component) = (config.join("default"), config.join(component));
    let text = format!("resources: [{}]\ncomponents: [{}]\n", default.display(), component.display());
    fs::write(folder.join("kustomization.yaml"), text).unwrap();
    same(folder.to_str().unwrap(), sets);
}

#[test]
fn a_secret_for_tls_is_the_component() {
    same_with("gateway/tls", &[r#"gateway.tls.secretName="recif-gateway-tls""#]);
}

/// Values that turn on all of the monitoring.
const MONITORING: [&str; 4] = [
    "metrics.serviceMonitor.enabled=true",
    "metrics.podMonitor.enabled=true",
    "metrics.prometheusRule.enabled=true",
    "metrics.dashboard.enabled=true",
];

#[test]
fn monitors_alerts_and_dashboard_are_the_component() {
    same_with("monitoring", &MONITORING);
}

#[test]
fn builtin_traces_lead_to_the_control_plane() {
    let builtin = r#"telemetry.endpoint="builtin""#;
    let (before, after) = (objects(&rendered("recif", &[])), objects(&rendered("recif", &[builtin])));
    let names = |key: &str, pointer: &str| {
        let list = |objects: &Objects| objects[key].pointer(pointer).unwrap().as_array().unwrap().clone();
        let known = list(&before);
        list(&after).into_iter().filter(|item| !known.contains(item)).collect::<Vec<_>>()
    };
    let container = |field: &str| format!("/spec/template/spec/containers/0/{field}");
    let endpoint = json!({"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://recif-control-plane:4318"});
    // Operator and gateway show their accounts by a token, since their Pods are none of a workload's.
    let token = json!({"name": "RECIF_OTLP_TOKEN_FILE", "value": "/var/run/secrets/recif/token"});
    let mount = json!({"name": "telemetry-token", "mountPath": "/var/run/secrets/recif", "readOnly": true});
    let source = json!({"audience": "recif-telemetry", "expirationSeconds": 3600, "path": "token"});
    let volume = json!({"name": "telemetry-token", "projected": {"sources": [{"serviceAccountToken": source}]}});
    for part in ["Deployment recif-system/recif-operator", "Deployment recif-system/recif-gateway"] {
        assert_eq!(names(part, &container("env")), [endpoint.clone(), token.clone()], "{part}");
        let mounted = |pointer: &str| after[part].pointer(pointer).cloned();
        assert_eq!(mounted(&container("volumeMounts")), Some(json!([mount])), "{part}");
        assert_eq!(mounted("/spec/template/spec/volumes"), Some(json!([volume])), "{part}");
    }
    let control_plane = "Deployment recif-system/recif-control-plane";
    let accounts = "--otlp-accounts=recif-system/recif-gateway,recif-system/recif-operator";
    assert_eq!(names(control_plane, &container("args")), [json!("--otlp-listen=0.0.0.0:4318"), json!(accounts)]);
    assert_eq!(names(control_plane, &container("ports")), [json!({"name": "otlp", "containerPort": 4318})]);
    let port = json!({"name": "otlp", "port": 4318, "targetPort": "otlp"});
    assert_eq!(names("Service recif-system/recif-control-plane", "/spec/ports"), [port]);
    let rule = json!({"ports": [{"port": 4318, "protocol": "TCP"}]});
    assert_eq!(names("NetworkPolicy recif-system/recif-control-plane", "/spec/ingress"), [rule]);
    let error = refused(&[builtin, "controlPlane.enabled=false"]);
    assert!(error.contains("telemetry.endpoint is builtin"), "{error}");
    assert!(refused(&[r#"telemetry.endpoint="built-in""#]).contains("telemetry"));
}

#[test]
fn a_collector_is_named_to_operator_and_gateway() {
    let collector = "http://collector.monitoring:4318";
    let objects = objects(&rendered("recif", &[&format!("telemetry.endpoint={collector:?}")]));
    let endpoint = json!({"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": collector});
    for (part, expected) in [("operator", true), ("gateway", true), ("control-plane", false)] {
        let env =
            objects[&format!("Deployment recif-system/recif-{part}")].pointer("/spec/template/spec/containers/0/env");
        let has_it = env.and_then(Value::as_array).is_some_and(|env| env.contains(&endpoint));
        assert_eq!(has_it, expected, "{part}");
    }
}

#[test]
fn each_part_of_the_monitoring_is_made_alone() {
    for (set, made) in MONITORING.into_iter().zip([
        &["ServiceMonitor recif-system/recif-gateway", "ServiceMonitor recif-system/recif-operator"][..],
        &["PodMonitor recif-system/recif-control-plane", "PodMonitor recif-system/recif-sidecars"],
        &["PrometheusRule recif-system/recif"],
        &["ConfigMap recif-system/recif-dashboard"],
    ]) {
        let before = objects(&rendered("recif", &[]));
        let mut after = objects(&rendered("recif", &[set]));
        after.retain(|key, _| !before.contains_key(key));
        assert_eq!(after.keys().collect::<Vec<_>>(), made, "{set}");
    }
    let without = objects(&rendered("recif", &[MONITORING[1], "controlPlane.enabled=false"]));
    assert!(!without.contains_key("PodMonitor recif-system/recif-control-plane"));
}

#[test]
fn labels_and_annotations_of_the_monitoring_are_added_to_ours() {
    let more = r#"labels={"release":"mine","app.kubernetes.io/part-of":"all"},metrics.NAME.annotations={"a":"b"}"#;
    let sets: Vec<String> = ["serviceMonitor", "podMonitor", "prometheusRule", "dashboard"]
        .map(|name| format!("metrics.{name}.enabled=true,metrics.{name}.{}", more.replace("NAME", name)))
        .into();
    let sets: Vec<&str> = sets.iter().map(String::as_str).chain([r#"metrics.interval="5s""#]).collect();
    let mut objects = objects(&rendered("recif", &sets));
    objects.retain(|key, _| key.contains("Monitor ") || key.contains("Rule ") || key.contains("dashboard"));
    assert_eq!(objects.len(), 6);
    for (key, object) in objects {
        let (labels, annotations) = (&object["metadata"]["labels"], &object["metadata"]["annotations"]);
        assert_eq!(labels["release"], "mine", "{key}");
        assert_eq!(labels["app.kubernetes.io/part-of"], "all", "{key}");
        assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm", "{key}");
        assert_eq!(annotations["a"], "b", "{key}");
        for field in ["endpoints", "podMetricsEndpoints"] {
            let endpoints = object["spec"][field].as_array().into_iter().flatten();
            endpoints.for_each(|endpoint| assert_eq!(endpoint["interval"], "5s", "{key}"));
        }
    }
}

#[test]
fn the_linter_has_no_complaint() {
    for chart in ["recif-crds", "recif"] {
        successful("helm", &["lint", "--strict", &format!("config/helm/{chart}")]);
        let all = format!("tests/chart/{chart}.yaml");
        successful("helm", &["lint", "--strict", &format!("config/helm/{chart}"), "--values", &all]);
    }
}

#[test]
fn values_that_cannot_be_meant_are_refused() {
    let digest = format!(r#"images.runner.digest="sha256:{}""#, "a".repeat(64));
    for (sets, text) in [
        (&["replicaCount=3"][..], "additional properties 'replicaCount' not allowed"),
        (&["gateway.replicaCount=3"], "additional properties 'replicaCount' not allowed"),
        (
            &["controlPlane.replicas=2"],
            "controlPlane.replicas is 2 and its history is in a file: set controlPlane.database.required=true and create the \
             Secret recif-database, or keep 1",
        ),
        (&[&digest, r#"image.tag="1.0""#], "images.runner.digest is set: leave image.tag out, or remove the digest"),
    ] {
        let error = refused(sets);
        assert!(error.contains(text), "{sets:?}: {error}");
    }
}

#[test]
fn the_definitions_outlive_the_chart_unless_told_otherwise() {
    for (sets, kept) in [(&[][..], crds::KINDS.len()), (&["keep=false"], 0)] {
        assert_eq!(rendered("recif-crds", sets).matches("helm.sh/resource-policy: keep").count(), kept);
    }
}

#[test]
fn nothing_names_a_namespace_but_that_of_the_release() {
    let output = template("recif", "elsewhere", &MONITORING);
    let text = text(&output);
    assert!(output.status.success() && !text.contains("recif-system"), "recif-system is named");
    let others = objects(&text).into_keys().filter(|key| !key.contains(" elsewhere/") && !key.contains(" /")).count();
    assert_eq!(others, 0);
}

#[test]
fn the_notes_say_what_to_do_next() {
    let notes = |chart: &str, arguments: &[&str]| {
        let folder = format!("config/helm/{chart}");
        let base = ["install", chart, &folder, "--namespace", "recif-system", "--dry-run=client"];
        let text = successful("helm", &[&base[..], arguments].concat());
        text.split_once("NOTES:\n").unwrap().1.to_owned()
    };
    let first = notes("recif", &[]);
    for text in [
        "kubectl apply -f -",
        "kubectl wait --for condition=Ready",
        "recif chat agent/hello",
        "ends with the control plane's Pod",
    ] {
        assert!(first.contains(text), "{text}: {first}");
    }
    assert!(first.contains("THE KINDS OF RÉCIF ARE MISSING"), "{first}");
    let kept = notes("recif", &["--set", "controlPlane.persistence.enabled=true"]);
    assert!(kept.contains("on a volume"), "{kept}");
    assert!(notes("recif-crds", &["--set", "keep=false"]).contains("deletes the definitions"));
}

/// Values that have an effect only beside others: a prefix, and the others.
const BESIDE: &[(&str, &str)] = &[
    ("controlPlane.replicas", "controlPlane.database.required=true"),
    ("controlPlane.persistence.size", "controlPlane.persistence.enabled=true"),
    ("controlPlane.persistence.storageClassName", "controlPlane.persistence.enabled=true"),
    ("controlPlane.persistence.existingClaim", "controlPlane.persistence.enabled=true"),
    ("controlPlane.podDisruptionBudget", "controlPlane.database.required=true,controlPlane.replicas=2"),
    ("metrics.interval", MONITORING[0]),
    ("metrics.serviceMonitor.labels", MONITORING[0]),
    ("metrics.serviceMonitor.annotations", MONITORING[0]),
    ("metrics.podMonitor.labels", MONITORING[1]),
    ("metrics.podMonitor.annotations", MONITORING[1]),
    ("metrics.prometheusRule.labels", MONITORING[2]),
    ("metrics.prometheusRule.annotations", MONITORING[2]),
    ("metrics.dashboard.labels", MONITORING[3]),
    ("metrics.dashboard.annotations", MONITORING[3]),
];
/// Values that exclude another of tests/chart/recif.yaml, or turn a part of it off.
const APART: &[(&str, &str)] = &[
    ("image.tag", r#""1.0""#),
    ("controlPlane.enabled", "false"),
    ("controlPlane.replicas", "3"),
    ("controlPlane.database.required", "true"),
    ("controlPlane.persistence.existingClaim", r#""mine""#),
    ("admissionPolicy.enabled", "false"),
    ("rbac.create", "false"),
    ("rbac.aggregate", "false"),
    ("networkPolicy.enabled", "false"),
    ("tests.enabled", "false"),
];

/// Adds the path of each value that the chart itself reads, by the schema.
fn paths(schema: &Value, of: &Value, prefix: &str, found: &mut Vec<String>) {
    for (name, property) in of["properties"].as_object().unwrap() {
        let reference = property["$ref"].as_str().map(|reference| reference.trim_start_matches('#'));
        let property = reference.map_or(property, |reference| schema.pointer(reference).unwrap());
        let path = format!("{prefix}{name}");
        match property["properties"].is_object() {
            true => paths(schema, property, &format!("{path}."), found),
            false => found.push(path),
        }
    }
}

#[test]
fn each_value_changes_what_is_made() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let schema: Value = serde_json::from_str(&read("config/helm/recif/values.schema.json")).unwrap();
    let all: Value = serde_yaml::from_str(&read("tests/chart/recif.yaml")).unwrap();
    let mut values = Vec::new();
    paths(&schema, &schema, "", &mut values);
    values.retain(|path| path != "global");
    let mut bases = BTreeMap::new();
    for path in values {
        let apart = APART.iter().find(|(name, _)| *name == path).map(|(_, value)| (*value).to_owned());
        let value = apart.unwrap_or_else(|| {
            let value = all.pointer(&format!("/{}", path.replace('.', "/")));
            value.unwrap_or_else(|| panic!("{path} is not in tests/chart/recif.yaml")).to_string()
        });
        let beside = BESIDE.iter().find(|(name, _)| path.starts_with(name)).map(|(_, sets)| *sets);
        let base = bases.entry(beside).or_insert_with(|| rendered("recif", beside.as_slice()));
        let set = format!("{path}={value}");
        let sets: Vec<&str> = beside.into_iter().chain([set.as_str()]).collect();
        let changed = rendered("recif", &sets);
        assert!(changed != *base, "{set} changes nothing");
        objects(&changed);
    }
}
