//! Checks the files of the Helm charts: what is generated, the versions, and that each value is described.
//!
//! This command rewrites the generated files: `RECIF_WRITE=1 cargo test --test chart`.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use serde_yaml::Mapping;

/// The charts, in the order of an installation.
const CHARTS: [&str; 2] = ["recif-crds", "recif"];
/// First line of a generated file.
const GENERATED: &str = "# Written by `make manifests`";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn chart(name: &str) -> PathBuf {
    root().join("config/helm").join(name)
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the documents of a file of config/.
fn documents(file: &str) -> Vec<String> {
    read(Path::new("config").join(file)).split("\n---\n").map(str::to_owned).collect()
}

/// Returns the template of a definition: its text as it is, because Helm would write large numbers with an exponent.
fn crd_template(yaml: &str) -> String {
    let escaped = yaml.replace("{{", r#"{{ "{{" }}"#);
    let (metadata, spec) = escaped.split_once("\nspec:\n").unwrap();
    let mut metadata = metadata.to_owned();
    for part in ["labels", "annotations"] {
        let include = format!("include \"recif-crds.{part}\" .");
        let line = format!("\n  {part}:\n");
        if metadata.contains(&line) {
            metadata = metadata.replace(&line, &format!("{line}    {{{{- {include} | nindent 4 }}}}\n"));
        } else {
            metadata +=
                &format!("\n  {{{{- with {include} }}}}\n  {part}:\n    {{{{- . | nindent 4 }}}}\n  {{{{- end }}}}");
        }
    }
    format!("{GENERATED} from the types.\n{metadata}\nspec:\n{spec}")
}

/// Returns the files with the rules of each role, by name.
fn rules() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in ["rbac", "gateway", "control-plane"] {
        for entry in fs::read_dir(root().join("config").join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !name.ends_with(".yaml") {
                continue;
            }
            let file = format!("{folder}/{name}");
            for document in documents(&file) {
                let Some((before, rules)) = document.split_once("\nrules:\n") else { continue };
                let role = before.lines().find_map(|line| line.strip_prefix("  name: recif-")).unwrap();
                let lines = rules.lines().filter(|line| !line.trim_start().starts_with('#'));
                let rules: String = lines.map(|line| format!("{}\n", line.strip_prefix("  ").unwrap())).collect();
                found.insert(format!("{role}-rules.yaml"), format!("{GENERATED} from config/{file}.\n{rules}"));
            }
        }
    }
    found
}

/// Returns all generated files.
fn generated() -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for (name, yaml) in crds::manifests().unwrap() {
        files.insert(chart("recif-crds").join("templates").join(name), crd_template(&yaml));
    }
    let folder = chart("recif").join("files");
    files.extend(rules().into_iter().map(|(name, text)| (folder.join(name), text)));
    for (component, file) in [("operator", "rbac/own-objects.yaml"), ("gateway", "gateway/own-field.yaml")] {
        let text = format!("{GENERATED} from config/{file}.\n{}", read(Path::new("config").join(file)));
        files.insert(folder.join(format!("{component}-policies.yaml")), text);
    }
    for (file, name) in [("scrape.yaml", "monitors.yaml"), ("rules.yaml", "alerts.yaml")] {
        let file = format!("monitoring/{file}");
        let text = format!("{GENERATED} from config/{file}.\n{}", read(Path::new("config").join(&file)));
        files.insert(folder.join(name), text);
    }
    // JSON has no comment for the first line.
    files.insert(folder.join("dashboard.json"), read("config/monitoring/dashboard.json"));
    files.insert(root().join("docs/values.md"), page());
    files
}

#[test]
fn the_generated_files_are_those_of_config_and_of_the_schemas() {
    let wanted = generated();
    let mut stored = BTreeSet::new();
    for folder in ["recif-crds/templates", "recif/files"] {
        let paths = fs::read_dir(chart(folder)).into_iter().flatten().map(|entry| entry.unwrap().path());
        let generated =
            |path: &PathBuf| folder == "recif/files" || fs::read_to_string(path).unwrap().starts_with(GENERATED);
        stored.extend(paths.filter(generated));
    }
    if env::var_os("RECIF_WRITE").is_some() {
        stored.iter().for_each(|path| fs::remove_file(path).unwrap());
        fs::create_dir_all(chart("recif").join("files")).unwrap();
        wanted.iter().for_each(|(path, text)| fs::write(path, text).unwrap());
        return;
    }
    for (path, text) in &wanted {
        let is = fs::read_to_string(path).unwrap_or_default();
        assert!(is == *text, "{} is out of date: run `make manifests`", path.display());
    }
    let left: Vec<_> = stored.iter().filter(|path| !wanted.contains_key(*path)).collect();
    assert!(left.is_empty(), "of nothing any more: {left:?}: run `make manifests`");
}

