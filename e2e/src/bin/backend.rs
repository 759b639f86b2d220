//! Minimal workload for the benchmarks of the proxies: it responds as fast as it can and does nothing else.
//!
//! | path | answer |
//! |---|---|
//! | `/short` | 2 bytes |
//! | `/stream` | 64 chunks of 1 KiB, each in a write of its own |
//! | `/events` | 200 events, one per millisecond |
//! | `/hold` | one event, then nothing until the client disconnects |

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

const SHORT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
const EVENT: &[u8] = b"d\r\ndata: hello\n\n\r\n";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let port = std::env::args().nth(1).unwrap_or_else(|| "9000".to_owned());
    let listener = TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
    loop {
        let (io, _) = listener.accept().await?;
        tokio::spawn(async move {
            // A client that disconnects ends its own connection only.
            let _ = serve(io).await;
        });
    }
}

async fn serve(mut io: TcpStream) -> Result<()> {
    io.set_nodelay(true)?;
    let chunk = [b"400\r\n".as_slice(), &[b'x'; 1024], b"\r\n"].concat();
    let mut buffer = Vec::with_capacity(4096);
    loop {
        buffer.clear();
        while !buffer.ends_with(b"\r\n\r\n") {
            if io.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        if buffer.starts_with(b"GET /short") {
            io.write_all(SHORT).await?;
            continue;
        }
        io.write_all(HEAD).await?;
        if buffer.starts_with(b"GET /hold") {
            io.write_all(EVENT).await?;
            io.read_u8().await?;
            return Ok(());
        }
        if buffer.starts_with(b"GET /events") {
            let mut beat = tokio::time::interval(std::time::Duration::from_millis(1));
            for _ in 0..200 {
                beat.tick().await;
                io.write_all(EVENT).await?;
            }
            io.write_all(b"0\r\n\r\n").await?;
            continue;
        }
        for _ in 0..64 {
            io.write_all(&chunk).await?;
        }
        io.write_all(b"0\r\n\r\n").await?;
    }
}
