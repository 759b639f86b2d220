//! `recif get`: lists objects in the columns of `kubectl get`, for one kind or for all of them.
//!
//! The API server names the columns and fills them in. Lists are read page by page and printed as they come, so that
//! ten thousand objects take no more memory than five hundred.

mod columns;
mod documents;
mod watch;

use columns::Columns;
use crds::{ApiKind, KINDS};
use documents::Documents;

use super::{
    CliError, ConnectArgs, Exit,
    output::{PrintFormat, hint, print, print_foreign},
    target::{ObjectWord, check_name, find_kind},
};
use crate::cluster::{ObjectTable, TableQuery, UserClient};

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

/// Reads and prints all pages; returns the version from which a watch continues. `among` is the kind if several kinds
/// are listed.
async fn list(
    live: &UserClient,
    query: &TableQuery,
    among: Option<&'static ApiKind>,
    printer: &mut TablePrinter,
) -> Result<String, CliError> {
    let mut next = String::new();
    loop {
        let page = live.table(query, &next).await.map_err(|error| match error.status() {
            Some(400) if !query.selector.is_empty() => {
                CliError::Usage(format!("the labels {:?} cannot be read: {error}", query.selector))
            }
            _ => error.into(),
        })?;
        let name = query.name.as_deref().unwrap_or_default();
        let table = page.ok_or_else(|| CliError::missing(live, query.kind, name))?;
        printer.page(query.kind, among.is_some(), &table)?;
        if table.metadata.next.is_empty() {
            return Ok(table.metadata.resource_version);
        }
        next = table.metadata.next;
    }
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

/// Printer of tables in any of the formats.
struct TablePrinter {
    output: PrintFormat,
    columns: Columns,
    documents: Documents,
    rows: usize,
    blocks: usize,
}

impl TablePrinter {
    /// Returns a printer. With `single` each object is a JSON or YAML document of its own instead of an item of one
    /// list.
    fn new(output: PrintFormat, namespaces: bool, single: bool) -> Self {
        let columns = Columns::new(output == PrintFormat::Wide, namespaces);
        Self { output, columns, documents: Documents::new(output, single), rows: 0, blocks: 0 }
    }

    /// Prints a page of a list, or an event of a watch. With `among` the rows name their kind, because several kinds
    /// are listed.
    fn page(&mut self, kind: &'static ApiKind, among: bool, table: &ObjectTable) -> Result<(), CliError> {
        if table.rows.is_empty() {
            return Ok(());
        }
        self.rows += table.rows.len();
        match self.output {
            PrintFormat::Json | PrintFormat::Yaml => print_foreign(&self.documents.page(table)?),
            PrintFormat::Name => print(&columns::names(kind, table)),
            PrintFormat::Plain | PrintFormat::Table | PrintFormat::Wide => {
                let prefix = among.then(|| format!("{}/", kind.name.to_lowercase()));
                let begins = self.columns.begin(kind.name, table);
                let gap = if begins && self.blocks > 0 { "\n" } else { "" };
                self.blocks += usize::from(begins);
                let text = self.columns.lines(prefix.as_deref().unwrap_or_default(), table);
                print_foreign(&format!("{gap}{text}"))
            }
        }
    }

    fn end(&mut self) -> Result<(), CliError> {
        print(&self.documents.end())
    }

    /// Prints a hint if there were no rows.
    fn print_empty_hint(&self, what: &str, namespace: Option<&str>) {
        if self.rows == 0 && self.output.is_for_people() {
            let place = namespace.map(|namespace| format!("namespace {namespace}: -A looks in all of them"));
            hint(&format!("no {what} in {}", place.unwrap_or_else(|| "any namespace".into())));
        }
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
        for (words, said) in [
            (&["pods"][..], "unknown kind \"pods\""),
            (&["recif/a"], "a name needs its kind"),
            (&["agent/"], "is not a valid name"),
            (&["agent", "a b"], "is not a valid name"),
        ] {
            assert!(meant(words).unwrap_err().contains(said), "{words:?}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_what_to_do() {
        let one = GetSelection { kind: Some("Agent"), name: Some("a".into()) };
        let all = GetSelection { kind: None, name: None };
        for (wanted, everywhere, selector, watch, said) in [
            (&one, true, "", false, "-n NAMESPACE"),
            (&one, false, "a=b", false, "leave out the name"),
            (&all, false, "", true, "recif get agents --watch"),
        ] {
            let error = check_flags(wanted, everywhere, selector, watch).unwrap_err();
            assert!(error.to_string().contains(said) && error.code() == Exit::Usage, "{error}");
        }
        assert!(check_flags(&one, false, "", true).is_ok() && check_flags(&all, true, "a=b", false).is_ok());
    }
}