#[test]
fn braces_in_a_description_are_no_template() {
    let template = crd_template("metadata:\n  name: x\nspec:\n  text: '{{ a }}'\n");
    assert!(template.ends_with("\nspec:\n  text: '{{ \"{{\" }} a }}'\n"), "{template}");
}

#[test]
fn labels_and_annotations_join_those_that_are_there() {
    let template = crd_template("metadata:\n  annotations:\n    a: b\n  name: x\nspec:\n");
    let joined = "  annotations:\n    {{- include \"recif-crds.annotations\" . | nindent 4 }}\n    a: b\n";
    assert!(template.contains(joined), "{template}");
    assert_eq!(template.matches("annotations:\n").count(), 1, "{template}");
}

#[test]
fn the_charts_have_the_version_of_the_workspace() {
    for name in CHARTS {
        let chart: Value = serde_yaml::from_str(&read(chart(name).join("Chart.yaml"))).unwrap();
        for field in ["version", "appVersion"] {
            assert_eq!(chart[field], env!("CARGO_PKG_VERSION"), "{field} of {name}");
        }
        assert_eq!(chart["name"], name);
    }
}

/// Value of a chart: path, default, description.
type Row = (String, String, String);

/// Returns the values of a chart in the order of values.yaml. Those whose fields are the chart's own are followed into.
fn values(name: &str) -> Vec<Row> {
    let schema: Value = serde_json::from_str(&read(chart(name).join("values.schema.json"))).unwrap();
    let values: Mapping = serde_yaml::from_str(&read(chart(name).join("values.yaml"))).unwrap();
    let mut rows = Vec::new();
    collect(&schema, &schema, &values, "", &mut rows);
    rows
}

fn collect(schema: &Value, of: &Value, values: &Mapping, prefix: &str, rows: &mut Vec<Row>) {
    let properties = of["properties"].as_object().unwrap();
    assert_eq!(of["additionalProperties"], false, "{prefix}: a mistyped value would be ignored");
    let names: BTreeSet<&str> = values.keys().map(|key| key.as_str().unwrap()).collect();
    assert_eq!(
        names,
        properties.keys().map(String::as_str).collect(),
        "values.yaml and its schema differ in '{prefix}'"
    );
    for (key, default) in values {
        let path = format!("{prefix}{}", key.as_str().unwrap());
        let mut property = &properties[key.as_str().unwrap()];
        if let Some(reference) = property["$ref"].as_str() {
            assert_eq!(property.as_object().unwrap().len(), 1, "{path}: draft 7 ignores what is beside a $ref");
            property = schema.pointer(reference.trim_start_matches('#')).unwrap();
        }
        let description = property["description"].as_str().unwrap_or_default();
        assert!(description.ends_with('.'), "{path} is not described by a sentence");
        if property["properties"].is_object() {
            collect(schema, property, default.as_mapping().unwrap(), &format!("{path}."), rows);
        } else {
            let default = serde_json::to_string(&serde_json::to_value(default).unwrap()).unwrap();
            rows.push((path, default, description.to_owned()));
        }
    }
}

/// Returns docs/values.md.
fn page() -> String {
    let mut page = "# Values of the Helm charts\n\n\
        Written by `make manifests` from `config/helm/*/values.yaml` and `values.schema.json`. An install with a value that is not here, \
        or of another type, is refused.\n"
        .to_owned();
    for name in CHARTS.iter().rev() {
        page += &format!("\n## {name}\n\n| value | default | |\n|---|---|---|\n");
        for (path, default, description) in values(name) {
            page += &format!("| `{path}` | `{default}` | {description} |\n");
        }
    }
    page
}

#[test]
fn each_value_is_described_once() {
    for name in CHARTS {
        let rows = values(name);
        let paths: BTreeSet<&String> = rows.iter().map(|(path, ..)| path).collect();
        assert_eq!(paths.len(), rows.len(), "{name}");
        assert!(
            rows.iter().all(|(_, _, description)| !description.contains('|')),
            "{name}: it would end a table's cell"
        );
    }
    assert!(values("recif").len() > 60);
}
