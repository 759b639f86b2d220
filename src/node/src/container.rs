//! The life of one container: it waits for those before it, starts, is probed, ends, and is restarted after a back-off.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::{
    back_off::BackOff,
    check::{Check, CheckError},
    context::{GRACE, PodContext, grace_period},
    events::Severity,
    output::readable,
    ports::{PortMap, is_free},
    prepare::{Prepared, StartFailure},
    probes,
    process::{Lines, Process, ProcessExit},
    roll_out::ALONE,
    states::{ContainerRecord, ContainerRole, Ended, State},
};

/// Lines of a program that are shown when it has ended.
const SHOWN_LINES: usize = 10;
/// Time in which a program that cannot listen on its port ends.
const FIRST_STEPS: Duration = Duration::from_secs(30);
/// Time that the other containers of a Pod get to end that has lost a port.
const LOST_GRACE: Duration = Duration::from_secs(5);

/// Runs a container until its Pod ends, or, for an init container, until it has done its work.
pub(crate) async fn run(cx: Arc<PodContext>, index: usize) {
    let container = cx.container(index);
    let mut state = cx.state.subscribe();
    let is_next = state.wait_for(|state| state.containers.iter().take(index).all(ContainerRecord::is_passed));
    tokio::select! {
        // Fails only if the Pod is gone.
        _ = is_next => {}
        () = cx.ending() => return,
    }
    let mut back_off = BackOff::default();
    let mut reported = None;
    let mut data = cx.node.data_changed.subscribe();
    while !cx.is_ending() {
        data.mark_unchanged();
        let started = Prepared::of(&cx, &container).await.and_then(|prepared| start(&cx, &container, prepared));
        let (prepared, process) = match started {
            Ok(started) => started,
            Err(problem) => {
                wait_for_repair(&cx, index, &container, &problem, &mut reported);
                tokio::select! {
                    () = sleep(back_off.of_problem()) => {}
                    _ = data.changed() => {}
                    () = cx.ending() => return,
                }
                continue;
            }
        };
        reported = None;
        let begin = Instant::now();
        let ended = supervise(&cx, index, &container, &prepared, process).await;
        if cx.role(index) == ContainerRole::Init && ended.exit.code == 0 || cx.is_ending() {
            return;
        }
        let (pause, times) = back_off.after(begin.elapsed());
        judge(&cx, index, &container, &ended).await;
        if cx.is_ending() {
            return;
        }
        tell_end(&cx, &container, ended.exit, times, pause);
        if times > 1 {
            let pod = &cx.source.pod;
            let message = format!("back-off {pause:?} restarting failed container={} pod={pod}", container.name);
            let event = format!("Back-off restarting failed container {} in pod {pod}", container.name);
            cx.record(index, Severity::Warning, "BackOff", event);
            cx.log(&container.name).wait("CrashLoopBackOff");
            cx.change(index, |record| {
                record.last = Some(ended.clone());
                record.state = State::Waiting("CrashLoopBackOff".to_owned(), message);
            });
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = cx.ending() => return,
        }
        cx.change(index, |record| {
            record.last = Some(ended);
            record.restarts += 1;
        });
    }
}

/// Starts the process; a container without one has ended at once.
fn start(
    cx: &PodContext,
    container: &Container,
    prepared: Prepared,
) -> Result<(Prepared, Option<Process>), StartFailure> {
    let log = cx.log(&container.name);
    let (source, output) = (cx.source_of(&container.name), cx.node.output.clone());
    let sink = log.clone();
    let lines: Lines = Arc::new(move |line| {
        sink.push(line);
        output.line(&source, line);
    });
    let mut process = prepared.start(cx)?;
    // An attempt that could not start leaves the log of the instance before it.
    log.begin();
    if let Some(process) = &mut process {
        process.read(&lines);
    }
    Ok((prepared, process))
}

/// Writes why a container cannot start, and shows it once.
fn wait_for_repair(
    cx: &PodContext,
    index: usize,
    container: &Container,
    problem: &StartFailure,
    reported: &mut Option<StartFailure>,
) {
    cx.log(&container.name).wait(problem.reason);
    cx.change(index, |record| record.state = State::Waiting(problem.reason.to_owned(), problem.message.clone()));
    if reported.as_ref() != Some(problem) {
        cx.note(&container.name, &problem.advice);
        cx.record(index, Severity::Warning, "Failed", format!("Error: {}", problem.message));
        *reported = Some(problem.clone());
    }
}

