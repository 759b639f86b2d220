//! Turns that wait for a person: parked until their calls are decided, then continued once.
//!
//! A parked turn holds no request and no memory of this process where conversations are in a database: a row has all that it takes to
//! go on, so that it survives its Pod. A row is in one of three states, and each change is one statement:
//!
//! | state | is left by |
//! |---|---|
//! | waits: no ruling | the one decision ([`ParkedTurns::decide`]), or its expiry, after which no user can decide |
//! | ready: a ruling, or expired, and no claim | the process that claims it |
//! | claimed, for 30 s, renewed every 10 s | the end of the turn, which deletes the row and adds the turn to its conversation in one transaction; further calls that wait, as another task; or a claim that was given back or not renewed |
//!
//! Every write of a claimed row names the claim, a random text, so that a process that was stopped and goes on writes nothing. An
//! approved call is recorded as started before it is sent: a process that finds it started sends it again only if two have the effect of
//! one, and else the model gets to know that its effect is unknown. So a turn ends once, and a call is sent at most once for each approval, but
//! for those that have one effect however often they are sent.
//!
//! An approver may decide on a turn of another user. It goes on as that user's: with the name and the budgets of that user, and without the
//! headers and the key of the approver. Where an approver has to decide, the user whose request began the turn cannot.
//!
//! Values of headers and keys of callers are kept nowhere: a turn that needs them is continued only in a request of its own caller, which
//! has to have the headers that the first one had; the decision of an approver on it is kept until then. A turn whose caller does not come
//! back, one whose conversation was forgotten, and one that broke off several times, is ended with a note, without its model and without
//! further calls.

mod columns;
mod decide;
mod memory;
mod rows;
mod rulings;
mod turn;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crds::pending_calls::PendingCalls;

use self::{
    memory::ParkedInMemory,
    rows::ParkedRows,
    turn::{FoundTurn, MAX_TURN},
};
use super::{
    conversations::history::{ConversationId, UserName, owner_column},
    database::{DatabaseError, DatabaseScope},
    models::ModelError,
};

