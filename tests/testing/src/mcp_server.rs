//! Runs the reference server of MCP as a child process.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use url::Url;

use crate::peers;

/// Running reference server. The process is killed when it is dropped.
#[derive(Debug)]
pub struct ReferenceServer {
    process: Child,
    port: u16,
}

impl ReferenceServer {
    /// Starts the server on `port`, or on a free port if it is 0.
    pub fn start(port: u16) -> Self {
        let mut node = peers::node("mcp_server.cjs");
        node.env("PORT", port.to_string()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = node.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, port: line.trim().parse().unwrap() }
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns its endpoint.
    pub fn url(&self) -> Url {
        Url::parse(&format!("http://127.0.0.1:{}/mcp", self.port)).unwrap()
    }
}

impl Drop for ReferenceServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
