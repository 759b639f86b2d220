//! Arguments that name an object and a cluster, in the forms of kubectl.

use std::{path::PathBuf, time::Duration};

use crds::{ApiKind, KINDS};
use jiff::SignedDuration;

use crate::{
    cluster::{ConnectOptions, UserClient},
    error::CliError,
    names::is_name,
    output::hint,
};

/// How the cluster is reached.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConnectArgs {
    /// Namespace of the object [default: that of the kubeconfig's context]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long)]
    context: Option<String>,
    /// Path of the kubeconfig [default: $KUBECONFIG, else that of a `recif dev` that runs in this folder or above, else
    /// ~/.kube/config, else the Pod's own account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl ConnectArgs {
    /// Connects to the cluster.
    ///
    /// # Errors
    /// [`CliError::Read`] when the kubeconfig cannot be used.
    pub(super) async fn connect(self) -> Result<UserClient, CliError> {
        let Self { namespace, context, kubeconfig } = self;
        namespace.as_deref().map_or(Ok(()), check_name)?;
        let live = UserClient::connect(&ConnectOptions { namespace, context, kubeconfig }).await?;
        if let Some(folder) = live.dev.as_ref().and_then(|dev| dev.folder.as_ref()) {
            hint(&format!("recif: using recif dev in {}", folder.display()));
        }
        Ok(live)
    }
}

/// Where Récif itself runs.
#[derive(Debug, Clone, clap::Args)]
pub struct SystemArgs {
    /// Namespace of operator, gateway and control plane
    #[arg(long, default_value = "recif-system", value_name = "NAMESPACE", alias = "operator-namespace")]
    pub(super) system_namespace: String,
}

/// The object a command is about.
#[derive(Debug, Clone, clap::Args)]
pub struct TargetArgs {
    /// The object, as KIND/NAME or KIND NAME; KIND is a kind, its plural or its short name
    #[arg(required = true, num_args = 1..=2, value_name = "OBJECT")]
    pub object: Vec<String>,
}

impl TargetArgs {
    /// Returns the kind and the name.
    ///
    /// # Errors
    /// [`CliError::UnknownKind`] or [`CliError::NoName`].
    pub fn parse(&self) -> Result<(&'static ApiKind, &str), CliError> {
        let (word, name) = match self.object.as_slice() {
            [one] => one.split_once('/').unwrap_or((one.as_str(), "")),
            [kind, name] => (kind.as_str(), name.as_str()),
            _ => ("", ""),
        };
        let kind = find_kind(word).map_err(|error| error.without_kind(name))?;
        if name.is_empty() {
            return Err(CliError::NoName(kind.name.to_lowercase()));
        }
        check_name(name)?;
        Ok((kind, name))
    }
}

/// Checks that the API server could have accepted the name, so that it can be put into a URL.
///
/// # Errors
/// [`CliError::Usage`].
pub(super) fn check_name(name: &str) -> Result<(), CliError> {
    if is_name(name) {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "{name:?} is not a valid name: use lower-case letters, digits, '-' and '.', as in my-agent"
    )))
}

/// Returns the kind that a word names.
///
/// # Errors
/// [`CliError::UnknownKind`], with the known kinds.
pub(super) fn find_kind(word: &str) -> Result<&'static ApiKind, CliError> {
    ApiKind::find(word).ok_or_else(|| {
        let known: Vec<_> = KINDS.iter().map(|kind| format!("{} ({})", kind.name.to_lowercase(), kind.short)).collect();
        CliError::UnknownKind { word: word.to_owned(), instead: String::new(), known: known.join(", ") }
    })
}

/// Parses a timeout such as `90s` or `5m`.
///
/// # Errors
/// [`CliError::Usage`].
pub(super) fn parse_timeout(text: &str) -> Result<Duration, CliError> {
    let read = text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    let read = read.filter(|time| !time.is_zero());
    read.ok_or_else(|| CliError::Usage(format!("--timeout {text:?} is not a duration: write it as 90s or 5m")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn parse(words: &[&str]) -> Result<(String, String), String> {
        let target = TargetArgs { object: words.iter().map(|word| (*word).to_owned()).collect() };
        target.parse().map(|(kind, name)| (kind.name.to_owned(), name.to_owned())).map_err(|error| error.to_string())
    }

    #[test]
    fn an_object_is_named_as_in_kubectl() {
        for words in [
            &["agent/a"][..],
            &["agents/a"],
            &["ag/a"],
            &["Agent/a"],
            &["agents.agents.recif.dev/a"],
            &["agent", "a"],
            &["ag", "a"],
        ] {
            assert_eq!(parse(words), Ok(("Agent".into(), "a".into())), "{words:?}");
        }
        assert_eq!(parse(&["tl/weather"]), Ok(("Tool".into(), "weather".into())));
    }

    #[test]
    fn an_unknown_kind_lists_those_there_are() {
        let error = parse(&["pod/a"]).unwrap_err();
        assert!(error.contains("\"pod\"") && error.contains("agent (ag)") && error.contains("tool (tl)"), "{error}");
    }

    #[test]
    fn a_name_without_a_kind_is_told_how_to_write_both() {
        let error = parse(&["my-agent"]).unwrap_err();
        assert!(
            error.contains("unknown kind \"my-agent\"; if it is a name, write agent/my-agent: use one of"),
            "{error}"
        );
        for words in [&["pod/a"][..], &["pods", "a"], &["Not A Name"]] {
            assert!(!parse(words).unwrap_err().contains("if it is a name"), "{words:?}");
        }
    }

    #[test]
    fn a_kind_without_a_name_says_how_to_write_one() {
        for words in [&["agent"][..], &["agent/"], &["agent", ""]] {
            let error = parse(words).unwrap_err();
            assert!(error.contains("agent/my-agent"), "{words:?}: {error}");
        }
        for words in [&["agent", "a/b"][..], &["agent/A"], &["agent/../x"], &["agent/a?b"], &["agent/-a"]] {
            let error = parse(words).unwrap_err();
            assert!(error.contains("is not a valid name"), "{words:?}: {error}");
        }
    }

    #[test]
    fn a_time_is_written_as_people_write_it() {
        assert_eq!(parse_timeout("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(parse_timeout("1m 30s").unwrap(), Duration::from_secs(90));
        for text in ["", "5", "-5s", "0s", "soon"] {
            assert_eq!(parse_timeout(text).unwrap_err().code(), Exit::Usage, "{text}");
        }
    }
}
