//! Readings: all that the checks judge, read once. A reading that is refused or does not come in time keeps its row
//! from being judged, and no other.

mod access;
mod api;
mod images;
mod installed;
mod local;
mod objects;
mod parts;
mod plugin;
mod pull;
mod refused;
mod sample;
mod views;

use futures::join;
use jiff::Timestamp;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::Value;

pub(super) use access::{AccountReviews, Denied, YourReviews};
use api::ApiReader;
pub(super) use api::{Read, Unread, definition};
pub(super) use images::{ImageUse, WaitingImage};
pub(crate) use installed::{InstalledVersion, installed_versions};
pub(super) use local::{LocalReadings, read_local};
pub(super) use objects::KindCount;
#[cfg(test)]
pub(super) use parts::PartPod;
pub(super) use parts::{Database, Part};
pub(super) use pull::{LeftPod, PullOutcome, Pulled};
pub(super) use refused::RefusedPods;
use sample::SampleImages;
#[cfg(test)]
pub(super) use sample::sample_labels;
pub(super) use sample::{DryRun, DryRuns};
pub(super) use views::{ARCHITECTURES, Definition, HelmRelease, Installed, Installer, NodeView, Scope};

use crate::{
    cluster::{ServerTime, UserClient},
    error::CliError,
};

/// Everything that was read.
#[derive(Debug)]
pub(super) struct Readings {
    /// Extent of the reading.
    pub scope: Scope,
    /// State of the installation.
    pub installed: Installed,
    /// Tool by which it was installed.
    pub installer: Installer,
    /// Version of the API server, such as `v1.34.2`.
    pub server: String,
    /// Response times of the API server.
    pub times: Read<Vec<ServerTime>>,
    /// Time of this machine after the last of them.
    pub now: Timestamp,
    /// Nodes.
    pub nodes: Read<Vec<NodeView>>,
    /// ValidatingAdmissionPolicies, and their bindings.
    pub policies: Read<(Vec<Value>, Vec<Value>)>,
    /// Our CustomResourceDefinitions in the cluster.
    pub definitions: Read<Vec<Definition>>,
    /// Operator, gateway and control plane.
    pub parts: [Read<Option<Part>>; 3],
    /// Lease of the operator: holder, and time of its last renewal.
    pub lease: Read<Option<(String, Option<Timestamp>)>>,
    /// Reviews of the rights of our accounts.
    pub accounts: Read<AccountReviews>,
    /// Reviews of the user's rights.
    pub yours: Read<YourReviews>,
    /// Images that are used, and containers that wait for theirs.
    pub images: Read<(Vec<ImageUse>, Vec<WaitingImage>)>,
    /// Results of the Pods that pulled the images; `None`: not asked for.
    pub pulled: Option<Vec<Pulled>>,
    /// Dry runs of the sample agent's Deployment and Pod.
    pub dry_runs: DryRuns,
    /// Workloads in the namespace whose Pods are refused.
    pub refused: Read<Vec<RefusedPods>>,
    /// NetworkPolicies by namespace: that of the agent, that of the system.
    pub network: Read<[Vec<NetworkPolicy>; 2]>,
    /// Network plugin that enforces them; `None`: none is known.
    pub plugin: Read<Option<String>>,
    /// Labels of our workloads' Pods in the namespace.
    pub workload_pods: Vec<std::collections::BTreeMap<String, String>>,
    /// Database of the control plane.
    pub database: Read<Database>,
    /// End of the gateway's certificate; `None`: it has none.
    pub certificate: Read<Option<Timestamp>>,
    /// Counts of the objects per kind.
    pub objects: Read<Vec<KindCount>>,
}

impl Readings {
    /// Returns the clock of the API server minus that of this machine, in seconds.
    pub(super) fn clock_offset(&self) -> Option<f64> {
        let last = self.times.as_ref().ok()?.last()?;
        Some(last.clock?.as_second() as f64 - self.now.as_second() as f64)
    }

