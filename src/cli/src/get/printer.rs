//! Reads a list page by page, and prints each page in one of the formats.

use crds::ApiKind;

use super::{
    columns::{self, Columns},
    documents::Documents,
};
use crate::{
    cluster::{ObjectTable, TableQuery, UserClient},
    error::CliError,
    output::{PrintFormat, print, print_foreign},
    selection::print_empty_hint,
};

/// Reads and prints all pages; returns the version from which a watch continues. `several` is set if other kinds are
/// listed, too.
pub(super) async fn list(
    live: &UserClient,
    query: &TableQuery,
    several: bool,
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
        printer.page(query.kind, several, &table)?;
        if table.metadata.next.is_empty() {
            return Ok(table.metadata.resource_version);
        }
        next = table.metadata.next;
    }
}

/// Printer of tables in any of the formats.
pub(super) struct TablePrinter {
    output: PrintFormat,
    columns: Columns,
    documents: Documents,
    rows: usize,
    blocks: usize,
}

impl TablePrinter {
    /// Returns a printer. With `single` each object is a JSON or YAML document of its own instead of an item of one
    /// list.
    pub(super) fn new(output: PrintFormat, namespaces: bool, single: bool) -> Self {
        let columns = Columns::new(output == PrintFormat::Wide, namespaces);
        Self { output, columns, documents: Documents::new(output, single), rows: 0, blocks: 0 }
    }

    /// Prints a page of a list, or an event of a watch. With `several` the rows name their kind, because several
    /// kinds are listed.
    pub(super) fn page(&mut self, kind: &'static ApiKind, several: bool, table: &ObjectTable) -> Result<(), CliError> {
        if table.rows.is_empty() {
            return Ok(());
        }
        self.rows += table.rows.len();
        match self.output {
            PrintFormat::Json | PrintFormat::Yaml => print_foreign(&self.documents.page(table)?),
            PrintFormat::Name => print(&columns::names(kind, table)),
            PrintFormat::Plain | PrintFormat::Table | PrintFormat::Wide => {
                let prefix = several.then(|| format!("{}/", kind.name.to_lowercase()));
                let begins = self.columns.begin(kind.name, table);
                let gap = if begins && self.blocks > 0 { "\n" } else { "" };
                self.blocks += usize::from(begins);
                let text = self.columns.lines(prefix.as_deref().unwrap_or_default(), table);
                print_foreign(&format!("{gap}{text}"))
            }
        }
    }

    pub(super) fn end(&mut self) -> Result<(), CliError> {
        print(&self.documents.end())
    }

    /// Prints a hint if there were no rows.
    pub(super) fn print_empty_hint(&self, what: &str, namespace: Option<&str>) {
        if self.rows == 0 && self.output.is_for_people() {
            print_empty_hint(what, namespace);
        }
    }
}
