//! Events, as lines for people and as JSON for programs.

use std::time::Duration;

use serde_json::{Value, json};

/// Width of the name in lines about objects.
const NAME_WIDTH: usize = 19;
/// Width of the phase.
const PHASE_WIDTH: usize = 10;

/// The kubeconfig from the user's folder.
const KUBECONFIG: &str = ".recif/kubeconfig";
/// Warning about the programs that run here.
const WARNING: &str = "programs run as you, without a container; every account of this machine can call them";

/// Something that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Everything listens.
    Start {
        /// URL of the web UI.
        ui: String,
        /// URL of the gateway.
        gateway: String,
        /// The kubeconfig.
        kubeconfig: String,
    },
    /// A warning or a piece of news.
    Note(String),
    /// Something is wrong, and the rest goes on.
    Problem(String),
    /// A Secret was made of variables.
    Made {
        /// The Secret, as `secret/openai`.
        name: String,
        /// The file.
        file: String,
        /// Its keys.
        keys: Vec<String>,
    },
    /// An object has reached a phase.
    Phase {
        /// The object, as `agent/my-agent`.
        name: String,
        /// Its namespace.
        namespace: String,
        /// Its phase.
        phase: String,
        /// Time that it took; `None` where nothing was waited for.
        after: Option<Duration>,
        /// URL, what became of it, or why it is not Ready.
        text: String,
    },
    /// All objects are Ready, or as good as they get.
    Ready {
        /// Time that it took.
        after: Duration,
        /// Objects that are not.
        except: Vec<String>,
        /// Advice for the next step.
        next: String,
    },
    /// Files were saved.
    Saved {
        /// The files.
        files: Vec<String>,
        /// Objects that are applied for it.
        changed: Vec<String>,
        /// Objects that are deleted for it.
        deleted: Vec<String>,
        /// Workloads whose programs are started anew for it.
        restarted: Vec<String>,
    },
    /// A line of a program.
    Line {
        /// Its workload with the number of the Pod, as `agent/my-agent` or `agent/my-agent#2`.
        name: String,
        /// Its namespace.
        namespace: String,
        /// Its Pod.
        pod: String,
        /// Its container.
        container: String,
        /// The line.
        text: String,
    },
    /// The first signal was received.
    Ending {
        /// Requests that are still served.
        requests: usize,
    },
    /// Everything has ended.
    Ended {
        /// Time that it took.
        after: Duration,
    },
}

impl Event {
    /// Returns the line for people, without a line break. `prefix` is the width of names before lines of programs.
    pub(crate) fn text(&self, prefix: usize) -> String {
        match self {
            Self::Start { ui, gateway, .. } => {
                format!("recif dev  ui {ui}  gateway {gateway}  export KUBECONFIG=\"$PWD/{KUBECONFIG}\"\n{WARNING}")
            }
            Self::Note(text) => format!("note: {text}"),
            Self::Problem(text) => text.clone(),
            Self::Made { name, file, keys } => format!("{name:<NAME_WIDTH$} from {file}: {}", keys.join(", ")),
            Self::Phase { name, phase, after, text, .. } => {
                let after = after.map(seconds).unwrap_or_default();
                format!("{name:<NAME_WIDTH$} {phase:<PHASE_WIDTH$} {after:<8} {text}").trim_end().to_owned()
            }
            Self::Ready { after, except, next } => {
                let except = if except.is_empty() { String::new() } else { format!(", but for {}", except.join(", ")) };
                let next = if next.is_empty() { String::new() } else { format!(": {next}") };
                format!("ready in {:.1} s{except}{next}        (Ctrl-C ends everything)", after.as_secs_f64())
            }
            Self::Saved { files, changed, deleted, restarted } => {
                let mut parts = Vec::new();
                for (names, what) in [(changed, "changed"), (deleted, "deleted"), (restarted, "starts anew")] {
                    if !names.is_empty() {
                        parts.push(format!("{} {what}", names.join(", ")));
                    }
                }
                let parts = if parts.is_empty() { "nothing changed".to_owned() } else { parts.join("; ") };
                format!("-- {} saved: {parts}", files.join(", "))
            }
            Self::Line { name, text, .. } => format!("{name:<prefix$} | {text}"),
            Self::Ending { requests: 0 } => "ending (Ctrl-C again: stop now)".to_owned(),
            Self::Ending { requests } => {
                let plural = if *requests == 1 { "" } else { "s" };
                format!("waiting for {requests} request{plural} (Ctrl-C again: stop now)")
            }
            Self::Ended { after } => format!("ended in {:.1} s", after.as_secs_f64()),
        }
    }

