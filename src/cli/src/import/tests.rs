//! Reading of files and of a cluster, and what is printed.

use std::{
    env, fs,
    path::Path,
    sync::{Arc, Mutex},
};

use clap::Parser as _;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::{files, live, *};
use crate::cluster::UserClient;

const AGENT: &str = "apiVersion: kagent.dev/v1alpha2\nkind: Agent\nmetadata: {name: a, namespace: n}\nspec: {declarative: {systemMessage: x, modelConfig: m}}\n";

fn options() -> ImportOptions {
    ImportOptions { from: None, live: true, operator_namespace: "recif-system".into() }
}

/// Returns a client of a cluster with these answers by path, and the paths that are requested.
fn cluster(answers: &'static [(&'static str, &'static str)]) -> (UserClient, Arc<Mutex<Vec<String>>>) {
    let requested = Arc::new(Mutex::new(Vec::new()));
    let paths = requested.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().to_string();
        paths.lock().unwrap().push(path.clone());
        let answer = answers.iter().find(|(known, _)| *known == path).map(|(_, answer)| *answer);
        let (code, body) = match answer {
            Some("403") => {
                (403, json!({ "kind": "Status", "code": 403, "message": "forbidden", "reason": "Forbidden" }))
            }
            Some(text) => (200, serde_json::from_str(text).unwrap()),
            None => (404, json!({ "kind": "Status", "code": 404, "message": "not found", "reason": "NotFound" })),
        };
        let body = Body::from(body.to_string().into_bytes());
        let response = Response::builder().status(StatusCode::from_u16(code).unwrap()).body(body).unwrap();
        async move { Ok::<_, std::io::Error>(response) }
    });
    (UserClient::mocked(kube::Client::new(service, "n"), "n"), requested)
}

