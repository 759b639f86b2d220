//! Runs futures in the network namespace of the cluster, in which the addresses of Pods and Services are reachable. They
//! are not reachable from the machine outside.

use std::{fs::File, os::fd::AsFd as _, path::Path};

use anyhow::{Context as _, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::{runtime, sync::oneshot};

/// Handle of a runtime on a thread whose sockets are in the network namespace of the cluster.
#[derive(Debug)]
pub(crate) struct NetnsRuntime(runtime::Handle);

impl NetnsRuntime {
    /// Starts the thread for a cluster of `hack/cluster` with this state folder. It lasts as long as the process.
    pub(crate) async fn start(state: &Path) -> Result<Self> {
        let room = state.join("room");
        let text = tokio::fs::read_to_string(&room).await;
        let text = text.with_context(|| format!("read {}: this needs a cluster of hack/cluster", room.display()))?;
        let pid = text.split_whitespace().next().with_context(|| format!("{} is empty", room.display()))?.to_owned();
        let (sender, handle) = oneshot::channel();
        std::thread::Builder::new().name("inside".into()).spawn(move || match enter(&pid) {
            Ok(runtime) => {
                let _ = sender.send(Ok(runtime.handle().clone()));
                runtime.block_on(std::future::pending())
            }
            Err(error) => drop(sender.send(Err(error))),
        })?;
        Ok(Self(handle.await??))
    }

    /// Runs a future on that thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.0.spawn(work).await.context("work inside the cluster")?
    }
}

/// Moves this thread into the network namespace of a process. Sockets that it opens afterwards are in that namespace.
fn enter(pid: &str) -> Result<runtime::Runtime> {
    let path = format!("/proc/{pid}/ns/net");
    let network = File::open(&path).with_context(|| format!("open {path}"))?;
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
        .context("enter the cluster's network: run the tests as root")?;
    Ok(runtime::Builder::new_current_thread().enable_all().build()?)
}
