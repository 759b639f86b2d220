//! Credentials of AWS: from variables, for the token of a web identity, or from the agent of a container service.
//!
//! Sources: <https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html>,
//! <https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html>.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use reqwest::{
    Client,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use serde::Deserialize;
use url::{Host, Url, form_urlencoded::Serializer};

use super::names::domain;
use crate::models::{
    Credentials, Http,
    credential_cache::{CredentialCache, FetchedCredential},
    credential_server::{FORM, ask, is_loopback, safe_url, unreadable},
    credentials::value_of,
    error::{ModelError, ModelErrorKind},
};

/// Variables of all sources, for errors.
pub(super) const VARIABLES: &str = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_ROLE_ARN and \
                                    AWS_WEB_IDENTITY_TOKEN_FILE, or AWS_CONTAINER_CREDENTIALS_FULL_URI";
const KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const ROLE: &str = "AWS_ROLE_ARN";
const IDENTITY_FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
const STS: &str = "AWS_ENDPOINT_URL_STS";
const CONTAINER: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const CONTAINER_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
/// Addresses of the agents of EKS and ECS, which are reached by plain HTTP.
const AGENTS: [&str; 3] = ["169.254.170.23", "169.254.170.2", "[fd00:ec2::23]"];

/// Credentials that sign.
#[derive(Clone)]
pub(super) struct AwsCredentials {
    pub(super) key_id: String,
    pub(super) secret: String,
    /// Token of a session, for credentials that expire.
    pub(super) session: Option<String>,
}

/// Source of credentials.
pub(super) enum AwsCredentialSource {
    Fixed(AwsCredentials),
    Fetched(CredentialCache<AwsCredentials>),
}

/// Role that a web identity may assume.
struct WebIdentity {
    role: String,
    /// File with a token of the cluster, read each time because it is replaced.
    file: String,
    url: Url,
    http: Http,
}

/// Agent of a container service.
struct ContainerAgent {
    url: Url,
    /// File with the token that it wants, read each time because it is replaced.
    file: Option<String>,
    http: Http,
}

/// Answer of an agent of a container service.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AgentAnswer {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<Timestamp>,
}

impl AwsCredentialSource {
    /// Finds the source that the variables tell, if they tell one.
    ///
    /// # Errors
    /// The variable that is missing or invalid, without its value.
    pub(super) fn find(credentials: &Credentials<'_>, region: &str, http: &Http) -> Result<Option<Self>, String> {
        let set = |name: &str| value_of(credentials, name);
        match (set(KEY_ID), set(SECRET)) {
            (Some(key_id), Some(secret)) => {
                let session = set("AWS_SESSION_TOKEN");
                return Ok(Some(Self::Fixed(AwsCredentials { key_id, secret, session })));
            }
            (None, None) => {}
            _ => return Err(format!("{KEY_ID} and {SECRET} belong together: set both")),
        }
        match (set(ROLE), set(IDENTITY_FILE)) {
            (Some(role), Some(file)) => {
                let url = set(STS).unwrap_or_else(|| format!("https://sts.{region}.{}/", domain(region)));
                let url =
                    safe_url(&url).filter(is_sts).ok_or_else(|| format!("{STS} is not the https URL of AWS STS"))?;
                let identity = Arc::new(WebIdentity { role, file, url, http: http.clone() });
                let cache = CredentialCache::new(move || {
                    let identity = identity.clone();
                    async move { identity.fetch().await }
                });
                return Ok(Some(Self::Fetched(cache)));
            }
            (None, None) => {}
            _ => return Err(format!("{ROLE} and {IDENTITY_FILE} belong together: set both")),
        }
        let Some(url) = set(CONTAINER) else { return Ok(None) };
        let file = set(CONTAINER_FILE);
        // The Pod's token goes to no other server.
        let is_admitted = |url: &Url| file.is_none() || is_loopback(url);
        let url = agent_url(&url).or_else(|| safe_url(&url).filter(is_admitted)).ok_or_else(|| {
            format!("{CONTAINER} is neither that of an agent of EKS or ECS, nor an https URL without {CONTAINER_FILE}")
        })?;
        let agent = Arc::new(ContainerAgent { url, file, http: http.clone() });
        let cache = CredentialCache::new(move || {
            let agent = agent.clone();
            async move { agent.fetch().await }
        });
        Ok(Some(Self::Fetched(cache)))
    }

