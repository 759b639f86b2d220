//! Decides what may follow the words of a command line. Nothing is read from a cluster here.

use clap::{Arg, Command};
use crds::{ApiKind, KINDS, Role, tool::ServerRef};

use crate::cluster::ConnectOptions;

/// Completion of the last word.
#[derive(Debug)]
pub(super) struct Completion {
    /// Part of the word that stays, such as `agent/` or `--output=`.
    pub(super) prefix: String,
    /// Part that was typed after it.
    pub(super) begun: String,
    /// Source of the candidates.
    pub(super) source: Source,
    /// Cluster and namespace that the words before name.
    pub(super) connection: ConnectOptions,
}

/// Source of candidates.
#[derive(Debug)]
pub(super) enum Source {
    /// There are none.
    Nothing,
    /// Files, which the shell knows.
    Files,
    /// Words and their descriptions.
    Words(Vec<(String, String)>),
    /// Plurals of kinds.
    Kinds(Vec<&'static ApiKind>),
    /// Kinds before a `/` and a name.
    KindPrefixes(Vec<&'static ApiKind>),
    /// Names of the objects of a kind.
    Names(&'static ApiKind),
    /// Names of FlowSets before a `/` and the name of a flow.
    FlowSetPrefixes(&'static ApiKind),
    /// Names of the flows of a FlowSet.
    Flows(&'static ApiKind, String),
    /// Names of namespaces.
    Namespaces,
}

impl Completion {
    /// Reads the words after the program's name, the last of which is completed. `root` has to be built.
    pub(super) fn of(root: &Command, words: &[String]) -> Self {
        let (last, before) = words.split_last().map_or(("", words), |(last, before)| (last.as_str(), before));
        let mut connection = ConnectOptions::default();
        let mut command = root;
        let mut positionals: Vec<&str> = Vec::new();
        let mut wanted: Option<&Arg> = None;
        // Bash makes a word of its own of the `=` in --output=json.
        for word in before.iter().map(String::as_str).filter(|word| *word != "=") {
            if let Some(option) = wanted.take() {
                note(&mut connection, option, word);
            } else if let Some(flag) = word.strip_prefix("--") {
                let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
                match (long(command, name), value) {
                    (Some(option), Some(value)) => note(&mut connection, option, value),
                    (option, None) => wanted = option,
                    (None, Some(_)) => {}
                }
            } else if let Some(flags) = word.strip_prefix('-').filter(|flags| !flags.is_empty()) {
                wanted = short(command, flags, &mut connection);
            } else if let Some(found) = command.find_subcommand(word).filter(|_| positionals.is_empty()) {
                command = found;
            } else {
                positionals.push(word);
            }
        }
        let (prefix, begun, source) = match wanted {
            Some(option) => (String::new(), last.strip_prefix('=').unwrap_or(last), values(option)),
            None if last.starts_with('-') => flag(command, last),
            None => positional(command, &positionals, last),
        };
        Self { prefix, begun: begun.to_owned(), source, connection }
    }

    /// Reports whether the shell completes names of files.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.source, Source::Files)
    }

    /// Reports whether the word continues after a candidate.
    pub(super) fn continues(&self) -> bool {
        matches!(self.source, Source::KindPrefixes(_) | Source::FlowSetPrefixes(_))
    }
}

/// Returns the option of that name if its value is a word of its own.
fn long<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|option| option.get_long() == Some(name) && takes_word(option))
}

/// Reads short flags that stand together, and returns the option whose value is the next word.
fn short<'a>(command: &'a Command, flags: &str, connection: &mut ConnectOptions) -> Option<&'a Arg> {
    for (at, letter) in flags.char_indices() {
        let option = command.get_arguments().find(|option| option.get_short() == Some(letter) && takes_word(option));
        let Some(option) = option else { continue };
        let value = flags.get(at + letter.len_utf8()..).unwrap_or_default();
        if value.is_empty() {
            return Some(option);
        }
        note(connection, option, value.strip_prefix('=').unwrap_or(value));
        return None;
    }
    None
}

fn takes_word(option: &Arg) -> bool {
    option.get_action().takes_values() && option.get_num_args().is_none_or(|count| count.min_values() > 0)
}

fn note(connection: &mut ConnectOptions, option: &Arg, value: &str) {
    match option.get_id().as_str() {
        "namespace" => connection.namespace = Some(value.to_owned()),
        "context" => connection.context = Some(value.to_owned()),
        "kubeconfig" => connection.kubeconfig = Some(value.into()),
        _ => {}
    }
}

