//! Property checks for arbitrary input: each function takes any bytes, and panics if a property is violated. The fuzz
//! targets under `fuzz/` call them, and so do tests with generated messages. They use only the public API of the crate.
#![allow(clippy::expect_used, reason = "a check that fails ends the test or the fuzz run")]

use std::{
    cell::RefCell,
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    BodyScanner, Connection, Exchange, ExchangeOutcome, ExchangeRequest, Fields, Framing, HeadWriter, InvalidMessage,
    MAX_FIELDS, RequestHead, ResponseHead, ResponsePolicy, Timeouts, Version, head_length,
};

/// Checks that an accepted request head means the same to httparse, and still does after it was forwarded.
pub fn request_head(bytes: &[u8]) {
    let mut fields = Fields::default();
    let Ok(Some(length)) = head_length(bytes, &mut 0) else { return };
    let Ok(head) = RequestHead::read(&bytes[..length], &mut fields) else { return };
    let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut theirs = httparse::Request::new(&mut headers);
    assert_eq!(theirs.parse(head.bytes), Ok(httparse::Status::Complete(length)));
    assert_eq!(theirs.method.map(str::as_bytes), Some(head.method));
    same_fields(head.fields, head.bytes, theirs.headers);

    let mut out = Vec::new();
    let writer = HeadWriter::request(&head, head.target, &mut out).copy(head.bytes, head.fields, |_| false);
    match head.value("host") {
        Some(_) => writer,
        None => writer.field("Host", head.host),
    }
    .end();
    let mut again = Fields::default();
    let copy = match RequestHead::read(&out, &mut again) {
        // A head at its limits has no room for the added Host.
        Err(InvalidMessage::TooManyFields | InvalidMessage::HeadTooLarge) if head.value("host").is_none() => return,
        copy => copy.expect("what is passed on is valid"),
    };
    assert_eq!((copy.method, copy.target, copy.host), (head.method, head.target, head.host));
    assert_eq!((copy.framing, copy.keeps_alive, copy.upgrades), (head.framing, true, false));
}

/// Checks the properties of [`request_head`] for a response head.
pub fn response_head(bytes: &[u8]) {
    let mut fields = Fields::default();
    let Ok(Some(length)) = head_length(bytes, &mut 0) else { return };
    let Ok(head) = ResponseHead::read(&bytes[..length], &mut fields, false) else { return };
    let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut theirs = httparse::Response::new(&mut headers);
    assert_eq!(theirs.parse(head.bytes), Ok(httparse::Status::Complete(length)));
    assert_eq!(theirs.code, Some(head.status));
    same_fields(head.fields, head.bytes, theirs.headers);

    let mut out = Vec::new();
    HeadWriter::response(&head, Version::Http11, &mut out).copy(head.bytes, head.fields, |_| false).end();
    let mut again = Fields::default();
    let copy = ResponseHead::read(&out, &mut again, false).expect("what is passed on is valid");
    assert_eq!((copy.status, copy.framing), (head.status, head.framing));
}

