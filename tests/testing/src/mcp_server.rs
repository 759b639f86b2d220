//! The reference server of MCP, as a process.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use url::Url;

use crate::peers;

/// The reference server; its end is the end of the process.
#[derive(Debug)]
pub struct ReferenceServer {
    process: Child,
    port: u16,
}

impl ReferenceServer {
    /// At `port`, or any when it is 0.
    pub fn start(port: u16) -> Self {
        let mut node = peers::node("mcp_server.cjs");
        node.env("PORT", port.to_string()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = node.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, port: line.trim().parse().unwrap() }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its endpoint.
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
