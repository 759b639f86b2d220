//! Tests that the scripts of `recif completions` complete in the shells that they are for. No user is at a terminal: bash and fish
//! are asked, and zsh, whose line editor alone completes, gets a terminal and a key.

use std::{env, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::process::Command;

use super::commands::recif;
use crate::{
    env::run_to_exit,
    manifests::agent,
    namespace::{Namespace, START_TIMEOUT},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    completions_work_in_bash,
    completions_work_in_zsh,
    completions_work_in_fish,
);

/// Presses Tab in zsh.
const PRESS_TAB: &str = include_str!("press_tab.zsh");
/// Configuration of that zsh, as a user's that has the script in a folder of `fpath`.
const ZSHRC: &str = include_str!("press_tab.zshrc");
/// Beginning of the description of agents.
const ABOUT_AGENTS: &str = "An agent: what it is";

/// Returns the script for a shell, once there is an agent `waits`.
async fn script_for(ns: &Namespace, shell: &str) -> Result<String> {
    ns.apply(&agent("waits", json!({"tools": ["nowhere"]}))).await?;
    let script = recif(ns, &["completions", shell]).await?;
    ensure!(script.code == 0, "{script:?}");
    Ok(script.stdout)
}

/// Returns what is typed, and the only completion of its last word.
fn typed(ns: &Namespace) -> [(Vec<&str>, &'static str); 3] {
    [
        (vec!["rol"], "rollout"),
        (vec!["why", "-n", &ns.name, "agent/wa"], "agent/waits"),
        (vec!["get", "--all-n"], "--all-namespaces"),
    ]
}

/// Asks a shell until it completes as expected: if the API server does not answer within 3 s, no names of objects are completed.
async fn await_completions<F: Future<Output = Result<()>>>(shell: &str, ask: impl Fn() -> F) -> Result<()> {
    poll(START_TIMEOUT, &format!("the completions of {shell}"), || async { ask().await.map(Some) }).await
}

async fn completions_work_in_bash(ns: Namespace) -> Result<()> {
    let script = script_for(&ns, "bash").await?;
    await_completions("bash", || in_bash(&ns, &script)).await
}

async fn in_bash(ns: &Namespace, script: &str) -> Result<()> {
    let recif_command = ns.env.recif_command();
    let program = recif_command.as_std().get_program().to_str().context("no name of the program")?;
    let ask = |words: &[&str]| {
        let words: String = words.iter().map(|word| format!(" '{word}'")).collect();
        format!(
            "COMP_WORDS=('{program}'{words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _recif; printf '%s;' \"${{COMPREPLY[@]}}\"; echo\n"
        )
    };
    let asks: String = [ask(&["get", ""])].into_iter().chain(typed(ns).iter().map(|(words, _)| ask(words))).collect();
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-s"]).env_remove("BASH_ENV");
    let reported = run_to_exit(bash, Some(format!("{script}\n{asks}"))).await?;
    let lines: Vec<_> = reported.stdout.lines().collect();
    let [kinds, others @ ..] = lines.as_slice() else { anyhow::bail!("no completions: {reported:?}") };
    ensure!(reported.code == 0 && reported.stderr.is_empty(), "{reported:?}");
    ensure!(kinds.contains("remotemcpservers") && kinds.contains(&format!("  ({ABOUT_AGENTS}")), "{kinds}");
    let expected: Vec<_> = typed(ns).iter().map(|(_, whole)| format!("{whole};")).collect();
    ensure!(others == expected, "{others:?}");
    Ok(())
}

async fn completions_work_in_zsh(ns: Namespace) -> Result<()> {
    let script = script_for(&ns, "zsh").await?;
    let folder = env::temp_dir().join(format!("{}-zsh", ns.name));
    fs::create_dir_all(&folder)?;
    let result = await_completions("zsh", || in_zsh(&ns, &script, &folder)).await;
    fs::remove_dir_all(&folder)?;
    result
}

async fn in_zsh(ns: &Namespace, script: &str, folder: &Path) -> Result<()> {
    for (name, text) in [("_recif", script), (".zshrc", ZSHRC), ("a-kubeconfig", "")] {
        fs::write(folder.join(name), text)?;
    }
    let file = folder.join("a-kube").display().to_string();
    let lines: Vec<String> = typed(ns).iter().map(|(words, _)| format!("recif {}", words.join(" "))).collect();
    let mut zsh = Command::new("zsh");
    zsh.args(["-f", "-s", "--"]).args(&lines).arg(format!("recif why --kubeconfig {file}")).arg("recif get ");
    zsh.env("ZDOTDIR", folder).env("PATH", ns.env.path()?);
    let seen = run_to_exit(zsh, Some(PRESS_TAB.to_owned())).await?;
    ensure!(seen.code == 0 && seen.stderr.is_empty(), "{seen:?}");
    for (words, whole) in typed(ns) {
        let line = [&["recif"][..], &words[..words.len() - 1], &[whole, ""]].concat().join(" ");
        ensure!(seen.stdout.contains(&format!("<LINE>{line}</LINE>")), "no {line:?}: {seen:?}");
    }
    ensure!(seen.stdout.contains("/a-kubeconfig </LINE>"), "no name of a file: {seen:?}");
    let listed = seen.stdout.contains("remotemcpservers") && seen.stdout.contains(&format!(" -- {ABOUT_AGENTS}"));
    ensure!(listed, "no list of kinds: {seen:?}");
    Ok(())
}

async fn completions_work_in_fish(ns: Namespace) -> Result<()> {
    let script = script_for(&ns, "fish").await?;
    let folder = env::temp_dir().join(format!("{}-fish", ns.name));
    fs::create_dir_all(&folder)?;
    let result = await_completions("fish", || in_fish(&ns, &script, &folder)).await;
    fs::remove_dir_all(&folder)?;
    result
}

async fn in_fish(ns: &Namespace, script: &str, folder: &Path) -> Result<()> {
    fs::write(folder.join("a-kubeconfig"), "")?;
    let file = format!("why --kubeconfig {}", folder.join("a-kube").display());
    let lines = typed(ns).map(|(words, _)| words.join(" ")).into_iter().chain([file, "get ".to_owned()]);
    let asks: String = lines.map(|line| format!("complete -C 'recif {line}'; echo ';'\n")).collect();
    let mut fish = Command::new("fish");
    fish.args(["--no-config", "--command", &format!("{script}\n{asks}")]).env("PATH", ns.env.path()?);
    let reported = run_to_exit(fish, None).await?;
    ensure!(reported.code == 0 && reported.stderr.is_empty(), "{reported:?}");
    let answers: Vec<Vec<&str>> = reported.stdout.split(";\n").map(|answer| answer.lines().collect()).collect();
    let [one, two, three, files, kinds, ..] = answers.as_slice() else { anyhow::bail!("{reported:?}") };
    for (answer, (_, whole)) in [one, two, three].into_iter().zip(typed(ns)) {
        let words: Vec<_> = answer.iter().filter_map(|line| line.split('\t').next()).collect();
        ensure!(words == [whole], "{answer:?} instead of {whole}");
    }
    ensure!(files.len() == 1 && files[0].ends_with("/a-kubeconfig"), "{files:?}");
    let about = format!("agents\t{ABOUT_AGENTS}");
    ensure!(kinds.iter().any(|line| line.starts_with(&about)) && kinds.len() == crds::KINDS.len(), "{kinds:?}");
    Ok(())
}
