//! `docs/troubleshooting.md`: a section for each reason that has advice. What it means and what to do are generated, between marks; what
//! else is known of it is written by hand below.

use std::{collections::BTreeMap, env, fs};

use crds::advice::hints;

use super::{renew, root};

const FILE: &str = "docs/troubleshooting.md";
const END: &str = "<!-- /reason -->";

/// Files that define the reasons, each with a comment on what it means.
const SOURCES: [&str; 2] = [include_str!("../../crds/src/reason.rs"), include_str!("../../crds/meta/src/reason.rs")];

/// Returns the comments on reasons, by the reason.
fn meanings() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for source in SOURCES {
        let mut comment = Vec::new();
        for line in source.lines() {
            if let Some(text) = line.strip_prefix("/// ") {
                comment.push(text);
                continue;
            }
            if let Some((name, value)) = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(": &str = ")) {
                let value = match value.trim_end_matches(';') {
                    "condition_type::CRD_OUTDATED" => crds::reason::CRD_OUTDATED,
                    text => text.trim_matches('"'),
                };
                assert!(!value.contains("::"), "{name} is not a text");
                found.insert(value.to_owned(), comment.join(" "));
            }
            comment.clear();
        }
    }
    found
}

/// Returns the generated part of a section.
fn section(meaning: &str, hint: &str) -> String {
    let mut chars = hint.chars();
    let first = chars.next().map(|char| char.to_uppercase().to_string()).unwrap_or_default();
    format!("{meaning}\n\n**Do:** {first}{}.\n", chars.as_str())
}

#[test]
fn the_page_of_troubleshooting_has_a_section_for_each_reason_with_advice() {
    let meanings = meanings();
    let text = fs::read_to_string(root().join(FILE)).unwrap();
    let mut renewed = String::new();
    let mut missing: BTreeMap<&str, &str> = hints().collect();
    let mut lines = text.lines();
    let mut heading = "";
    while let Some(line) = lines.next() {
        renewed += line;
        renewed.push('\n');
        if line.starts_with('#') {
            heading = line;
        }
        let Some(reason) = line.strip_prefix("<!-- reason:").and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        assert_eq!(heading, format!("### {reason}"), "the heading above the marks is the anchor of the reason");
        let hint =
            missing.remove(reason).unwrap_or_else(|| panic!("{reason} is twice there, or has no advice any more"));
        renewed += &section(&meanings[reason], hint);
        assert!(lines.any(|line| line == END), "{reason} does not end with {END}");
        renewed += END;
        renewed.push('\n');
    }
    if env::var_os("RECIF_WRITE").is_some() {
        for (reason, hint) in missing {
            renewed +=
                &format!("\n### {reason}\n\n<!-- reason:{reason} -->\n{}{END}\n", section(&meanings[reason], hint));
        }
    } else {
        assert!(missing.is_empty(), "{FILE} lacks {missing:?}: run `make manifests`");
    }
    renew(FILE, &renewed);
}