/// Follows a process until it has ended, and ends it if its probes or its Pod say so.
async fn supervise(
    cx: &PodContext,
    index: usize,
    container: &Container,
    prepared: &Prepared,
    process: Option<Process>,
) -> Ended {
    let started = Timestamp::now();
    cx.change(index, |record| record.state = State::Running(started));
    cx.record(index, Severity::Normal, "Started", format!("Started container {}", container.name));
    let exit = match process {
        None => ProcessExit { code: 0, signal: None },
        Some(mut process) => {
            let reason = tokio::select! {
                biased;
                exit = process.wait() => Err(exit),
                () = cx.ending() => Ok(None),
                why = live(cx, index, container, prepared) => Ok(Some(why)),
            };
            match reason {
                Err(exit) => exit,
                Ok(why) => {
                    let grace = cx.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
                    let grace = grace_period(grace.unwrap_or(GRACE));
                    let has_lost_port = cx.state.borrow().lost_port.is_some();
                    let grace = if has_lost_port { LOST_GRACE } else { grace };
                    let limit = (why.is_some() || has_lost_port).then(|| Instant::now() + grace);
                    let mut event = format!("Stopping container {}", container.name);
                    if let Some(why) = why {
                        cx.note(&container.name, &format!("{why}; it is restarted"));
                        event.push_str(&format!(", which {why}"));
                    }
                    cx.record(index, Severity::Normal, "Killing", event);
                    stop(cx, index, container, prepared, process, limit).await
                }
            }
        }
    };
    cx.log(&container.name).end();
    let ended = Ended { exit, started, finished: Timestamp::now() };
    cx.change(index, |record| {
        record.state = State::Ended(ended.clone());
        record.is_started = false;
        record.is_ready = false;
    });
    ended
}

/// Follows a running container by its hook and its probes, until one of them says that it has to be restarted. Returns why.
async fn live(cx: &PodContext, index: usize, container: &Container, prepared: &Prepared) -> String {
    let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref());
    match run_hook(cx, container, prepared, hook).await {
        Ok(()) => probes::watch(cx, index, container, prepared).await,
        Err(error) => {
            cx.record(index, Severity::Warning, "FailedPostStartHook", format!("PostStartHook failed: {error}"));
            format!("has a postStart hook that failed: {error}")
        }
    }
}

/// Ends a process gracefully: its hook, SIGTERM to its group, and SIGKILL when the time is over.
async fn stop(
    cx: &PodContext,
    index: usize,
    container: &Container,
    prepared: &Prepared,
    mut process: Process,
    limit: Option<Instant>,
) -> ProcessExit {
    let before = async {
        pre_stop(cx, index, container, prepared).await;
        cx.may_end(index).await;
    };
    tokio::select! {
        biased;
        exit = process.wait() => return exit,
        () = cx.force(limit) => {
            process.signal(Signal::KILL);
            return process.wait().await;
        }
        () = before => process.signal(Signal::TERM),
    }
    let ended = tokio::select! {
        exit = process.wait() => Some(exit),
        () = cx.force(limit) => None,
    };
    match ended {
        Some(exit) => exit,
        None => {
            process.signal(Signal::KILL);
            process.wait().await
        }
    }
}

/// Runs the hook before the end of a container; a hook that fails does not keep it from ending.
async fn pre_stop(cx: &PodContext, index: usize, container: &Container, prepared: &Prepared) {
    let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    if let Err(error) = run_hook(cx, container, prepared, hook).await {
        cx.record(index, Severity::Warning, "FailedPreStopHook", format!("PreStopHook failed: {error}"));
    }
}

/// Runs a hook, if there is one. It may take any time.
async fn run_hook(
    cx: &PodContext,
    container: &Container,
    prepared: &Prepared,
    hook: Option<&LifecycleHandler>,
) -> Result<(), CheckError> {
    let Some(check) = hook.and_then(|hook| Check::of_hook(&cx.pod, container, hook)) else { return Ok(()) };
    check.run(Duration::MAX, |words| prepared.exec(cx, words)).await
}

/// Lines at the end of a program's output that may say why it ended.
const LAST_LINES: usize = 50;

/// Reports whether a line is the error of a program whose port another one has (`EADDRINUSE`), as runtimes and frameworks word it.
fn names_a_port_in_use(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    line.contains("in use") || line.contains("eaddrinuse")
}

/// Finds out whether a program ended because of its port: one that another program took meanwhile, or one that it listens on in
/// spite of PORT, and that its predecessor still has.
async fn judge(cx: &PodContext, index: usize, container: &Container, ended: &Ended) {
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
fn tell_end(cx: &PodContext, container: &Container, exit: ProcessExit, times: u32, pause: Duration) {
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
