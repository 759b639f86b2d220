//! One attempt of a probe or hook: HTTP GET, TCP connect, or a program.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Container, ExecAction, HTTPGetAction, LifecycleHandler, Pod, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::pod_spec::containers;

/// Most bytes of a response that are read in search of its status.
const MAX_HEAD: usize = 8 * 1024;

/// Handler of a probe or lifecycle hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Check {
    /// GET of a path with headers; any status from 200 to 399 is a success.
    Http { port: u16, path: String, headers: Vec<(String, String)> },
    /// A connection.
    Tcp(u16),
    /// A program that ends with exit code 0.
    Exec(Vec<String>),
    /// A pause.
    Sleep(Duration),
}

/// A check failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error("no answer in {0:?}")]
    Timeout(Duration),
    #[error("connect to 127.0.0.1:{0}: {1}")]
    Connect(u16, io::Error),
    #[error("no HTTP response from 127.0.0.1:{0}")]
    NoResponse(u16),
    #[error("status {0}")]
    Status(u16),
    #[error("{0}")]
    Exec(String),
}

impl Check {
    /// Returns the check of a probe; none if its port is unknown.
    pub(crate) fn of_probe(pod: &Pod, container: &Container, probe: &Probe) -> Option<Self> {
        if let Some(get) = &probe.http_get {
            return Self::of_get(pod, container, get);
        }
        if let Some(socket) = &probe.tcp_socket {
            return port(pod, container, &socket.port).map(Self::Tcp);
        }
        if let Some(grpc) = &probe.grpc {
            return u16::try_from(grpc.port).ok().map(Self::Tcp);
        }
        probe.exec.as_ref().map(Self::of_exec)
    }

    /// Returns what a hook does; none if its port is unknown.
    pub(crate) fn of_hook(pod: &Pod, container: &Container, hook: &LifecycleHandler) -> Option<Self> {
        if let Some(get) = &hook.http_get {
            return Self::of_get(pod, container, get);
        }
        if let Some(sleep) = &hook.sleep {
            return Some(Self::Sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or_default())));
        }
        hook.exec.as_ref().map(Self::of_exec)
    }

    fn of_get(pod: &Pod, container: &Container, get: &HTTPGetAction) -> Option<Self> {
        let port = port(pod, container, &get.port)?;
        if get.scheme.as_deref() == Some("HTTPS") {
            // No certificate here is for 127.0.0.1: a connection is what can be checked.
            return Some(Self::Tcp(port));
        }
        let headers = get.http_headers.iter().flatten().map(|header| (header.name.clone(), header.value.clone()));
        let path = get.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Some(Self::Http { port, path, headers: headers.collect() })
    }

    fn of_exec(exec: &ExecAction) -> Self {
        Self::Exec(exec.command.clone().unwrap_or_default())
    }

    /// Does it once. `exec` runs a program in the surroundings of the container.
    ///
    /// # Errors
    /// [`CheckError`]: it did not succeed in time.
    pub(crate) async fn run<F: Future<Output = Result<(), String>>>(
        &self,
        limit: Duration,
        exec: impl FnOnce(Vec<String>) -> F,
    ) -> Result<(), CheckError> {
        let attempt = async {
            match self {
                Self::Http { port, path, headers } => get(*port, path, headers).await,
                Self::Tcp(port) => connect(*port).await.map(drop),
                Self::Exec(words) => exec(words.clone()).await.map_err(CheckError::Exec),
                Self::Sleep(length) => {
                    tokio::time::sleep(*length).await;
                    Ok(())
                }
            }
        };
        timeout(limit, attempt).await.unwrap_or(Err(CheckError::Timeout(limit)))
    }
}

/// Returns the number of a port that is given by number or name; a name may be another container's.
fn port(pod: &Pod, container: &Container, port: &IntOrString) -> Option<u16> {
    match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => {
            let of = |container: &Container| {
                let mut ports = container.ports.iter().flatten();
                let found = ports.find(|port| port.name.as_deref() == Some(name.as_str()))?;
                u16::try_from(found.container_port).ok()
            };
            let of_pod = || pod.spec.iter().flat_map(containers).find_map(of);
            of(container).or_else(of_pod).or_else(|| name.parse().ok())
        }
    }
}

async fn connect(port: u16) -> Result<TcpStream, CheckError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect(address).await.map_err(|error| CheckError::Connect(port, error))
}

/// Sends a GET and reads the status of the response.
async fn get(port: u16, path: &str, headers: &[(String, String)]) -> Result<(), CheckError> {
    let mut stream = connect(port).await?;
    let no_response = |_| CheckError::NoResponse(port);
    let mut head = format!("GET {path} HTTP/1.1\r\n");
    let has = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    let own = [("Host", format!("127.0.0.1:{port}")), ("User-Agent", "kube-probe/recif-dev".to_owned())];
    for (name, value) in own.iter().filter(|(name, _)| !has(name)) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let is_line = |text: &str| !text.contains(['\r', '\n']);
    for (name, value) in headers.iter().filter(|(name, value)| is_line(name) && is_line(value)) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("Connection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.map_err(no_response)?;
    let mut response = Vec::new();
    let mut buffer = [0; 1024];
    while !response.contains(&b'\n') && response.len() < MAX_HEAD {
        match stream.read(&mut buffer).await.map_err(no_response)? {
            0 => break,
            count => response.extend_from_slice(&buffer[..count]),
        }
    }
    let line = String::from_utf8_lossy(&response);
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.trim().parse().ok());
    match status {
        Some(200..=399) => Ok(()),
        Some(status) => Err(CheckError::Status(status)),
        None => Err(CheckError::NoResponse(port)),
    }
}

#[cfg(test)]
mod tests;
