//! Endpoint of a model at its provider: base URL, API key, and the config of every request.

use crds::{
    egress::{EGRESS_VARIABLE, EgressList},
    provider::Provider,
};
use reqwest::header::HeaderValue;
use url::Url;

use super::{
    Credentials, ModelRef, ModelRequest, credential_server::is_loopback, credentials::value_of, generation::Generation,
};
use crate::caller::CallerKey;

/// Defaults of a provider.
pub(super) struct ProviderDefaults {
    /// Names of its credentials, and whether its public address requires a key.
    pub(super) provider: Provider,
    /// Public base URL of the provider; empty if it has none, or one per region alone.
    pub(super) public: &'static str,
    /// Returns the public base URL of a region; `None` for a provider where a region changes nothing.
    pub(super) regional: Option<fn(&str) -> String>,
}

/// Model with its resolved base URL and key.
pub(super) struct ModelEndpoint {
    reference: ModelRef,
    base: Url,
    /// API key.
    pub(super) key: Option<String>,
    /// Name of the credential that holds it.
    pub(super) key_name: Option<String>,
    /// Set when the base URL is configured instead of the provider's public one.
    pub(super) is_custom: bool,
}

impl ModelEndpoint {
    /// Resolves the endpoint of `reference`. A server at a configured base URL may need no key.
    ///
    /// # Errors
    /// The setting that is missing or invalid, without its value.
    pub(super) fn find(
        reference: &ModelRef,
        credentials: &Credentials<'_>,
        defaults: &ProviderDefaults,
    ) -> Result<Self, String> {
        let Provider { keys, identity, base: url_name, needs_key, .. } = defaults.provider;
        let provider = &reference.provider;
        let set = |name: &str| value_of(credentials, name);
        let chosen = reference.base_url.clone().filter(|url| !url.is_empty()).or_else(|| set(url_name));
        if chosen.is_none() && defaults.public.is_empty() && defaults.regional.is_none() {
            return Err(format!(
                "model provider `{provider}` has no address of its own: set `baseUrl` in the extraConfig of its \
                 PluginConfig, or {url_name}"
            ));
        }
        let base = match &chosen {
            Some(chosen) => Url::parse(chosen).ok(),
            None => Url::parse(&public_base_url(reference, defaults)?).ok(),
        };
        let base = base.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()).ok_or_else(|| {
            format!(
                "the base URL of model provider `{provider}` is not an http or https URL; fix `baseUrl` in the \
                 extraConfig of its PluginConfig, or {url_name}"
            )
        })?;
        // The hosts of a cloud are those that its credentials may go to.
        if let Some(list) = set(EGRESS_VARIABLE).filter(|_| chosen.is_some() && identity.is_empty()) {
            // The process has not started with a list that cannot be read; an empty one admits nothing.
            let list: EgressList = serde_json::from_str(&list).unwrap_or_default();
            let refused = |why: String| format!("model provider `{provider}` is refused: {why}");
            list.check(&base).map_err(refused)?;
        }
        let declared = match &*reference.credential_keys {
            [only] if !keys.is_empty() && !identity.contains(&only.as_str()) => Some(only.as_str()),
            _ => None,
        };
        let found = keys.iter().copied().chain(declared).find_map(|name| Some((name, set(name)?)));
        let key_name = found.as_ref().map(|(name, _)| (*name).to_owned());
        let key = match found {
            // Such a key cannot be sent in a header.
            Some((name, key)) if HeaderValue::from_str(&key).is_err() => {
                return Err(format!("{name} holds characters that no API key has; set it to the key alone"));
            }
            Some((_, key)) => Some(key),
            None if needs_key && chosen.is_none() && reference.headers.is_empty() && !reference.passthrough => {
                return Err(format!(
                    "model provider `{provider}` needs an API key: set {}, or the base URL of a server that needs none",
                    keys.join(" or ")
                ));
            }
            None => None,
        };
        Ok(Self { reference: reference.clone(), base, key, key_name, is_custom: chosen.is_some() })
    }

    /// Returns `source` of fetched credentials or signatures if the address may get them. `of_pod`: they are of the
    /// Pod's own identity: only `domains` of the provider get these, because the author of a PluginConfig need not be the agent's.
    /// A gateway that may not get them, and has headers of its own, gets none.
    ///
    /// # Errors
    /// The address may not get them.
    pub(super) fn admit<A>(&self, source: Option<A>, of_pod: bool, domains: &[&str]) -> Result<Option<A>, String> {
        match self.refusal(of_pod, domains) {
            Some(_) if source.is_none() || !self.reference.headers.is_empty() => Ok(None),
            Some(problem) => Err(problem),
            None => Ok(source),
        }
    }

    /// Returns why the address may not get credentials that are fetched.
    fn refusal(&self, of_pod: bool, domains: &[&str]) -> Option<String> {
        let provider = &self.reference.provider;
        if is_loopback(&self.base) {
            return None;
        }
        if self.base.scheme() != "https" {
            return Some(format!(
                "the credentials of model provider `{provider}` go over https alone: let `baseUrl` in the extraConfig of its \
                 PluginConfig begin with https://, or set headersFrom or passthrough"
            ));
        }
        let host = self.base.host_str().unwrap_or_default();
        let is_of = |domain: &&str| host.strip_suffix(*domain).is_some_and(|rest| rest.ends_with('.'));
        (of_pod && !domains.iter().any(is_of)).then(|| {
            format!(
                "the Pod's own identity is for hosts of model provider `{provider}` alone ({}): remove `baseUrl` from the \
                 extraConfig of its PluginConfig, or name a credential of its Secret in credentialKeys, or set headersFrom or \
                 passthrough",
                domains.join(", ")
            )
        })
    }

    /// Returns the host of a configured base URL.
    pub(super) fn custom_host(&self) -> Option<&str> {
        self.base.host_str().filter(|_| self.is_custom)
    }

    /// Returns the model's id.
    pub(super) fn model(&self) -> &str {
        &self.reference.id
    }

    /// Returns the config of the answer to `request`.
    pub(super) fn generation(&self, request: &ModelRequest) -> Generation {
        Generation::new(&self.reference.id, &self.reference.config, &request.config)
    }

    /// Returns the base URL with `path` appended. The first segments of `path` are left out where the base URL already
    /// ends with them: `…/v1` and `…` mean the same.
    pub(super) fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        let given: Vec<_> = self.base.path().split('/').filter(|segment| !segment.is_empty()).collect();
        let known = (0..path.len()).rev().find(|known| given.ends_with(&path[..*known])).unwrap_or_default();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(&path[known..]);
        }
        url
    }

    /// Returns the key as a header value, after `prefix`, marked sensitive, which keeps it out of logs. `caller` is the key of
    /// the caller, which is sent instead where the PluginConfig says so.
    pub(super) fn key_header(&self, prefix: &str, caller: Option<&CallerKey>) -> Option<HeaderValue> {
        let own = self.key.as_deref().filter(|_| !self.reference.passthrough);
        let key = own.or(caller.filter(|_| self.reference.passthrough).map(|key| &*key.0))?;
        let mut value = HeaderValue::from_str(&format!("{prefix}{key}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Returns the provider's public base URL, for the region if it has regional ones.
fn public_base_url(reference: &ModelRef, defaults: &ProviderDefaults) -> Result<String, String> {
    let region = reference.region.as_deref().filter(|region| !region.is_empty());
    let Some((address, region)) = defaults.regional.zip(region) else { return Ok(defaults.public.into()) };
    if region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Ok(address(region));
    }
    Err(format!("model provider `{}` has no region {region:?}; regions are words such as eu", reference.provider))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROVIDER: ProviderDefaults = ProviderDefaults {
        provider: Provider { names: &["a"], keys: &["A_KEY", "B_KEY"], base: "A_URL", ..crds::provider::OPENAI },
        public: "https://api.example/v1",
        regional: Some(|region| format!("https://{region}.api.example/v1")),
    };

    fn find(
        reference: ModelRef,
        credentials: &'static [(&'static str, &'static str)],
    ) -> Result<ModelEndpoint, String> {
        let lookup = |name: &str| credentials.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned());
        ModelEndpoint::find(&reference, &lookup, &PROVIDER)
    }

    fn model() -> ModelRef {
        ModelRef::new("a", "m")
    }

    #[test]
    fn the_key_and_the_address_come_from_the_nearest_place() {
        let declared = ModelRef { credential_keys: vec!["MINE".into()], ..model() };
        let based = ModelRef { base_url: Some("http://near/".into()), region: Some("eu".into()), ..model() };
        let regional = ModelRef { region: Some("eu".into()), ..model() };
        for (reference, credentials, key, url) in [
            (model(), &[("A_KEY", "a\n"), ("B_KEY", "b")][..], Some("a"), "https://api.example/v1/x"),
            (model(), &[("A_KEY", " "), ("B_KEY", "b")], Some("b"), "https://api.example/v1/x"),
            (regional, &[("A_KEY", "a")], Some("a"), "https://eu.api.example/v1/x"),
            (declared.clone(), &[("MINE", "m")], Some("m"), "https://api.example/v1/x"),
            (declared, &[("MINE", "m"), ("B_KEY", "b")], Some("b"), "https://api.example/v1/x"),
            (model(), &[("A_URL", "http://far/base?q=1")], None, "http://far/base/x?q=1"),
            (based, &[("A_URL", "http://far"), ("A_KEY", "a")], Some("a"), "http://near/x"),
        ] {
            let found = find(reference, credentials).unwrap();
            assert_eq!((found.key.as_deref(), found.url(&["x"]).as_str()), (key, url), "{credentials:?}");
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_said_without_a_value() {
        let wrong = |url: &str| ModelRef { base_url: Some(url.into()), ..model() };
        for (reference, credentials, problem) in [
            (model(), &[][..], "model provider `a` needs an API key: set A_KEY or B_KEY, or the base URL of a server"),
            (model(), &[("A_KEY", "SECRET\nmore")], "A_KEY holds characters that no API key has"),
            (wrong("user:SECRET@host"), &[], "the base URL of model provider `a` is not an http or https URL; fix"),
            (wrong("ftp://SECRET"), &[], "the base URL of model provider `a` is not"),
            (
                ModelRef { region: Some("evil.example/".into()), ..model() },
                &[("A_KEY", "a")],
                "model provider `a` has no region \"evil.example/\"",
            ),
        ] {
            let found = find(reference, credentials).err().unwrap();
            assert!(found.starts_with(problem) && !found.contains("SECRET"), "{found}");
        }
    }

    #[test]
    fn with_an_egress_list_a_configured_address_must_be_in_it() {
        let listed: &[_] = &[("RECIF_EGRESS", r#"{"own": ["near:80"]}"#), ("A_KEY", "a")];
        let based = |url: &str| ModelRef { base_url: Some(url.into()), ..model() };
        assert!(find(based("http://near/v1"), listed).is_ok());
        assert!(find(model(), listed).is_ok(), "the provider's own address");
        let refused = find(based("https://far/v1"), listed).err().unwrap();
        assert_eq!(refused, "model provider `a` is refused: host far is not in the egress list of this agent");
        let by_secret = &[("RECIF_EGRESS", "{}"), ("A_KEY", "a"), ("A_URL", "https://far/v1")];
        assert!(find(model(), by_secret).err().unwrap().contains("host far is not in the egress list"));
    }

    #[test]
    fn an_identity_stays_with_its_provider_and_is_encrypted() {
        let admit = |url: &str, of_pod, headers: &[(&str, &str)]| {
            let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let found = find(ModelRef { base_url: Some(url.into()), headers, ..model() }, &[]).unwrap();
            found.admit(Some(()), of_pod, &["b.example"])
        };
        for (url, of_pod, problem) in [
            ("https://a.b.example", true, None),
            ("https://a.b.example/x", false, None),
            ("http://127.0.0.1:80", true, None),
            ("http://a.b.example", true, Some("https alone")),
            ("http://other", false, Some("https alone")),
            ("https://other", false, None),
            (
                "https://other",
                true,
                Some("the Pod's own identity is for hosts of model provider `a` alone (b.example)"),
            ),
            ("https://ab.example", true, Some("the Pod's own identity")),
            ("https://a.b.example.evil", true, Some("the Pod's own identity")),
            ("https://evil/a.b.example", true, Some("the Pod's own identity")),
            ("https://a.b.example@evil", true, Some("the Pod's own identity")),
        ] {
            match (admit(url, of_pod, &[]), problem) {
                (Ok(source), None) => assert_eq!(source, Some(()), "{url}"),
                (Err(found), Some(problem)) => assert!(found.contains(problem), "{url}: {found}"),
                (found, _) => panic!("{url}: {found:?}"),
            }
        }
        let gateway = admit("https://other", true, &[("X-Key", "k")]);
        assert_eq!(gateway, Ok(None), "a gateway with headers of its own needs no identity");
    }

    #[test]
    fn a_version_in_the_base_url_is_not_repeated() {
        for (base, url) in [
            ("http://h", "http://h/v1/messages"),
            ("http://h/v1/", "http://h/v1/messages"),
            ("http://h/a/v1", "http://h/a/v1/messages"),
            ("http://h/v2", "http://h/v2/v1/messages"),
            ("http://h/av1", "http://h/av1/v1/messages"),
        ] {
            let found = find(ModelRef { base_url: Some(base.into()), ..model() }, &[]).unwrap();
            assert_eq!(found.url(&["v1", "messages"]).as_str(), url);
        }
    }
}
