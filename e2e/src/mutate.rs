//! Mutates manifests at random: other types, sizes, Unicode, control characters, null, nesting.
//!
//! The generator is SplitMix64 (Steele, Lea, Flood 2014): the same seed gives the same manifests on every machine.

use serde_json::{Map, Value, json};

/// Pseudo-random number generator, SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit.max(1) as u64)).unwrap_or_default()
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len())).cloned()
    }
}

/// Changes one to three places of a spec: existing values, and absent fields from `known`.
pub(crate) fn mutate(random: &mut Random, spec: &mut Value, known: &[String]) {
    for _ in 0..=random.below(3) {
        if random.below(3) == 0
            && let (Some(field), Some(fields)) = (random.one_of(known), spec.as_object_mut())
        {
            let value = edge_value(random, fields.get(&field));
            fields.insert(field, value);
            continue;
        }
        let mut pointers = Vec::new();
        collect(spec, String::new(), &mut pointers);
        if let Some(found) = random.one_of(&pointers).and_then(|pointer| spec.pointer_mut(&pointer)) {
            *found = edge_value(random, Some(found));
        }
    }
}

/// Collects the JSON pointers of all values below a value.
fn collect(value: &Value, at: String, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                collect(field, at.clone(), into);
                into.push(at);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, format!("{at}/{index}"), into);
                into.push(format!("{at}/{index}"));
            }
        }
        _ => {}
    }
}

/// Returns a value at the edge of what a schema, a template or an API server handles.
fn edge_value(random: &mut Random, was: Option<&Value>) -> Value {
    match random.below(16) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(i64::MAX),
        4 => json!(0.5),
        5 => json!(""),
        6 => json!("a".repeat(10_000)),
        7 => json!("ä€𝄞".repeat(20_000)),
        8 => json!("be nice\u{7f} and \u{9d} short\u{feff}\u{fffe}"),
        9 => json!("\u{202e}../../{{x}} ${HOME} $(id)\n---\n"),
        10 => json!(["x,y=z", "-", "UPPER_case", "1e309"][random.below(4)]),
        11 => json!(["1y", "-5s", "99999999h", "http://[::1", "http://x:99999/"][random.below(5)]),
        12 => (0..40 + random.below(20)).fold(json!(1), |inner, _| json!({ "a": inner })),
        13 => (0..40 + random.below(20)).fold(json!(1), |inner, _| json!([inner])),
        14 => Value::Array(vec![was.cloned().unwrap_or_else(|| json!("x")); 40]),
        _ => Value::Object(Map::from_iter((0..20).map(|n| (format!("k{n}"), json!(n))))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_mutations_and_another_has_others() {
        let mutated = |seed| {
            let mut spec = json!({ "name": "A", "env": [{ "name": "X", "value": "1" }] });
            let mut random = Random::new(seed);
            (0..20).for_each(|_| mutate(&mut random, &mut spec, &["port".to_owned()]));
            spec
        };
        assert_eq!(mutated(7), mutated(7));
        assert_ne!(mutated(7), mutated(8));
    }

    #[test]
    fn places_inside_lists_and_fields_are_found() {
        let mut found = Vec::new();
        collect(&json!({ "a": [{ "b/c": 1 }] }), String::new(), &mut found);
        found.sort();
        assert_eq!(found, ["/a", "/a/0", "/a/0/b~1c"]);
    }
}
