//! Masks credentials in the arguments of a program.

use serde_json::Value;

use super::credentials::{MASKED, is_credential, is_name, is_number_of_tokens, mask_urls};

/// Masks arguments of a program: `--token=x`, the argument after `--token`, and the same within an argument that is itself a
/// command line.
pub(super) fn mask_arguments(elements: &mut [Value]) {
    let mut follows = None;
    for element in elements {
        let Value::String(text) = element else { continue };
        let name = follows.take().filter(|_| !text.starts_with('-'));
        let mut words = Words::default();
        let masked = words.mask(text);
        follows = words.follows;
        *text = match name {
            Some(name) if !is_number_of_tokens(&name, text) => MASKED.to_owned(),
            _ => masked,
        };
    }
}

/// State of the parser within a text of several words.
#[derive(Default)]
struct Words {
    /// Name of the credential whose value the next word is.
    follows: Option<String>,
    /// Set while words belong to a credential: until a word that ends with this quote, or with any quote if it is `None`.
    until: Option<Option<char>>,
}

impl Words {
    fn mask(&mut self, text: &str) -> String {
        text.split_inclusive(char::is_whitespace)
            .map(|word| {
                let core = word.trim_end();
                self.word(core) + &word[core.len()..]
            })
            .collect()
    }

    fn word(&mut self, word: &str) -> String {
        if word.is_empty() {
            return String::new();
        }
        if self.until.is_some() {
            return self.secret(word);
        }
        let bare = word.trim_start_matches(['"', '\'', '(']);
        let before = &word[..word.len() - bare.len()];
        if let Some(name) = self.follows.take().filter(|_| !bare.starts_with('-')) {
            return if is_number_of_tokens(&name, bare) { word.to_owned() } else { self.secret(word) };
        }
        if ["bearer", "basic"].contains(&&*bare.to_ascii_lowercase()) {
            self.follows = Some(bare.to_owned());
            return word.to_owned();
        }
        if let Some((name, value)) = bare.split_once(':')
            && is_name(name)
            && is_credential(name)
            && !value.starts_with("//")
        {
            // A header: its value reaches to the closing quote.
            self.until = Some(before.chars().last().filter(|quote| *quote != '('));
            let value = if value.is_empty() { String::new() } else { self.secret(value) };
            return format!("{before}{name}:{value}");
        }
        match bare.split_once('=') {
            Some((name, value)) if is_name(name) => {
                let value = match is_credential(name) && !value.is_empty() && !is_number_of_tokens(name, value) {
                    true => self.secret(value),
                    false => self.word(value),
                };
                format!("{before}{name}={value}")
            }
            _ => {
                self.follows = (bare.starts_with('-') && is_name(bare) && is_credential(bare)).then(|| bare.to_owned());
                mask_urls(word)
            }
        }
    }

    /// Masks a word of a credential; quotes and closing signs around it stay.
    fn secret(&mut self, word: &str) -> String {
        let quotes = ['"', '\''];
        if self.until.is_none() {
            self.until = word.chars().next().filter(|first| quotes.contains(first)).map(Some);
        }
        let inner = word.trim_start_matches(quotes);
        let opening = &word[..word.len() - inner.len()];
        let inner = inner.trim_end_matches([')', ';', '"', '\'']);
        let closing = &word[opening.len() + inner.len()..];
        let ends = match self.until {
            Some(Some(quote)) => closing.contains(quote),
            Some(None) => closing.contains(quotes),
            None => false,
        };
        if ends {
            self.until = None;
        }
        match inner.is_empty() {
            true => word.to_owned(),
            false => format!("{opening}{MASKED}{closing}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_masked_within_a_text_too() {
        for (args, expected) in [
            (json!(["--header", "Authorization: Bearer sk-1"]), json!(["--header", "Authorization: •••••• ••••••"])),
            (json!(["Authorization: Bearer c2st=="]), json!(["Authorization: •••••• ••••••"])),
            (json!(["X-Any: Bearer c2st==", "-v"]), json!(["X-Any: Bearer ••••••", "-v"])),
            (json!(["sh", "-c", "server --token abc -v"]), json!(["sh", "-c", "server --token •••••• -v"])),
            (json!(["A_KEY='a b' run --max-tokens 5 x"]), json!(["A_KEY='•••••• ••••••' run --max-tokens 5 x"])),
            (
                json!(["curl -H 'Cookie: a=b; c=d' https://h/?token=t"]),
                json!(["curl -H 'Cookie: ••••••; ••••••' https://h/?token=••••••"]),
            ),
        ] {
            let mut args: Vec<Value> = serde_json::from_value(args).unwrap();
            mask_arguments(&mut args);
            assert_eq!(Value::from(args), expected);
        }
    }
}
