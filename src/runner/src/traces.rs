//! Spans of this process, and the context that requests to others carry.
//!
//! A [`TraceScope`] is handed through a turn. Operations begin an [`ActiveSpan`] in it, whose own scope is for what they cause. No
//! span holds content unless that is captured: no prompt, no answer, no argument. None holds the value of a header. Without a
//! collector no span begins, and the context that came in is passed on.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use telemetry::semconv::{ERROR_TYPE, GEN_AI_AGENT_NAME, GEN_AI_AGENT_VERSION, GEN_AI_OPERATION_NAME};
use telemetry::{
    AttributeValue, FinishedSpan, SpanEvent, SpanKind, TRACEPARENT, TRACESTATE, TraceContext, Tracing, unix_nanos,
};

use crate::content::ContentCapture;
use crate::secret_values::SecretValues;

/// Header of a response with the id of its trace.
pub(crate) const RUN_HEADER: HeaderName = HeaderName::from_static("x-recif-run");
/// Kind of the error of an operation that was dropped before its end.
const CANCELLED: &str = "cancelled";

/// Span that has not ended, for what adds attributes and events to it.
type SharedSpan = Arc<Mutex<Option<FinishedSpan>>>;

/// Place in a trace: what begins here is a child of its span.
#[derive(Clone, Default)]
pub(crate) struct TraceScope {
    tracing: Tracing,
    position: Position,
    /// Span that the scope is of, if it is recorded.
    span: Option<SharedSpan>,
    /// What its spans may hold of the request's content; `None`: nothing.
    capture: Option<Arc<ContentCapture>>,
}

/// Position of a scope.
#[derive(Clone, Default)]
enum Position {
    /// In no trace.
    #[default]
    Nowhere,
    /// Before the first span of a trace that begins here.
    Root(TraceContext),
    /// Within a span, of this process or of the one that sent the request.
    Within(TraceContext),
}

impl TraceScope {
    /// Returns the scope of a request with these headers. Of several `traceparent` none is continued.
    pub(crate) fn of_request(tracing: &Tracing, headers: &HeaderMap) -> Self {
        let sent = match texts(headers, TRACEPARENT)[..] {
            [parent] => TraceContext::parse(parent, Some(&texts(headers, TRACESTATE).join(","))),
            _ => None,
        };
        let begun = tracing.begin(sent.as_ref());
        let position = match sent {
            Some(sent) => {
                let is_sampled = begun.map_or(sent.is_sampled, |begun| begun.is_sampled);
                Position::Within(TraceContext { is_sampled, ..sent })
            }
            None => begun.map_or(Position::Nowhere, Position::Root),
        };
        Self { tracing: tracing.clone(), position, span: None, capture: None }
    }

    /// Returns the same scope for a request with these headers, whose spans hold content without their values and without these
    /// secrets; without secrets to leave out no content is captured.
    pub(crate) fn capturing(self, secrets: Option<&SecretValues>, headers: &HeaderMap) -> Self {
        let is_sampled = match &self.position {
            Position::Nowhere => false,
            Position::Root(context) | Position::Within(context) => context.is_sampled,
        };
        let secrets = secrets.filter(|_| is_sampled);
        let capture = secrets.map(|secrets| Arc::new(ContentCapture::new(secrets.with_headers(headers))));
        Self { capture, ..self }
    }

    /// Begins a span; it ends when it is dropped.
    pub(crate) fn begin(&self, name: impl Into<Cow<'static, str>>, kind: SpanKind) -> ActiveSpan {
        let (context, parent) = match &self.position {
            Position::Nowhere => (None, None),
            Position::Root(root) => (self.tracing.within(root), None),
            Position::Within(parent) => (self.tracing.within(parent), Some(parent.span_id)),
        };
        let Some(context) = context else { return ActiveSpan(Self { span: None, ..self.clone() }) };
        let start = unix_nanos();
        let span = context.is_sampled.then(|| FinishedSpan {
            context: context.clone(),
            parent,
            name: name.into(),
            kind,
            start,
            end: start,
            attributes: Vec::new(),
            events: Vec::new(),
            links: Vec::new(),
            error: Some(CANCELLED.into()),
        });
        let span = span.map(|span| Arc::new(Mutex::new(Some(span))));
        let (tracing, capture) = (self.tracing.clone(), self.capture.clone());
        ActiveSpan(Self { tracing, position: Position::Within(context), span, capture })
    }

    /// Begins the span of an agent's or flow's turn.
    pub(crate) fn begin_turn(&self, name: &str) -> ActiveSpan {
        let span = self.begin(format!("invoke_agent {name}"), SpanKind::Internal);
        span.set(GEN_AI_OPERATION_NAME, "invoke_agent");
        span.set(GEN_AI_AGENT_NAME, name.to_owned());
        if let Some(version) = self.tracing.version() {
            span.set(GEN_AI_AGENT_VERSION, version.to_owned());
        }
        span
    }

    /// Sets an attribute of the scope's span.
    pub(crate) fn set(&self, name: &'static str, value: impl Into<AttributeValue>) {
        self.update(|span| {
            span.attributes.retain(|(known, _)| *known != name);
            span.attributes.push((name, value.into()));
        });
    }

