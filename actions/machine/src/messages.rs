//! Shortens error messages of the API server to a sentence that fits into the output of `kubectl get`.

/// Longest message, in characters.
const MAX_CHARS: usize = 300;
/// Longest quoted value in it, in characters.
const MAX_VALUE_CHARS: usize = 60;

/// Turns an error message of the API server into a readable sentence: without regular expressions, long values cut, and at most
/// 300 characters in all.
pub fn readable_message(message: &str) -> String {
    let message = without_expressions(message);
    let message = without_wrapping(&message);
    let message = with_short_values(&message);
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    truncate(&message, MAX_CHARS)
}

/// Removes the text between the operation and the reason of an admission policy: the repeated name of the object, and the name of
/// the policy's binding. The reason comes last and would be cut off otherwise.
fn without_wrapping(message: &str) -> String {
    let mut text = message.to_owned();
    if let Some(end) = text.find("\" is forbidden: ").map(|at| at + "\" is forbidden: ".len())
        && let Some(begin) = text[..end].find(": ").map(|at| at + 2).filter(|begin| *begin < end)
    {
        text.replace_range(begin..end, "");
    }
    if let Some(begin) = text.find(" with binding '")
        && let Some(length) = text[begin..].find("' denied request")
    {
        text.replace_range(begin..=begin + length, "");
    }
    text
}

/// Removes `(e.g. 'example.com', regex used for validation is '[a-z]…')`, the wording of Kubernetes, and `in body should match
/// '^[a-z]…$'`, the wording of a CRD.
fn without_expressions(message: &str) -> String {
    const USED: &str = "regex used for validation is '";
    const MATCH: &str = "should match '";
    let mut text = message.to_owned();
    while let Some(at) = text.find(USED) {
        let begin = at + USED.len();
        let end = text[begin..].find("')").map_or(text.len(), |end| begin + end + 2);
        let before = text[..at].trim_end().trim_end_matches(',');
        let (before, closes) = match before.strip_suffix('(') {
            Some(before) => (before.trim_end(), ""),
            None => (before, ")"),
        };
        text = format!("{before}{closes}{}", &text[end..]);
    }
    while let Some(at) = text.find(MATCH) {
        let begin = at + MATCH.len();
        // The expression may contain quotes: it ends with the last quote before the next field or the end.
        let rest = text[begin..].split(", ").next().unwrap_or_default();
        let end = rest.rfind('\'').map_or(text.len(), |end| begin + end + 1);
        text = format!("{}has another form than its field allows{}", &text[..at], &text[end..]);
    }
    text
}

/// Shortens the values in double quotes after `Invalid value: `.
fn with_short_values(message: &str) -> String {
    const VALUE_IS: &str = "Invalid value: \"";
    let mut text = String::new();
    let mut rest = message;
    while let Some(at) = rest.find(VALUE_IS) {
        let begin = at + VALUE_IS.len();
        let end = end_of_quoted(&rest[begin..]).map_or(rest.len(), |end| begin + end);
        text += &rest[..begin];
        text += &truncate(&rest[begin..end], MAX_VALUE_CHARS);
        rest = &rest[end..];
    }
    text + rest
}

/// Returns the position of the closing quote.
fn end_of_quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, letter)| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends.then_some(at)
    })
}

fn truncate(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_stands_in_words_without_its_expression() {
        let sentence = readable_message(
            "apply Deployment ns/t: Deployment.apps \"t\" is invalid: spec.template.spec.serviceAccountName: Invalid value: \
             \"{{x}}\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*') (422)",
        );
        assert_eq!(
            sentence,
            "apply Deployment ns/t: Deployment.apps \"t\" is invalid: spec.template.spec.serviceAccountName: Invalid value: \
             \"{{x}}\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com') (422)"
        );
        assert_eq!(
            readable_message("a valid label must be short (regex used for validation is '(([A-Z])?)+') and more"),
            "a valid label must be short and more"
        );
        assert_eq!(
            readable_message("spec.name: Invalid value: \"X\": spec.name in body should match '^[a-z0-9']*$' (422)"),
            "spec.name: Invalid value: \"X\": spec.name in body has another form than its field allows (422)"
        );
    }

    #[test]
    fn the_reason_of_a_policy_is_not_lost_behind_names() {
        let name = "n".repeat(60);
        let sentence = readable_message(&format!(
            "apply Deployment {name}/new: deployments.apps \"new\" is forbidden: ValidatingAdmissionPolicy '{name}' with \
             binding '{name}' denied request: no Deployments today (422)"
        ));
        let expected = format!(
            "apply Deployment {name}/new: ValidatingAdmissionPolicy '{name}' denied request: no Deployments today (422)"
        );
        assert_eq!(sentence, expected);
        let quota = "apply Deployment ns/a: deployments.apps \"a\" is forbidden: exceeded quota: limit (403)";
        assert_eq!(readable_message(quota), "apply Deployment ns/a: exceeded quota: limit (403)");
        assert_eq!(
            readable_message("pods \"a\" is forbidden: x"),
            "pods \"a\" is forbidden: x",
            "there is no other name of it"
        );
    }

    #[test]
    fn long_values_are_cut_and_so_is_the_whole() {
        let long =
            format!("Invalid value: \"{}\\\"{}\": must be no more than 63 characters", "x".repeat(500), "y".repeat(9));
        let sentence = readable_message(&long);
        assert!(
            sentence.ends_with("…\": must be no more than 63 characters") && sentence.chars().count() < 150,
            "{sentence}"
        );
        assert_eq!(readable_message(&"é ".repeat(1000)).chars().count(), 300);
        assert_eq!(readable_message("short"), "short");
    }
}
