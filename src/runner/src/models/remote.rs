//! Model behind a provider's HTTP API.
//!
//! A provider implements two things: the encoding of a request, and the decoding of the frames of an answer. Both are
//! pure functions; connections, timeouts and retries are common to all providers and are here and in [`super::http`].

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::error::ModelError;
use super::frames::{self, Frames};
use super::http::{Http, ProviderRequest};
use super::{Chunk, Model, ModelRequest};

/// Protocol of a provider.
pub(super) trait Protocol: Send + Sync + 'static {
    /// Encodes `request`.
    ///
    /// # Errors
    /// It contains something that this provider does not support.
    fn write(&self, request: &ModelRequest) -> Result<ProviderRequest, ModelError>;

    /// Splits the bytes of an answer into frames.
    fn split(&self, bytes: Frames) -> Frames {
        frames::events(bytes)
    }

    /// Creates a decoder for one answer.
    fn reader(&self) -> Box<dyn Reader>;
}

/// Stateful decoder of one answer.
pub(super) trait Reader: Send {
    /// Decodes one frame and appends its chunks.
    ///
    /// # Errors
    /// It cannot be decoded, or reports a failure of the provider.
    fn read(&mut self, piece: &[u8], chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError>;

    /// Reports whether the answer is complete.
    fn done(&self) -> bool;

    /// Appends the chunks that are known only at the end.
    ///
    /// # Errors
    /// The answer is not complete.
    fn end(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError>;
}

/// Model that is reached over HTTP.
pub(super) struct Remote<P> {
    protocol: Arc<P>,
    http: Http,
}

impl<P: Protocol> Remote<P> {
    /// Creates a model that speaks `protocol`.
    pub(super) fn new(protocol: P, http: &Http) -> Self {
        Self { protocol: Arc::new(protocol), http: http.clone() }
    }
}

impl<P: Protocol> Model for Remote<P> {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let (protocol, http) = (self.protocol.clone(), self.http.clone());
        let answer = async move {
            let call = protocol.write(&request)?;
            http.retrying(|| begin(&*protocol, &http, &call)).await
        };
        stream::once(answer).try_flatten().boxed()
    }
}

/// Sends `call` and waits for the first chunk, so that a failure before it can be retried.
async fn begin(
    protocol: &impl Protocol,
    http: &Http,
    call: &ProviderRequest,
) -> Result<BoxStream<'static, Result<Chunk, ModelError>>, ModelError> {
    let pieces = protocol.split(frames::bytes(http.send(call).await?));
    let mut chunks = chunks(pieces, protocol.reader()).boxed();
    let first = chunks.try_next().await?;
    Ok(stream::iter(first.map(Ok)).chain(chunks).boxed())
}

fn chunks(
    pieces: Frames,
    reader: Box<dyn Reader>,
) -> impl futures::Stream<Item = Result<Chunk, ModelError>> + Send + 'static {
    let state = (pieces, reader, VecDeque::new(), false);
    stream::try_unfold(state, |(mut pieces, mut reader, mut ready, mut ended)| async move {
        loop {
            if let Some(chunk) = ready.pop_front() {
                return Ok(Some((chunk, (pieces, reader, ready, ended))));
            }
            if ended {
                return Ok(None);
            }
            match pieces.try_next().await? {
                Some(piece) => reader.read(&piece, &mut ready)?,
                None => ended = true,
            }
            if ended || reader.done() {
                reader.end(&mut ready)?;
                ended = true;
            }
        }
    })
}
