//! Checks the monitoring in `config/monitoring` and `docs/metrics.md` against the metrics that the processes have.
//!
//! `RECIF_WRITE=1 cargo test --test monitoring` writes the page anew. The alerts are tested by `promtool`, which `hack/prometheus`
//! provides.

#![allow(clippy::panic, clippy::unwrap_used)]

mod page;

use std::{
    collections::BTreeSet,
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value as Json;
use serde_yaml::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn read(file: &str) -> String {
    let path = Path::new(ROOT).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the specification of the PrometheusRule.
fn rules() -> Value {
    let object: Value = serde_yaml::from_str(&read("config/monitoring/rules.yaml")).unwrap();
    object["spec"].clone()
}

/// Returns each expression of the dashboard with the title of its panel, with values for the variables of Grafana.
fn queries() -> Vec<(String, String)> {
    let dashboard: Json = serde_json::from_str(&read("config/monitoring/dashboard.json")).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "1m");
            let query = ["$kind", "$namespace", "$name"].iter().fold(query, |query, name| query.replace(name, ".*"));
            assert!(!query.contains('$'), "{title}: {query}");
            queries.push((title.to_owned(), query));
        }
    }
    queries
}

/// Returns the names of all metrics.
fn known() -> BTreeSet<String> {
    let processes = page::processes();
    processes.iter().flat_map(|process| page::metrics(&process.exposition)).map(|metric| metric.name).collect()
}

/// Runs promtool with this input, and returns its output, after it has succeeded.
fn promtool(arguments: &[&str], folder: &Path, input: &str) -> String {
    let programs = match env::var_os("RECIF_PROMETHEUS").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => {
            let script =
                Command::new(Path::new(ROOT).join("hack/prometheus")).stderr(Stdio::inherit()).output().unwrap();
            assert!(script.status.success(), "hack/prometheus ended with {}", script.status);
            String::from_utf8(script.stdout).unwrap().trim().into()
        }
    };
    let mut command = Command::new(programs.join("promtool"));
    command.args(arguments).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    running.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {text}");
    text
}

/// Creates an empty folder for files of this test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("monitoring").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn the_page_names_exactly_the_metrics_that_there_are() {
    let page = page::page(&page::processes(), &rules());
    if env::var_os("RECIF_WRITE").is_some() {
        fs::write(Path::new(ROOT).join("docs/metrics.md"), page).unwrap();
    } else {
        assert_eq!(read("docs/metrics.md"), page, "renew it with `make manifests`");
    }
}

