//! Tests that reports may be lost, repeated and reordered, and the sums stay those of the provider; and of costs and bounds.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const CALLERS: [&str; 5] = ["", "ada", "ben", "cleo", "dan"];
const MODELS: [&str; 3] = ["gpt", "claude", "gemini"];

/// Request that a scripted provider bills.
#[derive(Debug, Clone)]
struct Billed {
    process: usize,
    hour: i64,
    caller: usize,
    model: usize,
    totals: UsageTotals,
}

fn billed() -> impl Strategy<Value = Billed> {
    let tokens = (0..5000_u64, 0..5000_u64, 0..5000_u64, 0..5000_u64);
    let place = (0..3_usize, 0..2_i64, 0..CALLERS.len(), 0..MODELS.len());
    (place, tokens, any::<bool>(), 0..700_000_u64).prop_map(|(place, tokens, is_failed, millis)| {
        let (process, hour, caller, model) = place;
        let (fresh, cache_read, cache_write, output) = tokens;
        let mut latency = [0; LATENCY_BUCKETS];
        latency[latency_bucket(millis)] = 1;
        let totals = UsageTotals {
            calls: u64::from(!is_failed),
            failed: u64::from(is_failed),
            input: fresh + cache_read + cache_write,
            cache_read,
            cache_write,
            output,
            reasoning: output / 2,
            estimated: if is_failed { output } else { 0 },
            latency,
        };
        Billed { process, hour, caller, model, totals }
    })
}

/// Returns every version of every cell in the order in which the processes count: a report holds the newest ones.
fn versions(script: &[Billed]) -> Vec<(usize, UsageKey, UsageTotals)> {
    let mut cells: BTreeMap<(usize, UsageKey), UsageTotals> = BTreeMap::new();
    script
        .iter()
        .map(|Billed { process, hour, caller, model, totals }| {
            let key = UsageKey {
                hour: *hour,
                caller: CALLERS[*caller].into(),
                provider: "p".into(),
                model: MODELS[*model].into(),
                purpose: Purpose::Turn,
            };
            let cell = cells.entry((*process, key.clone())).or_default();
            *cell = cell.plus(totals);
            (*process, key, *cell)
        })
        .collect()
}

fn merged(versions: &[(usize, UsageKey, UsageTotals)]) -> UsageCounter<usize> {
    let mut counter = UsageCounter::default();
    for (process, key, totals) in versions {
        counter.merge(*process, key.clone(), totals);
    }
    counter
}

type Sums = BTreeMap<(String, String), UsageTotals>;

/// Returns the sums by caller and model.
fn sums<'a>(cells: impl Iterator<Item = (&'a str, &'a str, &'a UsageTotals)>) -> Sums {
    let mut sums = Sums::new();
    for (caller, model, totals) in cells {
        let sum = sums.entry((caller.to_owned(), model.to_owned())).or_default();
        *sum = sum.plus(totals);
    }
    sums
}

proptest! {
    #[test]
    fn the_sums_are_those_of_the_provider_however_reports_come(
        script in prop::collection::vec(billed(), 0..200),
        seed in any::<u64>(),
        lost in prop::collection::vec(any::<bool>(), 200),
    ) {
        let versions = versions(&script);
        // The newest version of a cell comes at last; of the others any may be lost.
        let is_last = |at: usize| {
            let (process, key, _) = &versions[at];
            versions[at + 1..].iter().all(|(other, others, _)| other != process || others != key)
        };
        let kept = (0..versions.len()).filter(|at| is_last(*at) || !lost[*at]);
        let mut sent: Vec<_> = kept.flat_map(|at| vec![versions[at].clone(); 3]).collect();
        let mut state = seed;
        for at in (1..sent.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            sent.swap(at, (state >> 33) as usize % (at + 1));
        }
        let counter = merged(&sent);
        let counted = sums(counter.iter().map(|(_, key, totals)| (key.caller.as_str(), key.model.as_str(), totals)));
        let billed = sums(script.iter().map(|one| (CALLERS[one.caller], MODELS[one.model], &one.totals)));
        prop_assert_eq!(counted, billed);
        // What was merged already changes nothing.
        let mut again = counter.clone();
        for (process, key, totals) in &sent {
            again.merge(*process, key.clone(), totals);
        }
        prop_assert_eq!(again, counter);
    }

    #[test]
    fn versions_join_in_every_order(
        one in billed(), two in billed(), three in billed(),
    ) {
        let (a, b, c) = (one.totals, two.totals, three.totals);
        prop_assert_eq!(a.join(&a), a);
        prop_assert_eq!(a.join(&b), b.join(&a));
        prop_assert_eq!(a.join(&b).join(&c), a.join(&b.join(&c)));
        prop_assert_eq!(a.join(&a.plus(&b)), a.plus(&b));
    }
}

