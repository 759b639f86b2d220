//! [Agent2Agent protocol](https://a2a-protocol.org), version 1.0 and the methods of 0.3, as its clients speak it: bytes in,
//! bytes out. The HTTP is brought by the programs that use it.
//!
//! 1. GET [`CARD_PATH`] below the address of the agent, and choose an interface of the card ([`A2aInterface::choose`]).
//! 2. POST a message to its path ([`send_message`], [`stream_message`]), with the header [`VERSION_HEADER`], and where the
//!    card offers [`HITL_EXTENSION`] with the [header for extensions](Version::extensions_header).
//! 3. Read the answer, or each event of the stream, into an [`A2aTurn`], which knows the text so far and the state of the task.
//!    While the task works, ask for it ([`get_task`]); a task whose answer is not waited for any more is cancelled ([`cancel_task`]).

mod card;
mod error;
mod hitl;
mod request;
mod task_state;
#[cfg(test)]
mod tests;
mod turn;
mod version;

pub use self::{
    card::{A2aInterface, CARD_PATH, CardError},
    error::A2aError,
    hitl::{APPROVAL_REQUEST, APPROVAL_RESPONSE, HITL_EXTENSION, RequestedCall},
    request::{MAY_WAIT, OutgoingMessage, cancel_task, get_task, send_message, stream_message},
    task_state::TaskState,
    turn::{A2aTurn, WAITING},
    version::{VERSION_HEADER, Version},
};
