//! Parked turns in memory, of an agent whose conversations are in memory too.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crds::pending_calls::PendingCalls;
use jiff::Timestamp;

use super::{
    rulings::Ruling,
    turn::{
        CALLER_WAIT, CLAIM, CallProgress, Claim, ClaimedTurn, FoundTurn, MAX_MEMORY, MOST, MOST_OF_USER, ParkResult,
        ParkedTurn, Progress, WaitingTurn, a2a_task_of,
    },
};
use crate::conversations::history::{ConversationId, user_of_column};

/// Parked turns of this process, by their tasks.
#[derive(Default)]
pub(crate) struct ParkedInMemory(HashMap<String, Entry>);

struct Entry {
    owner: String,
    turn: ParkedTurn,
    /// Size of the turn.
    turn_bytes: usize,
    ruling: Option<Ruling>,
    progress: Progress,
    attempts: i64,
    /// Token of the last claim.
    token: String,
    /// End of the last claim.
    claimed_until: Option<Instant>,
    /// End of the wait, for this process and for people.
    expires: (Instant, Timestamp),
}

impl Entry {
    fn new(owner: String, turn: ParkedTurn, now: Instant) -> Self {
        let (turn_bytes, expires) = (turn.bytes(), expiry(&turn, now));
        let (ruling, progress, attempts, token, claimed_until) = Default::default();
        Self { owner, turn, turn_bytes, ruling, progress, attempts, token, claimed_until, expires }
    }

    /// Returns its size, with the results of its calls.
    fn bytes(&self) -> usize {
        self.turn_bytes + self.progress.values().map(CallProgress::bytes).sum::<usize>()
    }

    fn is_expired(&self, now: Instant) -> bool {
        self.expires.0 <= now
    }

    fn is_claimed(&self, now: Instant) -> bool {
        self.claimed_until.is_some_and(|until| until >= now)
    }

    /// Reports whether the turn is to be continued without its caller, or ended.
    fn is_due(&self, now: Instant) -> bool {
        let is_over = match (self.turn.needs_caller, self.ruling.is_some()) {
            (false, true) => true,
            (true, true) => self.expires.0 + CALLER_WAIT <= now,
            (_, false) => self.is_expired(now),
        };
        is_over && !self.is_claimed(now)
    }

    fn claim(&mut self, claim: Claim, is_swept: bool, now: Instant) -> ClaimedTurn {
        self.token.clone_from(&claim.token);
        self.claimed_until = Some(now + CLAIM);
        self.attempts += 1;
        ClaimedTurn {
            claim,
            owner: user_of_column(&self.owner),
            turn: self.turn.clone(),
            ruling: self.ruling.clone(),
            progress: self.progress.clone(),
            attempts: self.attempts,
            is_swept,
        }
    }
}

impl ParkedInMemory {
    /// Implements [`super::ParkedTurns::park`].
    pub(super) fn park(&mut self, task: &str, owner: String, turn: ParkedTurn, now: Instant) -> ParkResult {
        let is_full = |count: usize, most: i64| i64::try_from(count).unwrap_or(i64::MAX) >= most;
        let own = self.0.values().filter(|entry| entry.owner == owner).count();
        if is_full(self.0.len(), MOST) || is_full(own, MOST_OF_USER) {
            return ParkResult::Full;
        }
        self.insert(task, Entry::new(owner, turn, now), 0)
    }

    /// Adds an entry unless the turns were too large with it; `freed` bytes of them are about to go.
    fn insert(&mut self, task: &str, entry: Entry, freed: usize) -> ParkResult {
        let bytes: usize = self.0.values().map(Entry::bytes).sum();
        if bytes - freed + entry.bytes() > MAX_MEMORY {
            return ParkResult::Full;
        }
        let expires = entry.expires.1;
        self.0.insert(task.to_owned(), entry);
        ParkResult::Parked(expires)
    }

    /// Implements [`super::ParkedTurns::pending`].
    pub(super) fn pending(&self, now: Instant) -> PendingCalls {
        let waits = |entry: &&Entry| entry.ruling.is_none() && !entry.is_expired(now);
        let none = PendingCalls { at: Timestamp::now().as_millisecond(), ..PendingCalls::default() };
        self.0.values().filter(waits).fold(none, |sum, Entry { turn, expires: (_, expires), .. }| {
            let until = expires.as_second();
            let since = until.saturating_sub(i64::try_from(turn.patience).unwrap_or(i64::MAX));
            PendingCalls {
                calls: sum.calls + turn.calls.len() as u64,
                since: if sum.calls == 0 { since } else { sum.since.min(since) },
                until: sum.until.max(until),
                ..sum
            }
        })
    }

    /// Implements [`super::ParkedTurns::waiting`] for the turns whose ids begin so, of this owner or of all.
    pub(super) fn waiting(&self, owner: Option<&str>, begin: &str, now: Instant) -> Vec<WaitingTurn> {
        let is_listed = |entry: &Entry| owner.is_none_or(|owner| entry.owner == owner);
        let waits = |entry: &Entry| is_listed(entry) && (entry.ruling.is_some() || !entry.is_expired(now));
        let mut found: Vec<_> = self.0.iter().filter(|(task, entry)| task.starts_with(begin) && waits(entry)).collect();
        found.sort_by_key(|(_, entry)| (owner.is_none() && entry.ruling.is_some(), entry.expires));
        found.truncate(usize::try_from(MOST_OF_USER).unwrap_or(usize::MAX));
        let shown = |(task, Entry { owner, turn, ruling, expires, .. }): (&String, &Entry)| {
            let conversation = turn.conversation.clone();
            WaitingTurn::new(task, owner, conversation, ruling.is_some(), &turn.calls, turn.by, expires.1)
        };
        found.into_iter().map(shown).collect()
    }