    /// Returns the event for programs.
    pub(crate) fn json(&self) -> Value {
        match self {
            Self::Start { ui, gateway, kubeconfig } => {
                json!({ "event": "start", "ui": ui, "gateway": gateway, "kubeconfig": kubeconfig })
            }
            Self::Note(text) => json!({ "event": "note", "text": text }),
            Self::Problem(text) => json!({ "event": "problem", "text": text }),
            Self::Made { name, file, keys } => json!({ "event": "secret", "object": name, "file": file, "keys": keys }),
            Self::Phase { name, namespace, phase, after, text } => json!({
                "event": "phase", "object": name, "namespace": namespace, "phase": phase,
                "seconds": after.map(|after| after.as_secs_f64()), "text": text,
            }),
            Self::Ready { after, except, .. } => {
                json!({ "event": "ready", "seconds": after.as_secs_f64(), "except": except })
            }
            Self::Saved { files, changed, deleted, restarted } => json!({
                "event": "saved", "files": files, "changed": changed, "deleted": deleted, "restarted": restarted,
            }),
            Self::Line { name, namespace, pod, container, text } => json!({
                "event": "line", "object": name, "namespace": namespace, "pod": pod, "container": container, "text": text,
            }),
            Self::Ending { requests } => json!({ "event": "ending", "requests": requests }),
            Self::Ended { after } => json!({ "event": "ended", "seconds": after.as_secs_f64() }),
        }
    }
}

fn seconds(after: Duration) -> String {
    format!("{:.2} s", after.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, phase: &str, millis: Option<u64>, text: &str) -> Event {
        Event::Phase {
            name: name.to_owned(),
            namespace: "default".to_owned(),
            phase: phase.to_owned(),
            after: millis.map(Duration::from_millis),
            text: text.to_owned(),
        }
    }

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn lines_say_what_happens() {
        let saved = |changed: &[&str], deleted: &[&str], restarted: &[&str]| Event::Saved {
            files: list(&["tools/weather.yaml"]),
            changed: list(changed),
            deleted: list(deleted),
            restarted: list(restarted),
        };
        let cases = [
            (
                Event::Start {
                    ui: "http://127.0.0.1:8780/ui/".to_owned(),
                    gateway: "http://127.0.0.1:8080".to_owned(),
                    kubeconfig: "/x/.recif/kubeconfig".to_owned(),
                },
                "recif dev  ui http://127.0.0.1:8780/ui/  gateway http://127.0.0.1:8080  export KUBECONFIG=\"$PWD/.recif/kubeconfig\"\nprograms run as you, without a container; every account of this machine can call them",
            ),
            (
                Event::Made {
                    name: "secret/openai".to_owned(),
                    file: ".env".to_owned(),
                    keys: list(&["OPENAI_API_KEY"]),
                },
                "secret/openai       from .env: OPENAI_API_KEY",
            ),
            (
                phase("agent/my-agent", "Running", Some(210), "http://127.0.0.1:20417"),
                "agent/my-agent      Running    0.21 s   http://127.0.0.1:20417",
            ),
            (
                phase("tool/x", "Error", None, "Tool default/x is in Error."),
                "tool/x              Error               Tool default/x is in Error.",
            ),
            (
                Event::Ready {
                    after: Duration::from_millis(340),
                    except: Vec::new(),
                    next: "recif chat agent/my-agent".to_owned(),
                },
                "ready in 0.3 s: recif chat agent/my-agent        (Ctrl-C ends everything)",
            ),
            (
                Event::Ready {
                    after: Duration::from_secs(2),
                    except: list(&["agent/a", "tool/b"]),
                    next: String::new(),
                },
                "ready in 2.0 s, but for agent/a, tool/b        (Ctrl-C ends everything)",
            ),
            (saved(&["tool/weather-api"], &[], &[]), "-- tools/weather.yaml saved: tool/weather-api changed"),
            (
                saved(&["tool/a"], &["tool/b"], &["agent/c"]),
                "-- tools/weather.yaml saved: tool/a changed; tool/b deleted; agent/c starts anew",
            ),
            (saved(&[], &[], &[]), "-- tools/weather.yaml saved: nothing changed"),
            (Event::Note("port 8080 is taken".to_owned()), "note: port 8080 is taken"),
            (Event::Ending { requests: 1 }, "waiting for 1 request (Ctrl-C again: stop now)"),
            (Event::Ending { requests: 2 }, "waiting for 2 requests (Ctrl-C again: stop now)"),
            (Event::Ended { after: Duration::from_millis(400) }, "ended in 0.4 s"),
            (
                Event::Line {
                    name: "agent/a".to_owned(),
                    namespace: "default".to_owned(),
                    pod: "a-1".to_owned(),
                    container: "agent".to_owned(),
                    text: "INFO ready".to_owned(),
                },
                "agent/a    | INFO ready",
            ),
        ];
        for (event, expected) in cases {
            assert_eq!(event.text(10), expected);
        }
    }

    #[test]
    fn programs_get_json() {
        let event = phase("agent/a", "Running", Some(250), "http://127.0.0.1:1").json();
        let expected = json!({
            "event": "phase", "object": "agent/a", "namespace": "default", "phase": "Running", "seconds": 0.25, "text": "http://127.0.0.1:1",
        });
        assert_eq!(event, expected);
        assert_eq!(phase("a", "b", None, "").json()["seconds"], Value::Null);
    }
}
