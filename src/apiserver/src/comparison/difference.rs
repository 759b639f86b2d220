//! Compares the answers of two servers, and knows where the one in memory differs from the real one.

use std::collections::BTreeSet;

use serde_json::Value;

use super::player::RecordedResponse;

/// A difference from the real API server that stays.
#[derive(Debug, Clone, Copy)]
pub struct Difference {
    /// Name of the step, or the begin of the names of several up to a colon.
    pub step: &'static str,
    /// Begin of the JSON pointer of what differs in the answer, such as `/body/message`.
    pub at: &'static str,
    /// Reason why it stays.
    pub reason: &'static str,
}

/// Differences that stay.
pub const DIFFERENCES: &[Difference] = &[
    Difference { step: "update of another uid", at: "/body/message", reason: "the real message names a key of etcd" },
    Difference { step: "JSON Patch that is none", at: "/body/message", reason: "the words of Go's decoder" },
    Difference { step: "a field of another type", at: "/body/message", reason: "the words of Go's decoder" },
    Difference { step: "a body of another kind", at: "/body/message", reason: "the words of Go's conversions" },
    Difference { step: "a body of another version", at: "/body/message", reason: "the words of Go's conversions" },
    Difference {
        step: "a selector that is none",
        at: "/body/message",
        reason: "the real message names a token of its parser",
    },
    Difference {
        step: "a patch of an unknown field, strictly",
        at: "/body/message",
        reason: "the message repeats the object, whose fields have another order",
    },
    Difference {
        step: "a patch of an unknown field, strictly",
        at: "/body/details/causes/0/message",
        reason: "the message repeats the object, whose fields have another order",
    },
    Difference {
        step: "a JSON Patch of an unknown field, strictly",
        at: "/body/message",
        reason: "the message repeats the object, whose fields have another order",
    },
    Difference {
        step: "a JSON Patch of an unknown field, strictly",
        at: "/body/details/causes/0/message",
        reason: "the message repeats the object, whose fields have another order",
    },
    Difference {
        step: "a finalizer more while it is deleted",
        at: "/body/details/causes/1",
        reason: "the real one checks metadata twice, and reports a violation twice",
    },
    Difference {
        step: "defaults of many fields of a Deployment",
        at: "/body/spec/template/spec/containers/0/resources/requests/cpu",
        reason: "quantities stay as they are written",
    },
    Difference {
        step: "apply of many fields of a Deployment",
        at: "/body/spec/template/spec/containers/0/resources/requests/cpu",
        reason: "quantities stay as they are written",
    },
    Difference {
        step: "an Event",
        at: "/body/eventTime",
        reason: "Go writes these fields of an Event even if they are empty",
    },
    Difference {
        step: "an Event",
        at: "/body/reporting",
        reason: "Go writes these fields of an Event even if they are empty",
    },
    Difference {
        step: "the other form of an Event",
        at: "/body/eventTime",
        reason: "Go writes these fields of an Event even if they are empty",
    },
    Difference {
        step: "Events of an object",
        at: "/body/items/0/eventTime",
        reason: "Go writes these fields of an Event even if they are empty",
    },
    Difference {
        step: "Events of an object",
        at: "/body/items/0/reporting",
        reason: "Go writes these fields of an Event even if they are empty",
    },
    Difference { step: "a merge patch to another type", at: "/body/message", reason: "the words of Go's decoder" },
    Difference {
        step: "a merge patch to another type",
        at: "/body/details/causes/0/message",
        reason: "the words of Go's decoder",
    },
    Difference { step: "a merge patch to another kind", at: "/body/message", reason: "the words of Go's conversions" },
    Difference {
        step: "a merge patch to another kind",
        at: "/body/details/causes/0/message",
        reason: "the words of Go's conversions",
    },
    Difference {
        step: "a strategic patch of a list",
        at: "/code",
        reason: "strategic merge patches of lists are refused",
    },
    Difference {
        step: "a strategic patch of a list",
        at: "/body/",
        reason: "strategic merge patches of lists are refused",
    },
    Difference { step: "a list by pages", at: "/body/items/1", reason: "a list is always whole, as a server may do" },
    Difference {
        step: "a list by pages",
        at: "/body/metadata/continue",
        reason: "a list is always whole, as a server may do",
    },
    Difference {
        step: "Pod:",
        at: "/body/spec/tolerations",
        reason: "no admission plugin completes Pods, and nothing schedules them",
    },
    Difference {
        step: "Pod:",
        at: "/body/spec/priority",
        reason: "no admission plugin completes Pods, and nothing schedules them",
    },
    Difference {
        step: "Pod:",
        at: "/body/spec/preemptionPolicy",
        reason: "no admission plugin completes Pods, and nothing schedules them",
    },
    Difference {
        step: "Pod:",
        at: "/body/status/qosClass",
        reason: "no admission plugin completes Pods, and nothing schedules them",
    },
];

