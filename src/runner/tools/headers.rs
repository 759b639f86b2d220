//! `$NAME` and `${NAME}` in a header's value, replaced from the environment.
//!
//! Credentials reach an agent as environment variables, and a tool only refers to them. A reference to a variable that
//! is not set is an error: a request with an empty credential would be answered with a riddle. Any other `$` stays.

/// `value` with its references replaced.
///
/// # Errors
/// The name of the first variable that is not set.
pub(super) fn expand(value: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (name, tail) = match after.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
            Some((name, tail)) if name_length(name) == name.len() => (name, tail),
            _ => after.split_at(name_length(after)),
        };
        if name.is_empty() {
            out.push('$');
        } else {
            out.push_str(&lookup(name).ok_or_else(|| name.to_owned())?);
        }
        rest = if name.is_empty() { after } else { tail };
    }
    out.push_str(rest);
    Ok(out)
}

/// Length of the variable name `text` starts with (POSIX: a letter or `_`, then letters, digits, `_`).
fn name_length(text: &str) -> usize {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return 0;
    }
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "KEY" => Some("k$KEY".into()),
            "A_1" => Some("one".into()),
            _ => None,
        }
    }

    #[test]
    fn references_are_replaced_once() {
        for (value, expected) in [
            ("plain", Ok("plain")),
            ("Bearer $KEY", Ok("Bearer k$KEY")),
            ("${KEY}x$A_1.", Ok("k$KEYxone.")),
            ("$KEYS", Err("KEYS")),
            ("${MISSING}", Err("MISSING")),
            ("cost $5 $", Ok("cost $5 $")),
            ("${}", Ok("${}")),
            ("${1}", Ok("${1}")),
            ("${KEY", Ok("${KEY")),
            ("$$KEY", Ok("$k$KEY")),
            ("${a-b}", Ok("${a-b}")),
        ] {
            assert_eq!(expand(value, lookup), expected.map(Into::into).map_err(String::from), "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_value_is_expanded_without_a_panic(value in ".*") {
            let _ = expand(&value, |_| Some(String::new()));
        }
    }
}
