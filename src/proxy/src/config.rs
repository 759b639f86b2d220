//! Configuration from environment variables. The table [`VARIABLES`] names every variable; the program's help is
//! printed from it.

use std::{hint::black_box, net::SocketAddr, time::Duration};

use crds::{Period, usage::usage_key};
use identity::{Verifier, audience, public_keys};

/// Name, default (empty for none) and meaning of every variable.
const VARIABLES: &[(&str, &str, &str)] = &[
    ("RECIF_LISTEN_ADDR", ":8888", "address to listen on; without a host, every address"),
    ("RECIF_UPSTREAM_URL", "http://127.0.0.1:8000", "where the workload listens"),
    ("RECIF_CONCURRENCY", "0", "requests in flight at most; 0 for no cap"),
    ("RECIF_TIMEOUT", "60s", "longest wait for the first byte of an answer"),
    ("RECIF_IDLE_TIMEOUT", "300s", "longest silence of a stream, in both directions"),
    (
        "RECIF_LISTEN_STREAMS",
        "false",
        "whether event streams that answer a GET, or MCP's subscriptions, only listen: no request in flight",
    ),
    ("RECIF_LAME_DUCK", "5s", "how long a terminating Pod serves as before"),
    ("RECIF_SHUTDOWN_TIMEOUT", "25s", "how long requests may take to end after that"),
    ("RECIF_KEY", "", "secret of the hooks of the Pod; never printed"),
    ("RECIF_KIND", "", "kind of the workload, such as Agent: callers are signed for kind, namespace and name"),
    ("RECIF_NAME", "", "its name: a request that names another workload in X-Recif-Workload is answered 421"),
    ("RECIF_NAMESPACE", "", "its namespace"),
    (
        "RECIF_CALLER_KEYS",
        "",
        "public keys of the gateways, base64url, separated by commas: callers are identified by their signature; none: \
         X-Recif-User is trusted as received",
    ),
    ("RECIF_POD_UID", "", "uid of the Pod, by which a gateway recognizes it"),
    (
        "RECIF_READINESS",
        "",
        "readiness check of the workload: a path, or tcp; unset: only the kubelet knows, and gateways get no answer",
    ),
    ("RECIF_REQUIRE_IDENTITY", "false", "whether requests without a gateway's signature are refused"),
    ("RECIF_LOCAL", "false", "whether this is a developer's machine: requests that web pages send are refused"),
];

/// Returns the part of `--help` that lists the environment variables.
pub fn help() -> String {
    let mut text = String::from("Environment (an empty variable counts as unset):\n");
    for (name, default, meaning) in VARIABLES {
        let default = if default.is_empty() { String::new() } else { format!(" [default: {default}]") };
        text.push_str(&format!("  {name:<24} {meaning}{default}\n"));
    }
    text
}

/// Configuration of the sidecar.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Address of the workload.
    pub upstream: SocketAddr,
    /// Concurrency cap; 0 for none.
    pub concurrency: u32,
    /// Longest wait for the first byte of a response.
    pub timeout: Duration,
    /// Longest silence of a stream.
    pub idle_timeout: Duration,
    /// Set if event streams in response to a GET or a subscription only listen, as those of MCP servers do. They hold
    /// no slot.
    pub listen_streams: bool,
    /// Duration of the lame duck phase, in which a terminating Pod serves as before.
    pub lame_duck: Duration,
    /// Longest time for requests to end after the lame duck phase.
    pub shutdown_timeout: Duration,
    /// Shared secret of the Pod's hooks.
    pub key: HookKey,
    /// Key of the report of what the workload's models used, derived from that secret.
    pub usage_key: HookKey,
    /// Workload, as `namespace/name`.
    pub workload: String,
    /// Uid of the Pod; empty if unknown.
    pub pod_uid: String,
    /// Readiness probe of the workload; `None` if only the kubelet can probe it.
    pub readiness: Option<ReadinessProbe>,
    /// Set for a template without caller keys: its lame-duck hook is an HTTP call from the node, not a run of this
    /// program in the Pod.
    pub hook_by_network: bool,
    /// Verifier of the tokens by which gateways vouch for callers.
    pub verifier: Verifier,
    /// Set if requests without a valid token are refused.
    pub require_identity: bool,
    /// Set if the workload may be a Récif runner, whose metrics are reachable only through the sidecar.
    pub has_runner: bool,
    /// Set on a developer's machine, where a browser can connect too.
    pub local: bool,
}

