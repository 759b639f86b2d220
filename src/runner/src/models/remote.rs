//! A model behind a provider's API.
//!
//! A provider is two things: how a request is written, and how the pieces of an answer read. Both are functions of
//! values; connections, time limits and retries are the same for all and stand here and in [`super::http`].

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::error::ModelError;
use super::frames::{self, Frames};
use super::http::{Http, ProviderRequest};
use super::{Chunk, Model, ModelRequest};

/// A provider's protocol.
pub(super) trait Protocol: Send + Sync + 'static {
    /// How `request` is written.
    ///
    /// # Errors
    /// It holds something this provider cannot take.
    fn write(&self, request: &ModelRequest) -> Result<ProviderRequest, ModelError>;

    /// How an answer is cut into pieces.
    fn split(&self, bytes: Frames) -> Frames {
        frames::events(bytes)
    }

    /// Reads one answer.
    fn reader(&self) -> Box<dyn Reader>;
}

/// Where the reading of one answer stands.
pub(super) trait Reader: Send {
    /// Reads one piece.
    ///
    /// # Errors
    /// It cannot be read, or says that the provider failed.
    fn read(&mut self, piece: &[u8], chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError>;

    /// Whether nothing more is to come.
    fn done(&self) -> bool;

    /// Adds what is known only at the end.
    ///
    /// # Errors
    /// The answer is not whole.
    fn end(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError>;
}

/// A model that is reached by HTTP.
pub(super) struct Remote<P> {
    protocol: Arc<P>,
    http: Http,
}

impl<P: Protocol> Remote<P> {
    /// A model that speaks `protocol`.
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

/// Sends `call` and waits for the first chunk.
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
