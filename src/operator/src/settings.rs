//! Settings of the actions, from the options of the process.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use actions::render::{Namespaces, PodSecurity, RenderSettings, dsn};
use crds::egress::AddressRange;
use telemetry::{TelemetryConfig, pod_variables};

use super::watches::GatewayService;

/// Builds the settings from the operator's namespace and the domain of the cluster; the agents' database and the namespaces that inherit
/// it; their Ollama; the images of agents, of the runner and of the sidecar; and the Pod Security level.
///
/// # Errors
/// A database URL that cannot be parsed, its password masked.
pub(super) fn settings(
    (operator_namespace, cluster_domain): (String, String),
    (database_url, database_namespaces): (Option<String>, Namespaces),
    ollama_base_url: Option<String>,
    [agent_image, runner_image, proxy_image]: [String; 3],
    pod_security: PodSecurity,
) -> Result<RenderSettings, String> {
    if let Some(url) = &database_url {
        dsn::expand(url, &operator_namespace, &cluster_domain).map_err(|error| format!("DATABASE_URL: {error}"))?;
    }
    Ok(RenderSettings {
        operator_namespace,
        cluster_domain,
        database_url,
        database_namespaces,
        ollama_base_url: ollama_base_url.filter(|url| !url.is_empty()),
        agent_image,
        runner_image,
        proxy_image,
        telemetry: BTreeMap::new(),
        pod_security,
        network_policies: true,
        cluster_cidrs: Vec::new(),
    })
}

/// Parses a range of addresses of the cluster.
///
/// # Errors
/// It is none, or has every address.
pub(super) fn cluster_cidr(text: &str) -> Result<AddressRange, String> {
    let range: AddressRange = text.trim().parse()?;
    match range.is_everything() {
        true => Err(format!("{range} is every address: name the ranges of the cluster's Pods, Services and nodes")),
        false => Ok(range),
    }
}

/// Returns the agents' database, and the namespaces that inherit it. An operator of all namespaces needs the flag: no default is right,
/// because one would give the database to every editor of the cluster, and the other would keep stored conversations in memory instead
/// without a word.
///
/// # Errors
/// The two choices.
pub(super) fn database(
    url: Option<String>,
    named: Vec<String>,
    namespaces: &[String],
) -> Result<(Option<String>, Namespaces), String> {
    let url = url.filter(|url| !url.is_empty());
    let named: BTreeSet<String> = named.into_iter().filter(|name| !name.is_empty()).collect();
    let inherited = match (named.is_empty(), namespaces.is_empty()) {
        _ if named.contains("*") => Namespaces::All,
        (false, _) => Namespaces::These(named),
        (true, false) => Namespaces::These(namespaces.iter().cloned().collect()),
        (true, true) if url.is_some() => {
            return Err("DATABASE_URL is set, and the operator works in all namespaces: say whose agents inherit the \
                        database, with --database-namespaces=team-a,team-b, or --database-namespaces='*' for all: who \
                        may make an Agent there can read it"
                .to_owned());
        }
        (true, true) => Namespaces::All,
    };
    Ok((url, inherited))
}

/// Reads the configuration of this process's own spans.
///
/// # Errors
/// The first variable that is refused.
pub(super) fn own_telemetry(lookup: &dyn Fn(&str) -> Option<String>) -> Result<TelemetryConfig, String> {
    TelemetryConfig::read(lookup).map_err(|error| error.to_string())
}

/// Returns the variables of OpenTelemetry that Pods get: those of this process. A collector without a namespace is in the operator's.
///
/// # Errors
/// The first variable that is refused.
pub(super) fn pod_telemetry(
    lookup: &dyn Fn(&str) -> Option<String>,
    operator_namespace: &str,
    cluster_domain: &str,
) -> Result<BTreeMap<String, String>, String> {
    let mut variables = pod_variables(lookup).map_err(|error| error.to_string())?;
    for (name, value) in &mut variables {
        if name.ends_with("_ENDPOINT") {
            *value = dsn::expand_http(value, operator_namespace, cluster_domain);
        }
    }
    Ok(variables)
}

/// Parses a level of the Pod Security Standards.
///
/// # Errors
/// The valid levels.
pub(super) fn pod_security(text: &str) -> Result<PodSecurity, String> {
    let levels = [PodSecurity::Restricted, PodSecurity::Baseline, PodSecurity::Privileged];
    let found = levels.into_iter().find(|level| level.as_str() == text);
    found.ok_or_else(|| "one of restricted, baseline, privileged".to_owned())
}

/// Parses the interval of the scaler.
///
/// # Errors
/// The shortest one.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let length = crds::Period::from(text).length().filter(|length| *length >= Duration::from_millis(100));
    length.ok_or_else(|| "a length of time of at least 100ms, such as 1s or 500ms".to_owned())
}

/// Parses the Service of the gateways; `None` if there is none.
///
/// # Errors
/// It is not `namespace/name`.
pub(super) fn gateways(service: &str) -> Result<Option<GatewayService>, String> {
    if service.is_empty() {
        return Ok(None);
    }
    let names = service.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    let Some((namespace, name)) = names else {
        return Err(format!("--gateway-service {service}: say namespace/name of the Service"));
    };
    Ok(Some(GatewayService { namespace: namespace.to_owned(), name: name.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_find_a_collector_of_the_operators_namespace() {
        let endpoint = |url: &'static str| {
            let lookup = move |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| url.to_owned());
            let variables = pod_telemetry(&lookup, "recif-system", "cluster.local");
            variables.map(|variables| variables["OTEL_EXPORTER_OTLP_ENDPOINT"].clone())
        };
        assert_eq!(endpoint("http://otel:4318").unwrap(), "http://otel.recif-system.svc.cluster.local:4318");
        assert_eq!(endpoint("https://otel.example:4318").unwrap(), "https://otel.example:4318");
        assert!(endpoint("otel:4318").unwrap_err().contains("give a URL such as http://collector:4318"));
    }

    #[test]
    fn it_is_said_whose_agents_inherit_the_database() {
        let of = |url: Option<&str>, named: &[&str], namespaces: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let found = database(url.map(str::to_owned), owned(named), &owned(namespaces));
            found.map(|(_, inherited)| inherited)
        };
        let these = |names: &[&str]| Ok(Namespaces::These(names.iter().map(|name| (*name).to_owned()).collect()));
        let url = Some("postgresql://db/x");
        assert_eq!(of(url, &["*"], &[]), Ok(Namespaces::All));
        assert_eq!(of(url, &["a", "b"], &[]), these(&["a", "b"]));
        assert_eq!(of(url, &[], &["a"]), these(&["a"]), "an operator of some namespaces");
        assert_eq!(of(url, &["b"], &["a", "b"]), these(&["b"]));
        assert_eq!(of(None, &[""], &[]), Ok(Namespaces::All), "no database: nothing to inherit");
        let refused = of(url, &[], &[]).unwrap_err();
        assert!(["team-a,team-b", "'*'"].iter().all(|choice| refused.contains(choice)), "{refused}");
    }

    #[test]
    fn a_range_of_the_cluster_is_read_or_refused() {
        assert_eq!(cluster_cidr(" 203.0.113.7/24").map(|range| range.to_string()), Ok("203.0.113.0/24".to_owned()));
        let every = "is every address";
        for (text, words) in [("0.0.0.0/0", every), ("::/0", every), ("x", "is not a range")] {
            let refused = cluster_cidr(text).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
