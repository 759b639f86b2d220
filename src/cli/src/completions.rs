//! `recif completions`: prints a script for the completion of commands in a shell.
//!
//! For `kubectl recif …`, kubectl runs a program `kubectl_complete-recif`, which is this one under that name.

use clap::ValueEnum;
use clap_complete::{Shell, generate};
use crds::KINDS;

use crate::{error::CliError, exit::Exit, output::print};

/// Commands whose first argument is a kind: the generator for fish does not complete those.
const KIND_COMMANDS: &str = "get why trace rollout machine";

/// Flags of `recif completions`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  source <(recif completions bash)                               # in ~/.bashrc\n  recif \
                        completions zsh > \"${fpath[1]}/_recif\"\n  recif completions fish > \
                        ~/.config/fish/completions/recif.fish"
)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: SupportedShell,
}

/// Shells for which the script is tested.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SupportedShell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script.
pub(super) fn run(args: &CompletionsArgs, root: clap::Command) -> Result<Exit, CliError> {
    print(&script(args.shell, root))?;
    Ok(Exit::Done)
}

fn script(shell: SupportedShell, mut root: clap::Command) -> String {
    let generator = match shell {
        SupportedShell::Bash => Shell::Bash,
        SupportedShell::Zsh => Shell::Zsh,
        SupportedShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(generator, &mut root, "recif", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if matches!(shell, SupportedShell::Fish) {
        let kinds: Vec<_> = KINDS.iter().map(|kind| kind.plural).collect();
        script += &format!(
            "complete -c recif -n \"__fish_seen_subcommand_from {KIND_COMMANDS}\" -f -a \"{}\"\n",
            kinds.join(" ")
        );
    }
    script
}

/// Returns the completions of the last one of `words`, one per line, in kubectl's format.
pub(super) fn for_kubectl(root: &clap::Command, words: &[String]) -> String {
    let (begun, before) = words.split_last().map_or(("", words), |(last, before)| (last.as_str(), before));
    let command = before.iter().fold(root, |command, word| command.find_subcommand(word).unwrap_or(command));
    let mut all: Vec<String> = Vec::new();
    if begun.starts_with('-') {
        let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
        all.extend(shown.filter_map(|argument| argument.get_long()).map(|long| format!("--{long}")));
    } else {
        all.extend(command.get_subcommands().map(|command| command.get_name().to_owned()));
        let values = command.get_positionals().flat_map(clap::Arg::get_possible_values);
        all.extend(values.map(|value| value.get_name().to_owned()));
    }
    let mut lines: String = all.iter().filter(|word| word.starts_with(begun)).map(|word| format!("{word}\n")).collect();
    // Directive to kubectl not to complete file names.
    lines += ":4\n";
    lines
}

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use super::*;

    #[test]
    fn every_script_knows_the_commands_and_the_kinds() {
        for shell in [SupportedShell::Bash, SupportedShell::Zsh, SupportedShell::Fish] {
            let root = crate::CliCommand::augment_subcommands(clap::Command::new("recif"));
            let script = script(shell, root);
            for word in ["rollout", "completions", "remotemcpservers", "all-namespaces"] {
                assert!(script.contains(word), "{shell:?} lacks {word}");
            }
        }
    }

    #[test]
    fn kubectl_is_told_what_could_follow() {
        let root = crate::CliCommand::augment_subcommands(clap::Command::new("recif"));
        let completions = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            for_kubectl(&root, &words)
        };
        assert_eq!(completions(&["tr"]), "trace\n:4\n");
        assert_eq!(completions(&["why", "a"]), "agents\n:4\n");
        assert_eq!(completions(&["get", "--all"]), "--all-namespaces\n:4\n");
        assert!(completions(&[""]).starts_with("get\nwhy\n") && completions(&[]).contains("chat\n"));
    }
}
