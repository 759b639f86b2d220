//! Which prompts of a flow a prompt includes: `{{> name}}`, where the prompt may also be called `_name`.
//!
//! A prompt is parsed with those alone, so that a broken one is a problem of who includes it, and of nobody else.

use std::collections::BTreeMap;

use super::contract::Text;
use crate::runner::dotprompt::template_of;

/// The templates that `text` includes, those that they include among them. A name that is computed (`{{> (lookup …)}}`)
/// may be any, so then it is all of the others.
pub(super) fn included(text: &Text, prompts: &[Text]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut unread = vec![text.text.as_str()];
    while let Some(source) = unread.pop() {
        for name in names(source) {
            let means = |prompt: &Text, name: &str| prompt.name == name || prompt.name.strip_prefix('_') == Some(name);
            for prompt in prompts {
                let name = match name {
                    Some(name) if means(prompt, name) => name,
                    None if prompt.name != text.name => &prompt.name,
                    _ => continue,
                };
                if !found.contains_key(name) {
                    found.insert(name.to_owned(), template_of(&prompt.text).to_owned());
                    unread.push(&prompt.text);
                }
            }
        }
    }
    found
}

/// The names after `{{>` and `{{#>`; `None` for one that is computed.
fn names(source: &str) -> Vec<Option<&str>> {
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

    fn text(name: &str, text: &str) -> Text {
        Text { name: name.into(), file: String::new(), text: text.into() }
    }

    #[test]
    fn only_what_is_included_is_taken() {
        let prompts = [
            text("_style", "s"),
            text("a", "---\nmodel: m\n---\n{{> b}} {{~#> 'c.d' x=1}}{{/c.d}}"),
            text("b", "{{>e}}{{> a}}"),
            text("c.d", "1 > 2 {{#if (gt a b)}}"),
            text("e", "{{> style}}"),
            text("f", "{{> (lookup . 'x')}}"),
        ];
        let names = |at: usize| included(&prompts[at], &prompts).into_keys().collect::<Vec<_>>();
        assert_eq!(names(1), ["a", "b", "c.d", "e", "style"]);
        assert_eq!(names(3), [""; 0]);
        assert_eq!(names(5), ["_style", "a", "b", "c.d", "e", "style"]);
        assert_eq!(included(&prompts[2], &prompts)["a"], "{{> b}} {{~#> 'c.d' x=1}}{{/c.d}}");
    }
}