fn same_fields(ours: &Fields, bytes: &[u8], theirs: &[httparse::Header<'_>]) {
    let ours: Vec<_> = ours.lines().iter().map(|line| (line.name(bytes), line.value(bytes))).collect();
    let theirs: Vec<_> = theirs.iter().map(|header| (header.name.as_bytes(), header.value)).collect();
    assert_eq!(ours, theirs);
}

/// Checks that a body ends at the same place with the same content, however it is split. The first byte selects the
/// framing.
pub fn body(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let framing = match kind % 4 {
        0 => Framing::Close,
        1 => Framing::Length(u64::from(kind / 4)),
        _ => Framing::Chunked,
    };
    let whole = follow(framing, bytes, bytes.len());
    for piece in [1, 2, 3, 7, 64] {
        assert_eq!(follow(framing, bytes, piece), whole, "in pieces of {piece}");
    }
}

/// Scans a body in pieces. Returns the bytes consumed, whether it ended (`None` if it is invalid), and its content.
fn follow(framing: Framing, bytes: &[u8], piece: usize) -> (usize, Option<bool>, Vec<u8>) {
    let (mut body, mut data, mut taken) = (BodyScanner::new(framing), Vec::new(), 0);
    for part in bytes.chunks(piece.max(1)) {
        match body.advance_with(part, |run| data.extend_from_slice(run)) {
            Ok(progress) => taken += progress.consumed,
            Err((before, _)) => return (taken + before, None, data),
        }
        if body.has_ended() {
            break;
        }
    }
    (taken, Some(body.has_ended()), data)
}

/// Checks that a request and its response are relayed in the same way, however both are split. The first two bytes give
/// the length of the request; the rest is the response.
pub fn exchange(bytes: &[u8]) {
    let Some((length, bytes)) = bytes.split_at_checked(2) else { return };
    let length = usize::from(length[0]) << 8 | usize::from(length[1]);
    let (request, answer) = bytes.split_at(length.min(bytes.len()));
    let whole = relayed(request, answer, usize::MAX);
    for piece in [1, 2, 5, 33] {
        same_relay(relayed(request, answer, piece), whole.as_ref(), piece);
    }
}

/// Asserts that two relays ended alike and forwarded the same bytes. After an invalid end one may have forwarded more,
/// because the framing of a chunk is forwarded as it arrives, before the invalid byte is seen.
fn same_relay(cut: Option<Relayed>, whole: Option<&Relayed>, piece: usize) {
    let (Some(cut), Some(whole)) = (&cut, whole) else {
        return assert_eq!(cut.as_ref(), whole, "in pieces of {piece}");
    };
    assert_eq!(cut.2, whole.2, "in pieces of {piece}");
    let ends_badly = !(whole.2.starts_with("done") || whole.2 == "upgraded");
    for (cut, whole) in [(&cut.0, &whole.0), (&cut.1, &whole.1)] {
        let alike = cut == whole || (ends_badly && (cut.starts_with(whole) || whole.starts_with(cut)));
        assert!(alike, "in pieces of {piece}: {:?} and {:?}", cut.escape_ascii(), whole.escape_ascii());
    }
}

/// Bytes that the workload got, bytes that the client got, and the outcome.
pub type Relayed = (Vec<u8>, Vec<u8>, String);

/// Relays a request and its response, both in pieces of this size. Returns `None` if the request head is refused.
pub fn relayed(request: &[u8], answer: &[u8], piece: usize) -> Option<Relayed> {
    let mut fields = Fields::default();
    let length = head_length(request, &mut 0).ok()??;
    let head = RequestHead::read(&request[..length], &mut fields).ok()?;
    let mut sent = Vec::new();
    HeadWriter::request(&head, head.target, &mut sent).copy(head.bytes, head.fields, |_| false).end();
    let asked = ExchangeRequest::from(&head);
    let body = &request[length..];
    let (_, ended, _) = follow(asked.framing, body, body.len());
    let passed = BodyScanner::new(asked.framing).advance_without_trailers(body).map_or(0, |(_, passed)| passed.len());
    // The workload responds when it has the whole request, and the client waits for the response. After half a request
    // it leaves.
    let expected = match ended {
        Some(true) => sent.len() + passed,
        _ => usize::MAX,
    };
    let (to_client, to_workload) = (Rc::default(), Rc::default());
    let client = ScriptedStream {
        data: body.to_vec(),
        piece,
        ends: expected == usize::MAX,
        after: 0,
        written: Rc::clone(&to_client),
        is_ready: true,
    };
    let workload = ScriptedStream {
        data: answer.to_vec(),
        piece,
        ends: true,
        after: expected,
        written: Rc::clone(&to_workload),
        is_ready: true,
    };
    let (mut client, mut workload) = (Connection::new(client), Connection::new(workload));
    workload.outgoing = sent;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let patience = Timeouts { first_byte: Duration::from_secs(60), idle: Duration::from_secs(60) };
    let end = runtime.block_on(async {
        let timer = pin!(tokio::time::sleep(Duration::from_secs(60)));
        Exchange::new(&mut client, &mut workload, asked, patience, PassThrough(asked.version)).run(timer).await
    });
    let mut got = to_client.take();
    got.append(&mut client.outgoing);
    // The number of surplus bytes that were read of the response depends on how it is split.
    let end = match end {
        ExchangeOutcome::NoResponse { .. } => "no answer".to_owned(),
        ExchangeOutcome::Done { client, .. } => format!("done, and the client may stay: {client}"),
        ExchangeOutcome::Upgraded => {
            let begin = memchr::memmem::find(&got, b"HTTP/1.1 101").expect("the head of the answer");
            got.truncate(begin + head_length(&got[begin..], &mut 0).ok()??);
            "upgraded".to_owned()
        }
        other => format!("{other:?}"),
    };
    Some((to_workload.take(), got, end))
}

/// Policy that forwards every head to a client of this version.
struct PassThrough(Version);

impl ResponsePolicy for PassThrough {
    fn response(&mut self, head: &ResponseHead<'_>, _close: bool, out: &mut Vec<u8>) {
        HeadWriter::response(head, self.0, out).copy(head.bytes, head.fields, |_| false).end();
    }
}

/// Scripted peer: sends `data` in pieces once `after` bytes were written to it; then it ends the stream or is silent.
struct ScriptedStream {
    data: Vec<u8>,
    piece: usize,
    ends: bool,
    after: usize,
    written: Rc<RefCell<Vec<u8>>>,
    /// Set if the next poll makes progress; every other poll yields to the other tasks.
    is_ready: bool,
}

impl ScriptedStream {
    fn alternate(&mut self, cx: &Context<'_>) -> bool {
        self.is_ready = self.piece == usize::MAX || !self.is_ready;
        if !self.is_ready {
            cx.waker().wake_by_ref();
        }
        self.is_ready
    }
}

impl AsyncRead for ScriptedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.written.borrow().len() < self.after || (self.data.is_empty() && !self.ends) {
            return Poll::Pending;
        }
        if !self.alternate(cx) {
            return Poll::Pending;
        }
        let length = self.data.len().min(self.piece).min(buffer.remaining());
        buffer.put_slice(&self.data[..length]);
        self.data.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ScriptedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.alternate(cx) {
            return Poll::Pending;
        }
        let length = bytes.len().min(self.piece);
        self.written.borrow_mut().extend_from_slice(&bytes[..length]);
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
