//! Body of a stream with the usage of models as its trailer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::Error;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use http_body::Frame;

use super::{RESPONSE_HEADER, UsageAccount, UsageLedger};
use crate::approval_metrics::ApprovalMetrics;

/// Names of the trailers.
pub(crate) const TRAILERS: &str = "x-recif-usage, x-recif-spent, x-recif-cost, x-recif-approvals";

/// Body of a stream, with the sums of its request, those of the process, and the calls that wait as trailers. The server sends them only to
/// a client that accepts trailers. `H` is dropped with the body.
pub(crate) struct UsageBody<H> {
    body: Body,
    /// Account of the request; `None` once the stream has ended.
    account: Option<UsageAccount>,
    ledger: UsageLedger,
    approvals: ApprovalMetrics,
    _held: H,
}

impl<H> UsageBody<H> {
    /// Creates the body of a stream.
    pub(crate) fn new(
        body: Body,
        account: UsageAccount,
        (ledger, approvals): (UsageLedger, ApprovalMetrics),
        held: H,
    ) -> Self {
        Self { body, account: Some(account), ledger, approvals, _held: held }
    }
}

impl<H: Unpin> HttpBody for UsageBody<H> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if this.account.is_none() {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if frame.is_some() {
            return Poll::Ready(frame);
        }
        let mut trailers: HeaderMap = this.approvals.header().into_iter().collect();
        if let Some(account) = this.account.take()
            && let Some(usage) = account.header()
        {
            trailers.insert(RESPONSE_HEADER, usage);
            trailers.extend(account.total_headers(&this.ledger));
        }
        Poll::Ready((!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers))))
    }
}
