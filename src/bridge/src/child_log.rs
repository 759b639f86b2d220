//! Log of a child: its standard error, and what of its output is no message.

use tokio::{io::AsyncReadExt, process::ChildStderr};

/// Longest line of a child's log, in bytes.
const MAX_LOG_LINE: usize = 8 << 10;

/// Logs output of a child that is not a message.
pub(super) fn log_noise(name: &str, noise: &[u8]) {
    let beginning = &noise[..noise.len().min(200)];
    tracing::warn!(child = name, "not a message: {}", String::from_utf8_lossy(beginning).trim_end());
}

/// Forwards a child's standard error to the log, line by line.
pub(super) async fn log(mut stderr: ChildStderr, name: String) {
    let mut buffer = vec![0; 4 << 10];
    let mut line = Vec::new();
    let tell = |line: &mut Vec<u8>| {
        let text = String::from_utf8_lossy(line);
        if !text.trim().is_empty() {
            tracing::info!(child = name, "{}", text.trim_end());
        }
        line.clear();
    };
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        for byte in &buffer[..count] {
            if *byte == b'\n' || line.len() == MAX_LOG_LINE {
                tell(&mut line);
            }
            if *byte != b'\n' {
                line.push(*byte);
            }
        }
    }
    tell(&mut line);
}
