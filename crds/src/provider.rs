//! Providers of models that the runtime supports, and the environment variables that configure each. The runtime opens
//! models by them; the operator detects by them which configuration can never answer.

/// Provider of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provider {
    /// Names of the provider, the usual one first.
    pub names: &'static [&'static str],
    /// Credentials that hold the API key, the preferred one first.
    pub keys: &'static [&'static str],
    /// Environment variable that holds the base URL.
    pub base: &'static str,
    /// Set if the provider's own address requires a key.
    pub needs_key: bool,
}

/// OpenAI's Chat Completions, and servers that are compatible with it.
pub const OPENAI: Provider =
    Provider { names: &["openai"], keys: &["OPENAI_API_KEY"], base: "OPENAI_BASE_URL", needs_key: true };

/// Anthropic.
pub const ANTHROPIC: Provider =
    Provider { names: &["anthropic"], keys: &["ANTHROPIC_API_KEY"], base: "ANTHROPIC_BASE_URL", needs_key: true };

/// Gemini.
pub const GEMINI: Provider = Provider {
    names: &["gemini", "googleai", "google-ai", "google"],
    keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_API_KEY"],
    base: "GEMINI_BASE_URL",
    needs_key: true,
};

/// Ollama.
pub const OLLAMA: Provider =
    Provider { names: &["ollama"], keys: &["OLLAMA_API_KEY"], base: "OLLAMA_BASE_URL", needs_key: false };

/// Stub that answers without any network.
pub const STUB: Provider = Provider { names: &["stub"], keys: &[], base: "", needs_key: false };

/// All providers.
pub const PROVIDERS: [Provider; 5] = [OPENAI, ANTHROPIC, GEMINI, OLLAMA, STUB];

/// Returns the provider of this name.
pub fn provider(name: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|provider| provider.names.contains(&name))
}

/// Returns the error text for an unknown provider.
pub fn unknown(name: &str) -> String {
    format!(
        "unknown model provider `{name}`; use openai (also for servers that speak its API), anthropic, gemini, ollama \
         or stub"
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
    }
}
