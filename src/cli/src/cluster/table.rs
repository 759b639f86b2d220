//! Lists in the server-side [Table
//! format](https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables): the API server
//! fills in the columns that a CustomResourceDefinition names.

use std::time::Duration;

use crds::{ApiKind, GROUP, VERSION};
use futures::{Stream, StreamExt};
use http::{Request, header::ACCEPT};
use kube::api::WatchEvent;
use serde::Deserialize;
use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::{UserClient, read_error::ReadError};

/// Objects per page.
const PAGE_SIZE: &str = "500";
/// Duration of a watch before it is opened again: shorter than the client's read timeout.
const WATCH_TIMEOUT: Duration = Duration::from_secs(240);
/// Media type of a table.
const TABLE_MEDIA_TYPE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Query for a table.
#[derive(Debug, Clone)]
pub(crate) struct TableQuery {
    /// Kind of the objects.
    pub kind: &'static ApiKind,
    /// Namespace; `None` means all of them.
    pub namespace: Option<String>,
    /// Name of the one object; `None` means all of them.
    pub name: Option<String>,
    /// Label selector, in kubectl's syntax; empty for any labels.
    pub selector: String,
    /// Set if each row carries its whole object; otherwise it carries only the metadata.
    pub whole: bool,
}

/// Page of a list.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectTable {
    /// Position of the page in the list.
    #[serde(default)]
    pub metadata: ListPosition,
    /// Columns of the table; only in the first table of a watch.
    #[serde(default)]
    pub column_definitions: Vec<TableColumn>,
    /// One row per object.
    #[serde(default)]
    pub rows: Vec<TableRow>,
}

/// Position in a list.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListPosition {
    /// Version from which a watch continues.
    #[serde(default)]
    pub resource_version: String,
    /// Continue token of the next page; empty on the last one.
    #[serde(default, rename = "continue")]
    pub next: String,
}

/// Column of a table.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TableColumn {
    /// Title of the column.
    pub name: String,
    /// 0 for a column that is always shown; higher values for those of wide output only.
    #[serde(default)]
    pub priority: i32,
}

/// Row of a table.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TableRow {
    /// Cells of the row, in the order of the columns.
    pub cells: Vec<Value>,
    /// Object of the row, or its metadata.
    #[serde(default)]
    pub object: Value,
}

impl UserClient {
    /// Reads the page that the continue token `next` names, or the first one if it is empty. `None` if the one object
    /// does not exist.
    ///
    /// # Errors
    /// [`ReadError::NotInstalled`] if the kind does not exist.
    pub(crate) async fn table(&self, query: &TableQuery, next: &str) -> Result<Option<ObjectTable>, ReadError> {
        let mut parameters = vec![("includeObject", object(query))];
        if query.name.is_none() {
            parameters.extend([("limit", PAGE_SIZE), ("labelSelector", query.selector.as_str()), ("continue", next)]);
        }
        let request = get(&path(query), &parameters, query)?;
        match self.client.request::<ObjectTable>(request).await {
            Ok(table) => Ok(Some(table)),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let found = status.details.as_ref().map(|details| details.name.as_str()).unwrap_or_default();
                let known = !found.is_empty() && query.name.as_deref() == Some(found);
                if known { Ok(None) } else { Err(ReadError::NotInstalled(query.kind.name)) }
            }
            Err(error) => Err(ReadError::request(doing("list", query))(error)),
        }
    }

    /// Watches for changes from this version on. The stream ends by itself from time to time.
    ///
    /// # Errors
    /// [`ReadError::Request`], also as an item.
    pub(crate) async fn table_changes(
        &self,
        query: &TableQuery,
        version: &str,
    ) -> Result<impl Stream<Item = Result<WatchEvent<ObjectTable>, ReadError>> + use<>, ReadError> {
        let field = query.name.as_ref().map(|name| format!("metadata.name={name}")).unwrap_or_default();
        let seconds = WATCH_TIMEOUT.as_secs().to_string();
        let parameters = [
            ("watch", "1"),
            ("includeObject", object(query)),
            ("labelSelector", query.selector.as_str()),
            ("fieldSelector", field.as_str()),
            ("resourceVersion", version),
            ("timeoutSeconds", seconds.as_str()),
        ];
        let request = get(&collection(query), &parameters, query)?;
        let doing = doing("watch", query);
        let events =
            self.client.request_events::<ObjectTable>(request).await.map_err(ReadError::request(doing.clone()))?;
        Ok(events.map(move |event| event.map_err(ReadError::request(doing.clone()))))
    }
}

fn doing(verb: &str, query: &TableQuery) -> String {
    let TableQuery { kind, namespace, name, .. } = query;
    let place =
        namespace.as_ref().map_or_else(|| "all namespaces".into(), |namespace| format!("namespace {namespace}"));
    match name {
        Some(name) => format!("read {} {name} in {place}", kind.name),
        None => format!("{verb} {} in {place}", kind.plural),
    }
}

fn object(query: &TableQuery) -> &'static str {
    if query.whole { "Object" } else { "Metadata" }
}

fn collection(query: &TableQuery) -> String {
    let plural = query.kind.plural;
    match &query.namespace {
        Some(namespace) => format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{plural}"),
        None => format!("/apis/{GROUP}/{VERSION}/{plural}"),
    }
}

fn path(query: &TableQuery) -> String {
    let collection = collection(query);
    query.name.as_ref().map_or(collection.clone(), |name| format!("{collection}/{name}"))
}

fn get(path: &str, parameters: &[(&str, &str)], query: &TableQuery) -> Result<Request<Vec<u8>>, ReadError> {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let parameters = Serializer::new(String::new()).extend_pairs(given).finish();
    let request = Request::get(format!("{path}?{parameters}")).header(ACCEPT, TABLE_MEDIA_TYPE).body(Vec::new());
    request.map_err(|error| ReadError::request(doing("list", query))(kube::Error::HttpError(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(namespace: Option<&str>, name: Option<&str>) -> TableQuery {
        let owned = |text: &str| text.to_owned();
        let kind = ApiKind::find("agent").unwrap();
        TableQuery {
            kind,
            namespace: namespace.map(owned),
            name: name.map(owned),
            selector: String::new(),
            whole: false,
        }
    }

    #[test]
    fn a_query_becomes_an_address() {
        let base = "/apis/agents.recif.dev/v1";
        assert_eq!(path(&query(None, None)), format!("{base}/agents"));
        assert_eq!(path(&query(Some("a"), None)), format!("{base}/namespaces/a/agents"));
        assert_eq!(path(&query(Some("a"), Some("x"))), format!("{base}/namespaces/a/agents/x"));
        let request = get("/p", &[("labelSelector", "a in (b, c)"), ("continue", "")], &query(None, None)).unwrap();
        assert_eq!(request.uri(), "/p?labelSelector=a+in+%28b%2C+c%29");
    }

    #[test]
    fn a_table_of_the_api_server_can_be_read() {
        let text = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","continue":"x","remainingItemCount":3},
            "columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"d","priority":0}],
            "rows":[{"cells":["a",null,3],"object":{"kind":"PartialObjectMetadata","metadata":{"name":"a"}}}]}"#;
        let table: ObjectTable = serde_json::from_str(text).unwrap();
        assert_eq!((table.metadata.next.as_str(), table.metadata.resource_version.as_str()), ("x", "7"));
        assert_eq!((table.column_definitions[0].name.as_str(), table.rows[0].cells.len()), ("Name", 3));
    }
}
