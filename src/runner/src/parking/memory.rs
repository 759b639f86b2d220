//! Parked turns in memory, of an agent whose conversations are in memory too.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use jiff::Timestamp;

use super::{
    rulings::Ruling,
    turn::{CLAIM, Claim, ClaimedTurn, FoundTurn, MOST, MOST_OF_USER, ParkedTurn, Progress, WaitingTurn},
};
use crate::conversations::history::user_of_column;

/// Parked turns of this process, by their tasks.
#[derive(Default)]
pub(crate) struct ParkedInMemory(HashMap<String, Entry>);

struct Entry {
    owner: String,
    turn: ParkedTurn,
    ruling: Option<Ruling>,
    progress: Progress,
    /// Token of the last claim.
    token: String,
    /// End of the last claim.
    claimed_until: Option<Instant>,
    /// End of the wait, for this process and for people.
    expires: (Instant, Timestamp),
}

impl Entry {
    fn new(owner: String, turn: ParkedTurn, now: Instant) -> Self {
        let expires = expiry(&turn, now);
        let (ruling, progress, token, claimed_until) = Default::default();
        Self { owner, turn, ruling, progress, token, claimed_until, expires }
    }

    fn is_expired(&self, now: Instant) -> bool {
        self.expires.0 <= now
    }

    fn is_claimed(&self, now: Instant) -> bool {
        self.claimed_until.is_some_and(|until| until >= now)
    }

    fn claim(&mut self, claim: Claim, now: Instant) -> ClaimedTurn {
        self.token.clone_from(&claim.token);
        self.claimed_until = Some(now + CLAIM);
        ClaimedTurn {
            claim,
            owner: user_of_column(&self.owner),
            turn: self.turn.clone(),
            ruling: self.ruling.clone(),
            progress: self.progress.clone(),
        }
    }
}

impl ParkedInMemory {
    /// Implements [`super::ParkedTurns::park`].
    pub(super) fn park(&mut self, task: &str, owner: String, turn: ParkedTurn, now: Instant) -> Option<Timestamp> {
        let is_full = |count: usize, most: i64| i64::try_from(count).unwrap_or(i64::MAX) >= most;
        let own = self.0.values().filter(|entry| entry.owner == owner).count();
        if is_full(self.0.len(), MOST) || is_full(own, MOST_OF_USER) {
            return None;
        }
        let entry = Entry::new(owner, turn, now);
        let expires = entry.expires.1;
        self.0.insert(task.to_owned(), entry);
        Some(expires)
    }

    /// Implements [`super::ParkedTurns::waiting`].
    pub(super) fn waiting(&self, owner: &str, now: Instant) -> Vec<WaitingTurn> {
        let waits = |entry: &Entry| entry.owner == owner && entry.ruling.is_none() && !entry.is_expired(now);
        let mut found: Vec<_> = self.0.iter().filter(|(_, entry)| waits(entry)).collect();
        found.sort_by_key(|(_, entry)| entry.expires);
        found.into_iter().map(|(task, entry)| WaitingTurn::new(task, &entry.turn, entry.expires.1)).collect()
    }

    /// Returns a turn of this owner.
    pub(super) fn find(&self, task: &str, owner: &str, now: Instant) -> Option<FoundTurn> {
        let entry = self.0.get(task).filter(|entry| entry.owner == owner)?;
        Some(FoundTurn {
            turn: entry.turn.clone(),
            ruling: entry.ruling.clone(),
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
        Some(entry.claim(claim.clone(), now))
    }

    /// Implements [`super::ParkedTurns::claim_due`].
    pub(super) fn claim_due(&mut self, token: &str, now: Instant) -> Option<ClaimedTurn> {
        self.0.retain(|_, entry| !entry.turn.needs_caller || entry.is_claimed(now) || !entry.is_expired(now));
        let is_due = |entry: &Entry| {
            !entry.turn.needs_caller && !entry.is_claimed(now) && (entry.ruling.is_some() || entry.is_expired(now))
        };
        let (task, entry) = self.0.iter_mut().find(|(_, entry)| is_due(entry))?;
        Some(entry.claim(Claim { task: task.clone(), token: token.to_owned() }, now))
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
    pub(super) fn park_again(
        &mut self,
        claim: &Claim,
        task: &str,
        turn: ParkedTurn,
        now: Instant,
    ) -> Option<Timestamp> {
        let owner = self.claimed(claim)?.owner.clone();
        self.0.remove(&claim.task);
        let entry = Entry::new(owner, turn, now);
        let expires = entry.expires.1;
        self.0.insert(task.to_owned(), entry);
        Some(expires)
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
