//! `recif chat`: talks to an agent, or asks a flow, through the gateway; the answer is printed as it comes.
//!
//! With a message it asks once; without one it is a conversation if stdin is a terminal. Ctrl-C stops an answer: the
//! connection is closed, and the runtime then ends the turn and forgets it.

mod a2a_turn;
mod approvals;
mod approve;
mod chat_target;
mod gateway;
mod reply;
mod screen;
mod session;

use std::io::{self, IsTerminal as _, Read as _};

use crate::{
    cluster::UserClient,
    error::CliError,
    exit::Exit,
    output::hint,
    target::{ConnectArgs, SystemArgs},
};
pub use approvals::ApprovalsArgs;
pub(super) use approvals::run as approvals;
pub use approve::ApproveArgs;
pub(super) use approve::run as approve;
use chat_target::ChatTarget;
use gateway::{GatewayClient, GatewayUrl};
pub(crate) use gateway::{caller_token, token_client};
use session::{ChatSession, TurnEnd};

/// Largest message that is read from standard input, in bytes.
const MAX_MESSAGE: u64 = 1 << 20;

/// Flags of `recif chat`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a message it reads one from standard input, and is a conversation on a terminal. A flow gets its \
                  variables as a JSON object; anything else is its variable `message`.\n\nThe gateway is reached through the \
                  API server, which takes the right to get and create pods/portforward in its namespace (the Role recif-visitor), unless --gateway \
                  says where it is. It knows you by the token of your kubeconfig, or by $RECIF_TOKEN (as `kubectl create \
                  token` makes one), and lets you call what the ClusterRole recif-invoker opens to you.\n\nExamples:\n  \
                  recif chat agent/my-agent\n  recif chat agent/my-agent \"What is 6*7?\"\n  git diff | recif chat \
                  agent/reviewer\n  recif chat flow/greeter '{\"name\": \"Ada\"}'\n  recif chat flowset/texts/summary \
                  <letter.txt"
)]
pub struct ChatArgs {
    /// What to talk to: agent/NAME, flow/NAME or flowset/NAME/FLOW
    #[arg(value_name = "TARGET")]
    target: String,
    /// The message
    #[arg(value_name = "MESSAGE")]
    message: Vec<String>,
    /// Continue conversation ID
    #[arg(short, long, value_name = "ID")]
    conversation: Option<String>,
    /// URL of the gateway [default: through the API server, or that of `recif dev`]
    #[arg(long, env = "RECIF_GATEWAY", value_name = "URL")]
    gateway: Option<String>,
    #[command(flatten)]
    connection: ConnectArgs,
    #[command(flatten)]
    system: SystemArgs,
}

/// Runs the command.
pub(super) async fn run(args: ChatArgs) -> Result<Exit, CliError> {
    let ChatArgs { target, message, conversation, gateway, connection, system } = args;
    let asked = ChatTarget::parse(&target)?;
    if conversation.is_some() && !asked.is_agent() {
        return Err(CliError::Usage("only agents have conversations: leave out --conversation".into()));
    }
    let alone = if message.is_empty() && io::stdin().is_terminal() { None } else { Some(full_message(&message)?) };
    let mut talk = open(asked, conversation, gateway, connection, &system).await?;
    talk.check_target().await?;
    let Some(message) = alone else { return talk.converse().await };
    let turn = talk.turn(&message).await?;
    match turn {
        TurnEnd::Stopped => Ok(Exit::Interrupted),
        TurnEnd::Done => {
            if let Some(id) = talk.conversation() {
                hint(&format!("conversation {id}: continue it with --conversation {id}"));
            }
            Ok(Exit::Done)
        }
    }
}

/// Opens a chat with a target.
async fn open(
    asked: ChatTarget,
    conversation: Option<String>,
    gateway: Option<String>,
    connection: ConnectArgs,
    system: &SystemArgs,
) -> Result<ChatSession, CliError> {
    let (gateway, live, namespace) = reach(gateway, connection, system).await?;
    Ok(ChatSession::new(asked, namespace, gateway, live, conversation))
}

/// Finds the gateway, at its URL if one is given, and the caller's credentials. Returns it with the cluster, unless a gateway that is
/// given can be reached alone, and the namespace of the command.
async fn reach(
    gateway: Option<String>,
    connection: ConnectArgs,
    system: &SystemArgs,
) -> Result<(GatewayClient, Option<UserClient>, String), CliError> {
    let place = gateway.filter(|url| !url.is_empty()).map(|url| GatewayUrl::parse(&url)).transpose()?;
    let namespace = connection.namespace.clone();
    let live = match connection.connect().await {
        Ok(live) => Some(live),
        // A gateway that is given by its URL needs no cluster.
        Err(CliError::Read(error)) if place.is_some() && error.is_unreachable() => None,
        Err(error) => return Err(error),
    };
    let namespace = live.as_ref().map(|live| live.namespace.clone()).or(namespace).unwrap_or_else(|| "default".into());
    let gateway = match (place, &live) {
        // No gateway asks for the token of a `recif dev`, which is that of its API server.
        (Some(place), live) => GatewayClient::at(place, live.as_ref().filter(|live| live.dev.is_none()))?,
        (None, Some(live)) => match &live.dev {
            Some(dev) => GatewayClient::at(GatewayUrl::of(dev), None)?,
            None => GatewayClient::in_cluster(live, &system.system_namespace).await?,
        },
        (None, None) => return Err(CliError::Usage("say with --gateway where the gateway is".into())),
    };
    Ok((gateway, live, namespace))
}

/// Returns the message of the command line, or that of standard input.
fn full_message(words: &[String]) -> Result<String, CliError> {
    let mut message = words.join(" ");
    if words.is_empty() {
        let read = io::stdin().take(MAX_MESSAGE + 1).read_to_string(&mut message);
        read.map_err(|error| CliError::Usage(format!("read the message from standard input: {error}")))?;
    }
    match message.trim() {
        "" => Err(CliError::Usage("no message: give one after the name, or on standard input".into())),
        text if text.len() as u64 > MAX_MESSAGE => {
            Err(CliError::Usage(format!("the message is longer than {} KiB", MAX_MESSAGE >> 10)))
        }
        text => Ok(text.to_owned()),
    }
}