    /// Returns credentials that are good now.
    ///
    /// # Errors
    /// They cannot be fetched.
    pub(super) async fn current(&self) -> Result<AwsCredentials, ModelError> {
        match self {
            Self::Fixed(credentials) => Ok(credentials.clone()),
            Self::Fetched(cache) => cache.current().await,
        }
    }

    /// Forgets fetched credentials if they are those that were refused.
    pub(super) fn forget(&self, are_refused: impl FnOnce(&AwsCredentials) -> bool) {
        if let Self::Fetched(cache) = self {
            cache.forget(are_refused);
        }
    }
}

impl WebIdentity {
    async fn fetch(&self) -> Result<FetchedCredential<AwsCredentials>, ModelError> {
        let token = read_token(&self.file, IDENTITY_FILE)?;
        let form = [
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", "2011-06-15"),
            ("RoleArn", self.role.as_str()),
            ("RoleSessionName", "recif"),
            ("WebIdentityToken", token.as_str()),
        ];
        let body = Serializer::new(String::new()).extend_pairs(form).finish();
        let settings = format!("{ROLE} and {IDENTITY_FILE}");
        let build = |client: &Client| client.post(self.url.clone()).header(CONTENT_TYPE, FORM).body(body);
        let answer = ask(&self.http, &settings, build).await?;
        from_xml(&answer).ok_or_else(|| unreadable(&settings))
    }
}

impl ContainerAgent {
    async fn fetch(&self) -> Result<FetchedCredential<AwsCredentials>, ModelError> {
        let settings = format!("{CONTAINER} and {CONTAINER_FILE}");
        let token = self.file.as_deref().map(|file| read_token(file, CONTAINER_FILE)).transpose()?;
        let token = token.map(|token| HeaderValue::from_str(&token)).transpose().map_err(|_| unreadable(&settings))?;
        let build = |client: &Client| {
            let request = client.get(self.url.clone());
            token.into_iter().fold(request, |request, token| request.header(AUTHORIZATION, token))
        };
        let answer = ask(&self.http, &settings, build).await?;
        let answer: AgentAnswer = serde_json::from_slice(&answer).map_err(|_| unreadable(&settings))?;
        let AgentAnswer { access_key_id: key_id, secret_access_key: secret, token: session, expiration } = answer;
        let value = AwsCredentials { key_id, secret, session };
        Ok(FetchedCredential { value, life: life(expiration) })
    }
}

/// Parses the URL of an agent of a container service, which is not encrypted but stays on the node.
fn agent_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_agent = matches!(url.host(), Some(Host::Ipv4(_) | Host::Ipv6(_)))
        && url.host_str().is_some_and(|host| AGENTS.contains(&host));
    (url.scheme() == "http" && is_agent).then_some(url)
}

/// Reports whether a URL is that of AWS STS, in a region or at a VPC endpoint; one on loopback is the Pod's own.
fn is_sts(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let rest = [".amazonaws.com", ".amazonaws.com.cn"].into_iter().find_map(|domain| host.strip_suffix(domain));
    let parts: Vec<&str> = rest.into_iter().flat_map(|rest| rest.split('.')).collect();
    let is_service = match parts[..] {
        ["sts"] | [_, "sts", _, "vpce"] => true,
        // A bucket of S3 may have the name sts.
        ["sts" | "sts-fips", region] => region.contains('-') && !region.starts_with("s3"),
        _ => false,
    };
    is_service || is_loopback(url)
}

fn read_token(file: &str, variable: &str) -> Result<String, ModelError> {
    let text = std::fs::read_to_string(file).map_err(|_| {
        let text = format!("the file that {variable} names cannot be read");
        ModelError::no_credentials(ModelErrorKind::Refused, text)
    })?;
    Ok(text.trim().to_owned())
}

