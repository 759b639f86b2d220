//! Lists a kind in pages
//! ([chunking](https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks)), for the first list
//! of a watch and for each relist.
//!
//! A page that takes too long, or is too large, is requested again at half the size: a list of large objects over a slow connection must
//! not fail for ever for its last object. Nothing of a list reaches the cache before the list is complete.

use std::borrow::Cow;

use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    error::RequestError,
    store::ListItem,
    transport::{api_request, read_json},
    watch::Watch,
};
use crate::page::{List, PAGE};

impl<T: Send + Sync + 'static> Watch<T> {
    /// Lists all objects, in pages of at most `page` objects. A page that is too much for the connection halves `page`. With `whole`,
    /// objects that are known already are decoded too.
    pub(super) async fn list(&self, page: &mut u32, whole: bool) -> Result<List<T>, RequestError> {
        let call = self.call("list");
        let mut items = Vec::new();
        let mut next = String::new();
        loop {
            let mut target = self.target().with("limit", &page.to_string());
            if !next.is_empty() {
                target = target.with("continue", &next);
            }
            let request = api_request(Method::GET, target.into_string(), None, Vec::new());
            let request = self.metadata_only(request, "PartialObjectMetadataList");
            let body = match self.transport.page(&call, request).await {
                Ok(body) => body,
                Err(error) if *page > 1 && wants_smaller_page(&error) => {
                    *page /= 2;
                    tracing::debug!(kind = call.kind, page, %error, "requesting smaller pages");
                    continue;
                }
                Err(error) => {
                    // A page of a single object failed, so the size of the pages is not the cause.
                    if *page == 1 {
                        *page = PAGE;
                    }
                    return Err(error);
                }
            };
            let read: ListPage<'_> = read_json(&call, &body)?;
            items.extend(read.items.iter().filter_map(|item| self.list_item(item.get(), whole)));
            if read.metadata.continue_.is_empty() {
                *page = (*page * 2).min(PAGE);
                return Ok(List { items, version: read.metadata.version() });
            }
            next = read.metadata.continue_.into_owned();
        }
    }

    /// Returns the version of the store at this moment, past every cache of the API server.
    pub(super) async fn version(&self) -> Result<u64, RequestError> {
        let call = self.call("list");
        let request = api_request(Method::GET, self.target().with("limit", "1").into_string(), None, Vec::new());
        let body = self.transport.page(&call, self.metadata_only(request, "PartialObjectMetadataList")).await?;
        Ok(read_json::<ListPage<'_>>(&call, &body)?.metadata.version())
    }

    fn list_item(&self, json: &str, whole: bool) -> Option<ListItem<T>> {
        let head = self.object_version(json).filter(|head| self.keeps(head))?;
        if !whole && self.map.contains_version(&head) {
            return Some(ListItem::Known(head.key));
        }
        Some(self.decode_object(head, json).map_or_else(ListItem::Unreadable, ListItem::New))
    }
}

/// Reports whether a smaller page may succeed.
fn wants_smaller_page(error: &RequestError) -> bool {
    let is_unread = matches!(error, RequestError::Timeout { .. } | RequestError::Unreadable { .. });
    is_unread || matches!(error.code(), Some(413 | 504))
}

#[derive(Deserialize)]
struct ListPage<'a> {
    #[serde(borrow)]
    metadata: PageMeta<'a>,
    #[serde(borrow, default)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, default, rename = "continue")]
    continue_: Cow<'a, str>,
}

impl PageMeta<'_> {
    fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }
}
