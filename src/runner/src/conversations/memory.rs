//! Conversations in memory, bounded: an [LRU cache](https://en.wikipedia.org/wiki/Cache_replacement_policies) with
//! three limits.
//!
//! The limits hold at once: number of conversations, bytes in all of them, and time since the last use. The least
//! recently used conversation is evicted first. Within one conversation the oldest turns are dropped first, so a
//! conversation may go on without end.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::history::{ConversationId, History, StoredConversation, TurnStorage, UserName};
use crate::{conversations::history::BYTES, models::message::Message};

/// Bounds of the stored conversations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Number of conversations.
    pub(super) count: usize,
    /// Bytes of text in all of them.
    pub(super) bytes: usize,
    /// Bytes of text in one.
    pub(super) bytes_each: usize,
    /// Maximum time since the last use.
    pub(super) idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { count: 1000, bytes: 32 << 20, bytes_each: BYTES, idle: Duration::from_secs(24 * 3600) }
    }
}

/// Conversations of this process. Invariant: `bytes` is the sum over all conversations, and a conversation's `bytes`
/// the sum over its turns.
pub(crate) struct MemoryConversations {
    limits: Limits,
    bytes: usize,
    conversations: HashMap<ConversationId, Conversation>,
}

struct Conversation {
    user: UserName,
    turns: VecDeque<StoredTurn>,
    /// Number of turns that were ever added.
    added: i64,
    bytes: usize,
    last_used: Instant,
}

/// User message with all messages that followed it. Turns are added and dropped whole, so that a tool's result never
/// appears without its call.
struct StoredTurn {
    messages: Vec<Arc<Message>>,
    bytes: usize,
}

