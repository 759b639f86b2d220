//! Client of Amazon Bedrock's Converse API, which is one protocol for the models of many vendors.
//!
//! Reasoning content that precedes a call of a tool is sent back with it, otherwise the model refuses the tool's result. JSON
//! without a schema is requested in the instructions, which all of the models follow.
//!
//! Source: <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>.

mod converse;
mod credentials;
mod event_stream;
mod names;
mod reader;
mod sign;

use crds::provider;
use percent_encoding::utf8_percent_encode;
use reqwest::header::{AUTHORIZATION, HeaderMap};

use super::{
    Credentials, ModelRef, ModelRequest,
    authorizer::RequestAuthorizer,
    credentials::value_of,
    endpoint::{ModelEndpoint, ProviderDefaults},
    error::ModelError,
    frames::Frames,
    http::{Http, ProviderRequest},
    remote::{Protocol, Reader},
};
use credentials::{AwsCredentialSource, VARIABLES};
use names::{ESCAPED, domain};
use reader::ConverseReader;
use sign::AwsAuthorizer;

const PROVIDER: ProviderDefaults =
    ProviderDefaults { provider: provider::BEDROCK, public: "", regional: Some(address) };

/// Model at Bedrock.
pub(super) struct Bedrock {
    endpoint: ModelEndpoint,
    authorizer: Option<AwsAuthorizer>,
}

/// Returns the base URL of a region.
fn address(region: &str) -> String {
    format!("https://bedrock-runtime.{region}.{}", domain(region))
}

/// Returns the region that a host of Bedrock is in.
fn region_of(host: &str) -> Option<&str> {
    let names = ["bedrock-runtime.", "bedrock-runtime-fips."];
    let (_, rest) = names.into_iter().find_map(|name| host.split_once(name))?;
    let (region, rest) = rest.split_once('.')?;
    (rest.strip_prefix("vpce.").unwrap_or(rest) == domain(region)).then_some(region)
}

impl Bedrock {
    /// Creates the client of the model in `reference`.
    ///
    /// # Errors
    /// The setting that is missing or invalid.
    pub(super) fn new(reference: &ModelRef, credentials: &Credentials<'_>, http: &Http) -> Result<Self, String> {
        let region = reference.region.clone().filter(|region| !region.is_empty());
        let region = region.or_else(|| value_of(credentials, "AWS_REGION"));
        let reference = ModelRef { region, ..reference.clone() };
        let base = reference.base_url.clone().or_else(|| value_of(credentials, PROVIDER.provider.base));
        if reference.region.is_none() && base.is_none_or(|base| base.is_empty()) {
            return Err("bedrock needs region, such as eu-central-1".to_owned());
        }
        let endpoint = ModelEndpoint::find(&reference, credentials, &PROVIDER)?;
        let address = endpoint.url(&[]);
        let region = reference.region.or_else(|| region_of(address.host_str()?).map(str::to_owned));
        let source = match endpoint.key.is_some() || reference.passthrough {
            true => None,
            // Without a region nothing is signed: this one serves to find out whether there are credentials.
            false => AwsCredentialSource::find(credentials, region.as_deref().unwrap_or("us-east-1"), http)?,
        };
        // A signature is for its host alone, so that any may get it.
        let source = endpoint.admit(source, false, &[])?;
        if endpoint.key.is_none() && source.is_none() && !reference.passthrough && reference.headers.is_empty() {
            return Err(format!(
                "model provider `bedrock` needs credentials: set AWS_BEARER_TOKEN_BEDROCK, or {VARIABLES}"
            ));
        }
        let authorizer = match (source, region) {
            (None, _) => None,
            (Some(source), Some(region)) => Some(AwsAuthorizer { source, region }),
            (Some(_), None) => {
                return Err("bedrock needs region, such as eu-central-1: each signature is for one".to_owned());
            }
        };
        Ok(Self { endpoint, authorizer })
    }
}

impl Protocol for Bedrock {
    fn write(&self, request: &ModelRequest) -> Result<ProviderRequest, ModelError> {
        let (model, body) = converse::body(&self.endpoint, request)?;
        let mut url = self.endpoint.url(&[]);
        let model = utf8_percent_encode(&model, ESCAPED);
        let path = format!("{}/model/{model}/converse-stream", url.path().trim_end_matches('/'));
        url.set_path(&path);
        let mut headers = HeaderMap::new();
        if let Some(key) = self.endpoint.key_header("Bearer ", request.key.as_ref()) {
            headers.insert(AUTHORIZATION, key);
        }
        Ok(ProviderRequest::new(url, headers, body))
    }

    fn authorizer(&self) -> Option<&dyn RequestAuthorizer> {
        self.authorizer.as_ref().map(|authorizer| authorizer as &dyn RequestAuthorizer)
    }

    fn split(&self, bytes: Frames) -> Frames {
        event_stream::events(bytes)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(ConverseReader::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_of_bedrock_has_its_region() {
        for (host, region) in [
            ("bedrock-runtime.eu-central-1.amazonaws.com", Some("eu-central-1")),
            ("bedrock-runtime-fips.us-east-1.amazonaws.com", Some("us-east-1")),
            ("bedrock-runtime.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("vpce-1-a.bedrock-runtime.eu-west-1.vpce.amazonaws.com", Some("eu-west-1")),
            ("bedrock-runtime.internal.example", None),
            ("gateway.example", None),
        ] {
            assert_eq!(region_of(host), region, "{host}");
        }
    }
}
