//! `recif top`: tokens that models used and what they cost, by agent, flow, model, caller or namespace, from the control plane.

mod rows;

use clap::ValueEnum;
use crds::Period;
use url::form_urlencoded;

use self::rows::{TopSort, UsageTable};
use crate::{
    control_plane,
    error::CliError,
    exit::Exit,
    output::{PrintFormat, hint, print_foreign},
    target::{ConnectArgs, SystemArgs},
};

/// Formats of the sums.
const FORMATS: [PrintFormat; 3] = [PrintFormat::Table, PrintFormat::Json, PrintFormat::Yaml];

/// Flags of `recif top`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The control plane is reached through the API server, as by `recif ui`, and shows what you may list. Whole hours \
                  are summed. `~` marks numbers that are partly estimated, because the provider did not report its own.\n\n\
                  Examples:\n  recif top                              agents of the namespace, the last 24 hours\n  recif top models -A \
                  --since 30d --sort cost\n  recif top callers -n shop -o json"
)]
pub struct TopArgs {
    /// What to sum by
    #[arg(value_enum, default_value = "agents", value_name = "GROUP")]
    group: TopGroup,
    /// How far back, such as 24h or 30d
    #[arg(long, default_value = "24h", value_parser = duration, value_name = "DURATION")]
    since: String,
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// What the most of comes first
    #[arg(long, value_enum, default_value = "tokens")]
    sort: TopSort,
    /// How to print it
    #[arg(short, long, value_parser = PrintFormat::parser(FORMATS), default_value = "table")]
    output: PrintFormat,
    #[command(flatten)]
    connection: ConnectArgs,
    #[command(flatten)]
    system: SystemArgs,
}

/// What is summed apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TopGroup {
    Agents,
    Flows,
    Models,
    Callers,
    Namespaces,
}

/// Reads and prints the sums.
pub(super) async fn run(args: TopArgs) -> Result<Exit, CliError> {
    let TopArgs { group, since, all_namespaces, sort, output, connection, system } = args;
    let live = connection.connect().await?;
    let namespace = (!all_namespaces).then_some(live.namespace.as_str());
    let path = path(group, &since, namespace);
    let document = control_plane::get(&live, &system.system_namespace, &path).await.map_err(|error| match error {
        CliError::NotFound(_) => {
            CliError::FailedAnswer("the control plane knows no usage: it is older than this program".into())
        }
        other => other,
    })?;
    let table = UsageTable::read(document, sort)?;
    if !output.is_for_people() {
        print_foreign(&output.document("the sums", table.document())?)?;
        return Ok(Exit::Done);
    }
    if table.is_empty() {
        let place = namespace.map_or_else(|| "in all namespaces".to_owned(), |name| format!("in namespace {name}"));
        hint(&format!("No model was asked for {group} {place} in the last {since}.", group = name(group)));
        return Ok(Exit::Done);
    }
    print_foreign(&table.text())?;
    table.notes().iter().for_each(|note| hint(note));
    Ok(Exit::Done)
}

fn name(group: TopGroup) -> &'static str {
    match group {
        TopGroup::Agents => "agents",
        TopGroup::Flows => "flows",
        TopGroup::Models => "models",
        TopGroup::Callers => "callers",
        TopGroup::Namespaces => "namespaces",
    }
}

/// Returns the path and query of the request.
fn path(group: TopGroup, since: &str, namespace: Option<&str>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("group", name(group)).append_pair("since", since);
    if let Some(namespace) = namespace {
        query.append_pair("namespace", namespace);
    }
    format!("/v1/usage?{}", query.finish())
}

/// Checks a duration such as `24h` or `30d`.
fn duration(text: &str) -> Result<String, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u16>().ok()).filter(|days| *days > 0);
    let length = || Period::from(text).length().filter(|length| !length.is_zero());
    match days.is_some() || length().is_some() {
        true => Ok(text.to_owned()),
        false => Err("write it as 90m, 24h or 30d".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        top: TopArgs,
    }

    #[test]
    fn wrong_words_are_refused_before_the_cluster_is_asked() {
        for (words, named) in [
            (&["pods"][..], "agents, flows, models, callers, namespaces"),
            (&["--since", "yesterday"], "90m, 24h or 30d"),
            (&["--since", "0d"], "90m, 24h or 30d"),
            (&["--since", "24"], "90m, 24h or 30d"),
            (&["--sort", "name"], "cost, tokens, calls, p95"),
            (&["-o", "wide"], "table, json, yaml"),
            (&["-A", "-n", "ns"], "cannot be used with"),
        ] {
            let error = Cli::try_parse_from(["top"].iter().chain(words)).unwrap_err().to_string();
            assert!(error.contains(named), "{words:?}: {error}");
        }
        let Cli { top } = Cli::try_parse_from(["top"]).unwrap();
        assert_eq!((top.group, top.sort, top.since.as_str()), (TopGroup::Agents, TopSort::Tokens, "24h"));
    }

    #[test]
    fn the_question_names_group_time_and_namespace() {
        assert_eq!(path(TopGroup::Models, "30d", None), "/v1/usage?group=models&since=30d");
        assert_eq!(path(TopGroup::Callers, "1h", Some("a")), "/v1/usage?group=callers&since=1h&namespace=a");
    }
}