#[test]
fn each_metric_in_the_sources_is_on_the_page() {
    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true if path.ends_with("node_modules") => {}
                true => sources(&path, found),
                false if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
                false => {}
            }
        }
    }
    let (mut files, mut seen, known) = (Vec::new(), 0, known());
    sources(&Path::new(ROOT).join("src"), &mut files);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        if !text.contains("prometheus_client") {
            continue;
        }
        for call in text.split(".register(").chain(text.split("encode_descriptor(")).skip(1) {
            let Some(name) = call.trim_start().strip_prefix('"').and_then(|call| call.split('"').next()) else {
                continue;
            };
            let is_it = |known: &String| {
                let base = known.trim_end_matches("_total").trim_end_matches("_info");
                base == name || base.ends_with(&format!("_{name}"))
            };
            assert!(known.iter().any(is_it), "{}: no example of {name}", file.display());
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn dashboard_and_alerts_query_metrics_that_there_are() {
    let known = known();
    let rules = rules();
    let alerts = page::alerts(&rules).map(|rule| {
        let text = |field: &str| rule[field].as_str().unwrap().to_owned();
        (text("alert"), text("expr"))
    });
    for (title, query) in queries().into_iter().chain(alerts) {
        let named = page::named(&query);
        assert!(!named.is_empty(), "{title}: {query}");
        for name in named {
            assert!(known.contains(&name), "{title} queries {name}, which there is not");
        }
    }
}

#[test]
fn each_alert_says_what_to_do_and_is_tested() {
    let (rules, runbooks) = (rules(), read("docs/troubleshooting.md"));
    let tests: Value = serde_yaml::from_str(&read("config/monitoring/tests/alerts.yaml")).unwrap();
    let tests =
        tests["tests"].as_sequence().unwrap().iter().flat_map(|test| test["alert_rule_test"].as_sequence()).flatten();
    let fires = |test: &&Value| test["exp_alerts"].as_sequence().is_some_and(|alerts| !alerts.is_empty());
    let fired: BTreeSet<_> = tests.filter(fires).map(|test| test["alertname"].as_str().unwrap()).collect();
    for rule in page::alerts(&rules) {
        let name = rule["alert"].as_str().unwrap();
        let text = |field: &str| rule["annotations"][field].as_str().unwrap();
        assert!(fired.contains(name), "{name} is not tested");
        assert!(runbooks.contains(&format!("\n### {name}\n")), "docs/troubleshooting.md has no section {name}");
        let anchor = text("runbook_url").split_once("/docs/troubleshooting.md#").map(|(_, anchor)| anchor);
        let leads_on = |anchor: &str| anchor == name.to_lowercase() || anchor == "{{ $labels.reason | toLower }}";
        assert!(anchor.is_some_and(leads_on), "{name}: {anchor:?}");
        let is_of_processes = ["RecifOperatorDown", "RecifAuditDropped", "RecifMirrorBehind"].contains(&name);
        assert!(text("description").contains("recif why") || is_of_processes, "{name}: {}", text("description"));
    }
}

#[test]
fn each_alert_fires_when_it_should_and_is_silent_when_it_should() {
    let folder = folder("alerts");
    let mut rules = rules();
    fs::write(folder.join("all.yaml"), serde_yaml::to_string(&rules).unwrap()).unwrap();
    promtool(&["check", "rules", "all.yaml"], &folder, "");
    for group in rules["groups"].as_sequence_mut().unwrap() {
        for rule in group["rules"].as_sequence_mut().unwrap() {
            let texts = rule["annotations"].as_mapping_mut().unwrap();
            texts.retain(|name, _| *name == "summary");
        }
    }
    fs::write(folder.join("rules.yaml"), serde_yaml::to_string(&rules).unwrap()).unwrap();
    fs::write(folder.join("alerts.yaml"), read("config/monitoring/tests/alerts.yaml")).unwrap();
    promtool(&["test", "rules", "alerts.yaml"], &folder, "");
}

#[test]
fn each_query_of_the_dashboard_is_valid() {
    let folder = folder("dashboard");
    let records = queries()
        .into_iter()
        .enumerate()
        .map(|(at, (_, query))| serde_json::json!({ "record": format!("query:{at}"), "expr": query }));
    let groups = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": records.collect::<Vec<_>>() }] });
    fs::write(folder.join("queries.yaml"), groups.to_string()).unwrap();
    let checked = promtool(&["check", "rules", "queries.yaml"], &folder, "");
    assert!(checked.contains("rules found"), "{checked}");
}

#[test]
fn prometheus_finds_no_fault_in_the_metrics() {
    for process in page::processes() {
        // In Prometheus' own format, which promtool reads, a counter has its whole name in all lines.
        let mut text = String::new();
        for line in process.exposition.lines().filter(|line| *line != "# EOF") {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            let suffix = |name: &str| {
                ["counter", "info"]
                    .into_iter()
                    .find(|kind| process.exposition.contains(&format!("# TYPE {name} {kind}\n")))
            };
            text += &match words[..] {
                ["#", word, name, rest] => match suffix(name) {
                    Some("counter") => format!("# {word} {name}_total {rest}\n"),
                    Some(_) => format!("# {word} {name}_info {}\n", rest.replace("info", "gauge")),
                    None => format!("{line}\n"),
                },
                _ => format!("{line}\n"),
            };
        }
        promtool(&["check", "metrics"], Path::new(ROOT), &text);
    }
}

#[test]
fn the_scrapers_name_ports_and_labels_that_there_are() {
    let documents = |file: &str| -> Vec<Value> {
        read(file).split("\n---\n").map(|document| serde_yaml::from_str(document).unwrap()).collect()
    };
    let mut services = documents("config/operator/metrics.yaml");
    services.extend(documents("config/gateway/service.yaml"));
    let control_plane = documents("config/control-plane/deployment.yaml").remove(0);
    let ports_of = |list: &Value| -> Vec<String> {
        list.as_sequence().unwrap().iter().map(|port| port["name"].as_str().unwrap().to_owned()).collect()
    };
    for monitor in documents("config/monitoring/scrape.yaml") {
        let (name, labels) =
            (monitor["metadata"]["name"].as_str().unwrap(), &monitor["spec"]["selector"]["matchLabels"]);
        let wanted = |label: &str| labels[label].as_str().unwrap_or_default().to_owned();
        let field = if monitor["kind"] == "ServiceMonitor" { "endpoints" } else { "podMetricsEndpoints" };
        let port = monitor["spec"][field][0]["port"].as_str().unwrap().to_owned();
        let ports: Vec<String> = match name {
            "recif-sidecars" => {
                assert_eq!(wanted("app.kubernetes.io/managed-by"), crds::MANAGED_BY);
                // The name that the operator gives the port of a sidecar.
                vec!["http".to_owned()]
            }
            "recif-control-plane" => {
                let template = &control_plane["spec"]["template"];
                assert_eq!(template["metadata"]["labels"]["app.kubernetes.io/name"], wanted("app.kubernetes.io/name"));
                ports_of(&template["spec"]["containers"][0]["ports"])
            }
            _ => {
                assert_eq!(monitor["spec"][field][0]["honorLabels"], true, "{name}");
                let selected = |service: &&Value| {
                    service["metadata"]["labels"]["app.kubernetes.io/name"] == wanted("app.kubernetes.io/name").as_str()
                };
                services.iter().filter(selected).flat_map(|service| ports_of(&service["spec"]["ports"])).collect()
            }
        };
        assert!(ports.contains(&port), "{name}: {port} is none of {ports:?}");
    }
}