pub(super) use self::{
    rulings::{Decisions, Ruling},
    turn::{
        CallProgress, Claim, ClaimedTurn, ForcedEnd, KeptDecision, OpenTurn, ParkResult, ParkedReply, ParkedTurn,
        Progress, RENEWAL, WaitingTurn, a2a_task_of, parked_id, sort_results,
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
    /// The task does not exist any more or never did, or is another user's: no trace of a turn that has ended is kept.
    #[error("unknown task `{0}`: it was decided, expired or cancelled, never existed, or is another user's")]
    UnknownTask(String),
    /// The decision is not one on the calls that wait.
    #[error("{0}")]
    Invalid(String),
    /// An approver has to decide, and the caller is none, or asked.
    #[error(
        "an approver other than the caller decides this: it takes the right to create agents/approve, which the ClusterRole \
         recif-approver gives"
    )]
    NotApprover,
    /// An approver has to decide, and no gateway vouches for the caller.
    #[error("sign in to approve: the gateway needs --auth kubernetes")]
    NotSignedIn,
    /// The decision of an approver is kept, and the turn waits for its own caller.
    #[error(
        "the decision is kept: the turn goes on with the next request of its own caller, whose headers or key it needs"
    )]
    Kept(Box<KeptDecision>),
    /// The turn needs headers of its caller that the decision does not have.
    #[error("send {0} as with the first request: tools of this turn need it")]
    MissingHeaders(String),
    /// Another version of this runtime parked the turn.
    #[error("another version of this runtime goes on with this turn: send the decision again")]
    OtherVersion,
    /// The calls were decided before.
    #[error("already decided{0}")]
    Decided(String),
    /// The same decision was taken before, and a process goes on with the turn.
    #[error("this decision is being carried out: the answer will be in the conversation")]
    Busy,
    /// No user decided in time.
    #[error("no user decided in time: the calls were refused")]
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

    /// Checks that turns can be parked; in a database this makes the table.
    ///
    /// # Errors
    /// The database cannot be queried, or its role may make no table.
    pub(super) async fn check(&self) -> Result<(), DatabaseError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Postgres(rows) => rows.check().await,
        }
    }

    /// Reports whether other processes can go on with the turns.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Parks a turn of `user`.
    ///
    /// # Errors
    /// The database did not take it.
    pub(super) async fn park(
        &self,
        task: &ConversationId,
        user: &UserName,
        turn: &ParkedTurn,
    ) -> Result<ParkResult, DatabaseError> {
        let owner = owner_column(user);
        if turn.bytes() > MAX_TURN {
            return Ok(ParkResult::Full);
        }
        match self {
            Self::Memory(memory) => Ok(lock(memory).park(task.as_str(), owner, turn.clone(), Instant::now())),
            Self::Postgres(rows) => rows.park(task.as_str(), &owner, turn).await,
        }
    }

    /// Counts the calls of all users that wait for a decision.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn pending(&self) -> Result<PendingCalls, DatabaseError> {
        match self {
            Self::Memory(memory) => Ok(lock(memory).pending(Instant::now())),
            Self::Postgres(rows) => rows.pending().await,
        }
    }

    /// Returns the turns of `user` that wait for a decision, or are decided and have not ended, the oldest first.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn waiting(&self, user: &UserName) -> Result<Vec<WaitingTurn>, DatabaseError> {
        let owner = owner_column(user);
        match self {
            Self::Memory(memory) => Ok(lock(memory).waiting(Some(&owner), "", Instant::now())),
            Self::Postgres(rows) => rows.waiting(Some(&owner), "").await,
        }
    }

    /// Returns the same of all users, for an approver: at most 100, and first those that wait for a decision.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn all_waiting(&self) -> Result<Vec<WaitingTurn>, DatabaseError> {
        match self {
            Self::Memory(memory) => Ok(lock(memory).waiting(None, "", Instant::now())),
            Self::Postgres(rows) => rows.waiting(None, "").await,
        }
    }

    /// Returns the same of the turn that answers this task of Agent2Agent, which a client may ask for again and again.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn waiting_of(&self, a2a_task: &str, user: &UserName) -> Result<Vec<WaitingTurn>, DatabaseError> {
        let (owner, begin) = (owner_column(user), format!("{a2a_task}."));
        match self {
            Self::Memory(memory) => Ok(lock(memory).waiting(Some(&owner), &begin, Instant::now())),
            Self::Postgres(rows) => rows.waiting(Some(&owner), &begin).await,
        }
    }

    /// Reports whether a turn of this conversation of `user` waits, or is decided and has not ended.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn is_open(&self, conversation: &ConversationId, user: &UserName) -> Result<bool, DatabaseError> {
        let owner = owner_column(user);
        match self {
            Self::Memory(memory) => Ok(lock(memory).is_open(conversation, &owner)),
            Self::Postgres(rows) => rows.is_open(conversation, &owner).await,
        }
    }

    /// Reports whether the turn that answers this task of Agent2Agent of `user` waits, or is decided or expired and has not ended.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn is_open_for(&self, a2a_task: &str, user: &UserName) -> Result<bool, DatabaseError> {
        let owner = owner_column(user);
        match self {
            Self::Memory(memory) => Ok(lock(memory).is_open_for(a2a_task, &owner)),
            Self::Postgres(rows) => rows.is_open_for(a2a_task, &owner).await,
        }
    }

    /// Deletes the turn that answers this task of Agent2Agent of `user` before its calls are decided, so that none is made; false where they
    /// are, or it has ended.
    ///
    /// # Errors
    /// The database did not take it.
    pub(super) async fn withdraw(&self, a2a_task: &str, user: &UserName) -> Result<bool, DatabaseError> {
        let owner = owner_column(user);
        match self {
            Self::Memory(memory) => Ok(lock(memory).withdraw(a2a_task, &owner, Instant::now())),
            Self::Postgres(rows) => rows.withdraw(a2a_task, &owner).await,
        }
    }

    /// Returns the turn of this task, if it waits for a decision, or is decided and has not ended, and the user began it, or is an approver.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn waiting_for(
        &self,
        task: &str,
        user: &UserName,
        is_approver: bool,
    ) -> Result<Option<WaitingTurn>, DatabaseError> {
        let owner = owner_column(user);
        let found = self.find(task).await?.filter(|found| is_approver || found.owner == owner);
        let waits = found.filter(|found| found.ruling.is_some() || !found.is_expired);
        Ok(waits.map(|found| found.waiting(task, found.ruling.is_some())))
    }

    /// Claims a turn that no process continues and that is to go on without its caller: one that is decided, or expired. One that needs
    /// its caller is to be ended: as it expires, or a day later where it was decided.
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

    /// Gives a claim back, so that another process goes on with the turn.
    ///
    /// # Errors
    /// The database did not take it: the claim ends by itself.
    pub(super) async fn release(&self, claim: &Claim) -> Result<(), DatabaseError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Postgres(rows) => rows.release(claim).await,
        }
    }

    /// Parks a claimed turn anew as another task, for further calls. The task before is unknown from then on, so that a decision on it,
    /// sent late or again, decides nothing.
    ///
    /// # Errors
    /// The database did not take it.
    pub(super) async fn park_again(
        &self,
        claim: &Claim,
        task: &ConversationId,
        turn: &ParkedTurn,
    ) -> Result<ParkResult, DatabaseError> {
        if turn.bytes() > MAX_TURN {
            return Ok(ParkResult::Full);
        }
        match self {
            Self::Memory(memory) => Ok(lock(memory).park_again(claim, task.as_str(), turn.clone(), Instant::now())),
            Self::Postgres(rows) => rows.park_again(claim, task.as_str(), turn).await,
        }
    }

    /// Deletes a claimed turn; false when the claim is lost. At the end of a turn in a database, the transaction that adds it to its
    /// conversation does this.
    ///
    /// # Errors
    /// The database did not take it.
    pub(super) async fn forget(&self, claim: &Claim) -> Result<bool, DatabaseError> {
        match self {
            Self::Memory(memory) => Ok(lock(memory).forget(claim)),
            Self::Postgres(rows) => rows.forget(claim).await,
        }
    }

    /// Deletes the turns that expired longer ago than conversations are kept.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn forget_old(&self) -> Result<(), DatabaseError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Postgres(rows) => rows.forget_old().await,
        }
    }

    async fn find(&self, task: &str) -> Result<Option<FoundTurn>, DatabaseError> {
        match self {
            Self::Memory(memory) => Ok(lock(memory).find(task, Instant::now())),
            Self::Postgres(rows) => rows.find(task).await,
        }
    }
}

fn lock(memory: &Mutex<ParkedInMemory>) -> MutexGuard<'_, ParkedInMemory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
