//! Turns that wait for a person: parked until their calls are decided, then continued once.
//!
//! A parked turn holds no request and no memory of this process where conversations are in a database: a row has all that it takes to
//! go on, so that it survives its Pod. A row is in one of three states, and each change is one statement:
//!
//! | state | is left by |
//! |---|---|
//! | waits: no ruling | the one decision ([`ParkedTurns::decide`]), or its expiry, after which nobody can decide |
//! | ready: a ruling, or expired, and no claim | the process that claims it |
//! | claimed, for 30 s, renewed every 10 s | the end of the turn, which deletes the row and adds the turn to its conversation in one transaction; further calls that wait; or a claim that was not renewed |
//!
//! Every write of a claimed row names the claim, a random text, so that a process that was stopped and goes on writes nothing. An
//! approved call is recorded as started before it is sent: whoever finds it started sends it again only if two have the effect of one, and
//! else the model gets to know that its effect is unknown. So a turn ends once, and a call is sent at most once for each approval.
//!
//! Headers and keys of callers are kept nowhere: a turn that needs them is continued only in a request of its own caller.

mod memory;
mod rows;
mod rulings;
mod turn;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;

use self::{memory::ParkedInMemory, rows::ParkedRows, turn::FoundTurn};
use super::{
    conversations::history::{ConversationId, UserName, owner_column},
    database::{DatabaseError, DatabaseScope},
    models::ModelError,
};

pub(super) use self::{
    rulings::{Decisions, Ruling},
    turn::{
        CallProgress, Claim, ClaimedTurn, ParkedReply, ParkedTurn, Progress, RENEWAL, StoppedTurn, WaitingTurn,
        sort_results,
    },
};

/// Parked turns of an agent.
pub(super) enum ParkedTurns {
    /// In this process; lost when it ends.
    Memory(Mutex<ParkedInMemory>),
    /// In the database that all replicas share.
    Postgres(ParkedRows),
}