    /// Implements [`super::ParkedTurns::is_open`].
    pub(super) fn is_open(&self, conversation: &ConversationId, owner: &str) -> bool {
        self.0.values().any(|entry| entry.owner == owner && entry.turn.conversation == *conversation)
    }

    /// Implements [`super::ParkedTurns::is_open_for`].
    pub(super) fn is_open_for(&self, a2a_task: &str, owner: &str) -> bool {
        self.0.iter().any(|(task, entry)| entry.owner == owner && a2a_task_of(task) == Some(a2a_task))
    }

    /// Implements [`super::ParkedTurns::withdraw`].
    pub(super) fn withdraw(&mut self, a2a_task: &str, owner: &str, now: Instant) -> bool {
        let before = self.0.len();
        self.0.retain(|task, entry| {
            let is_open = entry.ruling.is_none() && !entry.is_claimed(now);
            !(is_open && entry.owner == owner && a2a_task_of(task) == Some(a2a_task))
        });
        self.0.len() < before
    }

    /// Returns what is known of a turn of any owner.
    pub(super) fn find(&self, task: &str, now: Instant) -> Option<FoundTurn> {
        let entry = self.0.get(task)?;
        Some(FoundTurn {
            owner: entry.owner.clone(),
            conversation: entry.turn.conversation.clone(),
            calls: entry.turn.calls.clone(),
            by: entry.turn.by,
            needs_caller: entry.turn.needs_caller,
            forwarded: Some(entry.turn.forwarded.clone()),
            ruling: entry.ruling.clone(),
            round: entry.turn.round,
            is_expired: entry.is_expired(now),
            expires: entry.expires.1,
        })
    }

    /// Rules on a turn that waits, or that this ruling is known of, and claims it.
    pub(super) fn rule(&mut self, claim: &Claim, owner: &str, ruling: &Ruling, now: Instant) -> Option<ClaimedTurn> {
        let entry = self.0.get_mut(&claim.task).filter(|entry| entry.owner == owner)?;
        let may_rule = match &entry.ruling {
            None => !entry.is_expired(now),
            Some(before) => before == ruling && !entry.is_claimed(now),
        };
        if !may_rule {
            return None;
        }
        entry.ruling = Some(ruling.clone());
        Some(entry.claim(claim.clone(), false, now))
    }

    /// Rules on a turn that waits, without a claim on it; false where it does not wait any more.
    pub(super) fn keep_ruling(&mut self, task: &str, ruling: &Ruling, now: Instant) -> bool {
        let waiting = self.0.get_mut(task).filter(|entry| entry.ruling.is_none() && !entry.is_expired(now));
        waiting.map(|entry| entry.ruling = Some(ruling.clone())).is_some()
    }

    /// Implements [`super::ParkedTurns::claim_due`].
    pub(super) fn claim_due(&mut self, token: &str, now: Instant) -> Option<ClaimedTurn> {
        let (task, entry) = self.0.iter_mut().find(|(_, entry)| entry.is_due(now))?;
        Some(entry.claim(Claim { task: task.clone(), token: token.to_owned() }, true, now))
    }

    /// Implements [`super::ParkedTurns::renew`].
    pub(super) fn renew(&mut self, claim: &Claim, now: Instant) -> bool {
        self.claimed(claim).map(|entry| entry.claimed_until = Some(now + CLAIM)).is_some()
    }

    /// Implements [`super::ParkedTurns::record`].
    pub(super) fn record(&mut self, claim: &Claim, progress: &Progress) -> bool {
        self.claimed(claim).map(|entry| entry.progress.clone_from(progress)).is_some()
    }

    /// Implements [`super::ParkedTurns::park_again`].
    pub(super) fn park_again(&mut self, claim: &Claim, task: &str, turn: ParkedTurn, now: Instant) -> ParkResult {
        let known = self.claimed(claim).map(|entry| (entry.owner.clone(), entry.bytes()));
        let Some((owner, freed)) = known else { return ParkResult::ClaimLost };
        let result = self.insert(task, Entry::new(owner, turn, now), freed);
        if matches!(result, ParkResult::Parked(_)) {
            self.0.remove(&claim.task);
        }
        result
    }

    /// Implements [`super::ParkedTurns::forget`].
    pub(super) fn forget(&mut self, claim: &Claim) -> bool {
        self.claimed(claim).is_some() && self.0.remove(&claim.task).is_some()
    }

    fn claimed(&mut self, claim: &Claim) -> Option<&mut Entry> {
        self.0.get_mut(&claim.task).filter(|entry| entry.token == claim.token)
    }
}

fn expiry(turn: &ParkedTurn, now: Instant) -> (Instant, Timestamp) {
    let patience = Duration::from_secs(turn.patience);
    (now + patience, Timestamp::now().checked_add(patience).unwrap_or(Timestamp::MAX))
}
