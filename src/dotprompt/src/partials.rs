//! Finds the prompts of a flow that a prompt includes: `{{> name}}`, where the prompt may also be called `_name`.
//!
//! A prompt is parsed with those alone, so that a broken partial fails only the prompts that include it.

use std::collections::{BTreeMap, BTreeSet};

use super::template;

/// Returns the templates that the prompt `of` includes, and those that they include; `prompts` are all of its flow, texts by
/// name. A name that is computed (`{{> (lookup …)}}`) may be any, so then all the others are returned.
pub(super) fn included(of: &str, prompts: &BTreeMap<&str, &str>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut unread: Vec<&str> = prompts.get(of).copied().into_iter().collect();
    while let Some(source) = unread.pop() {
        for name in names(source) {
            for (prompt, text) in prompts {
                let name = match name {
                    Some(name) if *prompt == name || prompt.strip_prefix('_') == Some(name) => name,
                    None if *prompt != of => prompt,
                    _ => continue,
                };
                if !found.contains_key(name) {
                    found.insert(name.to_owned(), template(text).unwrap_or(text).to_owned());
                    unread.push(text);
                }
            }
        }
    }
    found
}

/// Returns the names after `{{>` and `{{#>`, each once; `None` for one that is computed.
fn names(source: &str) -> BTreeSet<Option<&str>> {
    let tags = source.split("{{").skip(1).filter_map(|tag| {
        let tag = tag.trim_start_matches(['~', '#']).trim_start();
        tag.strip_prefix('>').map(str::trim_start)
    });
    let name = |tag: &'_ str| tag.find(|c: char| c.is_whitespace() || "}~|\"'".contains(c)).unwrap_or(tag.len());
    tags.map(|tag| match tag.trim_start_matches(['"', '\'']) {
        computed if computed.starts_with('(') => None,
        named => Some(&named[..name(named)]),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_included_is_taken() {
        let prompts = BTreeMap::from([
            ("_style", "s"),
            ("a", "---\nmodel: m\n---\n{{> b}} {{~#> 'c.d' x=1}}{{/c.d}}"),
            ("b", "{{>e}}{{> a}}"),
            ("c.d", "1 > 2 {{#if (gt a b)}}"),
            ("e", "{{> style}}"),
            ("f", "{{> (lookup . 'x')}}"),
        ]);
        let names = |of: &str| included(of, &prompts).into_keys().collect::<Vec<_>>();
        assert_eq!(names("a"), ["a", "b", "c.d", "e", "style"]);
        assert_eq!(names("c.d"), [""; 0]);
        assert_eq!(names("f"), ["_style", "a", "b", "c.d", "e", "style"]);
        assert_eq!(included("b", &prompts)["a"], "{{> b}} {{~#> 'c.d' x=1}}{{/c.d}}");
    }
}
