//! Checks that CHANGELOG.md can be parsed as <https://keepachangelog.com> says, and that it and the programs have one version.

use super::root;

/// The sections that a version may have.
const SECTIONS: [&str; 6] = ["Added", "Changed", "Deprecated", "Fixed", "Removed", "Security"];

/// Version of the changelog, newest first.
struct Release {
    /// Major, minor and patch version; `None` for what is not released.
    version: Option<[u64; 3]>,
    sections: Vec<String>,
}

/// Returns the numbers of a version or a date.
fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let parts: Vec<u64> = text.split(separator).map(|part| part.parse().ok()).collect::<Option<_>>()?;
    parts.try_into().ok()
}

fn heading(line: &str) -> Result<Option<[u64; 3]>, String> {
    let (version, date) = line.split_once(" - ").map_or((line, None), |(version, date)| (version, Some(date)));
    let version = version.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(version);
    match (version, date) {
        ("Unreleased", None) => Ok(None),
        (version, Some(date)) if date.len() == 10 && numbers(date, '-').is_some() => {
            numbers(version, '.').map(Some).ok_or(format!("'{version}' is no version"))
        }
        _ => Err(format!("'{line}' is neither Unreleased nor VERSION - YYYY-MM-DD")),
    }
}

/// Parses a changelog.
fn parse(text: &str) -> Result<Vec<Release>, String> {
    let mut lines = text.lines();
    if lines.next() != Some("# Changelog") {
        return Err("it begins with another title".into());
    }
    let mut releases: Vec<Release> = Vec::new();
    let mut is_empty = false;
    for line in lines {
        if let Some(title) = line.strip_prefix("## ") {
            if is_empty {
                return Err(format!("the section before '{title}' is empty"));
            }
            releases.push(Release { version: heading(title)?, sections: Vec::new() });
        } else if let Some(title) = line.strip_prefix("### ") {
            let release = releases.last_mut().ok_or("a section is of no version")?;
            if is_empty || !SECTIONS.contains(&title) || release.sections.iter().any(|section| section == title) {
                return Err(format!("section '{title}' is unknown or there twice, or the one before it is empty"));
            }
            release.sections.push(title.into());
            is_empty = true;
        } else if line.starts_with("- ") {
            if releases.last().is_none_or(|release| release.sections.is_empty()) {
                return Err(format!("'{line}' is in no section"));
            }
            is_empty = false;
        } else if !line.is_empty() && !line.starts_with("  ") && !releases.is_empty() && !line.starts_with('[') {
            return Err(format!("'{line}' is not part of a list"));
        }
    }
    let in_order = |newer: &Release, older: &Release| {
        older.version.is_some() && (newer.version.is_none() || newer.version > older.version)
    };
    if is_empty || !releases.is_sorted_by(in_order) {
        return Err("the last section is empty, or the versions are not in order, newest first".into());
    }
    Ok(releases)
}

#[test]
fn the_changelog_names_the_version_of_the_programs_or_one_that_is_not_released() {
    let releases = parse(&std::fs::read_to_string(root().join("CHANGELOG.md")).unwrap()).unwrap();
    let of_the_programs = numbers(env!("CARGO_PKG_VERSION"), '.').unwrap();
    let newest = releases.first().unwrap().version;
    assert!(newest.is_none_or(|version| version == of_the_programs), "{newest:?} is not that of Cargo.toml");
    assert!(
        releases.iter().all(|release| release.version <= Some(of_the_programs)),
        "a version is newer than Cargo.toml"
    );
}

#[test]
fn a_changelog_of_another_form_is_refused() {
    let section = "\n\n### Fixed\n\n- This.\n";
    let good = format!(
        "# Changelog\n\nText.\n\n## [Unreleased]{section}\n## 1.2.0 - 2026-01-31{section}## [1.1.9] - 2025-12-01{section}"
    );
    let versions: Vec<_> = parse(&good).unwrap().into_iter().map(|release| release.version).collect();
    assert_eq!(versions, [None, Some([1, 2, 0]), Some([1, 1, 9])]);
    for (from, to) in [
        ("# Changelog", "# Changes"),
        ("1.2.0 -", "1.2 -"),
        ("1.2.0 - 2026-01-31", "1.2.0"),
        ("1.2.0 -", "1.0.0 -"),
        ("[Unreleased]", "Next"),
        ("### Fixed", "### Repaired"),
        ("- This.", "This."),
        ("- This.", ""),
        ("### Fixed", ""),
    ] {
        assert!(parse(&good.replacen(from, to, 1)).is_err(), "{to} instead of {from}");
    }
}