/// Readiness probe of a workload, as the kubelet runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadinessProbe {
    /// The workload is ready if it accepts a connection.
    Tcp,
    /// The workload is ready if a GET of this path succeeds.
    Http(String),
}

/// Shared secret of the hooks; never printed, and compared only by [`HookKey::matches`].
#[derive(Clone)]
pub struct HookKey(String);

impl std::fmt::Debug for HookKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl HookKey {
    /// Returns the secret.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Reports whether `given` is the secret. An unset secret matches nothing. The time depends only on the lengths, so that
    /// answers do not tell how many bytes of a guess are right.
    pub fn matches(&self, given: &[u8]) -> bool {
        let secret = self.0.as_bytes();
        let unequal_bits = |seen: u8, (a, b): (&u8, &u8)| black_box(seen | (a ^ b));
        !secret.is_empty() && secret.len() == given.len() && secret.iter().zip(given).fold(0, unequal_bits) == 0
    }
}

/// Environment variable that cannot be parsed. The process must not start.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{variable}={value:?} is refused: set it to {expected}")]
pub struct ProxyConfigError {
    /// Name of the variable.
    pub variable: &'static str,
    /// Rejected value.
    pub value: String,
    /// Expected form of the value.
    pub expected: &'static str,
}

impl ProxyConfig {
    /// Reads the configuration through `lookup`.
    ///
    /// # Errors
    /// The first variable that cannot be parsed.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyConfigError> {
        let text = |name: &'static str| {
            lookup(name).filter(|value| !value.is_empty()).unwrap_or_else(|| default(name).to_owned())
        };
        fn parse<T>(
            variable: &'static str,
            value: String,
            expected: &'static str,
            read: impl Fn(&str) -> Option<T>,
        ) -> Result<T, ProxyConfigError> {
            read(&value).ok_or(ProxyConfigError { variable, value, expected })
        }
        let duration =
            |name| parse(name, text(name), "a duration such as `25s` or `1h`", |text| Period::from(text).length());
        let switch = |name| parse(name, text(name), "`true` or `false`", |text| text.parse().ok());
        let kind = text("RECIF_KIND");
        Ok(Self {
            has_runner: !kind.is_empty() && kind != "MCPServer",
            listen: parse("RECIF_LISTEN_ADDR", text("RECIF_LISTEN_ADDR"), "`:port` or `address:port`", read_address)?,
            upstream: parse(
                "RECIF_UPSTREAM_URL",
                text("RECIF_UPSTREAM_URL"),
                "`http://address:port` with an IP address",
                |value| value.strip_prefix("http://")?.trim_end_matches('/').parse().ok(),
            )?,
            concurrency: parse(
                "RECIF_CONCURRENCY",
                text("RECIF_CONCURRENCY"),
                "a whole number, 0 for no cap",
                |value| value.parse().ok(),
            )?,
            timeout: duration("RECIF_TIMEOUT")?,
            idle_timeout: duration("RECIF_IDLE_TIMEOUT")?,
            listen_streams: switch("RECIF_LISTEN_STREAMS")?,
            lame_duck: duration("RECIF_LAME_DUCK")?,
            shutdown_timeout: duration("RECIF_SHUTDOWN_TIMEOUT")?,
            usage_key: HookKey(usage_key(&text("RECIF_KEY")).unwrap_or_default()),
            key: HookKey(text("RECIF_KEY")),
            pod_uid: text("RECIF_POD_UID"),
            readiness: parse(
                "RECIF_READINESS",
                text("RECIF_READINESS"),
                "`tcp`, or a path such as `/readyz`",
                read_readiness,
            )?,
            hook_by_network: text("RECIF_CALLER_KEYS").is_empty(),
            workload: format!("{}/{}", text("RECIF_NAMESPACE"), text("RECIF_NAME")),
            verifier: Verifier::new(
                parse("RECIF_CALLER_KEYS", text("RECIF_CALLER_KEYS"), "Ed25519 keys as base64url", |value| {
                    public_keys(value).ok()
                })?,
                audience(&kind, &text("RECIF_NAMESPACE"), &text("RECIF_NAME")),
            ),
            require_identity: switch("RECIF_REQUIRE_IDENTITY")?,
            local: switch("RECIF_LOCAL")?,
        })
    }
}

impl ProxyConfig {
    /// Reports whether `named`, such as `agent/default/weather`, is this workload. A sidecar that does not know its
    /// workload accepts any name.
    pub fn is_workload(&self, named: &[u8]) -> bool {
        let at = memchr::memchr(b'/', named).map_or(0, |slash| slash + 1);
        self.workload == "/" || named.get(at..) == Some(self.workload.as_bytes())
    }
}