fn price(input: &str, output: &str, cached: Option<(&str, &str)>) -> ModelPrice {
    let (read, write) = cached.unzip();
    ModelPrice {
        currency: "EUR".into(),
        input: input.into(),
        output: output.into(),
        cache_read: read.map(str::to_owned),
        cache_write: write.map(str::to_owned),
    }
}

#[test]
fn a_cost_is_exact_to_a_billionth() {
    let totals = UsageTotals { input: 1200, cache_read: 800, cache_write: 100, output: 340, ..UsageTotals::default() };
    for (price, cost) in [
        (price("3", "15", Some(("0.3", "3.75"))), Some(300 * 3000 + 800 * 300 + 100 * 3750 + 340 * 15_000)),
        (price("3", "15", None), Some(1200 * 3000 + 340 * 15_000)),
        (price("0.075", "0", None), Some(1200 * 75)),
        (price("0.000001", "0", None), Some(1)),
        (price("999999.999999", "0", None), Some(1_200_000_000_000 - 1)),
        (price("3.", "1", None), None),
        (price(".5", "1", None), None),
        (price("1234567", "1", None), None),
        (price("1", "-1", None), None),
        (price("1", "1e3", None), None),
        (price("1", "1", Some(("1.0000001", "1"))), None),
    ] {
        assert_eq!(price.cost(&totals), cost, "{price:?}");
    }
    assert_eq!(price("999999", "999999", None).cost(&UsageTotals { input: u64::MAX, ..totals }), None);
}

#[test]
fn durations_are_told_by_the_bound_that_most_do_not_exceed() {
    let mut buckets = [0; LATENCY_BUCKETS];
    assert_eq!(quantile_ms(&buckets, 95), None);
    for (millis, bound) in [(0, 16), (16, 16), (17, 32), (1000, 1024), (524_288, 524_288), (u64::MAX, 524_288)] {
        let mut one = [0; LATENCY_BUCKETS];
        one[latency_bucket(millis)] = 1;
        assert_eq!(quantile_ms(&one, 95), Some(bound), "{millis}");
    }
    (buckets[0], buckets[6]) = (95, 5);
    assert_eq!((quantile_ms(&buckets, 95), quantile_ms(&buckets, 96)), (Some(16), Some(1024)));
}

#[test]
fn cells_of_others_are_believed_within_bounds() {
    let now = hour_start(500_000) + 1800;
    let cell = |hour: i64, caller: &str, totals: UsageTotals| {
        let key = UsageKey { hour, caller: caller.into(), ..UsageKey::default() };
        UsageCell { key, totals }.is_plausible(now)
    };
    let some = UsageTotals { calls: 1, input: 10, cache_read: 4, output: 3, reasoning: 3, ..UsageTotals::default() };
    for hour in [500_000 - KEPT_HOURS, 500_000, 500_001] {
        assert!(cell(hour, "ada", some), "{hour}");
    }
    assert!(!cell(500_000 - KEPT_HOURS - 1, "ada", some) && !cell(500_002, "ada", some));
    assert!(!cell(500_000, &"x".repeat(MAX_NAME_BYTES + 1), some));
    for totals in [
        UsageTotals { input: u64::MAX, ..some },
        UsageTotals { input: 10_000_000_001, ..some },
        UsageTotals { cache_write: 7, ..some },
        UsageTotals { reasoning: 4, ..some },
        UsageTotals { estimated: 14, ..some },
        UsageTotals { latency: [u64::MAX; LATENCY_BUCKETS], ..some },
    ] {
        assert!(!cell(500_000, "ada", totals), "{totals:?}");
    }
    assert_eq!((hour_of(-1), hour_of(3600)), (-1, 1));
}
