//! The session: what happens while it runs, and its end.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{self, IsTerminal as _},
    path::PathBuf,
    pin::pin,
    process::ExitCode,
    time::Duration,
};

use futures::StreamExt as _;
use kube::Client;
use rustix::process::Signal;
use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    command::{NOT_FOUND, UserCommand},
    desired::Desired,
    folder::Folder,
    kubeconfig,
    parts::PlatformParts,
    reload::FileWatcher,
    screen::{Event, Screen, ScreenWriter},
    signals::Signals,
    status::sights,
};

/// Interval at which is looked for objects that wait for too long.
const TICK: Duration = Duration::from_millis(100);
/// Time after which the screen shows that programs have not ended yet.
const SLOW: Duration = Duration::from_secs(1);
/// Longest wait for programs that were killed.
const KILL: Duration = Duration::from_secs(5);
/// Exit codes, as `recif --help` lists them.
const FAILED: u8 = 1;
const NOT_READY: u8 = 3;
const INTERRUPTED: u8 = 130;

/// A running `recif dev`.
pub(crate) struct Session {
    /// From files to objects.
    pub(crate) desired: Desired,
    /// The user's command; empty if there is none.
    pub(crate) command: Vec<OsString>,
    /// Longest time that it waits until all is Ready.
    pub(crate) timeout: Duration,
    /// URL of the gateway.
    pub(crate) gateway: String,
    /// Everything that runs.
    pub(crate) processes: Processes,
    /// Client of the API server.
    pub(crate) client: Client,
    /// The folder of this process.
    pub(crate) folder: Folder,
    /// The kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    /// The screen.
    pub(crate) screen: Screen,
    /// Its end.
    pub(crate) writer: ScreenWriter,
    /// Signals of the user.
    pub(crate) signals: Signals,
    /// Changes of files.
    pub(crate) watcher: FileWatcher,
}

/// Parts, programs and the means to end them.
pub(crate) struct Processes {
    /// The parts of the platform.
    pub(crate) parts: PlatformParts,
    /// The node, which has ended when all programs have.
    pub(crate) node: JoinHandle<()>,
    /// Ends the programs.
    pub(crate) stop: CancellationToken,
    /// Kills them.
    pub(crate) kill: CancellationToken,
}

/// End of the session.
struct End {
    /// Its exit code; 0 if that is the command's.
    code: u8,
    /// The command, which still runs.
    command: Option<UserCommand>,
}

impl Session {
    /// Runs to the end.
    pub(crate) async fn run(mut self) -> ExitCode {
        let problems = self.desired.load().await;
        self.watch_files();
        // What was saved while the first look was not yet a watch.
        self.desired.reload(&BTreeSet::new()).await;
        let end = match self.command.is_empty() || problems == 0 {
            true => self.follow().await,
            // Waiting repairs no file.
            false => End { code: NOT_READY, command: None },
        };
        self.end(end).await
    }

    /// Follows files and objects until the session is to end.
    async fn follow(&mut self) -> End {
        let mut seen = sights(&self.client);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut command: Option<UserCommand> = None;
        let deadline = Instant::now() + self.timeout;
        let has_command = !self.command.is_empty();
        loop {
            if has_command && command.is_none() && self.desired.is_ready() {
                match UserCommand::start(&self.command, &self.kubeconfig, &self.gateway) {
                    Ok(started) => command = Some(started),
                    Err(error) => {
                        let program = self.command.first().map(|word| word.to_string_lossy().into_owned());
                        self.screen.problem(format!("{}: {error}", program.unwrap_or_default()));
                        return End { code: NOT_FOUND, command: None };
                    }
                }
            }
            let waits = has_command && command.is_none();
            let ended = async {
                match &mut command {
                    Some(command) => command.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                signal = self.signals.next() => {
                    // A terminal has sent its own to the command, too: a second one would mean more.
                    let is_sent = signal == Signal::INT && io::stdin().is_terminal();
                    if let Some(command) = command.as_ref().filter(|_| !is_sent) {
                        command.signal(signal);
                    }
                    return End { code: if waits { INTERRUPTED } else { 0 }, command };
                }
                code = ended => return End { code, command: None },
                error = self.processes.parts.failed() => return self.failed(&error.to_string(), command),
                _ = &mut self.processes.node => return self.failed("the node ends", command),
                paths = self.watcher.changed() => {
                    self.desired.reload(&paths).await;
                    self.watch_files();
                }
                Some(sight) = seen.next() => self.desired.see(sight),
                _ = ticks.tick() => self.desired.tick(),
                () = sleep_until(deadline), if waits => {
                    self.desired.tell_unready();
                    return End { code: NOT_READY, command: None };
                }
            }
        }
    }

    fn failed(&self, cause: &str, command: Option<UserCommand>) -> End {
        self.screen.problem(cause);
        if let Some(command) = &command {
            command.signal(Signal::TERM);
        }
        End { code: FAILED, command }
    }

    fn watch_files(&mut self) {
        for problem in self.watcher.watch(self.desired.folders()) {
            self.screen.problem(problem);
        }
    }

    /// Ends everything: requests and programs have their time, unless there is a second signal.
    async fn end(self, end: End) -> ExitCode {
        let Self { processes, folder, screen, writer, mut signals, .. } = self;
        let Processes { parts, mut node, stop, kill } = processes;
        let End { mut code, mut command } = end;
        let began = Instant::now();
        let requests = parts.requests();
        parts.stop();
        stop.cancel();
        let mut is_shown = requests > 0;
        if is_shown {
            screen.show(&Event::Ending { requests });
        }
        let ended = {
            let mut ending = pin!(async {
                if let Some(command) = &mut command {
                    let ended = command.ended().await;
                    code = if code == 0 { ended } else { code };
                }
                // It has ended before if it is the reason for the end.
                if !node.is_finished() {
                    let _ = (&mut node).await;
                }
                parts.ended().await
            });
            loop {
                tokio::select! {
                    is_over = &mut ending => break Some(is_over),
                    _ = signals.next() => break None,
                    () = sleep_until(began + SLOW), if !is_shown => {
                        is_shown = true;
                        screen.show(&Event::Ending { requests });
                    }
                }
            }
        };
        let is_over = ended.unwrap_or_default();
        if ended.is_none() {
            kill.cancel();
            drop(command);
            if !node.is_finished() {
                let _ = timeout(KILL, &mut node).await;
            }
            code = INTERRUPTED;
        }
        folder.remove(kubeconfig::NAME);
        screen.show(&Event::Ended { after: began.elapsed() });
        writer.finish(&screen).await;
        if !is_over {
            // Threads of the gateway may still wait for requests.
            std::process::exit(code.into());
        }
        ExitCode::from(code)
    }
}
