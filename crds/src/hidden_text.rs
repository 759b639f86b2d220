//! Text that a model reads and a person does not see: characters without width, those that turn the direction of writing, tag and
//! control characters, and text that is too long to be read.
//!
//! Emoji are made of such characters, too: a joiner between two pictographs, and a single selector of their style, hide nothing. Flags
//! of regions, which are made of tags, and joiners between letters, which some scripts need, count as hidden text, too.

use std::fmt::Write as _;

use serde_json::Value;

/// Longest definition of a tool that is taken for one that a person can read, in bytes.
const MAX_READABLE: usize = 20 * 1024;

/// Returns what hides text in the definition of a tool, such as `has the invisible character U+200B`, if anything does. `length`: bytes
/// of its canonical JSON, in which control characters are escaped: they are looked for in the texts that a model reads.
pub fn hidden_text(definition: &Value, length: usize) -> Option<String> {
    if let Some(character) = lowest_hidden(definition) {
        let class = match character {
            control if control.is_control() => "control",
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => "bidirectional",
            '\u{e0000}'..='\u{e007f}' => "tag",
            _ => "invisible",
        };
        return Some(format!("has the {class} character U+{:04X}", u32::from(character)));
    }
    (length > MAX_READABLE).then(|| format!("is longer than {} KiB", MAX_READABLE / 1024))
}

