//! Tests that each problem is shown with what to do about it, and that the other objects run.

use super::{
    harness::{Dev, folder, save},
    samples::{agent, custom},
};

/// A server of tools whose program is not on this machine.
const MISSING: &str = "apiVersion: agents.recif.dev/v1
kind: MCPServer
metadata: {name: time}
spec:
  transportType: stdio
  deployment: {image: acme/time:1, cmd: no-such-server}
";

const INGRESS: &str = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: shop}\n";
const TWICE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n";

#[tokio::test]
async fn each_trouble_is_told_with_its_remedy_and_the_rest_runs() {
    let folder = folder("trouble");
    let image_only = custom("shop", "x", "").replace("  annotations:\n    recif.dev/dev-command: \"x\"\n", "");
    let crash = custom("crash", "sh -c 'echo last words; exit 1'", "");
    let database = "env: [{name: DATABASE, value: \"postgres://u@db.default.svc.cluster.local:5432/x\"}]";
    let alone = custom("alone", "sh -c 'exec sleep 1000'", database);
    for (file, text) in [
        ("a.yaml", agent("one")),
        ("alone.yaml", alone),
        ("crash.yaml", crash),
        ("ingress.yaml", INGRESS.to_owned()),
        ("m1.yaml", TWICE.to_owned()),
        ("m2.yaml", TWICE.to_owned()),
        ("shop.yaml", image_only),
        ("time.yaml", MISSING.to_owned()),
    ] {
        save(folder.join(file), text).unwrap();
    }
    let mut dev = Dev::start(&folder, &["."]).await;
    for (event, text) in [
        ("problem", "configmap/m is in m1.yaml:1 and m2.yaml:1: keep one"),
        ("note", "Ingress/shop has no effect here"),
        (
            "problem",
            "mcpserver/time: program \"no-such-server\" not found on PATH: install it, or set the annotation \
             recif.dev/dev-command",
        ),
        (
            "problem",
            "agent/shop: image acme/shop:1 needs a container, which is not run here: name what runs instead, as \
             recif.dev/dev-command: uv run shop.py",
        ),
        ("problem", "agent/crash: ended with exit code 1, 2nd time, again in 1 s; its last lines:\n  last words"),
        ("problem", "agent/alone: nothing serves db.default.svc.cluster.local:5432"),
        (
            "phase",
            "program \"no-such-server\" is missing (CreateContainerConfigError) — install it, or set the annotation \
             recif.dev/dev-command to what runs instead.",
        ),
        ("phase", "container agent ends with exit code 1 (CrashLoop) — read the Pod's log"),
        (
            "phase",
            "the image acme/shop:1 needs a container, which is not run here (ImagePull) — set the annotation \
             recif.dev/dev-command to what runs instead, such as uv run shop.py.",
        ),
    ] {
        let found = dev.told(text).await;
        assert_eq!(found["event"], event, "{found}");
    }
    assert_eq!(dev.chat("a", "hello").await.0, 200);
    let (_, why, errors) = dev.recif(&["why", "mcpserver/time"]).await;
    assert!(why.contains("install it, or set the annotation recif.dev/dev-command"), "{why} {errors}");
}
