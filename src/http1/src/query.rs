//! Asks a Pod or a gateway about itself: one GET on a connection that is kept for the next time.
//!
//! This is no general client, on purpose: the scaler holds a connection to every Pod of the fleet, and without buffers of
//! its own between two questions one costs a socket and nothing else.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Most header fields of an answer.
const MAX_RESPONSE_FIELDS: usize = 32;
/// Longest head of an answer, in bytes.
const MAX_RESPONSE_HEAD: usize = 8 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// It cannot be reached, or the connection broke.
    #[error("{0}")]
    Connection(#[from] io::Error),
    /// It answered something else than was asked for.
    #[error("it answered with status {0}")]
    Status(u16),
    /// It answered what is no answer of ours.
    #[error("its answer cannot be read: {0}")]
    Unreadable(&'static str),
}

impl QueryError {
    /// Whether nothing listens there.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Connection(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }
}

/// An answer, and the connection it came on if that can be used again.
#[derive(Debug)]
pub struct QueryResponse {
    /// Its status code.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
    /// The connection.
    pub connection: Option<TcpStream>,
}

/// The request for this path with these fields, all of which are ours and need no escaping.
pub fn get_request(path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("GET {path} HTTP/1.1\r\nHost: recif\r\nUser-Agent: recif\r\n");
    for &(name, value) in fields {
        text.extend([name, ": ", value, "\r\n"]);
    }
    text += "\r\n";
    text.into_bytes()
}

/// Asks once. A kept connection that was closed meanwhile is made anew. At most `limit` bytes are read as the answer's body.
///
/// The deadline is the caller's: dropped, the question takes its connection with it.
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

/// `None`: the connection was closed before it answered anything.
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
    // More than was asked for: whatever comes next on this connection would be taken for another answer.
    let connection = (reusable && bytes.len() == begin + length).then_some(stream);
    bytes.drain(..begin);
    bytes.truncate(length);
    Ok(Some(QueryResponse { status, body: bytes, connection }))
}

/// Status, where the body begins, its length, and whether the connection stays open; `None`: more is to come.
fn head(bytes: &[u8]) -> Result<Option<(u16, usize, usize, bool)>, QueryError> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_RESPONSE_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let begin = match response.parse(bytes) {
        Ok(httparse::Status::Complete(begin)) => begin,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(QueryError::Unreadable("it is no HTTP/1.1")),
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

    /// Answers on each connection in turn, piece by piece, each after a request; then closes it.
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
            (&["hello\r\n\r\n"], "its answer cannot be read: it is no HTTP/1.1"),
            (&["HTTP/1.1 200 OK\r\n\r\n"], "its answer cannot be read: it has no Content-Length"),
            (&["HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n"], "its answer cannot be read: it is too long"),
            (&["HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}"], "its answer cannot be read: it ends too early"),
            (&["HTTP/1.1 200 OK\r\n"], "its answer cannot be read: it ends within its head"),
        ];
        for (answer, said) in cases {
            let address = serve(vec![vec![answer]]).await;
            assert_eq!(ask_once(address, None).await.unwrap_err().to_string(), said);
        }
        let nothing: Pieces = &[];
        let address = serve(vec![vec![nothing]]).await;
        assert!(ask_once(address, None).await.unwrap_err().to_string().contains("before an answer came"));
    }
}