impl Difference {
    /// Reports whether it is known of a step.
    fn is_of(&self, step: &str) -> bool {
        step == self.step || (self.step.ends_with(':') && step.starts_with(self.step))
    }
}

/// Returns where the answers of two servers differ in another way than is known, and which of the known differences are gone.
/// Each line begins with the name of the step.
pub fn differences(real: &[(String, RecordedResponse)], ours: &[(String, RecordedResponse)]) -> Vec<String> {
    let (mut lines, mut met) = (Vec::new(), BTreeSet::new());
    if !real.iter().map(|(name, _)| name).eq(ours.iter().map(|(name, _)| name)) {
        lines.push("the two have not played the same script".to_owned());
    }
    for ((step, real), (_, ours)) in real.iter().zip(ours) {
        let mut found = Vec::new();
        if real.code != ours.code {
            found.push(("/code".to_owned(), real.code.to_string(), ours.code.to_string()));
        }
        compare("/body", Some(&real.body), Some(&ours.body), &mut found);
        for (at, real, ours) in found {
            let known = DIFFERENCES.iter().position(|known| known.is_of(step) && begins(&at, known.at));
            match known {
                Some(known) => {
                    met.insert(known);
                }
                None => lines.push(format!("{step}: {at}: the real one has {real}, ours {ours}")),
            }
        }
    }
    let gone = DIFFERENCES.iter().enumerate().filter(|(index, _)| !met.contains(index));
    lines.extend(
        gone.map(|(_, known)| format!("{}: {}: no longer differs, remove it from the list", known.step, known.at)),
    );
    lines
}

/// Reports whether a JSON pointer begins with another one, which ends before no digit: `/1` is not the begin of `/10`.
fn begins(at: &str, begin: &str) -> bool {
    at.strip_prefix(begin).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

/// Adds the places where two values differ, with what is there in each.
fn compare(at: &str, real: Option<&Value>, ours: Option<&Value>, found: &mut Vec<(String, String, String)>) {
    match (real, ours) {
        (Some(Value::Object(real)), Some(Value::Object(ours))) => {
            let names: BTreeSet<&String> = real.keys().chain(ours.keys()).collect();
            for name in names {
                compare(&format!("{at}/{name}"), real.get(name), ours.get(name), found);
            }
        }
        (Some(Value::Array(real)), Some(Value::Array(ours))) => {
            for index in 0..real.len().max(ours.len()) {
                compare(&format!("{at}/{index}"), real.get(index), ours.get(index), found);
            }
        }
        _ if real == ours => {}
        _ => {
            let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
            found.push((at.to_owned(), shown(real), shown(ours)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_difference_is_of_one_item_of_a_list_and_all_below_it() {
        let cases = [
            ("/causes/1", true),
            ("/causes/1/message", true),
            ("/causes/10", false),
            ("/causes/10/message", false),
            ("/causes/2", false),
        ];
        for (at, expected) in cases {
            assert_eq!(begins(at, "/causes/1"), expected, "{at}");
        }
        assert!(begins("/reportingComponent", "/reporting"), "the begin of names");
    }
}
