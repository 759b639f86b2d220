//! Words for a part that is not found.

use crate::doctor::reading::Installed;

/// Advice where a part is missing.
pub(super) const INSTALL: &str =
    "kubectl apply --server-side -k config/default, or name its namespace with --system-namespace";

/// Returns what to say of a part that is not found; `None`: nothing is installed yet.
pub(super) fn absent(installed: Installed, system: &str) -> Option<String> {
    (installed == Installed::Yes).then(|| format!("not found in namespace {system}"))
}
