//! Joins two OpenMetrics expositions: those of the sidecar and of the runner behind it.

use crate::local_response::OPENMETRICS_EOF;

/// Start of a family of metrics.
const FAMILY: &str = "# HELP ";

/// Joins two expositions. A family that both have is written once, because its samples must be consecutive.
pub(super) fn joined(own: String, other: Option<String>) -> String {
    let (Some(own), Some(other)) = (own.strip_suffix(OPENMETRICS_EOF), other) else { return own };
    let mut families: Vec<String> = families(own).map(str::to_owned).collect();
    for family in self::families(other.trim_end_matches(OPENMETRICS_EOF)) {
        match families.iter_mut().find(|known| name(family).is_some_and(|name| self::name(known) == Some(name))) {
            Some(known) => known.extend(family.split_inclusive('\n').filter(|line| !line.starts_with('#'))),
            None => families.push(family.to_owned()),
        }
    }
    families.concat() + OPENMETRICS_EOF
}

/// Splits an exposition before each family.
fn families(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let next = rest.get(1..).and_then(|later| later.find(&format!("\n{FAMILY}"))).map_or(rest.len(), |at| at + 2);
        let (family, later) = rest.split_at_checked(next)?;
        rest = later;
        (!family.is_empty()).then_some(family)
    })
}

fn name(family: &str) -> Option<&str> {
    family.strip_prefix(FAMILY)?.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_both_have_is_written_once() {
        let own = "# HELP a A.\n# TYPE a gauge\na{p=\"x\"} 1\n# HELP b B.\nb 2\n# EOF\n".to_owned();
        let other = "# HELP c C.\nc 3\n# HELP a A.\n# TYPE a gauge\na{p=\"y\"} 4\n# EOF\n".to_owned();
        let expected =
            "# HELP a A.\n# TYPE a gauge\na{p=\"x\"} 1\na{p=\"y\"} 4\n# HELP b B.\nb 2\n# HELP c C.\nc 3\n# EOF\n";
        assert_eq!(joined(own.clone(), Some(other)), expected);
        assert_eq!(joined(own.clone(), None), own);
        assert_eq!(joined(own, Some("plain 1\n# EOF\n".to_owned())).matches("plain 1\n# EOF\n").count(), 1);
    }
}
