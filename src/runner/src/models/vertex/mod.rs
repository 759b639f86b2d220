//! Clients of models at Google Cloud's Vertex AI: Gemini and Anthropic's, in their own protocols, at addresses and with credentials
//! of Google Cloud.
//!
//! Sources: <https://cloud.google.com/vertex-ai/docs/reference/rest>,
//! <https://docs.anthropic.com/en/api/claude-on-vertex-ai>.

mod external_account;
mod google;
mod metadata;
mod names;
mod service_account;

use crds::provider::{self, PROJECT_KEYS, REGION_KEYS};
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Map, Value};
use url::Url;

use super::{
    Credentials, ModelRef, ModelRequest,
    anthropic::{messages_body, reader::AnthropicReader},
    authorizer::RequestAuthorizer,
    credentials::value_of,
    endpoint::{ModelEndpoint, ProviderDefaults},
    error::ModelError,
    gemini::{CallIds, GeminiReader, generate_body},
    http::{Http, ProviderRequest},
    remote::{Protocol, Reader},
};
use google::{GoogleAuthorizer, PROJECT_OF_CREDENTIALS};

const PROVIDER: ProviderDefaults =
    ProviderDefaults { provider: provider::GEMINI_VERTEX, public: "", regional: Some(address) };

/// Version of Anthropic's API at Vertex AI, a field of the body.
const ANTHROPIC_VERSION: &str = "vertex-2023-10-16";

/// Gemini at Vertex AI.
pub(super) struct GeminiVertex(VertexEndpoint);

/// Model of Anthropic at Vertex AI.
pub(super) struct AnthropicVertex(VertexEndpoint);

/// Address and credentials of a model at Vertex AI.
struct VertexEndpoint {
    endpoint: ModelEndpoint,
    project: String,
    location: String,
    authorizer: Option<GoogleAuthorizer>,
}

/// Returns the base URL of a location.
fn address(location: &str) -> String {
    match location {
        "global" => "https://aiplatform.googleapis.com".to_owned(),
        "us" | "eu" => format!("https://aiplatform.{location}.rep.googleapis.com"),
        _ => format!("https://{location}-aiplatform.googleapis.com"),
    }
}

impl VertexEndpoint {
    fn find(reference: &ModelRef, credentials: &Credentials<'_>, http: &Http) -> Result<Self, String> {
        let setting = |names, variable| {
            let text: Option<&str> = reference.setting(names);
            text.map(str::to_owned).or_else(|| value_of(credentials, variable))
        };
        let region = reference.region.clone().filter(|region| !region.is_empty());
        let location = region.or_else(|| setting(REGION_KEYS, "GOOGLE_CLOUD_LOCATION"));
        let location = location.unwrap_or_else(|| "global".to_owned());
        let reference = ModelRef { region: Some(location.clone()), ..reference.clone() };
        let endpoint = ModelEndpoint::find(&reference, credentials, &PROVIDER)?;
        let authorizer = match reference.passthrough {
            true => None,
            false => GoogleAuthorizer::find(&reference, &endpoint, credentials, http)?,
        };
        let is_of_pod = authorizer.as_ref().is_some_and(|authorizer| authorizer.is_of_pod);
        let authorizer = endpoint.admit(authorizer, is_of_pod, PROVIDER.provider.domains)?;
        let of_key = || authorizer.as_ref()?.project_of_key.clone();
        let project = setting(PROJECT_KEYS, "GOOGLE_CLOUD_PROJECT").or_else(of_key);
        let project = match (project, &authorizer) {
            (Some(project), _) => project,
            (None, Some(authorizer)) if authorizer.knows_project() => PROJECT_OF_CREDENTIALS.to_owned(),
            (None, _) => {
                return Err(format!(
                    "model provider `{}` needs a project: set `projectId` in the extraConfig of its PluginConfig, or \
                     GOOGLE_CLOUD_PROJECT",
                    reference.provider
                ));
            }
        };
        Ok(Self { endpoint, project, location, authorizer })
    }