/// Returns the time until `expiration`; an hour without one.
fn life(expiration: Option<Timestamp>) -> Duration {
    let Some(expiration) = expiration else { return Duration::from_secs(3600) };
    Duration::try_from(expiration.duration_since(Timestamp::now())).unwrap_or_default()
}

/// Returns the credentials in an answer of STS. Their characters need no escapes in XML.
fn from_xml(answer: &[u8]) -> Option<FetchedCredential<AwsCredentials>> {
    let answer = std::str::from_utf8(answer).ok()?;
    let text = |name: &str| {
        let (_, rest) = answer.split_once(&format!("<{name}>"))?;
        let (value, _) = rest.split_once(&format!("</{name}>"))?;
        Some(value.trim().to_owned())
    };
    let value = AwsCredentials {
        key_id: text("AccessKeyId")?,
        secret: text("SecretAccessKey")?,
        session: Some(text("SessionToken")?),
    };
    Some(FetchedCredential { value, life: life(Some(text("Expiration")?.parse().ok()?)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_agents_are_asked_without_encryption() {
        for (url, is_agent) in [
            ("http://169.254.170.23/v1/credentials", true),
            ("http://[fd00:ec2::23]/v1/credentials", true),
            ("http://169.254.170.2/v2/x", true),
            ("http://169.254.169.254/", false),
            ("http://169.254.170.23.example/", false),
            ("ftp://169.254.170.23/", false),
        ] {
            assert_eq!(agent_url(url).is_some(), is_agent, "{url}");
        }
    }

    #[test]
    fn what_is_set_by_half_is_named() {
        let find = |variables: &[(&str, &str)]| {
            let value = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, it)| (*it).to_owned());
            AwsCredentialSource::find(&value, "eu-central-1", &Http::default()).map(|found| found.is_some())
        };
        assert_eq!(find(&[]), Ok(false));
        assert_eq!(find(&[(KEY_ID, "a"), (SECRET, "b")]), Ok(true));
        let problem = |variables: &[(&str, &str)]| find(variables).unwrap_err();
        assert_eq!(problem(&[(KEY_ID, "a")]), "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY belong together: set both");
        assert_eq!(problem(&[(ROLE, "a")]), "AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE belong together: set both");
        let (role, file) = ((ROLE, "a"), (IDENTITY_FILE, "b"));
        assert_eq!(
            problem(&[role, file, (STS, "http://hunter2")]),
            "AWS_ENDPOINT_URL_STS is not the https URL of AWS STS"
        );
        let words = "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither that of an agent of EKS or ECS, nor an https URL without \
                     AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
        assert_eq!(problem(&[(CONTAINER, "http://hunter2")]), words);
        assert_eq!(find(&[(CONTAINER, "https://hunter2")]), Ok(true));
        assert_eq!(problem(&[(CONTAINER, "https://hunter2"), (CONTAINER_FILE, "/f")]), words);
    }

    #[test]
    fn the_token_of_the_pod_goes_to_sts_alone() {
        for (url, is_good) in [
            ("https://sts.amazonaws.com/", true),
            ("https://sts.eu-central-1.amazonaws.com/", true),
            ("https://sts-fips.us-east-1.amazonaws.com", true),
            ("https://sts.cn-north-1.amazonaws.com.cn/", true),
            ("https://vpce-0a-b.sts.us-east-1.vpce.amazonaws.com", true),
            ("http://127.0.0.1:80/", true),
            ("https://vpce-0a-b.vpce-svc-1.us-east-1.vpce.amazonaws.com", false),
            ("https://sts.s3.eu-central-1.amazonaws.com/", false),
            ("https://sts.s3.amazonaws.com/", false),
            ("https://sts.s3-us-west-2.amazonaws.com/", false),
            ("https://stsamazonaws.com/", false),
            ("https://sts.evil/amazonaws.com", false),
            ("https://evil.amazonaws.com/", false),
        ] {
            assert_eq!(is_sts(&Url::parse(url).unwrap()), is_good, "{url}");
        }
    }
}
