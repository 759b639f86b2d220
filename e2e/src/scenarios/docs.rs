//! Tests that the commands in the documents work: the `sh run` blocks of a page, in their order, as a user who copies them.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use testing::markdown::{Shell, fences};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::{Instant, timeout_at},
};

use crate::{
    manifests::text,
    namespace::Namespace,
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    the_readme_works,
    the_page_install_works,
    the_page_quickstart_works,
    the_page_agents_works,
    the_page_flows_works,
    the_page_tools_works,
    the_page_control_plane_works,
    the_page_troubleshooting_works,
    the_page_import_works,
    the_page_development_works,
);

/// Time limit of a block.
const BLOCK: Duration = Duration::from_secs(60);
/// Begins a line by which the shell tells that a step is done.
const MARK: &str = "--- done:";

/// Gives the shell a kubeconfig of its own, whose namespace is that of the scenario.
const BEFORE: &str = "set -e
copy=$(mktemp)
trap 'rm -f \"$copy\"' EXIT
kubectl config view --raw --flatten >\"$copy\"
export KUBECONFIG=$copy
kubectl config set-context --current --namespace=\"$NAMESPACE\" >/dev/null
exec 2>&1
";

async fn the_readme_works(ns: Namespace) -> Result<()> {
    run(&ns, "README.md").await
}

async fn the_page_install_works(ns: Namespace) -> Result<()> {
    run(&ns, "docs/install.md").await
}

async fn the_page_quickstart_works(ns: Namespace) -> Result<()> {
    run(&ns, "docs/quickstart.md").await
}

async fn the_page_agents_works(ns: Namespace) -> Result<()> {
    run(&ns, "docs/agents.md").await
}

async fn the_page_flows_works(ns: Namespace) -> Result<()> {
    run(&ns, "docs/flows.md").await
}

async fn the_page_tools_works(ns: Namespace) -> Result<()> {
    run(&ns, "docs/tools.md").await
}

async fn the_page_control_plane_works(ns: Namespace) -> Result<()> {
    run(&ns, "docs/control-plane.md").await
}

async fn the_page_troubleshooting_works(ns: Namespace) -> Result<()> {
    run(&ns, "docs/troubleshooting.md").await
}

async fn the_page_import_works(ns: Namespace) -> Result<()> {
    run(&ns, "docs/import.md").await
}

async fn the_page_development_works(ns: Namespace) -> Result<()> {
    run(&ns, "docs/development.md").await
}

/// Commands of a block up to an expectation.
struct Step {
    /// Page and line of the block.
    place: String,
    commands: String,
    /// Text that the output must have.
    expected: Option<String>,
    /// Set for the last one of its block.
    ends_block: bool,
}

fn steps(file: &str, page: &str) -> Vec<Step> {
    let mut all = Vec::new();
    for fence in fences(page).iter().filter(|fence| matches!(fence.shell(), Some(Ok(Shell::Run)))) {
        let steps = fence.steps();
        let last = steps.len();
        all.extend(steps.into_iter().enumerate().map(|(number, (commands, expected))| Step {
            place: format!("{file}:{}", fence.line),
            commands,
            expected: expected.map(Into::into),
            ends_block: number + 1 == last,
        }));
    }
    all
}

/// Runs the blocks of a page in one shell, from the root of the repository.
async fn run(ns: &Namespace, file: &str) -> Result<()> {
    let steps = steps(file, &text(&ns.env.file(file))?);
    ensure!(!steps.is_empty(), "{file} has no block that is run");
    let marked = steps.iter().map(|step| format!("{}printf '\\n%s\\n' '{MARK}'\n", step.commands));
    let script: String = std::iter::once(BEFORE.to_owned()).chain(marked).collect();

    let mut bash = Command::new("bash");
    bash.arg("-c").arg(script).current_dir(ns.env.file("."));
    bash.env("NAMESPACE", &ns.name).env("PATH", ns.env.path()?).env_remove("RECIF_GATEWAY").env_remove("RECIF_TOKEN");
    bash.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut bash = bash.spawn().context("start bash")?;
    let mut lines = BufReader::new(bash.stdout.take().context("no standard output")?).lines();
    let mut deadline = Instant::now() + BLOCK;
    let mut output = String::new();
    for Step { place, commands, expected, ends_block } in &steps {
        // A further expectation is of the commands before it.
        if !commands.trim().is_empty() {
            output.clear();
        }
        loop {
            let Ok(line) = timeout_at(deadline, lines.next_line()).await else {
                bail!("{place} did not end within {BLOCK:?}:\n{commands}{output}")
            };
            match line? {
                Some(line) if line == MARK => break,
                Some(line) => output += &format!("{line}\n"),
                None => bail!("{place} failed:\n{commands}{output}"),
            }
        }
        if let Some(expected) = expected {
            ensure!(output.contains(expected), "{place}: no {expected:?} in the output of\n{commands}{output}");
        }
        if *ends_block {
            deadline = Instant::now() + BLOCK;
        }
    }
    ensure!(bash.wait().await?.success(), "{file}: the shell failed at its end");
    Ok(())
}
