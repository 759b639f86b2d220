//! Models as the operator describes them in JSON: in `config.json` of a flow, and in `CORAIL_MODEL_FALLBACKS` of an agent.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use crds::{digest, egress::EGRESS_VARIABLE, plugin_config::BASE_URL_KEYS, provider};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Credentials, Http, Model, ModelRef,
    credentials::{directory, own_variable},
    fallback::{ChainedModel, ModelChain},
    open,
};
use crate::{
    Lookup,
    tools::{Tls, expand},
};

/// Model and its settings.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DefaultModel {
    /// Name of the provider.
    pub(crate) provider: String,
    /// Id of the model at the provider.
    pub(crate) model: String,
    /// Generation config of every request.
    #[serde(default)]
    pub(crate) config: Map<String, Value>,
}

/// Settings of a provider.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Plugin {
    /// API that the provider speaks.
    #[serde(rename = "type")]
    pub(crate) type_: String,
    /// Region, for providers with one public address per region.
    region: Option<String>,
    /// Settings of that API, for example `baseURL`.
    #[serde(default)]
    extra_config: Map<String, Value>,
    /// Headers of every request, with `$NAME` for a variable.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Verification of the provider's certificate.
    tls: Option<Tls>,
    /// Set when the caller's own key is sent.
    #[serde(default)]
    passthrough: bool,
    /// Longest silence of the provider in seconds.
    timeout: Option<u64>,
}

impl fmt::Debug for Plugin {
    /// Leaves out what may hold a credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("type", &self.type_).finish_non_exhaustive()
    }
}

/// Model that answers where the first one cannot.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fallback {
    model: DefaultModel,
    plugin: Plugin,
    /// Name of a credential to its value, with `$NAME` for a variable.
    #[serde(default)]
    credentials: BTreeMap<String, String>,
    /// Folder with one file per credential.
    credentials_dir: Option<String>,
    /// Credentials that were declared.
    #[serde(default)]
    credential_keys: Vec<String>,
}

/// Sources of the values that fallbacks refer to.
#[derive(Clone, Copy)]
pub(crate) struct FallbackSources<'a> {
    /// Lookup of variables.
    pub(crate) variables: &'a Lookup,
    /// Returns the path of a folder that is named in the contract, `None` for one that leads out of it.
    pub(crate) folder: &'a dyn Fn(&str) -> Option<PathBuf>,
}

impl Plugin {
    /// Returns the base URL, if one is set.
    ///
    /// # Errors
    /// It is no string.
    pub(crate) fn base_url(&self) -> Result<Option<String>, String> {
        match BASE_URL_KEYS.iter().find_map(|key| Some((key, self.extra_config.get(*key)?))) {
            None => Ok(None),
            Some((_, Value::String(url))) => Ok(Some(url.clone())),
            Some((key, _)) => Err(format!("`{key}` in `extraConfig` must be a string")),
        }
    }

    /// Returns the reference to the model `id` of this provider.
    ///
    /// # Errors
    /// The setting that is invalid.
    pub(crate) fn reference(&self, id: &str, config: &Map<String, Value>) -> Result<ModelRef, String> {
        Ok(ModelRef {
            provider: self.type_.clone(),
            id: id.to_owned(),
            base_url: self.base_url()?,
            region: self.region.clone(),
            settings: self.extra_config.clone(),
            credential_keys: Vec::new(),
            config: config.clone(),
            headers: self.headers.clone(),
            tls: self.tls.clone(),
            passthrough: self.passthrough,
            timeout: self.timeout.map(Duration::from_secs),
            lacks_identity: false,
        })
    }
}

