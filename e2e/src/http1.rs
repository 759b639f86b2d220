//! Minimal HTTP/1.1 server, as far as a workload behind a strict proxy needs it.

use std::io;

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

/// Connection of a client.
pub type Io = BufReader<TcpStream>;

/// Request with its body.
#[derive(Debug)]
pub struct ReceivedRequest {
    /// Request line.
    pub line: String,
    /// Headers: names in lower case, values as received.
    pub headers: Vec<(String, String)>,
    /// Whole body.
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    /// Reads the next request; `None`: the client has closed the connection.
    ///
    /// # Errors
    /// The connection broke, or the data is not a request.
    pub async fn read(io: &mut Io) -> io::Result<Option<Self>> {
        let Some(line) = read_line(io).await? else { return Ok(None) };
        let mut headers = Vec::new();
        while let Some(field) = read_line(io).await?.filter(|line| !line.is_empty()) {
            let (name, value) = field.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut request = Self { line, headers, body: Vec::new() };
        request.body = read_body(io, &request).await?;
        Ok(Some(request))
    }

    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Reports whether the client sends no other request on this connection.
    pub fn is_last(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// Returns the path without the query.
    pub fn path(&self) -> &str {
        self.target().split('?').next().unwrap_or_default()
    }

    /// Returns a value of the query.
    pub fn query(&self, name: &str) -> &str {
        let query = self.target().split_once('?').map_or("", |(_, query)| query);
        let values = query.split('&').filter_map(|pair| pair.split_once('='));
        values.into_iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }
}

async fn read_line(io: &mut Io) -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = io.read_line(&mut line).await?;
    Ok((read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned()))
}

async fn read_body(io: &mut Io, request: &ReceivedRequest) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if let Some(length) = request.header("content-length").and_then(|length| length.parse().ok()) {
        io.take(length).read_to_end(&mut body).await?;
        return Ok(body);
    }
    if request.header("transfer-encoding").is_none() {
        return Ok(body);
    }
    loop {
        let size = read_line(io).await?.and_then(|size| u64::from_str_radix(&size, 16).ok());
        let size = size.ok_or(io::ErrorKind::InvalidData)?;
        io.take(size).read_to_end(&mut body).await?;
        // Line end after the chunk, or after the last chunk, which has no trailers.
        read_line(io).await?;
        if size == 0 {
            return Ok(body);
        }
    }
}

/// Sends a response with a body.
///
/// # Errors
/// The client is disconnected.
pub async fn respond(io: &mut Io, status: &str, media_type: &str, body: &str, close: bool) -> io::Result<()> {
    let close = if close { "Connection: close\r\n" } else { "" };
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n{close}\r\n{body}");
    io.write_all(answer.as_bytes()).await
}

/// Starts a stream of server-sent events.
///
/// # Errors
/// The client is disconnected.
pub async fn begin_events(io: &mut Io) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    io.write_all(head.as_bytes()).await
}

/// Sends an event.
///
/// # Errors
/// The client is disconnected.
pub async fn event(io: &mut Io, data: &str) -> io::Result<()> {
    chunk(io, &format!("data: {data}\n\n")).await
}

/// Sends an event with a name.
///
/// # Errors
/// The client is disconnected.
pub async fn named_event(io: &mut Io, name: &str, data: &str) -> io::Result<()> {
    chunk(io, &format!("event: {name}\ndata: {data}\n\n")).await
}

async fn chunk(io: &mut Io, event: &str) -> io::Result<()> {
    io.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await
}

/// Ends a stream of events.
///
/// # Errors
/// The client is disconnected.
pub async fn end_events(io: &mut Io) -> io::Result<()> {
    io.write_all(b"0\r\n\r\n").await
}

/// Waits until the client is disconnected. Received bytes of a next request stay in the buffer; while there are some, a
/// disconnect is not detected.
pub async fn disconnected(io: &mut Io) {
    if io.fill_buf().await.is_ok_and(|bytes| !bytes.is_empty()) {
        std::future::pending().await
    }
}
