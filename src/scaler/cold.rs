//! Waits for gateways to say that a request began to wait for a workload without a ready Pod (long polling), so that this is
//! noticed long before the next round.

use std::{collections::HashMap, io, net::SocketAddr, time::Duration};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use serde::Deserialize;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{
    http1::{AskError, Reply, ask, question},
    identity::COLD,
};

/// How long a gateway that has nothing to tell is waited for.
const LONGEST: Duration = Duration::from_secs(30);
/// One that always has something to tell is not asked all the time.
const LEAST: Duration = Duration::from_millis(200);
/// Most bytes of an answer.
const ANSWER: usize = 1024;

/// How often a request began to wait for a workload without a ready Pod.
#[derive(Deserialize)]
struct Cold {
    times: u64,
}

type Poll = BoxFuture<'static, (SocketAddr, Result<Reply, AskError>)>;

/// The long polls of all gateways, one of each.
#[derive(Default)]
pub(super) struct Polls {
    /// What each gateway that is polled said last.
    known: HashMap<SocketAddr, Option<u64>>,
    under_way: FuturesUnordered<Poll>,
}

impl Polls {
    /// Polls those of these gateways that are not polled yet.
    pub(super) fn begin(&mut self, gateways: &[SocketAddr], fields: &[(&str, &str)]) {
        for address in gateways {
            if !self.known.contains_key(address) {
                self.known.insert(*address, None);
                self.poll(*address, None, Duration::ZERO, fields);
            }
        }
    }

    /// The next answer.
    pub(super) async fn next(&mut self) -> Option<(SocketAddr, Result<Reply, AskError>)> {
        self.under_way.next().await
    }

    /// Takes an answer, and polls its gateway again; whether somebody waits there since the one before. A gateway that did not answer
    /// is polled again when [`begin`](Self::begin) names it.
    pub(super) fn heard(
        &mut self,
        address: SocketAddr,
        answer: Result<Reply, AskError>,
        fields: &[(&str, &str)],
    ) -> bool {
        let read = |reply: Reply| Some((serde_json::from_slice::<Cold>(&reply.body).ok()?.times, reply.connection));
        let Some((times, connection)) = answer.ok().filter(|reply| reply.status == 200).and_then(read) else {
            self.known.remove(&address);
            return false;
        };
        let before = self.known.insert(address, Some(times)).flatten();
        self.poll(address, connection, LEAST, fields);
        before.is_some_and(|before| before != times)
    }

    fn poll(&mut self, address: SocketAddr, kept: Option<TcpStream>, pause: Duration, fields: &[(&str, &str)]) {
        let after = self.known.get(&address).copied().flatten();
        let path = after.map_or_else(|| COLD.to_owned(), |after| format!("{COLD}?after={after}"));
        let request = question(&path, fields);
        self.under_way.push(Box::pin(async move {
            sleep(pause).await;
            let answer = timeout(LONGEST, ask(address, kept, &request, ANSWER)).await;
            (address, answer.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into())))
        }));
    }
}
