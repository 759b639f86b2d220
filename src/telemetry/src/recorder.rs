//! Handle by which a process records spans.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot};

use crate::config::{TelemetryConfig, TelemetryError};
use crate::context::TraceContext;
use crate::exporter::SpanExporter;
use crate::sampler::Sampler;
use crate::semconv::SERVICE_VERSION;
use crate::span::FinishedSpan;

/// Longest wait for the last spans when a process ends.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// Counters of the spans that were recorded. Clones share them.
#[derive(Clone, Default)]
pub struct SpanCounters(Family<SpanLabels, Counter>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SpanLabels {
    outcome: &'static str,
}

impl SpanCounters {
    /// Registers the counters, as `recif_spans_total`.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Spans by outcome: sent, dropped because the queue was full, failed to be sent";
        registry.register("recif_spans", help, self.0.clone());
    }

    /// Counts spans that a collector took.
    pub fn sent(&self, spans: u64) {
        self.add("sent", spans);
    }

    /// Counts spans for which there was no room.
    pub(crate) fn dropped(&self, spans: u64) {
        self.add("dropped", spans);
    }

    /// Counts spans that no collector took.
    pub(crate) fn failed(&self, spans: u64) {
        self.add("failed", spans);
    }

    fn add(&self, outcome: &'static str, spans: u64) {
        if spans > 0 {
            self.0.get_or_create(&SpanLabels { outcome }).inc_by(spans);
        }
    }

    #[cfg(test)]
    pub(crate) fn of(&self, outcome: &'static str) -> u64 {
        self.0.get_or_create(&SpanLabels { outcome }).get()
    }
}

/// Entry of the exporter's queue.
pub(crate) enum QueueEntry {
    /// Span to send.
    Span(Box<FinishedSpan>),
    /// Request to send all before it, and to say when that is done.
    Flush(oneshot::Sender<()>),
}

/// Handle by which a process records spans. Clones share the queue.
#[derive(Clone, Default)]
pub struct Tracing(Option<Arc<Recorder>>);

struct Recorder {
    queue: mpsc::Sender<QueueEntry>,
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
        let exporter = SpanExporter::new(endpoint, config, resource, counters.clone())?;
        let (queue, entries) = mpsc::channel(config.max_queue);
        tokio::spawn(exporter.run(entries));
        Ok(Self(Some(Arc::new(Recorder { queue, sampler: config.sampler, counters, version }))))
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

    /// Records a span of a sampled trace. Never waits: without room the span is dropped and counted.
    pub fn record(&self, span: FinishedSpan) {
        let Some(recorder) = self.0.as_ref().filter(|_| span.context.is_sampled) else { return };
        if recorder.queue.try_send(QueueEntry::Span(Box::new(span))).is_err() {
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
