//! Servers of tools: each answers after a second what the test put at its address, and is asked again after its resync.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use machine::Clock;

use super::{Id, SimClock};
use crate::discovery::{Catalogue, Definition, Discovered, Discoveries, Outcome, Target, Told, Undiscovered, When};

/// What every server says, by address.
pub(crate) type Answers = Arc<Mutex<BTreeMap<String, Outcome>>>;

/// How long a server takes.
const TAKES: Duration = Duration::from_secs(1);

/// What a server of the older era says that has these tools.
pub(crate) fn tells(tools: &[Definition]) -> Outcome {
    let catalogue = Catalogue::of(tools.iter().map(Told::from), false);
    Ok(Discovered { catalogue, server: Default::default(), era: "initialize".to_owned(), restless: false })
}

/// What one run of the operator knows of servers.
pub(super) struct Servers {
    clock: SimClock,
    answers: Answers,
    known: Mutex<BTreeMap<Id, Known>>,
}

struct Known {
    target: Target,
    last: Option<Arc<Outcome>>,
    /// When it answers.
    ends: Option<Duration>,
    /// When it is to be asked again.
    due: Duration,
}

impl Servers {
    pub(super) fn start(clock: SimClock, answers: Answers) -> Arc<Self> {
        Arc::new(Self { clock, answers, known: Mutex::default() })
    }

    /// Takes in the answers that have come, and says which objects there is news for.
    pub(super) fn settle(&self) -> Vec<Id> {
        let now = self.clock.elapsed();
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut woken = Vec::new();
        for (id, known) in self.known().iter_mut() {
            if known.ends.is_some_and(|at| at <= now) {
                let unreachable = Undiscovered { reason: "ServerUnreachable", message: "nobody is there".to_owned() };
                let answer = answers.get(&known.target.url).cloned();
                known.last = Some(Arc::new(answer.unwrap_or(Err(unreachable))));
                known.ends = None;
                known.due = now + known.target.resync;
                woken.push(id.clone());
            } else if known.ends.is_none() && known.due <= now {
                known.ends = Some(now + TAKES);
            }
        }
        woken
    }

    /// When there is something to settle.
    pub(super) fn next_at(&self) -> Option<Duration> {
        self.known().values().map(|known| known.ends.unwrap_or(known.due)).min()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Id, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Discoveries for Servers {
    fn look(&self, target: &Target, when: When) -> Option<Arc<Outcome>> {
        let now = self.clock.elapsed();
        let id = Id { kind: target.kind, namespace: target.key.namespace.clone(), name: target.key.name.clone() };
        let mut all = self.known();
        if let Some(known) = all.get(&id).filter(|known| known.target == *target) {
            return known.last.clone();
        }
        let other = all.contains_key(&id);
        let (ends, due) = match when {
            When::InTurn if !other => (None, now + target.resync / 2),
            _ => (Some(now + TAKES), now),
        };
        all.insert(id, Known { target: target.clone(), last: None, ends, due });
        None
    }
}
