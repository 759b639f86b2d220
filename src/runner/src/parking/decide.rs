//! Decides on parked turns: who may, and what the decision leads to.

use std::time::Instant;

use super::{
    DecisionError, ParkedTurns, lock,
    rulings::{Decisions, Ruling},
    turn::{Claim, ClaimedTurn, FoundTurn, KeptDecision},
};
use crate::{caller::CallerContext, conversations::history::owner_column, models::ModelError, tools::Decider};

impl FoundTurn {
    /// Checks that a caller may decide on the turn. A turn that is for its caller does not exist for others.
    fn check_right(&self, task: &str, caller: &CallerContext) -> Result<(), DecisionError> {
        let is_own = self.owner == owner_column(&caller.user);
        match self.by {
            Decider::Caller if is_own || caller.is_approver => Ok(()),
            Decider::Caller => Err(DecisionError::unknown(task)),
            Decider::Approver if caller.is_approver && !is_own => Ok(()),
            Decider::Approver if caller.user.is_none() => Err(DecisionError::NotSignedIn),
            Decider::Approver => Err(DecisionError::NotApprover),
        }
    }

    /// Returns the ruling by which the turn goes on: that of this decision, or, where the user whose turn it is only goes on with it, that
    /// of the approver before.
    fn ruling_of(&self, task: &str, caller: &CallerContext, decisions: Decisions) -> Result<Ruling, DecisionError> {
        let user = owner_column(&caller.user);
        if let Some(before) = &self.ruling
            && self.owner == user
            && !before.is_by(&user)
            && decisions.repeats(before)
        {
            return Ok(before.clone());
        }
        self.check_right(task, caller)?;
        let ruling = decisions.on(&self.calls, &user).map_err(DecisionError::Invalid)?;
        match &self.ruling {
            Some(before) if *before != ruling => Err(DecisionError::Decided(before.by_whom())),
            None if self.is_expired => Err(DecisionError::Expired),
            _ => Ok(ruling),
        }
    }

    /// Checks that a request of the user whose turn it is has what the turn needs.
    fn check_needs(&self, caller: &CallerContext, needs_key: bool) -> Result<(), DecisionError> {
        let needed = self.forwarded.as_ref().ok_or(DecisionError::OtherVersion)?;
        if needs_key && caller.key.is_none() {
            return Err(ModelError::no_key().into());
        }
        let missing: Vec<&str> = needed.iter().filter(|name| !caller.headers.has(name)).map(String::as_str).collect();
        if missing.is_empty() { Ok(()) } else { Err(DecisionError::MissingHeaders(missing.join(", "))) }
    }
}

impl ParkedTurns {
    /// Decides on all calls of a turn for this caller and claims it. The same decision again claims it too, as long as no process continues
    /// it; of the user whose turn it is, also without naming calls where an approver has decided. `needs_key`: the model needs the key of
    /// that user.
    ///
    /// # Errors
    /// The reason why the turn is not claimed. Nothing has changed, but where the decision is [kept](DecisionError::Kept).
    pub(crate) async fn decide(
        &self,
        task: &str,
        caller: &CallerContext,
        needs_key: bool,
        decisions: Decisions,
    ) -> Result<ClaimedTurn, DecisionError> {
        let unknown = || DecisionError::unknown(task);
        let found = self.find(task).await?.ok_or_else(unknown)?;
        let ruling = found.ruling_of(task, caller, decisions)?;
        if found.forwarded.is_none() {
            return Err(DecisionError::OtherVersion);
        }
        if found.owner == owner_column(&caller.user) {
            found.check_needs(caller, needs_key)?;
        } else if found.needs_caller {
            return Err(self.keep(task, &found, &ruling).await?);
        }
        match self.rule(task, &found.owner, &ruling).await? {
            Some(claimed) => Ok(claimed),
            // Another decision came first, or the turn is being continued.
            None => match self.find(task).await? {
                None => Err(unknown()),
                Some(FoundTurn { ruling: Some(before), .. }) if before == ruling => Err(DecisionError::Busy),
                Some(FoundTurn { ruling: Some(before), .. }) => Err(DecisionError::Decided(before.by_whom())),
                Some(_) => Err(DecisionError::Expired),
            },
        }
    }

    /// Claims a turn of this caller that is decided and needs its headers or key, where the request has these and no process continues the
    /// turn.
    ///
    /// # Errors
    /// The database did not take it, or there are no random numbers.
    pub(crate) async fn claim_decided(
        &self,
        task: &str,
        caller: &CallerContext,
        needs_key: bool,
    ) -> Result<Option<ClaimedTurn>, DecisionError> {
        let owner = owner_column(&caller.user);
        let Some(found) = self.find(task).await? else { return Ok(None) };
        let goes_on = found.owner == owner && found.needs_caller && found.check_needs(caller, needs_key).is_ok();
        match &found.ruling {
            Some(ruling) if goes_on => self.rule(task, &owner, ruling).await,
            _ => Ok(None),
        }
    }

    /// Rules on a turn and claims it; `None` where another decision came first, or a process continues the turn.
    async fn rule(&self, task: &str, owner: &str, ruling: &Ruling) -> Result<Option<ClaimedTurn>, DecisionError> {
        let claim = Claim::new(task)?;
        Ok(match self {
            Self::Memory(memory) => lock(memory).rule(&claim, owner, ruling, Instant::now()),
            Self::Postgres(rows) => rows.rule(&claim, owner, ruling).await?,
        })
    }

    /// Keeps the ruling of an approver on a turn that needs its own caller, and returns that it is kept, or why not.
    async fn keep(&self, task: &str, found: &FoundTurn, ruling: &Ruling) -> Result<DecisionError, DecisionError> {
        let is_kept = match self {
            Self::Memory(memory) => lock(memory).keep_ruling(task, ruling, Instant::now()),
            Self::Postgres(rows) => rows.keep_ruling(task, ruling).await?,
        };
        let kept = |is_new| {
            let (waiting, round, calls) = (found.waiting(task, true), found.round, found.calls.clone());
            DecisionError::Kept(Box::new(KeptDecision { waiting, round, calls, ruling: ruling.clone(), is_new }))
        };
        if is_kept {
            return Ok(kept(true));
        }
        Ok(match self.find(task).await? {
            None => DecisionError::unknown(task),
            Some(FoundTurn { ruling: Some(before), .. }) if before == *ruling => kept(false),
            Some(FoundTurn { ruling: Some(before), .. }) => DecisionError::Decided(before.by_whom()),
            Some(_) => DecisionError::Expired,
        })
    }
}
