//! Tool that runs a program of the agent's image.
//!
//! No shell is involved: arguments reach the program unchanged. They come from the declared parameters in the order of
//! their declaration, one argument each; an array becomes several, and the text of `args` and `command` is split into
//! words like in a POSIX shell, including quotes. A tool that declares no parameter takes `args`. When
//! `allowedCommands` is not empty, the first argument must be one of them; with `allowedFlags`, every other word that
//! begins with `-` must be one of those.
//!
//! The program gets only a part of this process's environment: [`INHERITED_VARIABLES`] and the names in the Tool's
//! `allowedEnv`. The model's keys, the agent's database and the credentials of other tools are withheld.

use std::{
    collections::BTreeMap,
    process::{ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
};

use super::{bounded_buffer::BoundedBuffer, error::ToolError, headers::is_reserved, template::plain};

/// Variables that every program inherits: paths, locale and time zone, and the address of the API server, which
/// Kubernetes sets in every container.
const INHERITED_VARIABLES: &[&str] =
    &["PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];

/// Program and its restrictions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CliTool {
    /// Path, or name in `PATH`.
    pub(super) binary: String,
    /// Allowed first arguments; empty for any.
    pub(super) allowed_commands: Vec<String>,
    /// Other allowed words that begin with `-`, compared up to a `=`; any when unset.
    pub(super) allowed_flags: Option<Vec<String>>,
    /// Names of additional variables of this process's environment that it inherits.
    pub(super) allowed_env: Vec<String>,
}

impl CliTool {
    /// Reports whether the program inherits this variable. A Tool cannot request a variable of the runtime or of
    /// another tool.
    fn passes(&self, name: &str) -> bool {
        INHERITED_VARIABLES.contains(&name) || (!is_reserved(name) && self.allowed_env.iter().any(|one| one == name))
    }

    /// Runs the program to its end with the arguments in the order of `names`. Dropping the future kills it.
    ///
    /// # Errors
    /// A refused argument, a program that cannot be started, or an exit status other than 0.
    pub(super) async fn call(
        &self,
        names: &[String],
        arguments: &BTreeMap<String, Value>,
    ) -> Result<String, ToolError> {
        let failed = |error: std::io::Error| ToolError::Failed(format!("run {}: {error}", self.binary));
        let mut command = Command::new(&self.binary);
        command
            .args(self.argv(names, arguments)?)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(|name| self.passes(name))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        // Kills the program's child processes too, also when the call is dropped.
        let _group = ProcessGroup(child.id());
        let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(ToolError::Failed(format!("run {}: it has no output", self.binary)));
        };
        let answer = async {
            let out = drain(out, true).await?;
            if out.truncated() { Err(DrainError::Truncated(out)) } else { Ok(out) }
        };
        let errors = async { Ok(drain(err, false).await?) };
        let (out, err) = match tokio::try_join!(answer, errors) {
            Ok(both) => both,
            Err(DrainError::Truncated(out)) => return Ok(out.into_text()),
            Err(DrainError::Io(error)) => return Err(failed(error)),
        };
        exit_result(child.wait().await.map_err(failed)?, out.into_text(), err.into_text())
    }

    /// Builds and validates the arguments of the program.
    fn argv(&self, names: &[String], arguments: &BTreeMap<String, Value>) -> Result<Vec<String>, ToolError> {
        let mut argv = Vec::new();
        for name in names {
            match arguments.get(name) {
                None | Some(Value::Null) => {}
                Some(Value::Array(words)) => argv.extend(words.iter().map(plain)),
                Some(Value::String(text)) if holds_words(name) => argv.extend(
                    shlex::split(text)
                        .ok_or_else(|| ToolError::Arguments(format!("`{name}` has a quote that is not closed")))?,
                ),
                Some(value) => argv.push(plain(value)),
            }
        }
        if argv.iter().any(|argument| argument.contains('\0')) {
            return Err(ToolError::Arguments("an argument holds a NUL".into()));
        }
        let allowed = &self.allowed_commands;
        if !allowed.is_empty() && !argv.first().is_some_and(|first| allowed.contains(first)) {
            return Err(ToolError::Refused(format!("the first argument must be one of: {}", allowed.join(", "))));
        }
        if let Some(flags) = &self.allowed_flags {
            let is_allowed = |word: &str| flags.iter().any(|flag| flag == word.split('=').next().unwrap_or(word));
            // The first word was checked against the allowed commands, which may begin with `-` as well.
            let judged = argv.iter().skip(usize::from(!allowed.is_empty()));
            if let Some(word) = judged.filter(|word| word.starts_with('-')).find(|word| !is_allowed(word)) {
                let flags = if flags.is_empty() { "none".to_owned() } else { flags.join(", ") };
                return Err(ToolError::Refused(format!(
                    "`{word}` is not allowed; of what begins with - there is: {flags}"
                )));
            }
        }
        Ok(argv)
    }
}

/// Reports whether the argument of this name is split into words.
pub(super) fn holds_words(name: &str) -> bool {
    matches!(name, "args" | "command")
}

