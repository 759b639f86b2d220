//! Evaluates whether our runner would refuse the prompts of a flow when it loads them: the parser is the same.
//!
//! Verdicts are cached by the digest of the texts: a flow of a set that is left out is evaluated on every reconcile.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crds::json_schema;
use dotprompt::{OutputFormat, Prompt};
use sha2::{Digest, Sha256};

/// Most verdicts in the cache; beyond it an arbitrary one is evicted for a new one.
const CAPACITY: usize = 1024;
/// Largest cost of the texts that are parsed at a time, for a flow or for all flows of a set, as [`Prompt::cost`] counts: a
/// quarter of a second. A MiB of two thousand tags takes two seconds. The runner can afford that and the operator cannot, so
/// texts beyond the limit are left to the runner.
const COST_BUDGET: u64 = 256 << 20;
/// Longest sentence, in bytes: it quotes names out of the texts.
const MAX_SENTENCE: usize = 4 * 1024;

/// Returns the reason why the runner refuses the prompts of a flow, given as names and texts: the first problem of each wrong
/// prompt, with the line.
pub fn rejection(prompts: &[(String, String)]) -> Option<String> {
    rejection_within(prompts, COST_BUDGET)
}

fn rejection_within(prompts: &[(String, String)], afforded: u64) -> Option<String> {
    let all: BTreeMap<&str, &str> = prompts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let mut cost = 0;
    let read = all.keys().take_while(|name| {
        cost += Prompt::cost(name, &all);
        cost <= afforded
    });
    let problems = read.filter_map(|name| {
        let problem = check_prompt(name, &all).err()?;
        Some(format!("prompt {name:?}{problem}"))
    });
    let mut sentence = problems.collect::<Vec<_>>().join("; ");
    if sentence.len() > MAX_SENTENCE {
        sentence.truncate(sentence.floor_char_boundary(MAX_SENTENCE));
        sentence.push('…');
    }
    (!sentence.is_empty()).then_some(sentence)
}

/// Parses one of the prompts. The error is the part of the sentence that follows its name.
fn check_prompt(name: &str, all: &BTreeMap<&str, &str>) -> Result<(), String> {
    let prompt = Prompt::parse_among(name, all).map_err(|error| match error.line {
        Some(_) => format!(", {error}"),
        None => format!(": {error}"),
    })?;
    let meta = prompt.metadata();
    let output = meta.output_schema.as_ref().filter(|_| meta.output_format == OutputFormat::Json);
    let bounded = output.map_or(Ok(()), |schema| json_schema::evaluate_cost(schema).map(drop));
    bounded.map_err(|problem| format!(": the output schema is wrong: {problem}"))
}

/// Cache of verdicts by the digest of the texts, empty after a restart. Invariant: it holds at most [`CAPACITY`] verdicts.
#[derive(Default)]
pub struct PromptRejections(Mutex<HashMap<[u8; 32], Option<Arc<str>>>>);

impl PromptRejections {
    /// Returns the result of [`rejection`], evaluated once for the same texts. `flows` is the number of flows that are evaluated
    /// together; each gets its part of the cost.
    pub(crate) fn rejection(&self, prompts: &[(String, String)], flows: usize) -> Option<Arc<str>> {
        let afforded = COST_BUDGET / u64::try_from(flows.max(1)).unwrap_or(u64::MAX);
        let digest = digest(prompts, afforded);
        if let Some(known) = self.lock().get(&digest) {
            return known.clone();
        }
        let verdict: Option<Arc<str>> = rejection_within(prompts, afforded).map(Arc::from);
        let mut known = self.lock();
        if known.len() >= CAPACITY
            && let Some(any) = known.keys().next().copied()
        {
            known.remove(&any);
        }
        known.insert(digest, verdict.clone());
        verdict
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Option<Arc<str>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PromptRejections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptRejections").field("kept", &self.lock().len()).finish()
    }
}

fn digest(prompts: &[(String, String)], afforded: u64) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(afforded.to_le_bytes());
    for part in prompts.iter().flat_map(|(name, text)| [name, text]) {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(texts: &[(&str, &str)]) -> Vec<(String, String)> {
        texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn each_prompt_that_is_refused_is_named_with_its_line() {
        let found =
            rejection(&prompts(&[("b", "{{> a}}\n{{upper x}}"), ("a", "fine"), ("c", "---\nmaxTurns: 0\n---\n")]));
        let found = found.unwrap();
        assert!(found.starts_with("prompt \"b\", line 2: unknown helper `upper`"), "{found}");
        assert!(found.ends_with("; prompt \"c\", line 2: `maxTurns` must be a whole number from 1 on"), "{found}");
        assert_eq!(rejection(&prompts(&[("b", "{{> a}}"), ("a", "fine")])), None);
        let long = rejection(&prompts(&[("a", &format!("{{{{{} x}}}}", "é".repeat(100_000)))])).unwrap();
        assert!(long.len() <= MAX_SENTENCE + 4 && long.ends_with('…'), "{}", long.len());
    }

    #[test]
    fn what_takes_too_long_to_read_is_left_to_the_runner() {
        let long = format!("{}{{{{upper x}}}}", " ".repeat(500)).repeat(1_900);
        assert_eq!(rejection(&prompts(&[("long", &long)])), None);
        let (first, other) = (("a", "{{upper x}}"), ("long", long.as_str()));
        assert!(rejection(&prompts(&[first, other])).unwrap().starts_with("prompt \"a\", line 1"));
    }

    #[test]
    fn a_text_without_tags_takes_time_too() {
        let texts = prompts(&[("a", &"x".repeat(1_000)), ("b", "{{upper x}}")]);
        assert_eq!(rejection_within(&texts, 128_000), None);
        assert!(rejection_within(&texts, 130_000).unwrap().starts_with("prompt \"b\", line 1"));
    }

    #[test]
    fn a_verdict_is_kept_for_the_same_texts_alone() {
        let verdicts = PromptRejections::default();
        let (bad, good) = (prompts(&[("a", "{{upper x}}")]), prompts(&[("a", "hi")]));
        assert_eq!((verdicts.rejection(&bad, 1).is_some(), verdicts.rejection(&good, 1)), (true, None));
        assert_eq!(format!("{verdicts:?}"), "PromptRejections { kept: 2 }");
        assert_eq!(verdicts.rejection(&bad, 1), verdicts.rejection(&bad, 1));
        for n in 0..CAPACITY {
            verdicts.rejection(&prompts(&[("a", &n.to_string())]), 1);
        }
        assert!(verdicts.lock().len() <= CAPACITY);
        assert_ne!(digest(&prompts(&[("a", "bc")]), 1), digest(&prompts(&[("ab", "c")]), 1));
    }
}
