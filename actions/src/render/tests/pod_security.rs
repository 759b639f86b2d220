//! Tests the check of overlays against the Pod Security Standards.

use std::path::Path;

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{agent, bare};
use crate::render::{
    AgentParts, PodSecurity, agent_config, agent_workload_children, check_pod_security, pod_security_violation,
};

/// Returns the error for an agent with this overlay, at this level.
fn message(overlay: &Value, level: PodSecurity) -> Option<String> {
    let agent = agent(json!({ "podTemplate": overlay, "proxy": { "enabled": false } }));
    let config = agent_config(&agent, &AgentParts::default(), &bare()).unwrap();
    let running = agent_workload_children(&agent, &config, super::images(&agent, "proxy".into()), None).unwrap();
    check_pod_security(&running, true, level).err().map(|error| error.to_string())
}

#[test]
fn an_overlay_beyond_the_level_is_refused_by_its_field() {
    let container = |fields: Value| {
        let mut container = json!({ "name": "agent" });
        super::merge(&mut container, fields);
        json!({ "spec": { "containers": [container] } })
    };
    let context = |fields: Value| container(json!({ "securityContext": fields }));
    let pod = |fields: Value| json!({ "spec": { "securityContext": fields } });
    let volume = |source: Value| {
        let mut volume = json!({ "name": "v" });
        super::merge(&mut volume, source);
        json!({ "spec": { "volumes": [volume] } })
    };
    for (overlay, field) in [
        (json!({ "spec": { "hostNetwork": true } }), "spec.hostNetwork"),
        (json!({ "spec": { "hostPID": true } }), "spec.hostPID"),
        (volume(json!({ "hostPath": { "path": "/" } })), "spec.volumes[v].hostPath"),
        (context(json!({ "privileged": true })), "spec.containers[agent].securityContext.privileged"),
        (context(json!({ "capabilities": { "add": ["SYS_ADMIN"] } })), "securityContext.capabilities.add"),
        (context(json!({ "procMount": "Unmasked" })), "securityContext.procMount"),
        (context(json!({ "seccompProfile": { "type": "Unconfined" } })), "securityContext.seccompProfile.type"),
        (pod(json!({ "seLinuxOptions": { "type": "spc_t" } })), "spec.securityContext.seLinuxOptions.type"),
        (pod(json!({ "sysctls": [{ "name": "kernel.msgmax", "value": "1" }] })), "spec.securityContext.sysctls"),
        (container(json!({ "ports": [{ "name": "x", "containerPort": 1, "hostPort": 1 }] })), "ports.hostPort"),
        (
            container(json!({ "livenessProbe": { "httpGet": { "host": "10.0.0.1", "path": "/", "port": 1 } } })),
            "a probe or hook with host",
        ),
    ] {
        for level in [PodSecurity::Baseline, PodSecurity::Restricted] {
            let error = message(&overlay, level).unwrap_or_default();
            assert!(error.contains(field) && error.contains("--pod-security"), "{overlay}: {error}");
        }
        assert_eq!(message(&overlay, PodSecurity::Privileged), None, "{overlay}");
    }
    let extra = json!({ "spec": { "containers": [{ "name": "extra", "image": "x" }] } });
    for (overlay, field) in [
        (extra, "spec.containers[extra].securityContext.allowPrivilegeEscalation"),
        (volume(json!({ "nfs": { "server": "s", "path": "/" } })), "spec.volumes[v]"),
        (pod(json!({ "runAsUser": 0 })), "spec.securityContext.runAsUser"),
        (pod(json!({ "runAsNonRoot": false })), "securityContext.runAsNonRoot"),
        (pod(json!({ "seccompProfile": null })), "securityContext.seccompProfile"),
        (context(json!({ "capabilities": { "add": ["CHOWN"] } })), "securityContext.capabilities.add"),
    ] {
        assert_eq!(message(&overlay, PodSecurity::Baseline), None, "{overlay}");
        let error = message(&overlay, PodSecurity::Restricted).unwrap_or_default();
        assert!(error.contains(field) && error.contains("restricted"), "{overlay}: {error}");
    }
}

#[test]
fn what_we_render_and_what_config_holds_is_restricted() {
    for overlay in [json!({}), json!({ "spec": { "nodeSelector": { "disk": "ssd" } } })] {
        assert_eq!(message(&overlay, PodSecurity::Restricted), None);
    }
    for part in ["operator", "gateway", "control-plane"] {
        let path = format!("{}/../config/{part}/deployment.yaml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(Path::new(&path)).unwrap();
        let documents = serde_yaml::Deserializer::from_str(&text).map(|it| Value::deserialize(it).unwrap());
        let deployments: Vec<_> = documents.filter(|it| it["kind"] == "Deployment").collect();
        assert!(!deployments.is_empty(), "{path}");
        for deployment in deployments {
            assert_eq!(
                pod_security_violation(&deployment["spec"]["template"], PodSecurity::Restricted),
                None,
                "{path}"
            );
        }
    }
}
