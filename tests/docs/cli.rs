//! `docs/cli.md`: the help of every command of the three programs, and the exit codes.

use std::{fmt::Write as _, process::Command};

use ::cli::Exit;

use super::{GENERATED, renew};

const INTRO: &str = "# Command line

What `--help` prints. `recif` is one program: the processes of a cluster (`operator`, `gateway`, `control-plane`), all of them on your machine
([`dev`](dev.md)), and the commands for people. `recif-proxy` is the sidecar and the bridge to MCP servers, `recif-runner` the runtime of agents and flows. `[env: NAME=]` is the
variable that sets the flag.

A first tour:

```sh no-run=\"an overview\"
recif dev agent.yaml tools/                     # runs what the files hold on this machine, and again when they are saved
recif get                                       # everything of Récif's: agents, flows, tools, models, prompts …
recif get agents,tools -A -o wide               # as kubectl get; table, wide, json, yaml, name; --watch follows one kind
recif why agent/my-agent                        # one sentence: what it waits for and what to do, then the details
recif why -A                                    # all that is not as it should be, in all namespaces
recif trace agent/my-agent -f                   # every step and wait: which action, why, how long
recif trace --run 4bf92f3577b34da6a3ce929d0e0e4736   # what became of a request: models, tools, tokens, errors
recif tools diff rmcp/docs                      # what an MCP server changed of its tools; then recif tools accept
recif logs agent/my-agent -f                    # what its Pods write, through rollouts and restarts
recif chat agent/my-agent \"What is 6*7?\"        # the answer as it comes; also from a pipe, or as a conversation
recif chat flow/greeter '{\"name\": \"Ada\"}'       # a flow gets its variables; a set's is flowset/NAME/FLOW
recif approvals -A                              # the calls of tools that wait for you, at all agents
recif approve agent/my-agent TASK               # shows the calls of tools that wait for you, and decides on them
recif top models -A --since 30d --sort cost     # tokens and cost; by agents, flows, models, callers, namespaces
recif ui                                        # prints the address of the web UI, until Ctrl-C
recif rollout agent/my-agent --wait             # replaces its Pods, with the images that the operator gives today
recif rotate-identity                           # another key signs who calls; no Pod is restarted
recif doctor                                    # whether it works here, or would after an install, and what to do
recif version                                   # of the program, of what is installed and of the CRDs
recif machine agent                             # its state machine, as Mermaid
source <(recif completions bash)                # also zsh and fish; completes names of objects, too
```

`chat` says at once, as `why` does, what keeps its target from being ready, and waits for it then. `chat`, `approvals`, `approve`, `ui`, `top` and `trace --run` reach gateway and control
plane through the API server, as `kubectl port-forward` does; the Role `recif-visitor` in `recif-system` gives the rights for that.
`chat --gateway URL` (`RECIF_GATEWAY`) needs none. They sign in with the token of your kubeconfig; where it has none,
`RECIF_TOKEN=$(kubectl create token NAME)` is used by `chat`, `approvals`, `approve`, `top` and `trace --run`, and `ui` has a page for it. The kubeconfig's token is never sent over a way that
others could read.

An Agent is talked to in [its protocol](agents.md#its-protocol), which `chat` reads from the object; where it cannot, `POST /chat`. Of one that
speaks plain HTTP it says the address, and ends with code 1.

In a folder in which `recif dev` runs, and in those below, every command uses that, unless `--kubeconfig`, `--context` or `KUBECONFIG` names
another cluster, and says so on stderr. It has to run at this moment, as the same user, and its folder `.recif` has to be that user's alone:
what a repository brings is not used.

## Exit codes

| code | |
|---|---|
";

/// The programs, with the names that users type.
const PROGRAMS: [(&str, &str); 3] = [
    ("recif", env!("CARGO_BIN_EXE_recif")),
    ("recif-proxy", env!("CARGO_BIN_EXE_recif-proxy")),
    ("recif-runner", env!("CARGO_BIN_EXE_recif-runner")),
];

/// Returns what a program prints with `--help` in an empty environment and without a terminal.
fn help(program: &str, command: &[&str]) -> String {
    let output = Command::new(program).args(command).arg("--help").env_clear().output().unwrap();
    assert!(output.status.success(), "{program} {command:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Returns the commands that a help text lists, but for `help`.
fn commands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names =
        lines.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?.split(' ').next());
    names.filter(|name| *name != "help").collect()
}

fn page() -> String {
    let mut page = format!("{GENERATED}{INTRO}");
    for code in Exit::ALL {
        let _ = writeln!(page, "| {} | {} |", code as u8, code.meaning());
    }
    for (name, program) in PROGRAMS {
        let whole = help(program, &[]);
        let _ = write!(page, "\n## {name}\n\n```console\n{whole}```\n");
        for command in commands(&whole) {
            let _ = write!(page, "\n### {name} {command}\n\n```console\n{}```\n", help(program, &[command]));
        }
    }
    page
}

#[test]
fn the_page_of_the_command_line_is_what_the_programs_print() {
    let page = page();
    for heading in ["### recif why\n", "### recif gateway\n", "### recif-proxy mcp-bridge\n", "### recif-runner mcp\n"]
    {
        assert!(page.contains(heading), "no {heading}");
    }
    renew("docs/cli.md", &page);
}
