//! Gaps in the history of an object.

/// Returns the numbers that are missing among those of one object's steps, as ranges (first, last), after the step `since` (0:
/// from the first on). `numbers` are in order. A step is missing if the object made more steps than `status.history` holds
/// while no mirror was watching, or if it is older than the retention time.
pub fn gaps(since: i64, numbers: impl IntoIterator<Item = i64>) -> Vec<(i64, i64)> {
    let mut missing = Vec::new();
    let mut last = since;
    for number in numbers {
        if number > last.saturating_add(1) {
            missing.push((last + 1, number - 1));
        }
        last = last.max(number);
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_steps_are_ranges() {
        for (since, numbers, expected) in [
            (0, vec![], vec![]),
            (0, vec![1, 2, 3], vec![]),
            (0, vec![3, 4], vec![(1, 2)]),
            (0, vec![1, 5, 6, 8], vec![(2, 4), (7, 7)]),
            (4, vec![5, 9], vec![(6, 8)]),
            (4, vec![3, 4, 5], vec![]),
            (0, vec![1, 1, i64::MAX], vec![(2, i64::MAX - 1)]),
        ] {
            assert_eq!(gaps(since, numbers.clone()), expected, "{since} {numbers:?}");
        }
    }
}