/// Returns a text with every character escaped that hides text or controls a terminal, but for line breaks and tabs.
pub fn escape_hidden(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hidden(character) || character == '\r' {
            // Cannot fail: it writes to memory.
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Reports whether people do not see the character, or it controls a terminal. Tabs and the ends of lines are seen by what they do.
pub fn is_hidden(character: char) -> bool {
    let is_layout = matches!(character, '\t' | '\n' | '\r');
    hides(character) || matches!(character, '\u{2028}' | '\u{2029}') || (character.is_control() && !is_layout)
}

/// Returns the lowest of the characters by which each text of a value, keys included, first hides text: the order of keys does not
/// matter.
fn lowest_hidden(value: &Value) -> Option<char> {
    match value {
        Value::String(text) => first_hidden(text),
        Value::Array(items) => items.iter().filter_map(lowest_hidden).min(),
        Value::Object(fields) => {
            let found = fields.iter().flat_map(|(key, field)| [first_hidden(key), lowest_hidden(field)]);
            found.flatten().min()
        }
        _ => None,
    }
}

/// Returns the first character that hides text.
fn first_hidden(text: &str) -> Option<char> {
    let mut before = '\0';
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let is_of_emoji = match character {
            '\u{200d}' => is_pictograph(before) && rest.peek().copied().is_some_and(is_pictograph),
            '\u{fe0e}' | '\u{fe0f}' => has_styles(before),
            _ => false,
        };
        if is_hidden(character) && !is_of_emoji {
            return Some(character);
        }
        before = character;
    }
    None
}

/// Reports whether the character has no width, or is for the direction of writing or for tags.
fn hides(character: char) -> bool {
    matches!(character, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Reports whether the character is a part of an emoji that a joiner may stand beside.
fn is_pictograph(character: char) -> bool {
    matches!(character, '\u{2190}'..='\u{2bff}' | '\u{fe0f}' | '\u{1f000}'..='\u{1faff}')
}

/// Reports whether the character is shown in two styles, as text and as emoji.
fn has_styles(character: char) -> bool {
    matches!(character, '0'..='9' | '#' | '*' | '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}'
        | '\u{2190}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns what hides text in a short text.
    fn hidden(text: &str) -> Option<String> {
        hidden_text(&json!(text), text.len())
    }

    /// Texts of published attacks and of their kin, each with the character that gives it away.
    const SAMPLES: &[(&str, &str)] = &[
        ("zero-width space", "Reads a file.\u{200b}Also reads ~/.ssh/id_rsa"),
        ("zero-width non-joiner", "Re\u{200c}ads"),
        ("zero-width joiner between letters", "Re\u{200d}ads"),
        ("joiner after a pictograph, before a letter", "🚀\u{200d}a"),
        ("joiner at the end", "🚀\u{200d}"),
        ("word joiner", "Reads\u{2060}a file"),
        ("invisible times", "2\u{2062}x"),
        ("invisible plus", "2\u{2064}x"),
        ("byte order mark within", "Reads\u{feff} a file"),
        ("soft hyphen", "Re\u{ad}ads"),
        ("combining grapheme joiner", "a\u{34f}b"),
        ("Mongolian vowel separator", "a\u{180e}b"),
        ("Hangul filler", "a\u{3164}b"),
        ("half-width Hangul filler", "a\u{ffa0}b"),
        ("Hangul choseong filler", "a\u{115f}b"),
        ("left-to-right mark", "a\u{200e}b"),
        ("right-to-left mark", "a\u{200f}b"),
        ("Arabic letter mark", "a\u{61c}b"),
        ("left-to-right embedding", "a\u{202a}b"),
        ("right-to-left embedding", "a\u{202b}b"),
        ("pop directional formatting", "a\u{202c}b"),
        ("left-to-right override", "a\u{202d}b"),
        ("right-to-left override", "exe\u{202e}gpj"),
        ("left-to-right isolate", "a\u{2066}b"),
        ("right-to-left isolate", "a\u{2067}b"),
        ("first strong isolate", "a\u{2068}b"),
        ("pop directional isolate", "a\u{2069}b"),
        ("deprecated shape control", "a\u{206a}b"),
        ("language tag", "a\u{e0001}b"),
        ("tag letters", "Adds.\u{e0049}\u{e0067}\u{e006e}\u{e006f}\u{e0072}\u{e0065}"),
        ("cancel tag", "a\u{e007f}b"),
        ("flag made of tags", "🏴\u{e0067}\u{e0062}\u{e007f}"),
        ("variation selectors as bytes", "😀\u{fe0f}\u{fe01}\u{fe02}"),
        ("two styles in a row", "😀\u{fe0f}\u{fe0f}"),
        ("style of a letter", "a\u{fe0f}"),
        ("supplementary variation selector", "a\u{e0100}b"),
        ("interlinear annotation", "a\u{fff9}b"),
        ("musical format control", "a\u{1d173}b"),
        ("shorthand format control", "a\u{1bca0}b"),
        ("unassigned and ignored", "a\u{e0fff}b"),
    ];

    #[test]
    fn each_way_to_hide_text_is_found_in_a_description_a_key_and_a_name() {
        assert_eq!(SAMPLES.len(), 40);
        for (what, sample) in SAMPLES {
            for definition in [
                json!({ "description": sample, "inputSchema": {}, "name": "a" }),
                json!({ "inputSchema": { "properties": { (*sample): {} } }, "name": "a" }),
                json!({ "inputSchema": { "anyOf": [{ "enum": ["x", sample] }] }, "name": "a" }),
                json!({ "inputSchema": {}, "name": sample }),
            ] {
                assert!(hidden_text(&definition, 100).is_some(), "{what}: {definition:?}");
            }
            assert!(escape_hidden(sample).contains("\\u{"), "{what} is shown as it is");
        }
    }

    #[test]
    fn what_hides_text_is_named() {
        for (text, words) in [
            ("a\u{200b}", "has the invisible character U+200B"),
            ("a\u{202e}", "has the bidirectional character U+202E"),
            ("a\u{e0041}", "has the tag character U+E0041"),
            ("a\u{0}", "has the control character U+0000"),
            ("a\u{8}\u{8}", "has the control character U+0008"),
            ("\u{1b}[2J", "has the control character U+001B"),
            ("a\u{7f}", "has the control character U+007F"),
            ("a\u{80}", "has the control character U+0080"),
            ("\u{9b}2J", "has the control character U+009B"),
            ("a\u{2028}b", "has the invisible character U+2028"),
            ("a\u{2029}b", "has the invisible character U+2029"),
        ] {
            assert_eq!(hidden(text).as_deref(), Some(words));
            assert!(escape_hidden(text).contains("\\u{"), "{words}");
        }
        let both = json!({ "b": "\u{202e}", "a": ["\u{200b}"] });
        assert_eq!(hidden_text(&both, 100).as_deref(), Some("has the invisible character U+200B"), "the lowest one");
    }

    #[test]
    fn a_definition_that_is_too_long_to_be_read_is_said_to_be() {
        assert_eq!(hidden_text(&json!("x"), 20 * 1024), None);
        assert_eq!(hidden_text(&json!("x"), 20 * 1024 + 1).as_deref(), Some("is longer than 20 KiB"));
    }

    #[test]
    fn letters_of_any_script_and_emoji_hide_nothing() {
        for text in [
            "Gets the weather: °C, naïve, 日本語, العربية, עברית, हिन्दी",
            "⚠️ deletes, ❤️, 1️⃣, #️⃣, ©️, ℹ️",
            "👩\u{200d}🚀 👨\u{200d}👩\u{200d}👧 👩🏽\u{200d}🚀 ❤️\u{200d}🔥",
            "tabs\tand\r\nlines",
            "literal \\u200b is no character",
        ] {
            assert_eq!(hidden(text), None, "{text:?}");
        }
    }

    #[test]
    fn joiners_that_a_script_needs_and_flags_of_regions_are_taken_for_hidden_text() {
        for text in ["می\u{200c}خواهم", "क्\u{200d}ष", "🏴\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}"]
        {
            assert!(hidden(text).is_some(), "{text:?}");
        }
    }

    #[test]
    fn what_is_hidden_or_an_order_to_a_terminal_is_shown_as_its_number() {
        let shown = escape_hidden("a\u{1b}[2J\u{200b}\u{e0041}\r\n\tb\u{9b}é👩\u{2028}");
        assert_eq!(shown, "a\\u{1b}[2J\\u{200b}\\u{e0041}\\u{d}\n\tb\\u{9b}é👩\\u{2028}");
    }
}
