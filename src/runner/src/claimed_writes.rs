//! Writes of a turn that this process has claimed: what it has come to is written until the database takes it, or the claim is lost.

use std::time::Duration;

use super::{
    agent::{Agent, TurnError},
    conversations::history::{ConversationId, TurnStorage, UserName},
    database::DatabaseError,
    parking::{Claim, OpenTurn, ParkResult, ParkedTurn, Progress, RENEWAL},
};

/// Time for an answer of the database that is on its way.
const SETTLING: Duration = Duration::from_secs(1);
/// Wait before what a turn has come to is written again.
const REWRITE_WAIT: Duration = Duration::from_secs(1);

impl Agent {
    /// Stores the results of approved calls.
    ///
    /// # Errors
    /// The claim is lost.
    pub(crate) async fn record_result(&self, claim: &Claim, progress: &Progress) -> Result<(), TurnError> {
        loop {
            match self.parked.record(claim, progress).await {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(TurnError::ClaimLost),
                Err(error) => wait_for_database(&error).await,
            }
        }
    }

    /// Parks a claimed turn anew as another task, for further calls.
    pub(crate) async fn park_again(&self, claim: &Claim, task: &ConversationId, turn: &ParkedTurn) -> ParkResult {
        loop {
            match self.parked.park_again(claim, task, turn).await {
                Ok(result) => return result,
                Err(error) => wait_for_database(&error).await,
            }
        }
    }

    /// Adds a claimed turn to its conversation and deletes it.
    pub(crate) async fn store(&self, claim: &Claim, owner: &UserName, turn: &mut OpenTurn) -> Result<(), TurnError> {
        let messages = turn.request.messages.split_off(turn.earlier);
        if !self.parked.is_shared() && !self.parked.forget(claim).await? {
            return Err(TurnError::ClaimLost);
        }
        let (conversation, title) = (&turn.conversation, turn.title.as_deref());
        let stored = loop {
            match self.conversations.add_claimed(claim, conversation, owner, messages.clone(), title).await {
                Ok(stored) => break stored,
                Err(error) => wait_for_database(&error).await,
            }
        };
        match stored {
            TurnStorage::Stored => Ok(()),
            TurnStorage::Foreign => Err(self.give_up(claim, conversation.clone()).await?),
            TurnStorage::Overtaken => Err(TurnError::ClaimLost),
        }
    }

    /// Deletes a turn whose conversation another user has by now, and returns the error.
    pub(crate) async fn give_up(&self, claim: &Claim, conversation: ConversationId) -> Result<TurnError, TurnError> {
        self.parked.forget(claim).await?;
        tracing::warn!(task = claim.task, "a parked turn was deleted: its conversation is another user's by now");
        Ok(TurnError::NoConversation(conversation))
    }

    /// Renews the claim until it is lost.
    pub(crate) async fn keep(&self, claim: &Claim) {
        loop {
            tokio::time::sleep(RENEWAL).await;
            match self.parked.renew(claim).await {
                Ok(true) => {}
                Ok(false) => {
                    // The turn may have ended or been parked at this very moment, whose answer is then about to come.
                    tokio::time::sleep(SETTLING).await;
                    return;
                }
                Err(error) => tracing::warn!("the claim on a parked turn was not renewed: {error}"),
            }
        }
    }
}

/// Waits until a write of what a turn has come to is tried again.
async fn wait_for_database(error: &DatabaseError) {
    tracing::warn!("what a parked turn has come to is not stored yet, and is written again: {error}");
    tokio::time::sleep(REWRITE_WAIT).await;
}
