//! Words for what is missing of an install.

use crate::doctor::reading::{Installed, Installer};

/// Follows a command of Helm: Helm 4 refuses to set back what another client has changed, and Helm 3 has no such flag.
pub(super) const ON_CONFLICT: &str = "(with --force-conflicts if it reports a conflict)";

/// Returns the command that brings back what is missing, as it was installed. Without `--force-conflicts` kubectl refuses to set
/// back what another client has changed.
pub(super) fn apply(installer: &Installer, system: &str) -> String {
    let (name, namespace) = match installer {
        Installer::Helm(Some(release)) => (release.name.as_str(), release.namespace.as_str()),
        Installer::Helm(None) | Installer::Manifests | Installer::Unknown => ("recif", system),
    };
    let helm = format!("helm upgrade --install {name} <chart> -n {namespace} --reset-then-reuse-values {ON_CONFLICT}");
    let manifests =
        "kubectl apply --server-side --force-conflicts -k <config/default, or the overlay that you applied>";
    match installer {
        Installer::Helm(_) => helm,
        Installer::Manifests => manifests.to_owned(),
        Installer::Unknown => format!("{helm}, or {manifests}"),
    }
}

/// Returns the command `apply` for what a value of the chart may have turned off, which a release keeps unless it is set again.
pub(super) fn turn_on(apply: &str, value: &str) -> String {
    const KEPT: &str = "--reset-then-reuse-values";
    apply.replacen(KEPT, &format!("{KEPT} --set {value}=true"), 1)
}

/// Returns what to do about a part that is missing; `apply` brings it back.
pub(super) fn install(apply: &str) -> String {
    format!("{apply}, or name its namespace with --system-namespace")
}

/// Returns what to say of a part that is not found; `None`: nothing is installed yet.
pub(super) fn absent(installed: Installed, system: &str) -> Option<String> {
    (installed == Installed::Yes).then(|| format!("not found in namespace {system}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::reading::HelmRelease;

    #[test]
    fn a_remedy_is_of_the_tool_that_installed_it_and_of_both_where_that_is_unknown() {
        let tools = |installer| {
            let remedy = apply(&installer, "sys");
            ["helm upgrade --install recif <chart> -n sys ", "kubectl apply "].map(|tool| remedy.contains(tool))
        };
        assert_eq!(tools(Installer::Helm(None)), [true, false]);
        assert_eq!(tools(Installer::Manifests), [false, true]);
        assert_eq!(tools(Installer::Unknown), [true, true]);
        let release = HelmRelease { name: "ours".into(), namespace: "charts".into() };
        let remedy = apply(&Installer::Helm(Some(release)), "sys");
        assert!(remedy.starts_with("helm upgrade --install ours <chart> -n charts --reset"), "{remedy}");
    }

    #[test]
    fn what_a_value_of_the_chart_turned_off_is_turned_on_by_it() {
        let on = |installer| turn_on(&apply(&installer, "sys"), "controlPlane.enabled");
        let flags = format!(" --reset-then-reuse-values --set controlPlane.enabled=true {ON_CONFLICT}");
        assert!(on(Installer::Helm(None)).ends_with(&flags), "{}", on(Installer::Helm(None)));
        assert_eq!(on(Installer::Manifests), apply(&Installer::Manifests, "sys"));
    }

    #[test]
    fn a_remedy_says_when_to_override_what_another_client_has_changed() {
        assert!(apply(&Installer::Helm(None), "sys").ends_with(" (with --force-conflicts if it reports a conflict)"));
        assert!(apply(&Installer::Manifests, "sys").starts_with("kubectl apply --server-side --force-conflicts -k "));
    }
}
