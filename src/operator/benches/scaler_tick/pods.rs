//! Pods in one process, with an address each, which determines how a Pod behaves.

use std::{
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr},
    time::Instant,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Number of workloads per group, of groups, and of Pods per workload.
pub(crate) const WORKLOADS: u8 = 250;
pub(crate) const GROUPS: u8 = 4;
pub(crate) const PODS: u8 = 10;

/// Returns the address of a Pod; its workload is one of 4 × 250.
pub(crate) fn address(group: u8, workload: u8, pod: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 100 + group, workload + 1, pod + 1)
}

/// Reports whether the Pod's workload has traffic: one of ten does.
fn is_busy(ip: Ipv4Addr) -> bool {
    ip.octets()[2] % 10 == 1
}

/// Reports whether the Pod never answers: one Pod in each tenth workload, which is one of a hundred.
fn is_silent(ip: Ipv4Addr) -> bool {
    ip.octets()[2] % 10 == 5 && ip.octets()[3] == 1
}

/// Serves until it is killed; prints the port on one line.
pub(crate) fn serve() -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        let mut out = io::stdout().lock();
        writeln!(out, "{}", listener.local_addr()?.port())?;
        out.flush()?;
        let begun = Instant::now();
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(answer(stream, begun));
        }
    })
}

async fn answer(mut stream: TcpStream, begun: Instant) -> io::Result<()> {
    let IpAddr::V4(ip) = stream.local_addr()?.ip() else { return Ok(()) };
    let load = u64::from(is_busy(ip));
    let mut request = [0; 512];
    while stream.read(&mut request).await? > 0 {
        if is_silent(ip) {
            continue;
        }
        let uptime = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        // As long as the body of a sidecar.
        let body = format!(
            "{{\"instance\":\"0123456789abcdef\",\"uptimeMs\":{uptime},\"inflight\":{load},\"streams\":0,\"concurrency\":8,\
             \"busyMs\":{},\"completed\":{},\"refused\":0,\"peaks\":[1,1,1,1,1,1,1,1,1,1],\"lastActivity\":12}}",
            uptime * load,
            uptime * load / 100
        );
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await?;
    }
    Ok(())
}