/// Reason why a decision is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum DecisionError {
    /// The task does not exist, or is another user's.
    #[error("unknown task `{0}`: its turn has ended, or is another user's")]
    UnknownTask(String),
    /// The decision is not one on the calls that wait.
    #[error("{0}")]
    Invalid(String),
    /// The calls were decided before.
    #[error("already decided{0}")]
    Decided(String),
    /// Nobody decided in time.
    #[error("nobody decided in time: the calls were refused")]
    Expired,
    /// No random text can be generated.
    #[error("the system has no random numbers to claim a turn with: {0}")]
    Random(#[from] getrandom::Error),
    /// The model needs the caller's own key.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The parked turns cannot be read or written.
    #[error("the decision cannot be kept now, try again: {0}")]
    Database(#[from] DatabaseError),
}

impl DecisionError {
    /// Returns the error for a task that is not there. A client may send any text for one.
    pub(super) fn unknown(task: &str) -> Self {
        Self::UnknownTask(task.chars().take(128).collect())
    }
}

impl ParkedTurns {
    /// Opens the parked turns of the agent whose rows have this scope; without one they are in memory.
    pub(super) fn open(scope: Option<DatabaseScope>) -> Self {
        match scope {
            None => Self::Memory(Mutex::default()),
            Some(scope) => Self::Postgres(ParkedRows::new(scope)),
        }
    }

    /// Parks a turn of `user` and returns when it expires; `None` when too many are parked.
    ///
    /// # Errors
    /// The database did not take it.
    pub(super) async fn park(
        &self,
        task: &ConversationId,
        user: &UserName,
        turn: &ParkedTurn,
    ) -> Result<Option<Timestamp>, DatabaseError> {
        let owner = owner_column(user);
        match self {
            Self::Memory(memory) => Ok(lock(memory).park(task.as_str(), owner, turn.clone(), Instant::now())),
            Self::Postgres(rows) => rows.park(task.as_str(), &owner, turn).await,
        }
    }

    /// Returns the turns that wait for a decision of `user`, the oldest first.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn waiting(&self, user: &UserName) -> Result<Vec<WaitingTurn>, DatabaseError> {
        let owner = owner_column(user);
        match self {
            Self::Memory(memory) => Ok(lock(memory).waiting(&owner, Instant::now())),
            Self::Postgres(rows) => rows.waiting(&owner).await,
        }
    }

    /// Returns the turn of this task, if it waits for a decision of `user`.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn waiting_for(&self, task: &str, user: &UserName) -> Result<Option<WaitingTurn>, DatabaseError> {
        let found = self.find(task, &owner_column(user)).await?;
        let waits = found.filter(|found| found.ruling.is_none() && !found.is_expired);
        Ok(waits.map(|found| WaitingTurn::new(task, &found.turn, found.expires)))
    }

    /// Decides on all calls of a turn of `user` and claims it. The same decision again claims it too, as long as nobody continues it.
    ///
    /// # Errors
    /// The reason why the decision is not taken; nothing has changed.
    pub(super) async fn decide(
        &self,
        task: &str,
        user: &UserName,
        decisions: Decisions,
    ) -> Result<ClaimedTurn, DecisionError> {
        let owner = owner_column(user);
        let unknown = || DecisionError::unknown(task);
        let found = self.find(task, &owner).await?.ok_or_else(unknown)?;
        let ruling = decisions.on(&found.turn.calls, &owner).map_err(DecisionError::Invalid)?;
        if let Some(before) = &found.ruling
            && *before != ruling
        {
            return Err(DecisionError::Decided(before.by_whom()));
        }
        if found.ruling.is_none() && found.is_expired {
            return Err(DecisionError::Expired);
        }
        let claim = Claim::new(task)?;
        let claimed = match self {
            Self::Memory(memory) => lock(memory).rule(&claim, &owner, &ruling, Instant::now()),
            Self::Postgres(rows) => rows.rule(&claim, &owner, &ruling).await?,
        };
        match claimed {
            Some(claimed) => Ok(claimed),
            // Another decision came first, or the turn is being continued.
            None => match self.find(task, &owner).await? {
                None => Err(unknown()),
                Some(FoundTurn { ruling: Some(before), .. }) => Err(DecisionError::Decided(before.by_whom())),
                Some(_) => Err(DecisionError::Expired),
            },
        }
    }

    /// Claims a turn that can be continued without its caller: one that is decided, or expired, and that no process continues. Turns
    /// that expired and need their caller are deleted.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn claim_due(&self) -> Result<Option<ClaimedTurn>, DatabaseError> {
        // Without random numbers nothing can be claimed, and the next sweep tries again.
        let Ok(claim) = Claim::new("") else { return Ok(None) };
        match self {
            Self::Memory(memory) => Ok(lock(memory).claim_due(&claim.token, Instant::now())),
            Self::Postgres(rows) => rows.claim_due(&claim.token).await,
        }
    }

    /// Renews a claim; false when it is lost.
    ///
    /// # Errors
    /// The database did not answer: the claim may hold.
    pub(super) async fn renew(&self, claim: &Claim) -> Result<bool, DatabaseError> {
        match self {
            Self::Memory(memory) => Ok(lock(memory).renew(claim, Instant::now())),
            Self::Postgres(rows) => rows.renew(claim).await,
        }
    }

    /// Stores how far the approved calls of a claimed turn are; false when the claim is lost.
    ///
    /// # Errors
    /// The database did not take it.
    pub(super) async fn record(&self, claim: &Claim, progress: &Progress) -> Result<bool, DatabaseError> {
        match self {
            Self::Memory(memory) => Ok(lock(memory).record(claim, progress)),
            Self::Postgres(rows) => rows.record(claim, progress).await,
        }
    }

    /// Parks a claimed turn anew as another task, for further calls, and returns when it expires; `None` when the claim is lost. The
    /// task before is unknown from then on, so that a decision on it, sent late or again, decides nothing.
    ///
    /// # Errors
    /// The database did not take it.
    pub(super) async fn park_again(
        &self,
        claim: &Claim,
        task: &ConversationId,
        turn: &ParkedTurn,
    ) -> Result<Option<Timestamp>, DatabaseError> {
        match self {
            Self::Memory(memory) => Ok(lock(memory).park_again(claim, task.as_str(), turn.clone(), Instant::now())),
            Self::Postgres(rows) => rows.park_again(claim, task.as_str(), turn).await,
        }
    }

    /// Forgets a claimed turn that is in memory; false when the claim is lost. In a database the transaction that adds the turn to its
    /// conversation does this.
    pub(super) fn forget(&self, claim: &Claim) -> bool {
        match self {
            Self::Memory(memory) => lock(memory).forget(claim),
            Self::Postgres(_) => true,
        }
    }

    async fn find(&self, task: &str, owner: &str) -> Result<Option<FoundTurn>, DatabaseError> {
        match self {
            Self::Memory(memory) => Ok(lock(memory).find(task, owner, Instant::now())),
            Self::Postgres(rows) => rows.find(task, owner).await,
        }
    }
}

fn lock(memory: &Mutex<ParkedInMemory>) -> MutexGuard<'_, ParkedInMemory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
