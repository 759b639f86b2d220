use serde_json::{Value, json};

use super::*;

fn programs() -> Programs {
    Programs { proxy: "/ours/recif-proxy".into(), runner: "/ours/recif-runner".into() }
}

fn command(container: Value, dev_command: Option<&str>) -> Result<String, String> {
    let mut object = json!({ "name": "c", "image": "acme/shop:1" });
    object.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let container: Container = serde_json::from_value(object).unwrap();
    let variables = BTreeMap::from([("PATH".to_owned(), "/bin:/usr/bin".to_owned())]);
    let programs = programs();
    let lookup = Lookup { programs: &programs, dev_command, folder: Path::new("/usr"), variables: &variables };
    let place = |word: &str| word.replace("$(PORT)", "21000");
    match lookup.command(&container, place) {
        Ok(Command::Run(program, arguments)) => {
            let program = program.to_string_lossy().replace("/usr/bin/", "/bin/");
            Ok([program].into_iter().chain(arguments).collect::<Vec<_>>().join(" "))
        }
        Ok(Command::Done) => Ok("done".to_owned()),
        Err(error) => Err(format!("{}: {error}", error.reason())),
    }
}

#[test]
fn ours_by_image_or_path_else_what_the_annotation_or_the_container_names() {
    let bridge =
        json!({ "command": ["/recif/recif-proxy"], "args": ["mcp-bridge", "--port", "3000", "--", "sh", "-x"] });
    for (container, dev, expected) in [
        (json!({ "image": RUNNER_IMAGE }), None, Ok("/ours/recif-runner")),
        (json!({ "image": "corail:latest" }), None, Ok("/ours/recif-runner")),
        (json!({ "image": PROXY_IMAGE }), None, Ok("/ours/recif-proxy")),
        (json!({ "image": PROXY_IMAGE, "args": ["install", "/recif/recif-proxy"] }), None, Ok("done")),
        (json!({ "command": ["/x/recif-runner", "mcp"] }), None, Ok("/ours/recif-runner mcp")),
        (json!({ "image": "corail:latest" }), Some("sh -c 'sleep 1'"), Ok("/bin/sh -c sleep 1")),
        (bridge.clone(), None, Ok("/ours/recif-proxy mcp-bridge --port 3000 -- /bin/sh -x")),
        (bridge, Some("env a=b"), Ok("/ours/recif-proxy mcp-bridge --port 3000 -- /bin/env a=b")),
        (
            json!({ "command": ["/recif/recif-proxy"], "args": ["mcp-bridge", "--", "/recif-runner", "mcp"] }),
            None,
            Ok("/ours/recif-proxy mcp-bridge -- /ours/recif-runner mcp"),
        ),
        (json!({ "command": ["sh"], "args": ["-c", "$(PORT)"] }), None, Ok("/bin/sh -c 21000")),
        (json!({ "command": ["/opt/venv/bin/sh"] }), None, Ok("/bin/sh")),
        (json!({ "command": ["bin/sh"] }), None, Ok("/bin/sh")),
        (json!({ "args": ["serve"] }), Some("sh run $(PORT)"), Ok("/bin/sh run 21000")),
        (json!({ "command": ["no/such/sh"] }), None, Err("CreateContainerError: program \"no/such/sh\" not found")),
        (json!({ "command": ["no-such"] }), None, Err("CreateContainerError: program \"no-such\" not found")),
        (json!({ "command": ["recif-runner"] }), None, Err("CreateContainerError: program \"recif-runner\" not found")),
        (
            json!({ "command": ["/recif/recif-proxy"], "args": ["mcp-bridge", "--", "no-such"] }),
            None,
            Err("CreateContainerError: program \"no-such\" not found"),
        ),
        (
            json!({ "args": ["serve"] }),
            None,
            Err(
                "ErrImageNeverPull: image acme/shop:1 needs a container, which is not run here: name what runs instead, \
                 as recif.dev/dev-command: uv run shop.py",
            ),
        ),
        (
            json!({}),
            Some("sh 'x"),
            Err(
                "CreateContainerError: recif.dev/dev-command \"sh 'x\" cannot be read: close its quotes, and name a program",
            ),
        ),
        (
            json!({}),
            Some(" "),
            Err(
                "CreateContainerError: recif.dev/dev-command \" \" cannot be read: close its quotes, and name a program",
            ),
        ),
    ] {
        let shown = format!("{container} {dev:?}");
        assert_eq!(command(container, dev).as_deref().map_err(String::as_str), expected, "{shown}");
    }
}

#[test]
fn only_a_program_of_ours_is_sure_to_listen_where_it_is_told() {
    let is_ours = |object: Value| programs().is_ours(&serde_json::from_value(object).unwrap());
    assert!(is_ours(json!({ "name": "c", "image": "corail:latest" })));
    assert!(is_ours(json!({ "name": "c", "image": "x", "command": ["/recif/recif-proxy"] })));
    assert!(!is_ours(json!({ "name": "c", "image": "corail:latest", "command": ["python"] })));
    assert!(!is_ours(json!({ "name": "c", "image": "corail:1" })));
}