#[tokio::test]
async fn of_a_cluster_the_kinds_are_listed_and_what_they_name_is_read() {
    let (live, requested) = cluster(&[
        ("/apis/kagent.dev", r#"{"versions":[{"version":"v1alpha2"},{"version":"v1alpha1"}]}"#),
        ("/apis/kagent.dev/v1alpha2", r#"{"resources":[{"name":"agents"},{"name":"agents/status"}]}"#),
        ("/apis/kagent.dev/v1alpha1", r#"{"resources":[{"name":"agents"},{"name":"toolservers"}]}"#),
        (
            "/apis/kagent.dev/v1alpha2/namespaces/n/agents?limit=500",
            r#"{"metadata":{"continue":"a b"},"items":[{"metadata":{"name":"a","namespace":"n"},"spec":{"declarative":{
                "systemMessageFrom":{"type":"ConfigMap","name":"texts","key":"k"},"modelConfig":"m",
                "deployment":{"env":[{"name":"K","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}}}}]}"#,
        ),
        ("/apis/kagent.dev/v1alpha2/namespaces/n/agents?limit=500&continue=a%20b", r#"{"items":[]}"#),
        ("/apis/kagent.dev/v1alpha1/namespaces/n/toolservers?limit=500", r#"{"items":[]}"#),
        ("/api/v1/namespaces/n/configmaps/texts", r#"{"metadata":{"name":"texts","namespace":"n"},"data":{"k":"x"}}"#),
    ]);
    let objects = live::read(&live, false, &options()).await.unwrap();
    let found: Vec<_> =
        objects.iter().map(|object| (object.value["kind"].as_str().unwrap(), object.is_context)).collect();
    assert_eq!(found, [("Agent", false), ("ConfigMap", true)]);
    assert_eq!(objects[0].value["apiVersion"], "kagent.dev/v1alpha2");
    let requested = requested.lock().unwrap().clone();
    assert!(!requested.iter().any(|path| path.contains("secret")), "{requested:#?}");
    assert_eq!(requested.iter().filter(|path| path.contains("/agents?")).count(), 2, "one list, of two pages");
    let imported = ::import::import(&objects, &options()).unwrap();
    let text = printed(&imported, PrintFormat::Yaml).unwrap();
    assert!(text.starts_with("---\napiVersion: agents.recif.dev/v1\nkind: Agent\n"), "{text}");
}

#[tokio::test]
async fn a_list_that_is_forbidden_is_no_empty_one() {
    let (live, _) = cluster(&[
        ("/apis/krypton.ai", r#"{"versions":[{"version":"v1alpha1"}]}"#),
        ("/apis/krypton.ai/v1alpha1", r#"{"resources":[{"name":"agents"},{"name":"models"}]}"#),
        ("/apis/krypton.ai/v1alpha1/agents?limit=500", "403"),
    ]);
    let error = live::read(&live, true, &options()).await.unwrap_err();
    assert_eq!(error.code(), Exit::Forbidden, "{error}");
    let (nothing, _) = cluster(&[]);
    let error = live::read(&nothing, true, &options()).await.unwrap_err();
    assert_eq!(error.code(), Exit::Failed);
    assert!(error.to_string().starts_with("nothing to import"), "{error}");
}

#[test]
fn each_object_of_a_text_has_its_line() {
    let list = "# head\napiVersion: v1\nkind: List\nitems:\n- kind: A\n- kind: B\n";
    let places = |text: &str| -> Vec<String> {
        files::documents("a.yaml", text).unwrap().into_iter().map(|object| object.at).collect()
    };
    assert_eq!(places(list), ["a.yaml:5", "a.yaml:6"]);
    assert_eq!(places(&format!("{AGENT}---\n{AGENT}")), ["a.yaml:1", "a.yaml:6"]);
    let json = "{\n\t\"kind\": \"AgentList\",\n\t\"items\": [\n\t\t{\"kind\": \"Agent\"}\n\t]\n}\n";
    assert_eq!(places(json), ["a.yaml:4"]);
    let error = files::documents("a.yaml", "a: 1\nb: [1\n").unwrap_err();
    assert!(error.to_string().starts_with("a.yaml:"), "{error}");
    assert!(error.to_string().contains(": not YAML: "), "{error}");
    assert_eq!(error.code(), Exit::Failed);
}

#[test]
fn a_folder_stands_for_its_manifests() {
    let folder = std::env::temp_dir().join(format!("recif-import-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for name in ["b.yml", "a.yaml", "c.json", "d.txt"] {
        fs::write(folder.join(name), AGENT).unwrap();
    }
    let read = files::read(std::slice::from_ref(&folder)).unwrap();
    let names: Vec<_> = read.iter().map(|object| object.at.rsplit('/').next().unwrap().to_owned()).collect();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(names, ["a.yaml:1", "b.yml:1", "c.json:1"]);
    let error = files::read(&[folder.join("absent.yaml")]).unwrap_err();
    assert!(error.code() == Exit::Failed && error.to_string().contains("absent.yaml"), "{error}");
}

/// Folders below `goldens/` with the input and the whole output of each source.
const GOLDENS: [&str; 4] = ["kagent", "genkit", "krypton", "recif"];

/// Compares what is printed of each golden input, byte for byte. `RECIF_WRITE=1 cargo test -p cli goldens` writes it anew.
#[test]
fn what_is_printed_of_each_source_is_that_of_the_goldens() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/import/goldens");
    let options = ImportOptions { live: false, ..options() };
    for source in GOLDENS {
        let folder = goldens.join(source);
        let input = fs::read_to_string(folder.join("input.yaml")).unwrap();
        let imported = ::import::import(&files::documents("input.yaml", &input).unwrap(), &options).unwrap();
        let lines: String = imported.lines.iter().map(|line| format!("{line}\n")).collect();
        let lines = format!("{lines}{}\n", imported.summary);
        for (name, text) in [("output.yaml", printed(&imported, PrintFormat::Yaml).unwrap()), ("lines.txt", lines)] {
            let file = folder.join(name);
            if env::var_os("RECIF_WRITE").is_some() {
                fs::write(&file, text).unwrap();
                continue;
            }
            assert_eq!(text, fs::read_to_string(&file).unwrap(), "{}", file.display());
        }
    }
}

#[test]
fn both_forms_hold_the_same_objects() {
    let options = ImportOptions { live: false, ..options() };
    let imported = ::import::import(&files::documents("a.yaml", AGENT).unwrap(), &options).unwrap();
    let yaml: Value = serde_yaml::from_str(&printed(&imported, PrintFormat::Yaml).unwrap()).unwrap();
    let json: Value = serde_json::from_str(&printed(&imported, PrintFormat::Json).unwrap()).unwrap();
    assert_eq!((json["kind"].as_str(), json["apiVersion"].as_str()), (Some("List"), Some("v1")));
    assert_eq!(json["items"], json!([yaml]));
}

#[derive(Debug, clap::Parser)]
struct Command {
    #[command(flatten)]
    args: ImportArgs,
}

#[tokio::test]
async fn flags_that_do_not_go_together_are_a_usage_error() {
    for words in
        [&["x", "--live", "-f", "a.yaml"][..], &["x", "-A"], &["x", "--live", "-A", "-n", "a"], &["x", "-o", "name"]]
    {
        assert_eq!(Command::try_parse_from(words).unwrap_err().exit_code(), 2, "{words:?}");
    }
    for words in [&["x", "-n", "a"][..], &["x", "--operator-namespace", "A B", "-f", "a.yaml"]] {
        let error = run(Command::try_parse_from(words).unwrap().args).await.unwrap_err();
        assert_eq!(error.code(), Exit::Usage, "{words:?}: {error}");
    }
}

#[tokio::test]
async fn strict_refuses_a_loss_with_a_code_of_its_own() {
    let folder = std::env::temp_dir().join(format!("recif-import-strict-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let lossy = AGENT.replace("systemMessage: x", "systemMessage: x, executeCodeBlocks: true");
    for (text, strict, expected) in
        [(AGENT, true, Exit::Done), (lossy.as_str(), true, Exit::Lossy), (lossy.as_str(), false, Exit::Done)]
    {
        let file = folder.join("a.yaml");
        fs::write(&file, text).unwrap();
        let words = ["x".to_owned(), "-f".to_owned(), file.to_string_lossy().into_owned()];
        let words = words.into_iter().chain(strict.then(|| "--strict".to_owned()));
        let done = run(Command::try_parse_from(words).unwrap().args).await.unwrap();
        assert_eq!(done, expected, "{text}");
    }
    fs::remove_dir_all(&folder).unwrap();
}
