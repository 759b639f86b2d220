//! The end of a program: whether it ended because of its port, and what is shown of it.

use std::{net::Ipv4Addr, time::Duration};

use k8s_openapi::api::core::v1::Container;
use tokio::time::sleep;

use crate::{
    context::PodContext,
    output::readable,
    ports::{PortMap, is_free},
    process::ProcessExit,
    roll_out::ALONE,
    states::{ContainerRole, Ended},
};

/// Lines of a program that are shown when it has ended.
const SHOWN_LINES: usize = 10;
/// Time in which a program that cannot listen on its port ends.
const FIRST_STEPS: Duration = Duration::from_secs(30);
/// Lines at the end of a program's output that may say why it ended.
const LAST_LINES: usize = 50;

/// Reports whether a line is the error of a program whose port another one has (`EADDRINUSE`), as runtimes and frameworks word it.
fn names_a_port_in_use(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    line.contains("in use") || line.contains("eaddrinuse")
}

/// Finds out whether a program ended because of its port: one that another program took meanwhile, or one that it listens on in
/// spite of PORT, and that its predecessor still has.
pub(crate) async fn judge(cx: &PodContext, index: usize, container: &Container, ended: &Ended) {
    let ran = ended.finished.duration_since(ended.started).unsigned_abs();
    if ended.exit.code == 0 || ran > FIRST_STEPS {
        return;
    }
    let ports = PortMap::of(cx.pod.metadata.annotations.as_ref());
    for port in container.ports.iter().flatten().filter_map(|port| u16::try_from(port.container_port).ok()) {
        if is_taken(port).await {
            if cx.node.may_lose_port(&cx.pod) {
                cx.state.send_modify(|state| state.lost_port = Some(port));
            }
            return;
        }
        let declared = ports.0.iter().find(|(declared, own)| **own == port && *declared != *own);
        let Some((declared, _)) = declared else { continue };
        let is_ours = cx.node.config.programs.is_ours(container);
        let lost = !is_ours && cx.role(index) == ContainerRole::Main && cx.node.predecessor_has(&cx.pod, *declared);
        // A program that ends for another reason, such as a mistake in new code, must not end the Pod that works.
        if lost && cx.log(&container.name).last(LAST_LINES).iter().any(|line| names_a_port_in_use(&line.text)) {
            let text = format!(
                "listens on port {declared} whatever PORT says, so it cannot start beside its predecessor: it starts after it"
            );
            cx.node.tell_once(&cx.source_of(&container.name), &text);
            cx.node.annotate_deployment(&cx.pod, ALONE).await;
        }
    }
}

/// Reports whether another program has a port. One that has just been killed may have it for a moment.
async fn is_taken(port: u16) -> bool {
    for _ in 0..10 {
        if is_free(Ipv4Addr::LOCALHOST, port) {
            return false;
        }
        sleep(Duration::from_millis(20)).await;
    }
    true
}

/// Shows that a program has ended, with its last lines.
pub(crate) fn tell_end(cx: &PodContext, container: &Container, exit: ProcessExit, times: u32, pause: Duration) {
    let how = match (exit.signal, exit.code) {
        (Some(signal), _) => format!("ended by signal {signal}"),
        (None, code) => format!("ended with exit code {code}"),
    };
    let nth = match times {
        1 => String::new(),
        2 => ", 2nd time".to_owned(),
        3 => ", 3rd time".to_owned(),
        times => format!(", {times}th time"),
    };
    let lines: Vec<String> =
        cx.log(&container.name).last(SHOWN_LINES).iter().map(|line| format!("\n  {}", readable(&line.text))).collect();
    let its_last = if lines.is_empty() { "" } else { "; its last lines:" };
    let text = format!("{how}{nth}, again in {} s{its_last}{}", pause.as_secs_f64(), lines.concat());
    cx.note(&container.name, &text);
}
