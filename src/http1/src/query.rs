//! Minimal HTTP client: one GET to a Pod or a gateway, on a connection that the caller may keep for the next one.
//!
//! It is no general client on purpose: the scaler holds a connection to every Pod of the fleet, and an idle connection
//! without buffers costs a socket and nothing else.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Most header fields of a response.
const MAX_RESPONSE_FIELDS: usize = 32;
/// Longest head of a response, in bytes.
const MAX_RESPONSE_HEAD: usize = 8 * 1024;

/// Reasons for a failed query.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The server cannot be reached, or the connection broke.
    #[error("{0}")]
    Connection(#[from] io::Error),
    /// The status is not the expected one.
    #[error("it answered with status {0}")]
    Status(u16),
    /// The response cannot be parsed, or exceeds a limit.
    #[error("its answer cannot be read: {0}")]
    Unreadable(&'static str),
}

impl QueryError {
    /// Reports whether the connection was refused: nothing listens there.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Connection(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }
}

/// Response, and the connection for reuse.
#[derive(Debug)]
pub struct QueryResponse {
    /// HTTP status code.
    pub status: u16,
    /// Response body.
    pub body: Vec<u8>,
    /// Connection, if it can be reused.
    pub connection: Option<TcpStream>,
}

/// Creates a GET of this path with these fields, which are trusted and not escaped. `Host` is `localhost`, because some
/// servers answer no other name.
pub fn get_request(path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: recif\r\n");
    for &(name, value) in fields {
        text.extend([name, ": ", value, "\r\n"]);
    }
    text += "\r\n";
    text.into_bytes()
}

/// Sends one request. Opens a new connection if there is none in `kept`, or if the server has closed it meanwhile.
/// Reads at most `limit` bytes as the response body.
///
/// The caller sets the deadline: dropping the future closes the connection.
///
/// # Errors
/// See [`QueryError`].
pub async fn query(
    address: SocketAddr,
    kept: Option<TcpStream>,
    request: &[u8],
    limit: usize,
) -> Result<QueryResponse, QueryError> {
    if let Some(kept) = kept
        && let Some(answer) = send_request(kept, request, limit).await?
    {
        return Ok(answer);
    }
    let fresh = TcpStream::connect(address).await?;
    let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed before an answer came");
    Ok(send_request(fresh, request, limit).await?.ok_or_else(ended)?)
}

/// Sends the request on this connection. Returns `None` if it was closed before any byte of a response.
async fn send_request(
    mut stream: TcpStream,
    request: &[u8],
    limit: usize,
) -> Result<Option<QueryResponse>, QueryError> {
    if stream.write_all(request).await.is_err() {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(1024);
    let (status, begin, length, reusable) = loop {
        let read = match stream.read_buf(&mut bytes).await {
            Ok(read) => read,
            Err(_) if bytes.is_empty() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        match read {
            0 if bytes.is_empty() => return Ok(None),
            0 => return Err(QueryError::Unreadable("it ends within its head")),
            _ => {}
        }
        if let Some(head) = head(&bytes)? {
            break head;
        }
        if bytes.len() > MAX_RESPONSE_HEAD {
            return Err(QueryError::Unreadable("its head is too long"));
        }
    };
    if length > limit {
        return Err(QueryError::Unreadable("it is too long"));
    }
    bytes.reserve((begin + length).saturating_sub(bytes.len()));
    while bytes.len() < begin + length {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(QueryError::Unreadable("it ends too early"));
        }
    }
    // A connection with surplus bytes is not reused: they would be taken for the next response.
    let connection = (reusable && bytes.len() == begin + length).then_some(stream);
    bytes.drain(..begin);
    bytes.truncate(length);
    Ok(Some(QueryResponse { status, body: bytes, connection }))
}

/// Parses a head into status, offset and length of the body, and whether the connection stays open. Returns `None` if
/// it is incomplete.
fn head(bytes: &[u8]) -> Result<Option<(u16, usize, usize, bool)>, QueryError> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_RESPONSE_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let begin = match response.parse(bytes) {
        Ok(httparse::Status::Complete(begin)) => begin,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(QueryError::Unreadable("it is not HTTP/1.1")),
    };
    let value = |name: &str| {
        let field = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        field.and_then(|field| str::from_utf8(field.value).ok())
    };
    let length = value("content-length").and_then(|length| length.parse().ok());
    let length = length.ok_or(QueryError::Unreadable("it has no Content-Length"))?;
    let closes = value("connection").is_some_and(|words| words.to_ascii_lowercase().contains("close"));
    let status = response.code.unwrap_or_default();
    Ok(Some((status, begin, length, !closes && response.version == Some(1))))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Sends these responses on each connection in turn, each after a request and in pieces, then closes the
    /// connection.
    async fn serve(connections: Vec<Vec<Pieces>>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            for answers in connections {
                let (mut stream, _) = listener.accept().await.unwrap();
                for pieces in answers {
                    let mut buffer = [0; 1024];
                    assert!(stream.read(&mut buffer).await.unwrap() > 0);
                    for piece in pieces {
                        stream.write_all(piece.as_bytes()).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                }
            }
        });
        address
    }

    type Pieces = &'static [&'static str];

    const OK: Pieces = &["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"];

    async fn ask_once(address: SocketAddr, kept: Option<TcpStream>) -> Result<QueryResponse, QueryError> {
        query(address, kept, &get_request("/x", &[]), 100).await
    }

    #[tokio::test]
    async fn an_answer_may_come_in_pieces_and_its_connection_is_used_again() {
        let pieces: Pieces = &["HTTP/1.1 200 OK\r\nContent-", "Length: 4\r\n\r\n{", "  }"];
        let address = serve(vec![vec![pieces, OK]]).await;
        let first = ask_once(address, None).await.unwrap();
        assert_eq!(first.body, b"{  }");
        let second = ask_once(address, first.connection).await.unwrap();
        assert_eq!(second.body, b"{}");
    }

    #[tokio::test]
    async fn a_refusal_keeps_its_connection() {
        let refusal: Pieces = &["HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno"];
        let address = serve(vec![vec![refusal, OK]]).await;
        let first = ask_once(address, None).await.unwrap();
        assert_eq!((first.status, &*first.body), (503, &b"no"[..]));
        assert_eq!(ask_once(address, first.connection).await.unwrap().status, 200);
    }

    #[tokio::test]
    async fn a_kept_connection_that_was_closed_is_made_anew() {
        let address = serve(vec![vec![OK], vec![OK]]).await;
        let first = ask_once(address, None).await.unwrap();
        assert_eq!(ask_once(address, first.connection).await.unwrap().body, b"{}");
    }

    #[tokio::test]
    async fn a_connection_that_is_to_be_closed_or_holds_more_is_not_kept() {
        let closing: Pieces = &["HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\n{}"];
        let surplus: Pieces = &["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 "];
        for answer in [closing, surplus] {
            let address = serve(vec![vec![answer]]).await;
            let answer = ask_once(address, None).await.unwrap();
            assert!(answer.connection.is_none() && answer.body == b"{}");
        }
    }

    #[tokio::test]
    async fn whatever_else_is_said_is_no_answer() {
        let cases: [(Pieces, &str); 5] = [
            (&["hello\r\n\r\n"], "its answer cannot be read: it is not HTTP/1.1"),
            (&["HTTP/1.1 200 OK\r\n\r\n"], "its answer cannot be read: it has no Content-Length"),
            (&["HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n"], "its answer cannot be read: it is too long"),
            (&["HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}"], "its answer cannot be read: it ends too early"),
            (&["HTTP/1.1 200 OK\r\n"], "its answer cannot be read: it ends within its head"),
        ];
        for (answer, expected) in cases {
            let address = serve(vec![vec![answer]]).await;
            assert_eq!(ask_once(address, None).await.unwrap_err().to_string(), expected);
        }
        let nothing: Pieces = &[];
        let address = serve(vec![vec![nothing]]).await;
        assert!(ask_once(address, None).await.unwrap_err().to_string().contains("before an answer came"));
    }
}
