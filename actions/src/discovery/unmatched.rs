//! Words on patterns of `approval.tools` that match no tool of the server: with them a call that is meant to wait would be made
//! unasked.

/// Most patterns that a sentence names.
const FEW: usize = 5;

/// Returns the sentence on these patterns, of which there is at least one. `server` is the server, such as
/// `remotemcpserver "docs"`.
pub(crate) fn unmatched_words(server: &str, patterns: &[String]) -> String {
    let first: Vec<String> = patterns.iter().take(FEW).map(|pattern| format!("{pattern:?}")).collect();
    let more = match patterns.len().saturating_sub(FEW) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let verb = if patterns.len() == 1 { "matches" } else { "match" };
    format!(
        "approval.tools of {server}: {}{more} {verb} none of its tools: write names as the server has them, without prefix; \
         patterns such as delete_* are allowed",
        first.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_a_few_patterns_and_counts_the_others() {
        let words = |count: usize| {
            let patterns: Vec<String> = (0..count).map(|number| format!("t{number}")).collect();
            let words = unmatched_words("remotemcpserver \"x\"", &patterns);
            let (subject, rest) = words.split_once(" none of its tools: ").unwrap();
            assert_eq!(
                rest,
                "write names as the server has them, without prefix; patterns such as delete_* are allowed"
            );
            subject.strip_prefix("approval.tools of remotemcpserver \"x\": ").unwrap().to_owned()
        };
        assert_eq!(words(1), r#""t0" matches"#);
        assert_eq!(words(2), r#""t0", "t1" match"#);
        assert_eq!(words(7), r#""t0", "t1", "t2", "t3", "t4" and 2 more match"#);
        assert!(unmatched_words("x", &["a\nb".to_owned()]).contains(r#""a\nb" matches"#), "one line");
    }
}
