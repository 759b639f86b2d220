//! Row of a `recif dev`: its parts take connections. All other rows but those of API server and objects are about clusters.

use super::super::{
    finding::{Finding, Issue},
    reading::LocalReadings,
};

const CHECK: &str = "recif-dev";
const TITLE: &str = "recif dev";

/// Judges the parts.
pub(super) fn check(readings: &LocalReadings) -> Finding {
    let LocalReadings { dev, silent, .. } = readings;
    let issues = silent.iter().map(|part| {
        Issue::fail(format!("the {part} takes no connection"), "end recif dev by Ctrl-C and start it again")
    });
    let place = dev.folder.as_ref().map_or(String::new(), |folder| format!(" in {}", folder.display()));
    let what = format!(
        "a local API server{place}, gateway {}, control plane {}: what only a cluster has is not judged",
        dev.gateway, dev.control_plane
    );
    Finding::judge(CHECK, TITLE, what, issues.collect())
}