fn default(name: &str) -> &'static str {
    VARIABLES.iter().find(|(known, ..)| *known == name).map_or("", |(_, default, _)| default)
}

fn read_readiness(value: &str) -> Option<Option<ReadinessProbe>> {
    match value {
        "" => Some(None),
        "tcp" => Some(Some(ReadinessProbe::Tcp)),
        path if path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Some(Some(ReadinessProbe::Http(path.to_owned())))
        }
        _ => None,
    }
}

fn read_address(value: &str) -> Option<SocketAddr> {
    match value.strip_prefix(':') {
        // All addresses, of both families where the node has IPv6.
        Some(port) => Some(SocketAddr::from(([0_u16; 8], port.parse().ok()?))),
        None => value.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<ProxyConfig, ProxyConfigError> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        ProxyConfig::read(find)
    }

    #[test]
    fn the_defaults_are_those_of_the_help() {
        let config = read(&[]).unwrap();
        assert_eq!(config.listen, "[::]:8888".parse().unwrap());
        assert_eq!(config.upstream, "127.0.0.1:8000".parse().unwrap());
        assert_eq!((config.concurrency, config.timeout), (0, Duration::from_secs(60)));
        assert_eq!((config.lame_duck, config.shutdown_timeout), (Duration::from_secs(5), Duration::from_secs(25)));
        assert!(!config.key.matches(b"") && !config.usage_key.matches(b""), "an unset key admits no caller");
        assert!(!config.listen_streams && !config.require_identity && !config.local);
    }

    #[test]
    fn on_loopback_it_has_a_port_of_its_own_and_so_has_the_workload() {
        let config = read(&[
            ("RECIF_LISTEN_ADDR", "127.0.0.1:21004"),
            ("RECIF_UPSTREAM_URL", "http://127.0.0.1:21005"),
            ("RECIF_LOCAL", "true"),
        ]);
        let config = config.unwrap();
        assert_eq!(config.listen, "127.0.0.1:21004".parse().unwrap());
        assert_eq!(config.upstream, "127.0.0.1:21005".parse().unwrap());
        assert!(config.local);
    }

    #[test]
    fn a_workload_is_known_by_namespace_and_name() {
        let config = read(&[("RECIF_NAME", "weather"), ("RECIF_NAMESPACE", "default")]).unwrap();
        assert!(config.is_workload(b"agent/default/weather") && config.is_workload(b"flow/default/weather"));
        for other in ["agent/default/other", "agent/other/weather", "agent/default/weather/x", "default/weather", ""] {
            assert!(!config.is_workload(other.as_bytes()), "{other}");
        }
        assert!(read(&[]).unwrap().is_workload(b"agent/default/weather"));
    }

    #[test]
    fn a_bad_value_is_named() {
        for (variable, value) in [
            ("RECIF_LISTEN_ADDR", "8888"),
            ("RECIF_LISTEN_ADDR", ":99999"),
            ("RECIF_UPSTREAM_URL", "https://127.0.0.1:1"),
            ("RECIF_UPSTREAM_URL", "http://example"),
            ("RECIF_CONCURRENCY", "-1"),
            ("RECIF_LISTEN_STREAMS", "yes"),
            ("RECIF_CALLER_KEYS", "key"),
            ("RECIF_READINESS", "readyz"),
            ("RECIF_READINESS", "/ready HTTP/1.1"),
            ("RECIF_REQUIRE_IDENTITY", "1"),
            ("RECIF_LOCAL", "yes"),
            ("RECIF_TIMEOUT", "60"),
            ("RECIF_TIMEOUT", "-5s"),
            ("RECIF_LAME_DUCK", "soon"),
        ] {
            let error = read(&[(variable, value)]).unwrap_err();
            assert_eq!((error.variable, error.value.as_str()), (variable, value));
        }
    }

    #[test]
    fn the_key_is_never_printed() {
        let config = read(&[("RECIF_KEY", "secret")]).unwrap();
        assert!(config.key.matches(b"secret") && !config.key.matches(b"secrets"));
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn a_key_that_differs_in_one_bit_is_refused() {
        let secret = b"secret";
        let config = read(&[("RECIF_KEY", "secret")]).unwrap();
        for bit in 0..secret.len() * 8 {
            let mut given = *secret;
            given[bit / 8] ^= 1 << (bit % 8);
            assert!(!config.key.matches(&given), "{bit}");
        }
        assert!(!config.key.matches(b"") && !config.key.matches(b"secre"));
    }
}
