//! The page `docs/metrics.md`, made from the metrics of the processes and from the alerts.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_yaml::Value;

const START: &str = "\
# Metrics

Every process serves its metrics as OpenMetrics text. [config/monitoring](../config/monitoring) has what the Prometheus operator and
Grafana need: scrapers, [alerts](#alerts) and a dashboard.

This page is made from the metrics themselves by `make manifests`; a test fails when it names something else than there is.

**Labels `kind`, `namespace`, `name`** name the object that a metric is about. There are only objects that exist: requests to unknown
names count under kind `none`. A series begins with its first event and ends ten minutes after its object at the latest. In the gateway
a called workload has at most 30 series; status codes and reasons beyond count under its kind, with an empty name.
`--metrics-by-workload=false` leaves `namespace` and `name` empty everywhere.

Every replica of the operator tells of the objects: queries take the maximum over them.
";

/// Metrics of one process, with the port on which they are.
pub(crate) struct Process {
    /// Name, such as `gateway`.
    pub(crate) name: &'static str,
    /// What it is and where its metrics are, as Markdown.
    pub(crate) text: &'static str,
    /// Its metrics as OpenMetrics text, after each event has happened.
    pub(crate) exposition: String,
}

/// Metric as its exposition describes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Metric {
    /// Name in queries; of a histogram without `_bucket`, `_sum` and `_count`.
    pub(crate) name: String,
    kind: String,
    labels: Vec<String>,
    help: String,
}

/// Returns the processes.
pub(crate) fn processes() -> Vec<Process> {
    let process = |name, text, exposition: Result<String, std::fmt::Error>| Process {
        name,
        text,
        exposition: exposition.unwrap(),
    };
    vec![
        process("operator", "The operator, on port 8080 (`--listen`).", operator::example_metrics()),
        process("gateway", "The gateway, on port 8081 (`--admin-listen`).", gateway::example_metrics()),
        process("control-plane", "The control plane, on port 8781 (`--admin-bind`).", control_plane::example_metrics()),
        process("proxy", "The sidecar of a workload's Pods, on port 8888.", proxy::example_metrics()),
        process(
            "runner",
            "The reference runtime; the sidecar shows its metrics after its own.",
            runner::example_metrics(),
        ),
    ]
}

/// Returns the metrics of an exposition.
pub(crate) fn metrics(exposition: &str) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for line in exposition.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            let help = help.trim_end_matches('.').to_owned() + ".";
            metrics.push(Metric { name: name.to_owned(), kind: String::new(), labels: Vec::new(), help });
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let metric = metrics.last_mut().unwrap();
            metric.kind = kind.to_owned();
            metric.name += match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
        } else if let Some((_, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let metric = metrics.last_mut().unwrap();
            for label in labels.split("\",").filter_map(|pair| pair.split_once("=\"")).map(|(label, _)| label) {
                if label != "le" && !metric.labels.iter().any(|known| known == label) {
                    metric.labels.push(label.to_owned());
                }
            }
        }
    }
    metrics
}

/// Returns the page. `rules` is the specification of the PrometheusRule.
pub(crate) fn page(processes: &[Process], rules: &Value) -> String {
    let all: Vec<Vec<Metric>> = processes.iter().map(|process| metrics(&process.exposition)).collect();
    let common: Vec<&Metric> = all[0].iter().filter(|metric| all.iter().all(|other| other.contains(metric))).collect();
    let mut page = START.to_owned();
    page += "\n## Every process\n\n";
    page += &table(common.iter().copied());
    for (process, metrics) in processes.iter().zip(&all) {
        let own = metrics.iter().filter(|metric| !common.contains(metric));
        write!(page, "\n## {}\n\n{}\n\n{}", process.name, process.text, table(own)).unwrap();
    }
    page += "\n## Alerts\n\n| alert | severity | for | when |\n|---|---|---|---|\n";
    for rule in alerts(rules) {
        let text = |field: &str| rule[field].as_str().unwrap();
        let when = text("expr").split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        let severity = rule["labels"]["severity"].as_str().unwrap();
        writeln!(page, "| {} | {severity} | {} | `{when}` |", text("alert"), text("for")).unwrap();
    }
    page
}

/// Returns all alerts.
pub(crate) fn alerts(rules: &Value) -> impl Iterator<Item = &Value> {
    rules["groups"].as_sequence().unwrap().iter().flat_map(|group| group["rules"].as_sequence().unwrap())
}

fn table<'a>(metrics: impl Iterator<Item = &'a Metric>) -> String {
    let mut table = "| metric | type | labels | |\n|---|---|---|---|\n".to_owned();
    for metric in metrics {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(table, "| `{}` | {} | {} | {} |", metric.name, metric.kind, labels.join(", "), metric.help).unwrap();
    }
    table
}

/// Returns the names of the metrics in an expression.
pub(crate) fn named(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let ours = words.filter(|word| word.starts_with("recif_") || word.starts_with("process_"));
    ours.map(|word| {
        let parts = ["_bucket", "_sum", "_count"].iter().find_map(|part| word.strip_suffix(part));
        parts.unwrap_or(word).to_owned()
    })
    .collect()
}
