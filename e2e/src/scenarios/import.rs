//! Tests `recif import`: the API server takes what it prints, and each failure has its exit code.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::{
    env::{ProcessOutput, run_to_exit},
    namespace::Namespace,
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    what_is_imported_is_taken_by_the_api_server,
    an_import_that_loses_something_is_refused_by_strict,
);

/// Fixtures of the importer, and the namespaces that they name.
const FIXTURES: [&str; 5] = ["kagent", "kagent-v1alpha1", "genkit", "krypton", "recif"];
const NAMESPACES: [&str; 5] = ["shop", "lab", "desk", "zoo", "office"];

/// Runs `recif import` on a text.
pub(super) async fn import(ns: &Namespace, arguments: &[&str], text: String) -> Result<ProcessOutput> {
    let mut command = ns.env.recif_command();
    command.arg("import").args(arguments);
    run_to_exit(command, Some(text)).await
}

/// Returns a fixture whose objects are in the namespace of the scenario.
pub(super) fn fixture(ns: &Namespace, name: &str) -> Result<String> {
    let path = ns.env.file(&format!("src/import/tests/fixtures/{name}.yaml"));
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let here = format!("namespace: {}", ns.name);
    Ok(NAMESPACES.iter().fold(text, |text, namespace| text.replace(&format!("namespace: {namespace}"), &here)))
}

async fn what_is_imported_is_taken_by_the_api_server(ns: Namespace) -> Result<()> {
    for name in FIXTURES {
        let imported = import(&ns, &["-f", "-"], fixture(&ns, name)?).await?;
        ensure!(imported.code == 0 && !imported.stdout.is_empty(), "{name}: {imported:?}");
        let arguments = ["apply", "--dry-run=server", "-f", "-"];
        let applied = ns.env.kubectl_with(&arguments, imported.stdout.clone()).await.context(name)?;
        let (printed, taken) = (imported.stdout.matches("---\n").count(), applied.lines().count());
        ensure!(printed == taken, "{name}: {printed} objects, of which {taken} are taken: {applied}");
        let json = import(&ns, &["-o", "json"], fixture(&ns, name)?).await?;
        ns.env.kubectl_with(&arguments, json.stdout).await.context(name)?;
    }
    Ok(())
}

async fn an_import_that_loses_something_is_refused_by_strict(ns: Namespace) -> Result<()> {
    let strict = import(&ns, &["--strict"], fixture(&ns, "kagent")?).await?;
    ensure!(strict.code == 8 && strict.stdout.is_empty() && strict.stderr.contains("loss Agent "), "{strict:?}");
    for (text, code, told) in [
        ("a: [1", 1, "stdin:1: not YAML: "),
        ("a: 1", 1, "stdin:1: an object without kind"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: x}", 1, "nothing to import: no object of kagent.dev, "),
    ] {
        let failed = import(&ns, &[], text.to_owned()).await?;
        ensure!(failed.code == code && failed.stdout.is_empty() && failed.stderr.contains(told), "{failed:?}");
    }
    let usage = import(&ns, &["-A"], String::new()).await?;
    ensure!(usage.code == 2, "{usage:?}");
    Ok(())
}
