//! `recif get`: lists objects in the columns of `kubectl get`, for one kind or for all of them.
//!
//! The API server names the columns and fills them in. Lists are read page by page and printed as they come, so that
//! ten thousand objects take no more memory than five hundred.

mod columns;
mod documents;
mod printer;
mod watch;

use crds::ApiKind;

use self::printer::{TablePrinter, list};
use crate::{
    cluster::{ObjectTable, TableQuery, UserClient},
    error::CliError,
    exit::Exit,
    output::{PrintFormat, hint},
    selection::{ListOutcomes, Selection},
    target::ConnectArgs,
};

/// Flags of `recif get`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  recif get                               everything in the namespace\n  recif get \
                        agents,tools -A\n  recif get agent/my-agent -o yaml\n  recif get agent one two\n  recif get tools -l \
                        team=a -o name\n  recif get agents --watch"
)]
pub struct GetArgs {
    /// What to show: KIND[,KIND...], KIND NAME..., or KIND/NAME...; every kind when nothing or `recif` is named
    #[arg(num_args = 0.., value_name = "OBJECT")]
    object: Vec<String>,
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only what has these labels, as in kubectl: `team=a,stage!=test`
    #[arg(short = 'l', long, value_name = "LABELS", default_value = "", hide_default_value = true)]
    selector: String,
    /// Watch for changes, of one kind or one object
    #[arg(short, long)]
    watch: bool,
    /// How to print it
    #[arg(short, long, value_parser = PrintFormat::parser(PrintFormat::LIST_FORMATS), default_value = "table")]
    output: PrintFormat,
    #[command(flatten)]
    connection: ConnectArgs,
}

/// Prints the lists.
pub(super) async fn run(args: GetArgs) -> Result<Exit, CliError> {
    let GetArgs { object, all_namespaces, selector, watch, output, connection } = args;
    let selection = Selection::parse(&object)?;
    check_flags(&selection, all_namespaces, &selector, watch)?;
    let live = connection.connect().await?;
    let namespace = (!all_namespaces).then(|| live.namespace.clone());
    // The column with an agent's model, which only -o wide has, is computed from the object.
    let whole = matches!(output, PrintFormat::Json | PrintFormat::Yaml | PrintFormat::Wide);
    let query = |kind, name: Option<&str>| TableQuery {
        kind,
        namespace: namespace.clone(),
        name: name.map(str::to_owned),
        selector: selector.clone(),
        whole,
    };
    let single = matches!(selection.single(), Some((_, Some(_))));
    let mut printer = TablePrinter::new(output, all_namespaces, single || watch);
    if watch && let Some((kind, name)) = selection.single() {
        let query = query(kind, name);
        let version = list(&live, &query, false, &mut printer).await?;
        return watch::follow(&live, &query, version, &mut printer).await;
    }
    if let Selection::Objects(objects) = &selection {
        let queries = objects.iter().map(|(kind, name)| query(*kind, Some(name.as_str()))).collect();
        return print_objects(&live, queries, &mut printer).await;
    }
    let kinds = selection.kinds();
    let mut outcomes = ListOutcomes::default();
    for kind in &kinds {
        outcomes.take(list(&live, &query(*kind, None), kinds.len() > 1, &mut printer).await)?;
    }
    outcomes.finish()?;
    printer.end()?;
    printer.print_empty_hint(&selection.describe(), namespace.as_deref());
    Ok(Exit::Done)
}

/// Prints the named objects that exist.
///
/// # Errors
/// [`CliError::Missing`] for the last one that does not; the others are printed as hints.
async fn print_objects(
    live: &UserClient,
    queries: Vec<TableQuery>,
    printer: &mut TablePrinter,
) -> Result<Exit, CliError> {
    let mut missing: Option<CliError> = None;
    // Neighbours of the same kind share a table.
    let mut tables: Vec<(&'static ApiKind, ObjectTable)> = Vec::new();
    for query in queries {
        let Some(table) = live.table(&query, "").await? else {
            let error = CliError::missing(live, query.kind, query.name.as_deref().unwrap_or_default());
            if let Some(before) = missing.replace(error) {
                hint(&format!("error: {before}"));
            }
            continue;
        };
        match tables.last_mut() {
            Some((kind, last)) if kind.name == query.kind.name => last.rows.extend(table.rows),
            _ => tables.push((query.kind, table)),
        }
    }
    let several = tables.windows(2).any(|pair| matches!(pair, [one, other] if one.0.name != other.0.name));
    for (kind, table) in &tables {
        printer.page(kind, several, table)?;
    }
    printer.end()?;
    missing.map_or(Ok(Exit::Done), Err)
}

/// Checks that the flags do not contradict each other.
fn check_flags(selection: &Selection, all_namespaces: bool, selector: &str, watch: bool) -> Result<(), CliError> {
    selection.check_namespaces(all_namespaces)?;
    let refuse = |why: &str| Err(CliError::Usage(why.into()));
    match selection {
        Selection::Objects(_) if !selector.is_empty() => refuse("labels choose from a list: leave out the name, or -l"),
        _ if watch && selection.single().is_none() => {
            refuse("--watch follows one kind or one object: recif get agents --watch")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_together_is_refused_with_what_to_do() {
        let meant =
            |words: &str| Selection::parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap();
        for (words, everywhere, selector, watch, expected) in [
            ("agent/a", true, "", false, "-n NAMESPACE"),
            ("agent/a", false, "a=b", false, "leave out the name"),
            ("", false, "", true, "recif get agents --watch"),
            ("agents,tools", false, "", true, "recif get agents --watch"),
            ("agent a b", false, "", true, "recif get agents --watch"),
        ] {
            let error = check_flags(&meant(words), everywhere, selector, watch).unwrap_err();
            assert!(
                error.to_string().contains(expected) && error.code() == crate::exit::Exit::Usage,
                "{words}: {error}"
            );
        }
        for (words, everywhere, selector, watch) in
            [("agent/a", false, "", true), ("agents", true, "a=b", true), ("agents,tools", true, "a=b", false)]
        {
            assert!(check_flags(&meant(words), everywhere, selector, watch).is_ok(), "{words}");
        }
    }
}