    /// Creates the request to a method of a publisher's model.
    fn request(
        &self,
        path: [&str; 2],
        method: &str,
        body: Map<String, Value>,
        request: &ModelRequest,
    ) -> ProviderRequest {
        let [publisher, model] = path;
        let model = format!("{model}:{method}");
        let (project, location) = (&*self.project, &*self.location);
        let url: Url = self.endpoint.url(&[
            "v1",
            "projects",
            project,
            "locations",
            location,
            "publishers",
            publisher,
            "models",
            &model,
        ]);
        let mut headers = HeaderMap::new();
        if let Some(key) = self.endpoint.key_header("Bearer ", request.key.as_ref()) {
            headers.insert(AUTHORIZATION, key);
        }
        ProviderRequest::new(url, headers, body)
    }

    fn authorizer(&self) -> Option<&dyn RequestAuthorizer> {
        self.authorizer.as_ref().map(|authorizer| authorizer as &dyn RequestAuthorizer)
    }
}

impl GeminiVertex {
    /// Creates the client of the model in `reference`.
    ///
    /// # Errors
    /// The setting that is missing or invalid.
    pub(super) fn new(reference: &ModelRef, credentials: &Credentials<'_>, http: &Http) -> Result<Self, String> {
        VertexEndpoint::find(reference, credentials, http).map(Self)
    }
}

impl Protocol for GeminiVertex {
    fn write(&self, request: &ModelRequest) -> Result<ProviderRequest, ModelError> {
        let (model, body) = generate_body(&self.0.endpoint, request, CallIds::LeftOut)?;
        let mut call = self.0.request(["google", &model], "streamGenerateContent", body, request);
        call.url.query_pairs_mut().append_pair("alt", "sse");
        Ok(call)
    }

    fn authorizer(&self) -> Option<&dyn RequestAuthorizer> {
        self.0.authorizer()
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(GeminiReader::default())
    }
}

impl AnthropicVertex {
    /// Creates the client of the model in `reference`.
    ///
    /// # Errors
    /// The setting that is missing or invalid.
    pub(super) fn new(reference: &ModelRef, credentials: &Credentials<'_>, http: &Http) -> Result<Self, String> {
        VertexEndpoint::find(reference, credentials, http).map(Self)
    }
}

impl Protocol for AnthropicVertex {
    fn write(&self, request: &ModelRequest) -> Result<ProviderRequest, ModelError> {
        let (model, mut body) = messages_body(&self.0.endpoint, request)?;
        body.insert("anthropic_version".into(), ANTHROPIC_VERSION.into());
        Ok(self.0.request(["anthropic", &model], "streamRawPredict", body, request))
    }

    fn authorizer(&self) -> Option<&dyn RequestAuthorizer> {
        self.0.authorizer()
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(AnthropicReader::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_has_its_address() {
        for (location, host) in [
            ("global", "aiplatform.googleapis.com"),
            ("eu", "aiplatform.eu.rep.googleapis.com"),
            ("us", "aiplatform.us.rep.googleapis.com"),
            ("europe-west1", "europe-west1-aiplatform.googleapis.com"),
        ] {
            let reference = ModelRef {
                region: (location != "global").then(|| location.to_owned()),
                passthrough: true,
                settings: Map::from_iter([("project".to_owned(), "p".into())]),
                ..ModelRef::new("vertexai", "m")
            };
            let model = GeminiVertex::new(&reference, &|_: &str| None, &Http::default()).unwrap();
            let url = model.write(&ModelRequest::default()).unwrap().url;
            assert_eq!(url.host_str(), Some(host));
            let path = format!("/v1/projects/p/locations/{location}/publishers/google/models/m:streamGenerateContent");
            assert_eq!((url.path(), url.query()), (path.as_str(), Some("alt=sse")));
        }
    }
}
