//! Names of objects that our kinds take.

use crds::digest::sha256_hex;

/// Returns the name as this kind of ours takes it.
pub(crate) fn fixed(kind: &str, name: &str) -> String {
    match kind {
        // The Service gets this name, too: a label that begins with a letter, with room for suffixes of children.
        "Agent" | "Flow" | "FlowSet" | "MCPServer" | "Service" | "Deployment" => label(name, 52, true),
        "RemoteMCPServer" => label(name, 63, false),
        _ => subdomain(name),
    }
}

/// Returns a name as a label of DNS of at most `most` characters.
pub(crate) fn label(name: &str, most: usize, begins_with_letter: bool) -> String {
    let is_fine = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    let text: String = name.to_ascii_lowercase().chars().map(|it| if is_fine(it) { it } else { '-' }).collect();
    let text = text.trim_matches('-');
    let first = text.chars().next();
    let needs_letter = first.is_none_or(|it| begins_with_letter && !it.is_ascii_lowercase());
    let text = if needs_letter { format!("a-{text}") } else { text.to_owned() };
    cut(text.trim_end_matches('-'), most)
}

/// Returns a name as labels of DNS with dots between them.
fn subdomain(name: &str) -> String {
    let is_fine = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    let fixed = |label: &str| label.chars().map(|it| if is_fine(it) { it } else { '-' }).collect::<String>();
    let name = name.to_ascii_lowercase();
    let labels = name.split('.').map(|label| fixed(label).trim_matches('-').to_owned());
    let labels: Vec<_> = labels.filter(|label| !label.is_empty()).collect();
    if labels.is_empty() { "a".to_owned() } else { cut(&labels.join("."), 253) }
}

/// Cuts a name of ASCII characters that is too long, and ends it with a part of its digest.
fn cut(name: &str, most: usize) -> String {
    if name.len() <= most {
        return name.to_owned();
    }
    let digest = sha256_hex(name.as_bytes());
    let head = name.get(..most - 9).unwrap_or_default().trim_end_matches(['-', '.']);
    format!("{head}-{}", digest.get(..8).unwrap_or_default())
}

/// Returns a name, then the name with `-2`, `-3` and so on.
pub(crate) fn numbered(name: &str) -> impl Iterator<Item = String> + use<'_> {
    (1..10_000).map(move |number| if number == 1 { name.to_owned() } else { format!("{name}-{number}") })
}

/// Returns a name as a model sees it: at most 64 letters, digits, `_` and `-`.
pub(crate) fn tool_name(name: &str) -> String {
    let is_fine = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    let text: String = name.chars().map(|it| if is_fine(it) { it } else { '_' }).collect();
    if text.len() <= 64 {
        return text;
    }
    let digest = sha256_hex(name.as_bytes());
    format!("{}_{}", text.get(..55).unwrap_or_default(), digest.get(..8).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_we_refuse_becomes_one_that_we_take() {
        let long = "x".repeat(60);
        for (kind, name, expected) in [
            ("Agent", "shop", "shop"),
            ("Agent", "odd.names_here", "odd-names-here"),
            ("Agent", "9lives", "a-9lives"),
            ("RemoteMCPServer", "9lives", "9lives"),
            ("RemoteMCPServer", "a.b", "a-b"),
            ("Tool", "a.b", "a.b"),
            ("Model", "Big.model_Name", "big.model-name"),
            ("PluginConfig", "P..1_", "p.1"),
            ("Tool", "__", "a"),
            ("Flow", "_x_", "x"),
            ("Flow", "..", "a"),
        ] {
            assert_eq!(fixed(kind, name), expected, "{kind} {name}");
        }
        let cut = fixed("Agent", &long);
        assert_eq!((cut.len(), &cut[..44]), (52, &format!("{}-", "x".repeat(43))[..]), "{cut}");
        assert_eq!(tool_name("find order"), "find_order");
        assert_eq!(tool_name(&long.repeat(2)).len(), 64);
    }
}