/// Returns the values of an option.
fn values(option: &Arg) -> Source {
    let known: Vec<_> = option.get_possible_values().iter().map(described).collect();
    if !known.is_empty() {
        return Source::Words(known);
    }
    match value_name(option) {
        "NAMESPACE" => Source::Namespaces,
        "FILE" | "DIR" => Source::Files,
        _ => Source::Nothing,
    }
}

fn described(value: &clap::builder::PossibleValue) -> (String, String) {
    (value.get_name().to_owned(), value.get_help().map(ToString::to_string).unwrap_or_default())
}

fn value_name(argument: &Arg) -> &str {
    argument.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str())
}

fn flag<'a>(command: &Command, last: &'a str) -> (String, &'a str, Source) {
    if let Some((name, value)) = last.split_once('=') {
        let source = long(command, name.trim_start_matches('-')).map_or(Source::Nothing, values);
        return (format!("{name}="), value, source);
    }
    let shown = command.get_arguments().filter(|flag| !flag.is_hide_set());
    let flags = shown.filter_map(|flag| {
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        Some((format!("--{}", flag.get_long()?), help.lines().next().unwrap_or_default().to_owned()))
    });
    (String::new(), last, Source::Words(flags.collect()))
}

fn positional<'a>(command: &Command, before: &[&str], last: &'a str) -> (String, &'a str, Source) {
    let whole = |source| (String::new(), last, source);
    let names_object = command.get_positionals().next().is_some() && last.contains('/');
    if command.has_subcommands() && !names_object {
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let about = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
        return whole(Source::Words(shown.map(|command| (command.get_name().to_owned(), about(command))).collect()));
    }
    let Some(argument) = command.get_positionals().next() else { return whole(Source::Nothing) };
    let several = argument.get_num_args().is_some_and(|count| count.max_values() > 2);
    // These are of what has Pods, and of servers of tools.
    let of_workloads = matches!(command.get_name(), "logs" | "rollout");
    let of_servers = matches!(command.get_name(), "tools" | "diff" | "accept");
    let fits = |kind: &&ApiKind| {
        (!of_workloads || kind.role == Role::Workload) && (!of_servers || ServerRef::KINDS.contains(&kind.name))
    };
    let kinds = || KINDS.iter().filter(fits).collect();
    match value_name(argument) {
        "KIND" if before.is_empty() => whole(Source::Kinds(kinds())),
        "TARGET" if before.is_empty() => chat_target(last),
        "OBJECT" => match (last.split_once('/'), before) {
            (Some((kind, name)), _) if before.is_empty() || several => {
                (format!("{kind}/"), name, ApiKind::find(kind).map_or(Source::Nothing, Source::Names))
            }
            (None, []) if several => match last.rsplit_once(',') {
                Some((kinds_before, begun)) => (format!("{kinds_before},"), begun, Source::Kinds(kinds())),
                None => whole(Source::Kinds(kinds())),
            },
            (None, []) if of_servers => whole(Source::KindPrefixes(kinds())),
            (None, []) => whole(Source::Kinds(kinds())),
            (None, [first, ..]) if first.contains('/') && several => whole(Source::KindPrefixes(kinds())),
            (None, [first, rest @ ..]) if rest.is_empty() || several => {
                whole(ApiKind::find(first).map_or(Source::Nothing, Source::Names))
            }
            _ => whole(Source::Nothing),
        },
        _ if before.is_empty() => whole(values(argument)),
        _ => whole(Source::Nothing),
    }
}