    /// Returns the time of the API server.
    pub(super) fn server_now(&self) -> Timestamp {
        let offset = jiff::SignedDuration::from_secs(self.clock_offset().unwrap_or_default() as i64);
        self.now.checked_add(offset).unwrap_or(self.now)
    }
}

/// Reads everything.
///
/// # Errors
/// There is no API server; it lets the caller read nothing; or the user stops it while images are pulled.
pub(super) async fn read(live: &UserClient, scope: Scope) -> Result<Readings, CliError> {
    let api = ApiReader::new(live, scope.timeout);
    let server = api.version().await?;
    let (times, now) = (api.times().await, Timestamp::now());
    let part = |name: &'static str| parts::read(&api, &scope.system, name);
    let (nodes, policies, definitions, operator, gateway, control_plane) = join!(
        api.nodes(),
        api.admission_policies(),
        api.definitions(),
        part("recif-operator"),
        part("recif-gateway"),
        part("recif-control-plane"),
    );
    let parts = [operator, gateway, control_plane];
    let installed = is_installed(&definitions, &parts);
    let images = SampleImages::of(parts[0].as_ref().ok().and_then(Option::as_ref));
    let [operator, gateway, control_plane] = parts.each_ref().map(|part| part.as_ref().ok().and_then(Option::as_ref));
    let (
        lease,
        accounts,
        yours,
        image_uses,
        dry_runs,
        refused,
        network,
        plugin,
        workload_pods,
        database,
        certificate,
        objects,
    ) = join!(
        parts::lease(&api, &scope.system, operator),
        access::accounts(&api, &scope.system, [operator, gateway, control_plane], installed),
        access::yours(&api, &scope, installed),
        images::read(&api, &scope, [operator, gateway, control_plane]),
        sample::dry_runs(&api, &scope.namespace, &images),
        refused::read(&api, &scope.namespace),
        api.network_policies(&scope),
        plugin::read(&api, &nodes),
        sample::workload_labels(&api, &scope.namespace),
        parts::database(&api, &scope.system, control_plane),
        parts::certificate(&api, &scope.system, gateway),
        objects::read(&api, &scope.namespace),
    );
    if api.read_nothing() {
        return Err(CliError::Forbidden(
            "you may read nothing in this cluster: sign in as another user, or choose another context with --context"
                .to_owned(),
        ));
    }
    let pulled = match &image_uses {
        Ok((uses, _)) if scope.pull => Some(pull::pull(live, &scope, uses, &nodes).await?),
        _ => None,
    };
    Ok(Readings {
        installed,
        installer: installer(&definitions, &parts),
        server,
        times,
        now,
        nodes,
        policies,
        definitions,
        lease,
        accounts,
        yours,
        images: image_uses,
        pulled,
        dry_runs,
        refused,
        network,
        plugin,
        workload_pods,
        database,
        certificate,
        objects,
        parts,
        scope,
    })
}

/// Returns the tool of the parts, else that of the definitions, which are of a release of their own.
fn installer(definitions: &Read<Vec<Definition>>, parts: &[Read<Option<Part>>]) -> Installer {
    let tool = |by_helm: bool, release: Option<&HelmRelease>| match by_helm {
        true => Installer::Helm(release.cloned()),
        false => Installer::Manifests,
    };
    let parts = parts.iter().filter_map(|part| part.as_ref().ok()?.as_ref());
    let of_parts = parts.map(|part| tool(part.by_helm, part.release.as_ref()));
    let of_definitions = definitions.iter().flatten().map(|definition| tool(definition.by_helm, None));
    of_parts.chain(of_definitions).next().unwrap_or(Installer::Unknown)
}

fn is_installed(definitions: &Read<Vec<Definition>>, parts: &[Read<Option<Part>>]) -> Installed {
    let part = parts.iter().any(|part| matches!(part, Ok(Some(_))));
    match definitions {
        Ok(definitions) if part || !definitions.is_empty() => Installed::Yes,
        _ if part => Installed::Yes,
        Ok(_) if parts.iter().all(Result::is_ok) => Installed::No,
        _ => Installed::Unknown,
    }
}
