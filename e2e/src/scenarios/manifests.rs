//! Manifests that the API server must take and must refuse, as strict server-side apply sees them.

use anyhow::{Context as _, Result, ensure};

use super::{Scenario, scenarios};
use crate::{
    manifests::{documents, files},
    namespace::Namespace,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Shared:
    every_good_manifest_is_accepted,
    every_bad_manifest_is_refused_with_a_message,
);

async fn every_good_manifest_is_accepted(ns: Namespace) -> Result<()> {
    let mut wrong = Vec::new();
    for (path, text) in files(&ns.env.file("e2e/manifests/accept"))? {
        for manifest in documents(&text).with_context(|| format!("in {}", path.display()))? {
            if let Err(error) = ns.would_apply(&manifest).await {
                wrong.push(format!("{}: {error}", path.display()));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n  "));
    Ok(())
}

async fn every_bad_manifest_is_refused_with_a_message(ns: Namespace) -> Result<()> {
    let mut wrong = Vec::new();
    for (path, text) in files(&ns.env.file("e2e/manifests/reject"))? {
        let path = path.display();
        let expected = text.lines().next().and_then(|line| line.strip_prefix("# message: "));
        let expected = expected.with_context(|| format!("{path}: no `# message: ` in its first line"))?;
        for manifest in documents(&text).with_context(|| format!("in {path}"))? {
            match ns.would_apply(&manifest).await {
                Ok(_) => wrong.push(format!("{path}: accepted")),
                Err(error) if error.to_string().contains(expected) => {}
                Err(error) => wrong.push(format!("{path}: {error}")),
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n  "));
    Ok(())
}
