//! Lookup of API keys.

use std::path::{Component, Path, PathBuf};

use crds::provider::Provider;

use super::request::ModelRef;
use crate::{
    Lookup,
    tools::{expand, upper_snake},
};

/// Lookup of API keys and other variables by name.
pub(crate) type Credentials<'a> = dyn Fn(&str) -> Option<String> + Send + Sync + 'a;

/// Part of a variable's name that stands for the CA certificates, in place of a header's name.
pub(super) const AUTHORITIES: &str = "TLS_CA";

/// Returns the value of the variable `name` if the operator made it of `part` of a PluginConfig, which is a header, a credential or
/// [`AUTHORITIES`]: `MODEL_<PLUGINCONFIG>_<PART>`. The author of a PluginConfig need not be the agent's, whose other variables
/// must not be sent.
///
/// # Errors
/// The reason why there is none, phrased to follow "it refers to ".
pub(super) fn own_variable(name: &str, part: &str, lookup: &Credentials<'_>) -> Result<String, String> {
    let own = name.strip_prefix("MODEL_").is_some_and(|rest| rest.ends_with(&format!("_{}", upper_snake(part))));
    if !own {
        return Err(format!(
            "the environment variable {name}, which is not this provider's: it must be MODEL_<PLUGINCONFIG>_{}",
            upper_snake(part)
        ));
    }
    lookup(name).ok_or_else(|| format!("the environment variable {name}, which is not set"))
}

/// Returns the values of all credentials and headers by which requests go to this model.
pub(super) fn secrets_of(reference: &ModelRef, provider: &Provider, credentials: &Credentials<'_>) -> Vec<String> {
    let names = provider.keys.iter().chain(provider.identity).copied();
    let names = names.chain(reference.credential_keys.iter().map(String::as_str));
    let mut secrets: Vec<String> = names.filter_map(credentials).collect();
    for (name, value) in &reference.headers {
        secrets.push(
            expand(value, |variable| own_variable(variable, name, credentials)).unwrap_or_else(|_| value.clone()),
        );
    }
    secrets
}

/// Returns the value of a credential without surrounding white space, if it has one.
pub(super) fn value_of(credentials: &Credentials<'_>, name: &str) -> Option<String> {
    credentials(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// Returns a lookup in a directory with one file per name, the form of a mounted Secret. Surrounding white space is
/// trimmed: files often end with a newline. A name with more than one path component finds nothing.
pub(crate) fn directory(path: PathBuf) -> Box<Lookup> {
    Box::new(move |name| {
        let mut components = Path::new(name).components();
        if !matches!((components.next(), components.next()), (Some(Component::Normal(_)), None)) {
            return None;
        }
        let value = std::fs::read_to_string(path.join(name)).ok()?;
        Some(value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use crds::provider;

    use super::*;

    #[test]
    fn keys_and_headers_of_a_model_are_secret() {
        let reference = ModelRef {
            headers: [("X-Key".to_owned(), "Bearer $MODEL_B_X_KEY".to_owned())].into(),
            credential_keys: vec!["MINE".to_owned()],
            ..ModelRef::new("openai", "gpt")
        };
        let lookup = |name: &str| {
            matches!(name, "OPENAI_API_KEY" | "MINE" | "MODEL_B_X_KEY" | "OTHER").then(|| format!("<{name}>"))
        };
        let found = secrets_of(&reference, &provider::OPENAI, &lookup);
        assert_eq!(found, ["<OPENAI_API_KEY>", "<MINE>", "Bearer <MODEL_B_X_KEY>"]);
    }

    #[test]
    fn a_provider_sends_only_the_variables_of_its_own_headers() {
        let lookup = |name: &str| (name != "MODEL_B_X_KEY").then(|| format!("<{name}>"));
        for (name, is_sent) in [
            ("MODEL_A_X_KEY", true),
            ("MODEL_A_B_X_KEY", true),
            ("MODEL_B_X_KEY", false),
            ("MODEL_A_OTHER", false),
            ("MODEL_A_OPENAI_API_KEY", false),
            ("OPENAI_API_KEY", false),
            ("X_KEY", false),
            ("CORAIL_DATABASE_URL", false),
            ("TOOL_A_X_KEY", false),
        ] {
            let sent = own_variable(name, "X-Key", &lookup);
            assert_eq!(sent.is_ok(), is_sent, "{name}: {sent:?}");
        }
    }

    #[test]
    fn a_value_is_a_file_of_the_directory_itself() {
        let path = std::env::temp_dir().join(format!("recif-credentials-{}", std::process::id()));
        std::fs::create_dir_all(path.join("inside")).unwrap();
        std::fs::write(path.join("KEY"), "value\n").unwrap();
        let found = directory(path.join("inside"))("../KEY");
        let lookup = directory(path.clone());
        let all = ["KEY", "OTHER", "inside", "./KEY", ""].map(&lookup);
        std::fs::remove_dir_all(path).unwrap();
        assert_eq!(found, None);
        assert_eq!(all, [Some("value".to_owned()), None, None, None, None]);
    }
}