    /// Returns what the scope's span may hold of content; `None`: nothing.
    pub(crate) fn capture(&self) -> Option<&ContentCapture> {
        self.capture.as_deref().filter(|_| self.span.is_some())
    }

    /// Sets an attribute of the scope's span to content, which is made only if it is captured.
    pub(crate) fn set_content(&self, name: &'static str, content: impl FnOnce(&ContentCapture) -> String) {
        if let Some(capture) = self.capture() {
            self.set(name, content(capture));
        }
    }

    /// Reports whether the scope's span has an attribute.
    pub(crate) fn has(&self, name: &str) -> bool {
        let span = self.span.as_ref().map(lock);
        span.as_deref()
            .and_then(Option::as_ref)
            .is_some_and(|span| span.attributes.iter().any(|(known, _)| *known == name))
    }

    /// Adds an event to the scope's span.
    pub(crate) fn event(&self, name: &'static str, attributes: Vec<(&'static str, AttributeValue)>) {
        self.update(|span| span.events.push(SpanEvent { at: unix_nanos(), name, attributes }));
    }

    /// Returns the id of the trace.
    pub(crate) fn run_id(&self) -> Option<String> {
        match &self.position {
            Position::Nowhere => None,
            Position::Root(context) | Position::Within(context) => Some(context.trace_text()),
        }
    }

    /// Returns the context that a request to another process carries.
    pub(crate) fn context(&self) -> Option<&TraceContext> {
        match &self.position {
            Position::Nowhere | Position::Root(_) => None,
            Position::Within(context) => Some(context),
        }
    }

    /// Returns that context as headers.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let Some(context) = self.context() else { return headers };
        let state = context.state.as_deref().unwrap_or_default();
        for (name, value) in [(TRACEPARENT, context.traceparent().as_str()), (TRACESTATE, state)] {
            if !value.is_empty()
                && let Ok(value) = HeaderValue::from_str(value)
            {
                headers.insert(name, value);
            }
        }
        headers
    }

    fn update(&self, change: impl FnOnce(&mut FinishedSpan)) {
        let Some(shared) = &self.span else { return };
        if let Some(span) = lock(shared).as_mut() {
            change(span);
        }
    }
}

impl fmt::Debug for TraceScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TraceScope").field(&self.run_id()).finish()
    }
}

/// Span that is recorded when it is dropped: as cancelled, unless it was said before how it ended.
pub(crate) struct ActiveSpan(TraceScope);

impl ActiveSpan {
    /// Returns the scope of what the operation causes.
    pub(crate) fn scope(&self) -> &TraceScope {
        &self.0
    }

    /// Reports whether the span is recorded.
    pub(crate) fn is_recorded(&self) -> bool {
        self.0.span.is_some()
    }

    /// Sets an attribute.
    pub(crate) fn set(&self, name: &'static str, value: impl Into<AttributeValue>) {
        self.0.set(name, value);
    }

    /// Says that the operation succeeded.
    pub(crate) fn succeed(&self) {
        self.0.update(|span| span.error = None);
    }

    /// Says that the operation failed, and how, in a word.
    pub(crate) fn fail(&self, kind: impl Into<Cow<'static, str>>) {
        self.0.update(|span| span.error = Some(kind.into()));
    }
}

impl Drop for ActiveSpan {
    fn drop(&mut self) {
        let Some(shared) = &self.0.span else { return };
        let Some(mut span) = lock(shared).take() else { return };
        span.end = unix_nanos();
        if let Some(error) = span.error.clone() {
            span.attributes.push((ERROR_TYPE, AttributeValue::Text(error)));
        }
        self.0.tracing.record(span);
    }
}

fn texts<'h>(headers: &'h HeaderMap, name: &str) -> Vec<&'h str> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
}

fn lock(shared: &SharedSpan) -> MutexGuard<'_, Option<FinishedSpan>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_collector_the_context_that_came_in_is_passed_on() {
        let mut headers = HeaderMap::new();
        assert!(TraceScope::of_request(&Tracing::off(), &headers).begin_turn("a").scope().headers().is_empty());
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        headers.insert(TRACEPARENT, HeaderValue::from_static(parent));
        headers.append(TRACESTATE, HeaderValue::from_static("a=1"));
        headers.append(TRACESTATE, HeaderValue::from_static("b=2"));
        let scope = TraceScope::of_request(&Tracing::off(), &headers);
        let span = scope.begin_turn("a");
        let passed = span.scope().headers();
        assert_eq!(passed[TRACEPARENT], parent);
        assert_eq!(passed[TRACESTATE], "a=1,b=2");
        assert_eq!(scope.run_id().as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        headers.append(TRACEPARENT, HeaderValue::from_static(parent));
        assert_eq!(TraceScope::of_request(&Tracing::off(), &headers).run_id(), None, "two parents");
    }

    #[test]
    fn content_is_made_for_a_span_that_is_recorded_and_no_other() {
        let (headers, secrets) = (HeaderMap::new(), SecretValues::default());
        let scope = TraceScope::of_request(&Tracing::off(), &headers).capturing(Some(&secrets), &headers);
        let span = scope.begin_turn("a");
        span.scope().set_content("x", |_| panic!("it was made"));
        assert!(span.scope().capture().is_none() && !span.scope().has("x"));
    }
}
