//! The providers of models that our runtime speaks to, and the variables by which each is reached. The runtime opens models by
//! them, and the operator judges by them what can never answer.

/// A provider of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provider {
    /// Its names, the usual one first.
    pub names: &'static [&'static str],
    /// Credentials that hold the API key, the preferred one first.
    pub keys: &'static [&'static str],
    /// The variable that holds the base URL.
    pub base: &'static str,
    /// Whether the provider's own address wants a key.
    pub needs_key: bool,
}

/// Chat Completions, and whatever speaks like it.
pub const OPENAI: Provider =
    Provider { names: &["openai"], keys: &["OPENAI_API_KEY"], base: "OPENAI_BASE_URL", needs_key: true };

/// Anthropic.
pub const ANTHROPIC: Provider =
    Provider { names: &["anthropic"], keys: &["ANTHROPIC_API_KEY"], base: "ANTHROPIC_BASE_URL", needs_key: true };

/// Gemini.
pub const GEMINI: Provider = Provider {
    names: &["gemini", "googleai", "google"],
    keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_API_KEY"],
    base: "GEMINI_BASE_URL",
    needs_key: true,
};

/// Ollama.
pub const OLLAMA: Provider =
    Provider { names: &["ollama"], keys: &["OLLAMA_API_KEY"], base: "OLLAMA_BASE_URL", needs_key: false };

/// Answers without any network.
pub const STUB: Provider = Provider { names: &["stub"], keys: &[], base: "", needs_key: false };

/// All of them.
pub const PROVIDERS: [Provider; 5] = [OPENAI, ANTHROPIC, GEMINI, OLLAMA, STUB];

/// The provider of this name.
pub fn provider(name: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|provider| provider.names.contains(&name))
}

/// What is said of a provider that there is not.
pub fn unknown(name: &str) -> String {
    format!(
        "there is no model provider `{name}`; use openai (also for servers that speak its API), anthropic, gemini, ollama \
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
