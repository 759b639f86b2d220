//! Handle by which a process records spans.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::config::{TelemetryConfig, TelemetryError};
use crate::context::TraceContext;
use crate::exporter::{QueueEntry, SpanExporter};
use crate::sampler::Sampler;
use crate::semconv::SERVICE_VERSION;
use crate::span::FinishedSpan;
use crate::span_counters::SpanCounters;

/// Longest wait for the last spans when a process ends.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// Bytes of texts of the spans that wait at most: where they hold content, the most spans alone are no bound of the memory.
const MAX_WAITING: usize = 16 << 20;

/// Handle by which a process records spans. Clones share the queue.
#[derive(Clone, Default)]
pub struct Tracing(Option<Arc<Recorder>>);

struct Recorder {
    queue: mpsc::Sender<QueueEntry>,
    /// Bytes of texts of the spans in the queue, and in the batch that is collected.
    waiting: Arc<AtomicUsize>,
    sampler: Sampler,
    counters: SpanCounters,
    /// Version of the service, if the environment tells it.
    version: Option<String>,
}

impl Tracing {
    /// Returns a handle that records nothing.
    pub fn off() -> Self {
        Self::default()
    }

    /// Starts the task that sends spans to the configured collector; without one nothing is recorded. `own` are the attributes of
    /// the process. Called in a runtime of tokio.
    ///
    /// # Errors
    /// The certificates cannot be read.
    pub fn start(
        config: &TelemetryConfig,
        own: &[(&'static str, String)],
        counters: SpanCounters,
    ) -> Result<Self, TelemetryError> {
        let Some(endpoint) = &config.endpoint else { return Ok(Self::off()) };
        let resource = config.resource_of(own);
        let version = resource.iter().find(|(name, _)| name == SERVICE_VERSION).map(|(_, version)| version.clone());
        let waiting = Arc::<AtomicUsize>::default();
        let exporter = SpanExporter::new(endpoint, config, resource, counters.clone(), waiting.clone())?;
        let (queue, entries) = mpsc::channel(config.max_queue);
        tokio::spawn(exporter.run(entries));
        Ok(Self(Some(Arc::new(Recorder { queue, waiting, sampler: config.sampler, counters, version }))))
    }

    /// Reports whether spans are recorded at all.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the version of the service, if the environment tells it.
    pub fn version(&self) -> Option<&str> {
        self.0.as_ref()?.version.as_deref()
    }

    /// Returns the context of a new span: in the trace of `parent`, or as the begin of one. `None` if nothing is recorded: then the
    /// context of the parent is the one to pass on.
    pub fn begin(&self, parent: Option<&TraceContext>) -> Option<TraceContext> {
        let recorder = self.0.as_ref()?;
        let mut context = parent.map_or_else(|| TraceContext::root(false), TraceContext::child);
        context.is_sampled = recorder.sampler.samples(parent, &context.trace_id);
        Some(context)
    }

    /// Returns the context of a span within a span of this process, whose decision is kept.
    pub fn within(&self, parent: &TraceContext) -> Option<TraceContext> {
        self.is_on().then(|| parent.child())
    }

    /// Reports whether spans of a trace are recorded whose id this process chose without a sender.
    pub fn samples(&self, trace_id: &[u8; 16]) -> bool {
        self.0.as_ref().is_some_and(|recorder| recorder.sampler.samples(None, trace_id))
    }

    /// Records a span of a sampled trace. Never waits: without room the span is dropped and counted.
    pub fn record(&self, span: FinishedSpan) {
        let Some(recorder) = self.0.as_ref().filter(|_| span.context.is_sampled) else { return };
        let bytes = span.text_bytes();
        let has_room = recorder.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes <= MAX_WAITING;
        if !has_room || recorder.queue.try_send(QueueEntry::Span(Box::new(span))).is_err() {
            recorder.waiting.fetch_sub(bytes, Ordering::Relaxed);
            recorder.counters.dropped(1);
        }
    }

    /// Waits until all spans so far are sent, 2 s at most.
    pub async fn shutdown(&self) {
        let Some(recorder) = &self.0 else { return };
        let flushed = async {
            let (done, flushed) = oneshot::channel();
            if recorder.queue.send(QueueEntry::Flush(done)).await.is_ok() {
                let _ = flushed.await;
            }
        };
        if tokio::time::timeout(SHUTDOWN, flushed).await.is_err() {
            tracing::warn!("the last spans could not be sent in time");
        }
    }
}
