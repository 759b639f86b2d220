//! Names of fields in expressions: escaped where CEL reserves them or cannot spell them.

/// Names that CEL reserves.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Returns a field's name as expressions spell it; none for a field that they cannot read.
pub(super) fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return None;
    }
    let escaped = name.replace("__", "__underscores__").replace('.', "__dot__");
    let escaped = escaped.replace('-', "__dash__").replace('/', "__slash__");
    escaped.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_kubernetes_does() {
        let escaped = [
            ("name", "name"),
            ("namespace", "__namespace__"),
            ("in", "__in__"),
            ("a__b", "a__underscores__b"),
            ("x-y.z/w", "x__dash__y__dot__z__slash__w"),
        ];
        for (name, expected) in escaped {
            assert_eq!(escape(name).as_deref(), Some(expected));
        }
        for name in ["", "1a", "-a", "a b", "é", "a$"] {
            assert_eq!(escape(name), None, "{name}");
        }
    }
}
