//! Client of OpenAI's models at Azure: Chat Completions at addresses and with credentials of Azure.
//!
//! The model's id is the name of a deployment. Without a version it is the v1 API, whose versions have no dates.
//!
//! Sources: <https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle>,
//! <https://learn.microsoft.com/azure/ai-foundry/openai/reference>.

mod entra;

use crds::provider;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName};

use super::{
    Credentials, ModelRef, ModelRequest,
    authorizer::{BearerAuthorizer, RequestAuthorizer},
    endpoint::{ModelEndpoint, ProviderDefaults},
    error::ModelError,
    http::{Http, ProviderRequest},
    openai::{OpenAiReader, chat_body},
    remote::{Protocol, Reader},
};
use entra::Entra;

const PROVIDER: ProviderDefaults = ProviderDefaults { provider: provider::AZURE_OPENAI, public: "", regional: None };

/// Header of an API key.
const API_KEY: HeaderName = HeaderName::from_static("api-key");
/// Credential that is sent as a bearer token instead.
const TOKEN: &str = "AZURE_OPENAI_AD_TOKEN";

/// Deployment of a model at Azure.
pub(super) struct AzureOpenAi {
    endpoint: ModelEndpoint,
    /// Version of the API, for one with dates.
    api_version: Option<String>,
    passthrough: bool,
    entra: Option<BearerAuthorizer>,
}

impl AzureOpenAi {
    /// Creates the client of the model in `reference`.
    ///
    /// # Errors
    /// The setting that is missing or invalid.
    pub(super) fn new(reference: &ModelRef, credentials: &Credentials<'_>, http: &Http) -> Result<Self, String> {
        let endpoint = ModelEndpoint::find(reference, credentials, &PROVIDER)?;
        let api_version = reference.setting(provider::API_VERSION_KEYS).map(str::to_owned);
        let passthrough = reference.passthrough;
        let entra = match endpoint.key.is_some() || passthrough {
            true => None,
            false => Entra::find(credentials, api_version.is_some(), http)?,
        };
        let entra = endpoint.admit(entra, entra::is_of_pod(reference, credentials), PROVIDER.provider.domains)?;
        if endpoint.key.is_none() && entra.is_none() && !passthrough && reference.headers.is_empty() {
            return Err(format!(
                "model provider `{}` needs credentials: set AZURE_OPENAI_API_KEY or {TOKEN}, or {}",
                reference.provider,
                entra::VARIABLES
            ));
        }
        Ok(Self { endpoint, api_version, passthrough, entra })
    }
}

impl Protocol for AzureOpenAi {
    fn write(&self, request: &ModelRequest) -> Result<ProviderRequest, ModelError> {
        let (model, body) = chat_body(&self.endpoint, request, false)?;
        let url = match &self.api_version {
            None => self.endpoint.url(&["openai", "v1", "chat", "completions"]),
            Some(version) => {
                let mut url = self.endpoint.url(&["openai", "deployments", &model, "chat", "completions"]);
                url.query_pairs_mut().append_pair("api-version", version);
                url
            }
        };
        let mut headers = HeaderMap::new();
        let is_token = self.passthrough || self.endpoint.key_name.as_deref() == Some(TOKEN);
        let (name, prefix) = if is_token { (AUTHORIZATION, "Bearer ") } else { (API_KEY, "") };
        if let Some(key) = self.endpoint.key_header(prefix, request.key.as_ref()) {
            headers.insert(name, key);
        }
        Ok(ProviderRequest::new(url, headers, body))
    }

    fn authorizer(&self) -> Option<&dyn RequestAuthorizer> {
        self.entra.as_ref().map(|entra| entra as &dyn RequestAuthorizer)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(OpenAiReader::default())
    }
}