impl Fallback {
    /// Opens the model. Its credentials are its own: those of the first model must not reach another server.
    /// The Pod's own identity, which `of_first` looks up, is for a model with the address of the first one alone.
    fn open(
        &self,
        first: &ModelRef,
        of_first: &Credentials<'_>,
        sources: FallbackSources<'_>,
        http: &Http,
    ) -> Result<ChainedModel, String> {
        let environment = sources.variables;
        let mut reference = self.plugin.reference(&self.model.model, &self.model.config)?;
        reference.lacks_identity = !has_address_of(&reference, first);
        reference.credential_keys = self.credential_keys.clone();
        reference.credential_keys.extend(self.credentials.keys().cloned());
        let shares_identity = !reference.lacks_identity && reference.credential_keys.is_empty();
        let known = provider::provider(&reference.provider).filter(|_| shares_identity);
        let identity = known.map(|known| known.identity).unwrap_or_default();
        let files = self.credentials_dir.as_ref().map(|folder| match (sources.folder)(folder) {
            Some(path) => Ok(directory(path)),
            None => Err("`credentialsDir` of a fallback leads out of the contract's folder".to_owned()),
        });
        let files = files.transpose()?;
        let credentials = |name: &str| {
            // The operator's Ollama and the list of addresses are for all models; variables of the contract are this model's
            // own.
            let is_shared = name == provider::OLLAMA.base || name == EGRESS_VARIABLE;
            if is_shared || name.starts_with("MODEL_") {
                return environment(name);
            }
            let variable = |variable: &str| own_variable(variable, name, environment);
            let own = self.credentials.get(name).and_then(|value| expand(value, variable).ok());
            let shared = || identity.contains(&name).then(|| of_first(name)).flatten();
            own.or_else(|| files.as_ref()?(name)).or_else(shared)
        };
        chained(&reference, &credentials, http)
    }
}

/// Creates the client of the model in `reference`, with models that stand in for it. `credentials` is as for [`open`]. A fallback
/// that cannot be served is left out, and the log says why: it must not stop the first model.
///
/// # Errors
/// The reason why the first model cannot be served, as a sentence for `/readyz`.
pub(crate) fn open_chain(
    reference: &ModelRef,
    fallbacks: &[Fallback],
    credentials: &Credentials<'_>,
    sources: FallbackSources<'_>,
    http: &Http,
) -> Result<Arc<dyn Model>, String> {
    let first = chained(reference, credentials, http)?;
    let others = fallbacks.iter().filter_map(|fallback| {
        let opened = fallback.open(reference, credentials, sources, http);
        let model = fallback.model.model.as_str();
        opened.inspect_err(|problem| tracing::warn!(model, "a fallback is left out: {problem}")).ok()
    });
    let models: Vec<_> = std::iter::once(first).chain(others).collect();
    Ok(Arc::new(ModelChain { models: models.into(), ledger: http.usage.clone() }))
}

/// Reports whether two models have the same provider, address and headers, as those of one PluginConfig do.
fn has_address_of(one: &ModelRef, other: &ModelRef) -> bool {
    let settings = provider::provider(&one.provider).map(|known| known.settings).unwrap_or_default();
    one.provider == other.provider
        && one.base_url == other.base_url
        && one.region == other.region
        && one.headers == other.headers
        && settings.iter().all(|names| one.setting(names) == other.setting(names))
}

fn chained(reference: &ModelRef, credentials: &Credentials<'_>, http: &Http) -> Result<ChainedModel, String> {
    let ModelRef { provider, id, .. } = reference;
    Ok(ChainedModel {
        model: open(reference, credentials, http)?,
        name: format!("{provider}/{id}").into(),
        breaker: http.breakers.of(breaker_key(reference, credentials)),
    })
}

/// Returns what the requests have in common that fail together: model, address and credentials, these as a digest. So a flow whose
/// key is refused does not stop another one, which has its own.
fn breaker_key(reference: &ModelRef, credentials: &Credentials<'_>) -> String {
    let ModelRef { provider, id, base_url, region, settings, credential_keys, headers, passthrough, .. } = reference;
    let known =
        provider::provider(provider).map(|known| known.keys.iter().chain(known.identity).copied().chain([known.base]));
    let keys = known.into_iter().flatten().chain(credential_keys.iter().map(String::as_str));
    let values: Vec<_> = keys.map(credentials).collect();
    let secret = digest::sha256_hex(format!("{values:?} {headers:?} {settings:?}").as_bytes());
    format!("{provider} {id} {base_url:?} {region:?} {passthrough} {secret}")
}
