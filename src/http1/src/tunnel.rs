//! Tunnel after an upgrade: copies bytes in both directions until both sides have ended.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Sleep},
};

use super::{
    connection::{Connection, ReadOutcome, with_scratch},
    timer::poll_due,
};

/// Copies bytes in both directions until both sides have ended, or both were silent for `idle`.
///
/// # Errors
/// A connection broke, or both were silent for too long: both must be aborted.
pub async fn tunnel<C, U>(
    client: &mut Connection<C>,
    upstream: &mut Connection<U>,
    idle: Duration,
    mut timer: Pin<&mut Sleep>,
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    // Bytes that arrived after the request head belong to the new protocol.
    upstream.outgoing.append(&mut client.incoming);
    let (mut up, mut down) = (Direction::Open, Direction::Open);
    let mut active = Instant::now();
    poll_fn(|cx| {
        loop {
            let moved = with_scratch(|scratch| {
                let up = poll_direction(cx, client, upstream, &mut up, &mut scratch.bytes);
                let down = poll_direction(cx, upstream, client, &mut down, &mut scratch.bytes);
                match (up, down) {
                    (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => Err(error),
                    (Poll::Pending, Poll::Pending) => Ok(false),
                    _ => Ok(true),
                }
            })?;
            if matches!((&up, &down), (Direction::Closed, Direction::Closed)) {
                return Poll::Ready(Ok(()));
            }
            if !moved {
                break;
            }
            active = Instant::now();
        }
        ready!(poll_due(timer.as_mut(), active + idle, cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    })
    .await
}

/// State of one direction.
enum Direction {
    Open,
    /// The sender has ended; the receiver's stream is still to be shut down.
    Ending,
    Closed,
}

fn poll_direction<A, B>(
    cx: &mut Context<'_>,
    from: &mut Connection<A>,
    to: &mut Connection<B>,
    way: &mut Direction,
    scratch: &mut [u8],
) -> Poll<io::Result<()>>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    if !to.outgoing.is_empty() {
        ready!(to.poll_flush(cx))?;
        return Poll::Ready(Ok(()));
    }
    match way {
        Direction::Closed => Poll::Pending,
        Direction::Ending => {
            ready!(Pin::new(&mut to.io).poll_shutdown(cx))?;
            *way = Direction::Closed;
            Poll::Ready(Ok(()))
        }
        Direction::Open => match ready!(from.poll_read(cx, scratch))? {
            ReadOutcome::Bytes(length) => Poll::Ready(to.poll_send(cx, &[], &scratch[..length])),
            ReadOutcome::End => {
                *way = Direction::Ending;
                Poll::Ready(Ok(()))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
        time::sleep,
    };

    use super::*;

    #[tokio::test]
    async fn each_side_may_end_before_the_other() {
        let ((mut a, client), (mut b, upstream)) = (duplex(64), duplex(64));
        let under_way = tokio::spawn(async move {
            let (mut client, mut upstream) = (Connection::new(client), Connection::new(upstream));
            client.incoming = b"early ".to_vec();
            let timer = std::pin::pin!(sleep(Duration::from_secs(60)));
            tunnel(&mut client, &mut upstream, Duration::from_secs(60), timer).await
        });
        a.write_all(b"up").await.unwrap();
        a.shutdown().await.unwrap();
        let mut got = String::new();
        b.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "early up");
        b.write_all(b"down").await.unwrap();
        drop(b);
        let mut got = String::new();
        a.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "down");
        under_way.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn silence_in_both_directions_ends_it() {
        let ((_a, client), (_b, upstream)) = (duplex(64), duplex(64));
        let (mut client, mut upstream) = (Connection::new(client), Connection::new(upstream));
        let timer = std::pin::pin!(sleep(Duration::from_secs(3600)));
        let end = tunnel(&mut client, &mut upstream, Duration::from_secs(60), timer).await;
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
