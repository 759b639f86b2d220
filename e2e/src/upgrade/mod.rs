//! Upgrades an installation from an older checkout to this one, and goes back, while clients call its workloads: no Pod is
//! replaced, no Pod template changes, the operator writes each object once at most, no request fails, and `recif doctor` finds
//! nothing wrong.
//!
//! It is run as docs/install.md tells users to do it: CRDs first, then the rest; on the way back the CRDs stay.

mod fleet;
mod install;
mod traffic;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use clap::Args;
use e2e::audit::AuditEvent;

use self::install::Install;
use crate::{client::BackgroundLoad, env::Env, namespace::Namespace, report, run::await_quiet};

/// Namespace of the workloads.
const NAMESPACE: &str = "upgrade";

/// What is upgraded.
#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// Instead of running scenarios, upgrades from the checkout in this folder, whose programs are in `target/release`.
    #[arg(long, requires = "images", requires = "older_images")]
    pub(crate) upgrade_from: Option<PathBuf>,
    /// Images of this checkout, as `recif.local/NAME:TAG`; `config` names them with the tag `dev`.
    #[arg(long, value_delimiter = ',')]
    images: Vec<String>,
    /// Images of the older checkout.
    #[arg(long, value_delimiter = ',')]
    older_images: Vec<String>,
}

/// Installs the older programs with their workloads, then upgrades and goes back, and checks both steps.
pub(crate) async fn run(env: &Arc<Env>, args: &UpgradeArgs, older: &Path) -> Result<()> {
    let recif = env.recif_command().as_std().get_program().into();
    let newer = Install { name: "newer", root: env.file("."), images: &args.images, recif };
    let recif = older.join("target/release/recif");
    let older = Install { name: "older", root: older.to_owned(), images: &args.older_images, recif };

    older.apply_crds(env).await?;
    older.apply(env).await?;
    let ns = Namespace::create(env.clone(), NAMESPACE).await?;
    fleet::start(&ns).await?;
    older.check_by_doctor(&ns).await?;
    let started = fleet::Snapshot::take(&ns).await?;
    report::line(&format!("the older programs run {} objects with {} Pods", started.objects, started.pods.len()));

    step(&ns, &newer, true).await?;
    step(&ns, &older, false).await
}

/// Replaces the programs under load, and checks what that did to the workloads and their clients.
async fn step(ns: &Namespace, to: &Install<'_>, with_crds: bool) -> Result<()> {
    let load = BackgroundLoad::of(&ns.env, traffic::clients(ns).await?).await?;
    // The load must have begun everywhere, and must cause no writes by itself.
    await_quiet(ns).await?;
    let before = fleet::Snapshot::take(ns).await?;
    let mark = ns.env.audit.mark().await?;
    let begun = Instant::now();
    if with_crds {
        to.apply_crds(&ns.env).await?;
    }
    to.apply(&ns.env).await?;
    let took = begun.elapsed();
    let quiet = await_quiet(ns).await;
    // Streams that began with the new programs come to their end.
    tokio::time::sleep(traffic::STREAM + Duration::from_secs(2)).await;
    let tally = load.end().await?;

    let requests = ns.operator_requests(mark).await?;
    let writes = writes_by_object(&requests);
    let mut wrong: Vec<String> = Vec::new();
    let mut note = |result: Result<()>| wrong.extend(result.err().map(|error| format!("{error:#}")));
    note(quiet);
    note(check_writes(&writes));
    note(before.check_kept(&fleet::Snapshot::take(ns).await?));
    note(tally.check(fleet::AGENTS * 10, fleet::STREAMS));
    note(to.check_by_doctor(ns).await);
    report::line(&format!(
        "{} the {} programs, within {:.0} s: {} requests and {} streams, {} failed; {} writes to {} objects, at most {} to one",
        if wrong.is_empty() { "ok    to" } else { "FAIL  to" },
        to.name,
        took.as_secs_f32(),
        tally.requests,
        tally.streams,
        tally.failed,
        writes.values().map(Vec::len).sum::<usize>(),
        writes.len(),
        writes.values().map(Vec::len).max().unwrap_or_default(),
    ));
    if !wrong.is_empty() {
        bail!("to the {} programs:\n  {}", to.name, wrong.join("\n  "));
    }
    Ok(())
}

/// Returns the operator's writes by kind and name of the object. Events are not counted: each is an object of its own.
fn writes_by_object(requests: &[AuditEvent]) -> BTreeMap<String, Vec<String>> {
    let mut writes = BTreeMap::<String, Vec<String>>::new();
    for request in requests.iter().filter(|request| request.is_write()) {
        let resource = request.resource();
        let kind = resource.split('/').next().unwrap_or_default();
        if kind != "events" {
            writes.entry(format!("{kind}/{}", request.name())).or_default().push(request.to_string());
        }
    }
    writes
}

fn check_writes(writes: &BTreeMap<String, Vec<String>>) -> Result<()> {
    let several: Vec<String> = writes.values().filter(|writes| writes.len() > 1).map(|it| it.join(", ")).collect();
    ensure!(
        several.is_empty(),
        "{} objects were written more than once:\n    {}",
        several.len(),
        several.join("\n    ")
    );
    Ok(())
}
