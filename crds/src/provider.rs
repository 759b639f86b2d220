//! Providers of models that the runtime supports, and the environment variables that configure each. The runtime opens
//! models by them; the operator detects by them which configuration can never answer.

use url::{Host, Url};

/// Provider of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provider {
    /// Names of the provider, the usual one first.
    pub names: &'static [&'static str],
    /// Credentials that hold the API key, the preferred one first.
    pub keys: &'static [&'static str],
    /// Credentials and settings by which a token is fetched where there is no API key.
    pub identity: &'static [&'static str],
    /// Sets of these, each of which is enough. The first is one that a Secret may hold; the last of it is what proves the identity.
    pub identities: &'static [&'static [&'static str]],
    /// Domains of the provider's hosts, which alone get the Pod's own identity; none if any host may get it.
    pub domains: &'static [&'static str],
    /// Environment variable that holds the base URL.
    pub base: &'static str,
    /// Set if the provider's own address requires a key.
    pub needs_key: bool,
    /// Settings of `extraConfig` besides the base URL, each by its names, the usual one first.
    pub settings: &'static [&'static [&'static str]],
}

/// Names of the setting of `extraConfig` for the version of an API.
pub const API_VERSION_KEYS: &[&str] = &["apiVersion"];

/// Names of the setting of `extraConfig` for the project at Google Cloud.
pub const PROJECT_KEYS: &[&str] = &["projectId", "project"];

/// Names of the setting of `extraConfig` that stands for the region, where a provider has it.
pub const REGION_KEYS: &[&str] = &["location", "region"];

impl Provider {
    /// Reports whether the provider reads a key of a Secret, or the variable of that name.
    pub fn reads(&self, name: &str) -> bool {
        self.base == name || self.keys.contains(&name) || self.identity.contains(&name)
    }

    /// Reports whether the host of a URL is one of the provider's own, of those that have [`Provider::domains`].
    pub fn owns(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        self.domains.iter().any(|domain| host.strip_suffix(*domain).is_some_and(|rest| rest.ends_with('.')))
    }

    /// Returns the key that holds the API key or the identity under any name, if one is declared: a single one with a name that is
    /// none of the provider's identity.
    pub fn declared<'a>(&self, keys: &'a [String]) -> Option<&'a str> {
        match keys {
            [only] if !self.identity.contains(&only.as_str()) => Some(only.as_str()),
            _ => None,
        }
    }
}

/// Reports whether the host of a URL is the Pod itself.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Provider without network and credentials, which the others are made from.
const NONE: Provider = Provider {
    names: &[],
    keys: &[],
    identity: &[],
    identities: &[],
    domains: &[],
    base: "",
    needs_key: false,
    settings: &[],
};

/// OpenAI's Chat Completions, and servers that are compatible with it.
pub const OPENAI: Provider =
    Provider { names: &["openai"], keys: &["OPENAI_API_KEY"], base: "OPENAI_BASE_URL", needs_key: true, ..NONE };

/// Anthropic.
pub const ANTHROPIC: Provider = Provider {
    names: &["anthropic"],
    keys: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"],
    base: "ANTHROPIC_BASE_URL",
    needs_key: true,
    ..NONE
};

/// Gemini.
pub const GEMINI: Provider = Provider {
    names: &["gemini", "googleai", "google-ai", "google"],
    keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_API_KEY"],
    base: "GEMINI_BASE_URL",
    needs_key: true,
    ..NONE
};

/// Ollama.
pub const OLLAMA: Provider =
    Provider { names: &["ollama"], keys: &["OLLAMA_API_KEY"], base: "OLLAMA_BASE_URL", ..NONE };

/// OpenAI's models at Azure.
pub const AZURE_OPENAI: Provider = Provider {
    names: &["azure-openai", "azureaifoundry"],
    keys: &["AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"],
    identity: &[
        "AZURE_TENANT_ID",
        "AZURE_CLIENT_ID",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_CLIENT_SECRET",
        "AZURE_AUTHORITY_HOST",
    ],
    identities: &[
        &["AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"],
        &["AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE"],
    ],
    domains: &[
        "openai.azure.com",
        "cognitiveservices.azure.com",
        "services.ai.azure.com",
        "api.cognitive.microsoft.com",
        "openai.azure.us",
        "cognitiveservices.azure.us",
        "openai.azure.cn",
        "cognitiveservices.azure.cn",
    ],
    base: "AZURE_OPENAI_ENDPOINT",
    settings: &[API_VERSION_KEYS],
    ..NONE
};

