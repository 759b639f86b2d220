//! Builds conditions and sets them in a list, each type once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::{PhasedObject, UNSET_TIME};

/// Returns a condition of this type; its time and generation are left to the driver.
pub fn condition(type_: &str, status: bool, reason: &str, message: impl Into<String>) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.into(),
        last_transition_time: Time(UNSET_TIME),
        observed_generation: None,
    }
}

/// Sets a condition in the list, in place of the one of its type.
///
/// # Example
///
/// ```
/// use meta::{condition, set_condition};
///
/// let mut conditions = vec![];
/// set_condition(&mut conditions, condition("Ready", false, "Pulling", "the image is being pulled"));
/// set_condition(&mut conditions, condition("Available", false, "Pulling", ""));
/// set_condition(&mut conditions, condition("Ready", true, "Running", ""));
///
/// let states: Vec<_> = conditions.iter().map(|one| (one.type_.as_str(), one.status.as_str())).collect();
/// assert_eq!(states, [("Ready", "True"), ("Available", "False")]);
/// ```
pub fn set_condition(conditions: &mut Vec<Condition>, new: Condition) {
    match conditions.iter_mut().find(|found| found.type_ == new.type_) {
        Some(found) => *found = new,
        None => conditions.push(new),
    }
}

/// Sets a condition in the list unless the one of its type says the same: that one keeps its time.
pub fn update_condition(conditions: &mut Vec<Condition>, new: Condition) {
    let words =
        |found: &Condition| (found.type_.clone(), found.status.clone(), found.reason.clone(), found.message.clone());
    if !conditions.iter().any(|known| words(known) == words(&new)) {
        set_condition(conditions, new);
    }
}

/// Returns the object with this condition set.
#[must_use]
pub fn with_condition<K: PhasedObject>(mut cr: K, new: Condition) -> K {
    set_condition(&mut cr.common_mut().conditions, new);
    cr
}
