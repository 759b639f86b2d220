//! Ids of responses. An id names the conversation that keeps the response, and the place of its turn there.

use std::{fmt, sync::Arc};

use crate::{conversations::history::ConversationId, models::Message};

/// Beginning of every id.
const PREFIX: &str = "resp_";
/// Lengths of the parts, in hexadecimal digits: conversation, place, random.
const DIGITS: [usize; 3] = [32, 8, 8];

/// Id of a response, such as `resp_` and 48 hexadecimal digits.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ResponseId {
    /// Conversation that keeps the response.
    pub(super) conversation: ConversationId,
    /// Number of messages of the conversation before the answer.
    inputs: u32,
    /// Tells apart the responses at one place.
    random: u32,
}

impl ResponseId {
    /// Creates the id of an answer to the first `inputs` messages of a conversation.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn new(conversation: ConversationId, inputs: usize) -> Result<Self, getrandom::Error> {
        let mut random = [0; 4];
        getrandom::fill(&mut random)?;
        let inputs = u32::try_from(inputs).unwrap_or(u32::MAX);
        Ok(Self { conversation, inputs, random: u32::from_be_bytes(random) })
    }

    /// Parses an id; `None` for one that this runtime did not make.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let [conversation, place, random] = DIGITS;
        if digits.len() != conversation + place + random || !digits.is_ascii() {
            return None;
        }
        let (name, rest) = digits.split_at(conversation);
        let (inputs, random) = rest.split_at(place);
        let number = |digits| u32::from_str_radix(digits, 16).ok();
        let conversation = ConversationId::parse(name).filter(ConversationId::is_generated)?;
        let id = Self { conversation, inputs: number(inputs)?, random: number(random)? };
        // There is one way to write a number: not with a sign, nor in capital letters.
        (id.to_string() == text).then_some(id)
    }

    /// Reports whether no further turn follows this response. A conversation that lost its oldest turns may be shorter
    /// than it was.
    pub(super) fn is_latest(&self, history: &[Arc<Message>]) -> bool {
        let behind = history.get(self.inputs as usize..).unwrap_or_default();
        behind.iter().all(|message| !matches!(**message, Message::User(_) | Message::System(_)))
    }
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}{:08x}{:08x}", self.conversation, self.inputs, self.random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written_and_no_other_text_is_one() {
        let id = ResponseId::new(ConversationId::random().unwrap(), 3).unwrap();
        let text = id.to_string();
        assert_eq!(ResponseId::parse(&text), Some(id));
        let place = |digits: &str| format!("{}{digits}{}", &text[..37], &text[45..]);
        assert!(ResponseId::parse(&place("0000000a")).is_some());
        for other in [
            "",
            "resp_",
            &text[5..],
            &format!("{text}0"),
            &text.replace("resp_", "resp-"),
            &place("0000000A"),
            &place("+0000003"),
        ] {
            assert_eq!(ResponseId::parse(other), None, "{other}");
        }
        assert_eq!(ResponseId::parse(&format!("resp_{}", "é".repeat(24))), None);
    }

    #[test]
    fn a_turn_that_another_one_follows_is_not_the_latest() {
        let id = ResponseId::new(ConversationId::random().unwrap(), 1).unwrap();
        let (user, answer) = (Arc::new(Message::user("a")), Arc::new(Message::Assistant("b".into())));
        assert!(id.is_latest(&[user.clone(), answer.clone()]));
        assert!(id.is_latest(&[]), "its turns were dropped");
        assert!(!id.is_latest(&[user.clone(), answer.clone(), user, answer]));
    }
}