/// Process group of the program, killed when dropped; its id is that of the group's first process.
struct ProcessGroup(Option<u32>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Reason to stop reading before the program ends.
enum DrainError {
    /// The output exceeds the cap, and child processes may hold the other pipe open without end.
    Truncated(BoundedBuffer),
    /// A pipe failed.
    Io(std::io::Error),
}

impl From<std::io::Error> for DrainError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads to the end of the pipe. Past the cap it stops if `stops`, otherwise it reads on and discards, so that the
/// program does not block on a full pipe.
async fn drain(mut from: impl AsyncRead + Unpin, stops: bool) -> std::io::Result<BoundedBuffer> {
    let mut text = BoundedBuffer::default();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 || (!text.push(&buffer[..read]) && stops) {
            return Ok(text);
        }
    }
}

fn exit_result(status: ExitStatus, out: String, err: String) -> Result<String, ToolError> {
    if status.success() {
        return Ok(out);
    }
    let output = if err.trim().is_empty() { out } else { err };
    Err(ToolError::Failed(format!("{status}: {}", output.trim())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn argv(allowed: &[&str], arguments: Value) -> Result<Vec<String>, String> {
        let allowed_commands = allowed.iter().map(|one| (*one).into()).collect();
        let tool = CliTool { binary: "kubectl".into(), allowed_commands, allowed_flags: None, allowed_env: Vec::new() };
        let arguments = serde_json::from_value(arguments).unwrap();
        tool.argv(&["command".into(), "count".into()], &arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_are_words_and_the_first_must_be_allowed() {
        for (allowed, arguments, expected) in [
            (&[][..], json!({"command": "get 'two words' $HOME; rm"}), Ok(&["get", "two words", "$HOME;", "rm"][..])),
            (&[], json!({"command": ["a b", "*"], "count": 3}), Ok(&["a b", "*", "3"])),
            (&["get"], json!({"command": "get pods"}), Ok(&["get", "pods"])),
            (&["get"], json!({"command": "delete pods"}), Err("refused: the first argument must be one of: get")),
            (&["get"], json!({"command": "-n x get"}), Err("refused: the first argument must be one of: get")),
            (&["get"], json!({}), Err("refused: the first argument must be one of: get")),
            (&[], json!({"command": "'"}), Err("wrong arguments: `command` has a quote that is not closed")),
            (&[], json!({"command": ["a\u{0}"]}), Err("wrong arguments: an argument holds a NUL")),
        ] {
            let expected = expected.map(|words| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
            assert_eq!(argv(allowed, arguments.clone()), expected.map_err(String::from), "{arguments}");
        }
    }

    #[test]
    fn a_word_that_begins_with_a_dash_must_be_allowed_where_flags_are_listed() {
        let refused = |flags: &[&str], words: &str| {
            let tool = CliTool {
                binary: "kubectl".into(),
                allowed_commands: vec!["get".into()],
                allowed_flags: Some(flags.iter().map(|flag| (*flag).to_owned()).collect()),
                allowed_env: Vec::new(),
            };
            let arguments = BTreeMap::from([("command".to_owned(), json!(words))]);
            tool.argv(&["command".into()], &arguments).err().map(|error| error.to_string())
        };
        for words in ["get pods", "get pods -o json", "get pods --output=json"] {
            assert_eq!(refused(&["-o", "--output"], words), None, "{words}");
        }
        for (words, word) in
            [("get --raw=/x", "--raw=/x"), ("get -s https://evil", "-s"), ("get -- x", "--"), ("get -ojson", "-ojson")]
        {
            let problem = format!("refused: `{word}` is not allowed; of what begins with - there is: -o");
            assert_eq!(refused(&["-o"], words), Some(problem), "{words}");
        }
        assert!(refused(&[], "get -o json").unwrap().ends_with("there is: none"));
    }

    #[tokio::test]
    async fn what_a_program_started_ends_with_its_call() {
        let file = std::env::temp_dir().join(format!("recif-group-{}", std::process::id()));
        let tool =
            CliTool { binary: "sh".into(), allowed_commands: Vec::new(), allowed_flags: None, allowed_env: Vec::new() };
        let script = format!("(exec sleep 1000 >/dev/null 2>&1) & echo $! >{}", file.display());
        let arguments = BTreeMap::from([("args".to_owned(), json!(["-c", script]))]);
        tool.call(&["args".into()], &arguments).await.unwrap();
        let child = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        // The process is gone, or a zombie that init has not reaped yet.
        while !(state().is_empty() || state().contains(") Z ")) {
            assert!(std::time::Instant::now() < deadline, "{}", state());
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_tool_can_ask_for_variables_but_not_for_those_of_others() {
        let allowed_env = ["KUBECONFIG", "TOOL_SHOP_AUTHORIZATION", "MCP_DOCS_AUTHORIZATION", "CORAIL_DATABASE_URL"]
            .map(String::from)
            .into();
        let tool = CliTool { binary: "env".into(), allowed_commands: Vec::new(), allowed_flags: None, allowed_env };
        for (name, passes) in [
            ("PATH", true),
            ("KUBECONFIG", true),
            ("OPENAI_API_KEY", false),
            ("TOOL_SHOP_AUTHORIZATION", false),
            ("MCP_DOCS_AUTHORIZATION", false),
            ("CORAIL_DATABASE_URL", false),
        ] {
            assert_eq!(tool.passes(name), passes, "{name}");
        }
    }
}
