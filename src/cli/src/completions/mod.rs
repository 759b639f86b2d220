//! `recif completions`: prints a script with which a shell completes commands.
//!
//! The scripts ask the program, called as `recif __complete WORDS…`, what may follow the words typed so far; so names of
//! objects are completed, too. The answer has the format of [cobra](https://github.com/spf13/cobra), which kubectl reads as
//! well: for `kubectl recif …` it runs a program `kubectl_complete-recif`, which is this one under that name.

mod candidates;
mod words;

use clap::ValueEnum;

use self::{candidates::candidates, words::Completion};
use crate::{error::CliError, exit::Exit, output::print};

/// Bit of the directive: no blank after the word.
const NO_SPACE: u8 = 2;
/// Bit of the directive: no names of files.
const NO_FILES: u8 = 4;

/// Flags of `recif completions`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "It completes the names of your cluster's objects, too.\n\nExamples:\n  source <(recif completions bash)   \
                        # in ~/.bashrc\n  recif completions zsh > \"${fpath[1]}/_recif\"\n  recif completions fish > \
                        ~/.config/fish/completions/recif.fish\n  ln -s recif kubectl_complete-recif # for kubectl recif"
)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: SupportedShell,
}

/// Shells for which there is a script.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SupportedShell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script.
pub(super) fn run(args: &CompletionsArgs) -> Result<Exit, CliError> {
    print(match args.shell {
        SupportedShell::Bash => include_str!("recif.bash"),
        SupportedShell::Zsh => include_str!("recif.zsh"),
        SupportedShell::Fish => include_str!("recif.fish"),
    })?;
    Ok(Exit::Done)
}

/// Returns the completions of the last one of `words`: one per line, with its description after a tab, and at the end the
/// directive to the shell.
pub(super) async fn complete(root: &clap::Command, words: &[String]) -> String {
    let mut root = root.clone();
    root.build();
    let completion = Completion::of(&root, words);
    let mut lines = String::new();
    for (word, description) in candidates(&completion).await {
        if word.starts_with(&completion.begun) && is_plain(&word) {
            let description = description.replace(char::is_control, " ");
            let tab = if description.is_empty() { "" } else { "\t" };
            lines += &format!("{}{word}{tab}{description}\n", completion.prefix);
        }
    }
    let directive = if completion.is_file() {
        0
    } else if completion.continues() {
        NO_SPACE | NO_FILES
    } else {
        NO_FILES
    };
    lines + &format!(":{directive}\n")
}

/// Reports whether a shell takes the word as it is: bash puts a candidate on the command line unquoted, and what the cluster
/// says of its objects is not to be a command there.
fn is_plain(word: &str) -> bool {
    word.chars().all(|character| character.is_ascii_alphanumeric() || "._/,=-".contains(character))
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn only_words_that_no_shell_expands_are_candidates() {
        for word in ["agent/my-agent", "get", "agents,tools", "--all-namespaces", "-o=json", "flowset/desk/haiku"] {
            assert!(is_plain(word), "{word}");
        }
        for word in ["$(id)", "a b", "a\nb", "`id`", "a;b", "é", "a'", "~"] {
            assert!(!is_plain(word), "{word}");
        }
    }
}
