//! Helpers for the ends of connections in tests of proxies.

use std::time::Duration;

use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};

/// Longest wait of every read.
pub const SOON: Duration = Duration::from_secs(10);

/// Reads one head, byte by byte, so that no byte after it is consumed.
pub async fn read_head(io: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(timeout(SOON, io.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

/// Reads this number of bytes.
pub async fn read_exactly(io: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    timeout(SOON, io.read_exact(&mut bytes)).await.unwrap().unwrap();
    String::from_utf8(bytes).unwrap()
}