/// Completes agent/NAME, flow/NAME or flowset/NAME/FLOW.
fn chat_target(last: &str) -> (String, &str, Source) {
    let Some((word, rest)) = last.split_once('/') else {
        let kinds = KINDS.iter().filter(|kind| matches!(kind.name, "Agent" | "Flow" | "FlowSet"));
        return (String::new(), last, Source::KindPrefixes(kinds.collect()));
    };
    match (ApiKind::find(word), rest.split_once('/')) {
        (Some(kind), Some((name, flow))) if kind.name == "FlowSet" => {
            (format!("{word}/{name}/"), flow, Source::Flows(kind, name.to_owned()))
        }
        (Some(kind), None) if kind.name == "FlowSet" => (format!("{word}/"), rest, Source::FlowSetPrefixes(kind)),
        (Some(kind), None) if matches!(kind.name, "Agent" | "Flow") => (format!("{word}/"), rest, Source::Names(kind)),
        _ => (String::new(), last, Source::Nothing),
    }
}

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use super::*;

    fn completion(words: &[&str]) -> Completion {
        let mut root = crate::CliCommand::augment_subcommands(Command::new("recif"));
        root.build();
        Completion::of(&root, &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    /// Returns the source in a few words, and the two parts of the word.
    fn planned(words: &[&str]) -> String {
        let completion = completion(words);
        let source = match &completion.source {
            Source::Nothing => "nothing".into(),
            Source::Files => "files".into(),
            Source::Words(words) => words.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>().join(" "),
            Source::Kinds(kinds) => format!("{} kinds", kinds.len()),
            Source::KindPrefixes(kinds) => format!("{} kinds before /", kinds.len()),
            Source::Names(kind) => format!("names of {}", kind.plural),
            Source::FlowSetPrefixes(_) => "sets".into(),
            Source::Flows(_, set) => format!("flows of {set}"),
            Source::Namespaces => "namespaces".into(),
        };
        format!("{}|{}|{source}", completion.prefix, completion.begun)
    }

    #[test]
    fn words_before_decide_what_may_follow() {
        for (words, expected) in [
            (&["why", ""][..], "||9 kinds"),
            (&["get", "agents,t"], "agents,|t|9 kinds"),
            (&["why", "agent/my"], "agent/|my|names of agents"),
            (&["why", "ag", "my"], "|my|names of agents"),
            (&["why", "ag", "one", ""], "||names of agents"),
            (&["why", "agent/one", "t"], "|t|9 kinds before /"),
            (&["trace", "agent/one", ""], "||nothing"),
            (&["trace", "ag", "one", ""], "||nothing"),
            (&["why", "pods", ""], "||nothing"),
            (&["logs", ""], "||4 kinds"),
            (&["tools", "rmcp/do"], "rmcp/|do|names of remotemcpservers"),
            (&["tools", "diff", ""], "||2 kinds before /"),
            (&["tools", "accept", "mcp/"], "mcp/||names of mcpservers"),
            (&["machine", "a"], "|a|9 kinds"),
            (&["machine", "agent", ""], "||nothing"),
            (&["chat", ""], "||3 kinds before /"),
            (&["chat", "agent/"], "agent/||names of agents"),
            (&["chat", "flowset/de"], "flowset/|de|sets"),
            (&["chat", "flowset/desk/ha"], "flowset/desk/|ha|flows of desk"),
            (&["chat", "tool/"], "|tool/|nothing"),
            (&["completions", ""], "||bash zsh fish"),
            (&["rollout", "-n", ""], "||namespaces"),
            (&["why", "--kubeconfig", ""], "||files"),
            (&["why", "-o", "j"], "|j|plain json yaml"),
            (&["why", "--output=j"], "--output=|j|plain json yaml"),
            (&["why", "--output", "="], "||plain json yaml"),
            (&["why", "--output", "=", "j"], "|j|plain json yaml"),
            (&["why", "-An", ""], "||namespaces"),
            (&["why", "-A", "ag", ""], "||names of agents"),
        ] {
            assert_eq!(planned(words), expected, "{words:?}");
        }
    }

    #[test]
    fn commands_and_flags_have_descriptions() {
        let described = |words: &[&str], word: &str| match completion(words).source {
            Source::Words(words) => words.into_iter().find(|(known, _)| known == word).map(|(_, text)| text),
            _ => None,
        };
        assert_eq!(described(&[""], "get").as_deref(), Some("List objects"));
        assert_eq!(described(&["get", "-"], "--all-namespaces").as_deref(), Some("In all namespaces"));
        assert!(described(&["why", "-o", ""], "json").is_some_and(|text| !text.is_empty()));
    }

    #[test]
    fn the_cluster_is_the_one_that_the_words_name() {
        for words in [&["why", "-n", "a", "--context=b", "ag", ""][..], &["why", "--context", "b", "-na", "ag", ""]] {
            let ConnectOptions { namespace, context, kubeconfig } = completion(words).connection;
            assert_eq!(
                (namespace.as_deref(), context.as_deref(), kubeconfig),
                (Some("a"), Some("b"), None),
                "{words:?}"
            );
        }
    }
}
