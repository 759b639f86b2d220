//! Lists a kind in pages (chunking): the watch begins with it, and starts over with it.
//!
//! A page that takes too long, or is too large, is asked for again in halves: a list of large objects over a slow connection must not
//! fail for ever for its last object. Nothing of a list is taken before it is complete.

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
    /// Lists all, in pages of at most this many objects, which a list that is too much for the connection makes fewer. With
    /// `whole`, objects are decoded that are known already.
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
                    tracing::debug!(kind = call.kind, page, %error, "smaller pages are asked for");
                    continue;
                }
                Err(error) => {
                    // Where not even one object comes, it is not their size.
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

    /// The version of the store now, past every cache of the API server.
    pub(super) async fn version(&self) -> Result<u64, RequestError> {
        let call = self.call("list");
        let request = api_request(Method::GET, self.target().with("limit", "1").into_string(), None, Vec::new());
        let body = self.transport.page(&call, self.metadata_only(request, "PartialObjectMetadataList")).await?;
        Ok(read_json::<ListPage<'_>>(&call, &body)?.metadata.version())
    }

    fn list_item(&self, json: &str, whole: bool) -> Option<ListItem<T>> {
        let head = self.object_version(json)?;
        if !whole && self.map.contains_version(&head) {
            return Some(ListItem::Known(head.key));
        }
        Some(self.decode_object(head, json).map_or_else(ListItem::Unreadable, ListItem::New))
    }
}

/// Whether a smaller page may come through.
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
