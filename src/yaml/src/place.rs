//! Paths of fields: JSON pointers, and the paths by which an API server names a field.

/// Adds a field or item to a JSON pointer, and returns its length before.
pub(super) fn push(pointer: &mut String, name: &str) -> usize {
    let length = pointer.len();
    pointer.push('/');
    for character in name.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
    length
}

/// Returns the JSON pointer of a field that an API server names, such as `spec.flows[0].name` or `metadata.labels[a.b/c]`.
pub fn pointer_of(field: &str) -> String {
    let mut pointer = String::new();
    let mut rest = field.trim_start_matches('.');
    while !rest.is_empty() {
        let (name, after) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']').unwrap_or((inner, "")),
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        push(&mut pointer, name.trim_matches('"'));
        rest = after.trim_start_matches('.');
    }
    pointer
}