/// Gemini at Google Cloud's Vertex AI. With its names, models that begin with `claude` are [`ANTHROPIC_VERTEX`]'s.
pub const GEMINI_VERTEX: Provider = Provider {
    names: &["gemini-vertex", "vertexai", "vertex-ai"],
    identity: &["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GCE_METADATA_HOST"],
    identities: &[&["GOOGLE_APPLICATION_CREDENTIALS"]],
    domains: &["googleapis.com"],
    base: "GOOGLE_VERTEX_BASE_URL",
    settings: &[PROJECT_KEYS, REGION_KEYS],
    ..NONE
};

/// Anthropic's models at Google Cloud's Vertex AI.
pub const ANTHROPIC_VERTEX: Provider = Provider { names: &["anthropic-vertex"], ..GEMINI_VERTEX };

/// Amazon Bedrock.
pub const BEDROCK: Provider = Provider {
    names: &["bedrock"],
    keys: &["AWS_BEARER_TOKEN_BEDROCK"],
    identity: &[
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_ROLE_ARN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_ENDPOINT_URL_STS",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_REGION",
    ],
    identities: &[
        &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
        &["AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"],
        &["AWS_CONTAINER_CREDENTIALS_FULL_URI"],
    ],
    base: "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    ..NONE
};

/// Stub that answers without any network.
pub const STUB: Provider = Provider { names: &["stub"], ..NONE };

/// All providers.
pub const PROVIDERS: [Provider; 9] =
    [OPENAI, ANTHROPIC, GEMINI, OLLAMA, AZURE_OPENAI, GEMINI_VERTEX, ANTHROPIC_VERTEX, BEDROCK, STUB];

/// Returns the provider of this name.
pub fn provider(name: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|provider| provider.names.contains(&name))
}

/// Returns the error text for an unknown provider.
pub fn unknown(name: &str) -> String {
    format!(
        "unknown model provider `{name}`; use openai (also for servers that speak its API), anthropic, gemini, \
         ollama, azure-openai, gemini-vertex, anthropic-vertex, bedrock or stub"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_found_by_each_of_its_names() {
        for (name, found) in [("openai", Some(&OPENAI)), ("google", Some(&GEMINI)), ("gpt4all", None)] {
            assert_eq!(provider(name), found, "{name}");
        }
        assert_eq!(provider("azureaifoundry"), Some(&AZURE_OPENAI));
        assert_eq!(provider("vertexai"), Some(&GEMINI_VERTEX));
    }

    #[test]
    fn a_provider_reads_its_keys_its_identity_and_its_address() {
        for name in ["AZURE_OPENAI_AD_TOKEN", "AZURE_CLIENT_SECRET", "AZURE_OPENAI_ENDPOINT"] {
            assert!(AZURE_OPENAI.reads(name), "{name}");
        }
        assert!(!AZURE_OPENAI.reads("OPENAI_API_KEY") && !OPENAI.reads("AZURE_CLIENT_SECRET"));
    }

    #[test]
    fn a_set_of_an_identity_is_made_of_what_the_provider_reads() {
        for provider in PROVIDERS {
            let sets = provider.identities.iter().flat_map(|all| all.iter());
            assert_eq!(sets.clone().find(|name| !provider.identity.contains(name)), None, "{:?}", provider.names);
            assert_eq!(provider.identity.is_empty(), sets.count() == 0, "{:?}", provider.names);
        }
    }

    #[test]
    fn a_host_of_a_provider_is_below_its_domains() {
        for (url, is_own) in [
            ("https://aiplatform.googleapis.com/v1", true),
            ("https://googleapis.com", false),
            ("https://agoogleapis.com", false),
            ("https://a.googleapis.com.evil", false),
            ("https://evil/a.googleapis.com", false),
        ] {
            assert_eq!(GEMINI_VERTEX.owns(&Url::parse(url).unwrap()), is_own, "{url}");
        }
        assert!(!BEDROCK.owns(&Url::parse("https://bedrock-runtime.eu-central-1.amazonaws.com").unwrap()));
    }
}
