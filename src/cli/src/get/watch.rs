//! `recif get --watch`: prints every change of a list until it is stopped.

use std::time::Duration;

use futures::StreamExt as _;
use kube::api::WatchEvent;

use super::printer::{TablePrinter, list};
use crate::{
    cluster::{ObjectTable, TableQuery, UserClient},
    error::CliError,
    exit::Exit,
    output::hint,
};

/// Delay before a broken watch is opened again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Status code for a version that the API server no longer keeps.
const GONE: u16 = 410;

/// Prints the changes from `version` on. Ends only with an error: a right was revoked, or the reader of stdout is gone.
pub(super) async fn follow(
    live: &UserClient,
    query: &TableQuery,
    mut version: String,
    printer: &mut TablePrinter,
) -> Result<Exit, CliError> {
    let mut hinted = false;
    loop {
        let mut broken = None;
        match live.table_changes(query, &version).await {
            Ok(events) => {
                let mut events = std::pin::pin!(events);
                while let Some(event) = events.next().await {
                    match event {
                        Ok(WatchEvent::Added(table) | WatchEvent::Modified(table) | WatchEvent::Deleted(table)) => {
                            hinted = false;
                            printer.page(query.kind, false, &table)?;
                            version = last_version(&table).unwrap_or(version);
                        }
                        Ok(WatchEvent::Bookmark(_)) => {}
                        Ok(WatchEvent::Error(status)) => broken = Some((status.code, status.message.clone())),
                        Err(error) => broken = Some((error.status().unwrap_or(0), error.to_string())),
                    }
                }
            }
            Err(error) if matches!(error.status(), Some(400..=404)) => return Err(error.into()),
            Err(error) => broken = Some((error.status().unwrap_or(0), error.to_string())),
        }
        match broken {
            Some((GONE, _)) => version = list(live, query, false, printer).await?,
            Some((_, why)) => {
                if !std::mem::replace(&mut hinted, true) {
                    hint(&format!("note: the watch broke off and is opened again: {why}"));
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
            None => {}
        }
    }
}

fn last_version(table: &ObjectTable) -> Option<String> {
    table.rows.last()?.object["metadata"]["resourceVersion"].as_str().map(str::to_owned).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_watch_goes_on_behind_what_it_told_last() {
        let table = |rows: Value| serde_json::from_value::<ObjectTable>(json!({ "rows": rows })).unwrap();
        let row = |version: &str| json!({ "cells": [], "object": { "metadata": { "resourceVersion": version } } });
        assert_eq!(last_version(&table(json!([row("7"), row("9")]))).as_deref(), Some("9"));
        assert_eq!(last_version(&table(json!([row("")]))), None);
        assert_eq!(last_version(&table(json!([]))), None);
    }
}
