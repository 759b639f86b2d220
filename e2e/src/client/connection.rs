//! HTTP/1.1 connection of a test client, on which responses are read chunk by chunk.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::{ClientTarget, TIMEOUT};

/// Client end of a connection.
///
/// Invariant: a request is only sent while `body` is [`RemainingBody::Done`], so the stream is at the start of a response.
#[derive(Debug)]
pub(crate) struct HttpClientConnection {
    io: BufReader<TcpStream>,
    target: ClientTarget,
    body: RemainingBody,
    keep_alive: bool,
}

/// Part of a response body that was not read yet.
#[derive(Debug, PartialEq, Eq)]
enum RemainingBody {
    Done,
    Length(usize),
    Chunked,
}

/// HTTP response.
#[derive(Debug, Clone)]
pub(crate) struct HttpClientResponse {
    /// Status code.
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    /// Body, after it was read.
    pub(crate) text: String,
}

impl HttpClientResponse {
    /// Returns the value of a header, whose name must be in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl HttpClientConnection {
    /// Opens a connection.
    pub(crate) async fn open(target: &ClientTarget) -> Result<Self> {
        let io = with_timeout("a connection", TcpStream::connect(target.address)).await?.context("connect")?;
        io.set_nodelay(true)?;
        Ok(Self { io: BufReader::new(io), target: target.clone(), body: RemainingBody::Done, keep_alive: true })
    }

    /// Sends one request on a connection of its own and returns the whole response.
    pub(crate) async fn request(
        target: &ClientTarget,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<HttpClientResponse> {
        let mut connection = Self::open(target).await?;
        connection.send(method, path, body).await
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<HttpClientResponse> {
        let mut answer = self.begin(method, path, body).await?;
        while let Some(piece) = self.next().await? {
            answer.text += &piece;
        }
        Ok(answer)
    }

    /// Sends a request and reads the head of the response.
    pub(crate) async fn begin(&mut self, method: &str, path: &str, body: &str) -> Result<HttpClientResponse> {
        ensure!(self.body == RemainingBody::Done, "the answer before was not read to its end");
        let ClientTarget { address, prefix, headers, .. } = &self.target;
        let mut text = format!("{method} {prefix}{path} HTTP/1.1\r\nHost: {address}\r\n{headers}");
        if !body.is_empty() {
            let _ = write!(text, "Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        text = text + "\r\n" + body;
        self.io.write_all(text.as_bytes()).await.context("send the request")?;
        self.head().await
    }

    async fn head(&mut self) -> Result<HttpClientResponse> {
        let line = self.line().await?.context("closed without an answer")?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.with_context(|| format!("{line:?} is no status line"))?;
        let mut answer = HttpClientResponse { status, headers: Vec::new(), text: String::new() };
        while let Some(field) = self.line().await?.filter(|line| !line.is_empty()) {
            let (name, value) = field.split_once(':').with_context(|| format!("{field:?} is no header"))?;
            answer.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        self.keep_alive = answer.header("connection").is_none_or(|value| !value.eq_ignore_ascii_case("close"));
        self.body = match (answer.header("transfer-encoding"), answer.header("content-length")) {
            (Some(_), _) => RemainingBody::Chunked,
            (None, Some("0")) => RemainingBody::Done,
            (None, Some(length)) => RemainingBody::Length(length.parse().context("a Content-Length")?),
            (None, None) => bail!("an answer of unknown length: {answer:?}"),
        };
        Ok(answer)
    }

    /// Returns the next chunk of the body as it was sent, or `None` at its end; an error if the connection breaks off.
    pub(crate) async fn next(&mut self) -> Result<Option<String>> {
        let length = match self.body {
            RemainingBody::Done => return Ok(None),
            RemainingBody::Length(length) => length,
            RemainingBody::Chunked => {
                let size = self.line().await?.context("the stream ended without its last chunk")?;
                usize::from_str_radix(&size, 16).with_context(|| format!("{size:?} is no size of a chunk"))?
            }
        };
        let mut piece = vec![0; length];
        with_timeout("the body", self.io.read_exact(&mut piece)).await?.context("the body broke off")?;
        if self.body == RemainingBody::Chunked {
            ensure!(self.line().await?.is_some_and(|line| line.is_empty()), "a chunk that does not end");
        }
        if self.body != RemainingBody::Chunked || length == 0 {
            self.body = RemainingBody::Done;
        }
        Ok((length > 0).then(|| String::from_utf8_lossy(&piece).into_owned()))
    }

    /// Reports whether another request may follow: no `Connection: close` was received, the body was read to its end, and
    /// the connection is open.
    pub(crate) fn is_reusable(&self) -> bool {
        let open = self.io.get_ref().try_read(&mut [0]).is_err_and(|it| it.kind() == std::io::ErrorKind::WouldBlock);
        self.keep_alive && self.body == RemainingBody::Done && open
    }

    async fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        let read = with_timeout("a line", self.io.read_line(&mut line)).await?.context("read")?;
        ensure!(read == 0 || line.ends_with("\r\n"), "it broke off in the line {line:?}");
        Ok((read > 0).then(|| line.trim_end().to_owned()))
    }
}

/// Limits the wait for the next part of a response to [`TIMEOUT`].
pub(super) async fn with_timeout<T>(what: &str, work: impl Future<Output = T>) -> Result<T> {
    timeout(TIMEOUT, work).await.with_context(|| format!("{what} did not come within {TIMEOUT:?}"))
}