impl MemoryConversations {
    /// Creates an empty store.
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, bytes: 0, conversations: HashMap::new() }
    }

    /// Returns the conversation, as `user` may see it.
    pub(super) fn history(&mut self, id: &ConversationId, user: &UserName, now: Instant) -> History {
        self.forget_idle(now);
        let Some(conversation) = self.conversations.get_mut(id) else { return History::Unknown };
        if conversation.user != *user {
            return History::Foreign;
        }
        conversation.last_used = now;
        let messages = conversation.turns.iter().flat_map(|turn| turn.messages.iter().cloned()).collect();
        History::Known(StoredConversation { messages, turns: conversation.added })
    }

    /// Adds a turn of `user`, then evicts what is over the limits. With `turns` it is refused by a conversation that has
    /// had another number of turns.
    pub(super) fn add_after(
        &mut self,
        turns: Option<i64>,
        id: &ConversationId,
        user: &UserName,
        messages: Vec<Arc<Message>>,
        now: Instant,
    ) -> TurnStorage {
        let bytes = messages.iter().map(|message| message.bytes()).sum();
        let begin = || Conversation { user: user.clone(), turns: VecDeque::new(), added: 0, bytes: 0, last_used: now };
        let conversation = self.conversations.entry(id.clone()).or_insert_with(begin);
        if conversation.user != *user {
            return TurnStorage::Foreign;
        }
        if conversation.added > 0 && turns.is_some_and(|turns| turns != conversation.added) {
            return TurnStorage::Overtaken;
        }
        conversation.last_used = now;
        conversation.added += 1;
        conversation.turns.push_back(StoredTurn { messages, bytes });
        conversation.bytes += bytes;
        self.bytes += bytes;
        while conversation.bytes > self.limits.bytes_each
            && let Some(oldest) = conversation.turns.pop_front()
        {
            conversation.bytes -= oldest.bytes;
            self.bytes -= oldest.bytes;
        }
        while (self.conversations.len() > self.limits.count || self.bytes > self.limits.bytes)
            && let Some(id) = self.conversations.iter().min_by_key(|(_, one)| one.last_used).map(|(id, _)| id.clone())
        {
            self.remove(&id);
        }
        TurnStorage::Stored
    }

    fn forget_idle(&mut self, now: Instant) {
        let idle = self.limits.idle;
        let bytes = &mut self.bytes;
        self.conversations.retain(|_, one| {
            let stays = now.saturating_duration_since(one.last_used) <= idle;
            if !stays {
                *bytes -= one.bytes;
            }
            stays
        });
    }

    fn remove(&mut self, id: &ConversationId) {
        if let Some(gone) = self.conversations.remove(id) {
            self.bytes -= gone.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl MemoryConversations {
        fn add(
            &mut self,
            id: &ConversationId,
            user: &UserName,
            messages: Vec<Arc<Message>>,
            now: Instant,
        ) -> TurnStorage {
            self.add_after(None, id, user, messages, now)
        }
    }

    const LIMITS: Limits = Limits { count: 2, bytes: 100, bytes_each: 60, idle: Duration::from_secs(10) };

    fn id(text: &str) -> ConversationId {
        ConversationId::parse(text).unwrap()
    }

    fn user_message(bytes: usize) -> Vec<Arc<Message>> {
        vec![Arc::new(Message::user("x".repeat(bytes)))]
    }

    fn count(all: &mut MemoryConversations, name: &str, now: Instant) -> usize {
        match all.history(&id(name), &None, now) {
            History::Known(conversation) => conversation.messages.len(),
            _ => 0,
        }
    }

    #[test]
    fn a_conversation_is_its_users_alone() {
        let (mut all, now) = (MemoryConversations::new(LIMITS), Instant::now());
        let (alice, mallory): (UserName, UserName) = (Some("alice".into()), Some("mallory".into()));
        assert_eq!(all.add(&id("a"), &alice, user_message(1), now), TurnStorage::Stored);
        for other in [&mallory, &None] {
            assert_eq!(all.history(&id("a"), other, now), History::Foreign);
            assert_eq!(all.add(&id("a"), other, user_message(1), now), TurnStorage::Foreign);
        }
        let stored = StoredConversation { messages: user_message(1), turns: 1 };
        assert_eq!(all.history(&id("a"), &alice, now), History::Known(stored));
        assert_eq!(all.history(&id("b"), &alice, now), History::Unknown);
    }

    #[test]
    fn of_two_turns_after_the_same_one_the_second_is_refused() {
        let (mut all, now) = (MemoryConversations::new(LIMITS), Instant::now());
        all.add(&id("a"), &None, user_message(40), now);
        let mut after = |turns, bytes| all.add_after(Some(turns), &id("a"), &None, user_message(bytes), now);
        assert_eq!([after(1, 40), after(1, 1)], [TurnStorage::Stored, TurnStorage::Overtaken]);
        assert_eq!([after(2, 1), after(2, 1)], [TurnStorage::Stored, TurnStorage::Overtaken], "a turn was dropped");
        assert_eq!(count(&mut all, "a", now), 2);
        let forgotten = all.add_after(Some(7), &id("b"), &None, user_message(1), now);
        assert_eq!(forgotten, TurnStorage::Stored);
    }

    #[test]
    fn the_least_recently_used_goes_when_there_are_too_many() {
        let (mut all, now) = (MemoryConversations::new(LIMITS), Instant::now());
        all.add(&id("a"), &None, user_message(1), now);
        all.add(&id("b"), &None, user_message(1), now + Duration::from_secs(1));
        count(&mut all, "a", now + Duration::from_secs(2));
        all.add(&id("c"), &None, user_message(1), now + Duration::from_secs(3));
        let later = now + Duration::from_secs(3);
        assert_eq!(["a", "b", "c"].map(|name| count(&mut all, name, later)), [1, 0, 1]);
    }

    #[test]
    fn bytes_are_bounded_in_one_and_in_all() {
        let (mut all, now) = (MemoryConversations::new(LIMITS), Instant::now());
        all.add(&id("a"), &None, user_message(40), now);
        all.add(&id("a"), &None, user_message(40), now);
        assert_eq!(count(&mut all, "a", now), 1);
        all.add(&id("b"), &None, user_message(60), now + Duration::from_secs(1));
        assert_eq!(all.bytes, 100);
        all.add(&id("b"), &None, user_message(61), now + Duration::from_secs(1));
        assert_eq!((all.bytes, count(&mut all, "b", now)), (40, 0));
    }

    #[test]
    fn an_unused_one_is_forgotten() {
        let (mut all, now) = (MemoryConversations::new(LIMITS), Instant::now());
        all.add(&id("a"), &None, user_message(1), now);
        assert_eq!(count(&mut all, "a", now + Duration::from_secs(10)), 1);
        assert_eq!(count(&mut all, "a", now + Duration::from_secs(21)), 0);
        assert_eq!(all.bytes, 0);
    }
}
