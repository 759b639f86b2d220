//! Decides the steps that no action decides: an object is deleted, new, or has another spec.

use meta::{Phase, PhasedObject};

use super::{Rule, Table, status};

/// Returns the rule that the driver applies before it asks an action, and the object after it.
pub(super) fn rule<K: PhasedObject>(cr: &K, table: &Table<K::Phase>) -> Option<(Rule, K)> {
    let phase = cr.phase();
    if cr.is_deleting() {
        let terminating = K::Phase::TERMINATING?;
        return (phase != Some(terminating)).then(|| (Rule::Delete, cr.moved_to(terminating)));
    }
    // A status that says Terminating although the object is not being deleted was copied or edited, and is ignored.
    if phase.is_none() || phase == K::Phase::TERMINATING {
        return Some((Rule::Admit, admitted(cr, table)));
    }
    let machine = cr.common()?;
    // The default of the CRD has admitted it; its first status write pins the spec and adds the history entry.
    if status::is_new(cr) {
        return None;
    }
    let moved = machine.observed_generation != Some(cr.generation());
    let older = machine.render_version.is_none_or(|version| version < table.render_version);
    let changed = older || (moved && machine.spec_digest.as_deref() != Some(cr.spec_digest().as_str()));
    changed.then(|| {
        let mut next = admitted(cr, table);
        next.common_mut().failure = None;
        (Rule::SpecChanged, next)
    })
}

/// Returns the object as admitted: in the first phase, with the spec digest and the render version pinned.
fn admitted<K: PhasedObject>(cr: &K, table: &Table<K::Phase>) -> K {
    let mut next = cr.moved_to(K::Phase::FIRST);
    status::pin_spec(&mut next, table);
    next
}
