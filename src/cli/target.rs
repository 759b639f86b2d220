//! Which object of which cluster a command is about, in the forms kubectl users type.

use std::path::PathBuf;

use crds::{KINDS, Kind};

use super::CliError;
use crate::cluster::live::{Connection, Live};

/// How the cluster is reached.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConnectArgs {
    /// Namespace of the object [default: that of the kubeconfig's context]
    #[arg(short, long)]
    namespace: Option<String>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long)]
    context: Option<String>,
    /// Path of the kubeconfig [default: $KUBECONFIG, else ~/.kube/config, else the Pod's own account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl ConnectArgs {
    /// The cluster that is meant.
    ///
    /// # Errors
    /// [`CliError::Read`] when the kubeconfig cannot be used.
    pub(super) async fn connect(self) -> Result<Live, CliError> {
        let Self { namespace, context, kubeconfig } = self;
        Ok(Live::connect(&Connection { namespace, context, kubeconfig }).await?)
    }
}

/// The object a command is about.
#[derive(Debug, Clone, clap::Args)]
pub struct Target {
    /// The object, as KIND/NAME or KIND NAME; KIND is a kind, its plural or its short name
    #[arg(required = true, num_args = 1..=2, value_name = "OBJECT")]
    pub object: Vec<String>,
}

impl Target {
    /// The kind and the name.
    ///
    /// # Errors
    /// [`CliError::UnknownKind`] or [`CliError::NoName`].
    pub fn parse(&self) -> Result<(&'static Kind, &str), CliError> {
        let (word, name) = match self.object.as_slice() {
            [one] => one.split_once('/').unwrap_or((one.as_str(), "")),
            [kind, name] => (kind.as_str(), name.as_str()),
            _ => ("", ""),
        };
        let kind = find_kind(word)?;
        if name.is_empty() || name.contains('/') {
            return Err(CliError::NoName(kind.name.to_lowercase()));
        }
        Ok((kind, name))
    }
}

/// The kind that a word means.
///
/// # Errors
/// [`CliError::UnknownKind`], with the words that would do.
pub(super) fn find_kind(word: &str) -> Result<&'static Kind, CliError> {
    Kind::find(word).ok_or_else(|| {
        let known: Vec<_> = KINDS.iter().map(|kind| format!("{} ({})", kind.name.to_lowercase(), kind.short)).collect();
        CliError::UnknownKind { word: word.to_owned(), known: known.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<(String, String), String> {
        let target = Target { object: words.iter().map(|word| (*word).to_owned()).collect() };
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
    fn a_kind_without_a_name_says_how_to_write_one() {
        for words in [&["agent"][..], &["agent/"], &["agent", ""], &["agent", "a/b"]] {
            let error = parse(words).unwrap_err();
            assert!(error.contains("agent/my-agent"), "{words:?}: {error}");
        }
    }
}
