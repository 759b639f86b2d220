//! `recif get`: lists objects in the columns of `kubectl get`, for one kind or for all of them.
//!
//! The API server names the columns and fills them in. Lists are read page by page and printed as they come, so that
//! ten thousand objects take no more memory than five hundred.

mod columns;
mod documents;
mod printer;
mod watch;

use crds::{ApiKind, KINDS};

use self::printer::{TablePrinter, list};
use crate::{
    cluster::TableQuery,
    error::CliError,
    exit::Exit,
    output::{PrintFormat, hint},
    target::{ConnectArgs, ObjectWord, check_name, find_kind},
};

/// Flags of `recif get`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  recif get                               everything in the namespace\n  recif get \
                        agents -A\n  recif get agent/my-agent -o yaml\n  recif get tools -l team=a -o name\n  recif get \
                        agents --watch"
)]
pub struct GetArgs {
    /// What to show: a kind, KIND/NAME or KIND NAME; every kind when nothing or `recif` is named
    #[arg(num_args = 0..=2, value_name = "OBJECT", value_parser = ObjectWord, hide_possible_values = true)]
    object: Vec<String>,
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only what has these labels, as in kubectl: `team=a,stage!=test`
    #[arg(short = 'l', long, value_name = "LABELS", default_value = "", hide_default_value = true)]
    selector: String,
    /// Watch for changes, of one kind
    #[arg(short, long)]
    watch: bool,
    /// How to print it
    #[arg(short, long, value_parser = PrintFormat::parser(PrintFormat::LIST_FORMATS), default_value = "table")]
    output: PrintFormat,
    #[command(flatten)]
    connection: ConnectArgs,
}

/// Selection of the objects to show.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GetSelection {
    /// The one kind; `None` means all.
    kind: Option<&'static str>,
    name: Option<String>,
}

/// Prints the lists.
pub(super) async fn run(args: GetArgs) -> Result<Exit, CliError> {
    let GetArgs { object, all_namespaces, selector, watch, output, connection } = args;
    let wanted = parse_selection(&object)?;
    check_flags(&wanted, all_namespaces, &selector, watch)?;
    let live = connection.connect().await?;
    let namespace = (!all_namespaces).then(|| live.namespace.clone());
    // The column with an agent's model, which only -o wide has, is computed from the object.
    let whole = matches!(output, PrintFormat::Json | PrintFormat::Yaml | PrintFormat::Wide);
    let query = |kind| TableQuery {
        kind,
        namespace: namespace.clone(),
        name: wanted.name.clone(),
        selector: selector.clone(),
        whole,
    };
    if let Some(kind) = wanted.kind.and_then(ApiKind::find) {
        let mut printer = TablePrinter::new(output, all_namespaces, wanted.name.is_some() || watch);
        let version = list(&live, &query(kind), None, &mut printer).await?;
        if watch {
            return watch::follow(&live, &query(kind), version, &mut printer).await;
        }
        printer.end()?;
        printer.print_empty_hint(kind.plural, namespace.as_deref());
        return Ok(Exit::Done);
    }
    let mut printer = TablePrinter::new(output, all_namespaces, false);
    let (mut refused, mut read) = (Vec::new(), 0);
    for kind in KINDS {
        match list(&live, &query(kind), Some(kind), &mut printer).await {
            Ok(_) => read += 1,
            // A caller with rights for some kinds sees those.
            Err(CliError::Read(error)) if error.is_forbidden() => refused.push(error),
            Err(error) => return Err(error),
        }
    }
    match refused.pop() {
        Some(error) if read == 0 => return Err(error.into()),
        Some(error) => refused.iter().chain([&error]).for_each(|error| hint(&format!("note: {error}"))),
        None => {}
    }
    printer.end()?;
    printer.print_empty_hint("objects of Récif", namespace.as_deref());
    Ok(Exit::Done)
}

/// Parses the words of the command line.
fn parse_selection(words: &[String]) -> Result<GetSelection, CliError> {
    let (word, name) = match words {
        [] => return Ok(GetSelection { kind: None, name: None }),
        [one] => one.split_once('/').map_or((one.as_str(), None), |(kind, name)| (kind, Some(name))),
        [kind, name, ..] => (kind.as_str(), Some(name.as_str())),
    };
    let all = ["recif", "all"].iter().any(|all| word.eq_ignore_ascii_case(all));
    let kind = if all {
        None
    } else {
        Some(find_kind(word).map_err(|error| error.without_kind(name.unwrap_or_default()))?.name)
    };
    match name {
        Some(_) if all => Err(CliError::Usage("a name needs its kind: recif get agent my-agent".into())),
        Some(name) => check_name(name).map(|()| GetSelection { kind, name: Some(name.to_owned()) }),
        None => Ok(GetSelection { kind, name: None }),
    }
}

/// Checks that the flags do not contradict each other.
fn check_flags(wanted: &GetSelection, all_namespaces: bool, selector: &str, watch: bool) -> Result<(), CliError> {
    let refuse = |why: &str| Err(CliError::Usage(why.into()));
    match (&wanted.name, wanted.kind) {
        (Some(_), _) if all_namespaces => refuse("a name is one of a namespace: use -n NAMESPACE instead of -A"),
        (Some(_), _) if !selector.is_empty() => refuse("labels choose from a list: leave out the name, or -l"),
        (None, None) if watch => refuse("--watch follows one kind: recif get agents --watch"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(words: &[&str]) -> Result<(Option<&'static str>, Option<String>), String> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        parse_selection(&words).map(|GetSelection { kind, name }| (kind, name)).map_err(|error| error.to_string())
    }

    #[test]
    fn words_name_everything_a_kind_or_an_object() {
        for words in [&[][..], &["recif"], &["all"]] {
            assert_eq!(meant(words), Ok((None, None)), "{words:?}");
        }
        assert_eq!(meant(&["ag"]), Ok((Some("Agent"), None)));
        for words in [&["agents", "a"][..], &["agent/a"], &["agent.agents.recif.dev/a"]] {
            assert_eq!(meant(words), Ok((Some("Agent"), Some("a".into()))), "{words:?}");
        }
        for (words, expected) in [
            (&["pods"][..], "unknown kind \"pods\""),
            (&["recif/a"], "a name needs its kind"),
            (&["agent/"], "is not a valid name"),
            (&["agent", "a b"], "is not a valid name"),
        ] {
            assert!(meant(words).unwrap_err().contains(expected), "{words:?}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_what_to_do() {
        let one = GetSelection { kind: Some("Agent"), name: Some("a".into()) };
        let all = GetSelection { kind: None, name: None };
        for (wanted, everywhere, selector, watch, expected) in [
            (&one, true, "", false, "-n NAMESPACE"),
            (&one, false, "a=b", false, "leave out the name"),
            (&all, false, "", true, "recif get agents --watch"),
        ] {
            let error = check_flags(wanted, everywhere, selector, watch).unwrap_err();
            assert!(error.to_string().contains(expected) && error.code() == Exit::Usage, "{error}");
        }
        assert!(check_flags(&one, false, "", true).is_ok() && check_flags(&all, true, "a=b", false).is_ok());
    }
}
