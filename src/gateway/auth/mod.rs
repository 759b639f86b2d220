//! Who may ask what.

use std::sync::Arc;

use super::{answer::Answer, path::Path, routes::Route};
use crate::http1::RequestHead;

/// How callers are told apart.
#[derive(Debug)]
pub(super) enum Auth {
    /// They are not: everybody may ask everything.
    None,
}

/// Whose request it is.
#[derive(Debug, Clone, Default)]
pub(super) struct Caller {
    /// The name the workload is told in `X-Recif-User`; fit for a header.
    pub(super) user: Option<Arc<str>>,
    /// Whether `Authorization` was meant for the gateway and is not passed on.
    pub(super) hides_authorization: bool,
}

impl Auth {
    /// Admits a request, whose path leads to `route` if there is such a workload. The head is complete and valid; nothing of
    /// its body was read on purpose. Anything that waits is to be boxed: this future is part of every connection.
    ///
    /// # Errors
    /// The refusal. One who may not ask must not learn whether there is a route.
    pub(super) async fn admit(
        &self,
        head: &RequestHead<'_>,
        path: &Path<'_>,
        route: Option<&Route>,
    ) -> Result<Caller, Answer> {
        let _ = (head, path, route);
        match self {
            Self::None => Ok(Caller::default()),
        }
    }
}
