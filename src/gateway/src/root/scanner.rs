//! Finds the member `model` of a JSON object while its bytes arrive, without keeping the rest.

/// Longest name of a model, in bytes of JSON.
const MAX_NAME: usize = 512;

/// Incremental scanner for the member `model` at the top of a JSON object. It checks only what it needs: the workload
/// judges the rest. Of several members of this name the first one counts.
#[derive(Debug, Default)]
pub(super) struct ModelScanner {
    /// Number of objects and arrays that are open.
    depth: usize,
    /// Set inside of a string.
    in_string: bool,
    /// Set after a backslash in a string.
    escaped: bool,
    /// Set where a string at the top is a member's name.
    expects_name: bool,
    /// Set in the value of the member `model`.
    in_model: bool,
    /// String at the top that is being read, without its quotes.
    text: Vec<u8>,
}

/// Reasons why a body has no name of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelError {
    /// The body is no JSON object.
    NoObject,
    /// The object has no member `model`.
    Missing,
    /// `model` is no string, or a very long one.
    NoName,
}

impl ModelScanner {
    /// Scans bytes that follow those of earlier calls. Returns `None` until the name is found or cannot be.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Option<Result<String, ModelError>> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let found = if !self.in_string {
                self.step(byte)
            } else if self.depth == 1 || self.escaped {
                self.step_in_string(byte)
            } else {
                // Long texts are inside of the messages: nothing of them matters but their end.
                at += memchr::memchr2(b'"', b'\\', &bytes[at..])?;
                self.step_in_string(bytes[at])
            };
            if found.is_some() {
                return found;
            }
            at += 1;
        }
        None
    }

    /// Scans one byte outside of strings.
    fn step(&mut self, byte: u8) -> Option<Result<String, ModelError>> {
        if self.depth == 1 && self.in_model && !matches!(byte, b'"' | b':' | b' ' | b'\t' | b'\r' | b'\n') {
            return Some(Err(ModelError::NoName));
        }
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'{' if self.depth == 0 => (self.depth, self.expects_name) = (1, true),
            _ if self.depth == 0 => return Some(Err(ModelError::NoObject)),
            b'"' => (self.in_string, self.text) = (true, Vec::new()),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth -= 1;
                if self.depth == 0 {
                    return Some(Err(ModelError::Missing));
                }
            }
            b':' if self.depth == 1 => self.expects_name = false,
            b',' if self.depth == 1 => self.expects_name = true,
            _ => {}
        }
        None
    }

    /// Scans one byte of a string.
    fn step_in_string(&mut self, byte: u8) -> Option<Result<String, ModelError>> {
        if self.escaped || byte != b'"' {
            self.escaped = !self.escaped && byte == b'\\';
            // One byte more than the bound says that the text is too long.
            if self.depth == 1 && self.text.len() <= MAX_NAME {
                self.text.push(byte);
            }
            return None;
        }
        self.in_string = false;
        if self.depth != 1 {
            return None;
        }
        if self.in_model {
            return Some(self.decoded().ok_or(ModelError::NoName));
        }
        if self.expects_name {
            self.in_model = self.decoded().as_deref() == Some("model");
        }
        None
    }

    /// Returns the string that was read, if it is one and not too long.
    fn decoded(&self) -> Option<String> {
        let quoted = [b"\"", &self.text[..], b"\""].concat();
        if self.text.len() > MAX_NAME { None } else { serde_json::from_slice(&quoted).ok() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_member_at_the_top_counts_wherever_it_stands() {
        let found = |name: &str| Some(Ok(name.to_owned()));
        let long = format!(r#"{{"model":"{}"}}"#, "x".repeat(MAX_NAME + 1));
        for (body, expected) in [
            (r#"{"model":"ns/a"}"#, found("ns/a")),
            (" {\n \"messages\" : [{\"model\": \"no\"}, \"model\"], \"model\" : \"ns/a\" ", found("ns/a")),
            (r#"{"x": {"model": "no"}, "s": "\"model\": \\", "n": -1.5e3, "model": "ns\/a"#, None),
            (r#"{"x": {"model": "no"}, "s": "\"model\": \\", "n": -1.5e3, "model": "ns\/a""#, found("ns/a")),
            (r#"{"mod\u0065l": "\u006es/a", "model": "other"}"#, found("ns/a")),
            (r#"{"input": "model", "model": "m"}"#, found("m")),
            (r#"{"messages": []}"#, Some(Err(ModelError::Missing))),
            ("{}", Some(Err(ModelError::Missing))),
            (r#"{"model": null}"#, Some(Err(ModelError::NoName))),
            (r#"{"model": {"model": "a"}}"#, Some(Err(ModelError::NoName))),
            (r#"{"model": 1, "x": "a"}"#, Some(Err(ModelError::NoName))),
            (&long, Some(Err(ModelError::NoName))),
            ("[]", Some(Err(ModelError::NoObject))),
            ("hello", Some(Err(ModelError::NoObject))),
            ("", None),
        ] {
            assert_eq!(ModelScanner::default().feed(body.as_bytes()), expected, "{body}");
        }
    }

    proptest! {
        #[test]
        fn it_finds_what_a_parser_finds_however_the_bytes_are_split(
            before in "\\PC{0,20}", name in "\\PC{1,20}", after in "[\\[\\]{}\",:\\\\a]{0,12}", size in 1usize..9,
        ) {
            let body = json!({"messages": [{"content": before, "model": [after]}], "a": before, "model": name}).to_string();
            let mut scanner = ModelScanner::default();
            let found = body.as_bytes().chunks(size).find_map(|piece| scanner.feed(piece));
            prop_assert_eq!(found, Some(Ok(name)));
        }

        #[test]
        fn no_input_is_too_much_for_it(bytes: Vec<u8>) {
            let _ = ModelScanner::default().feed(&bytes);
            let _ = ModelScanner::default().feed(&[&b"{\"a\":"[..], &bytes].concat());
        }
    }
}
