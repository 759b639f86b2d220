//! Scans a JSON value byte by byte, to find its end.
//!
//! The scanner checks structure only (brackets, quotes, commas, colons); the value is parsed once it is complete. That
//! is enough to detect at once that a line of a log is not a message, and to find the end of a value of any size
//! without holding it.

/// Deepest nesting, the same as in `serde_json`.
const MAX_DEPTH: usize = 128;
/// Most bytes of a request's id that are kept.
const MAX_ID: usize = 256;

/// Result of a scanned byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanStep {
    /// In the middle of the value.
    More,
    /// At the end of the value.
    Done,
    /// Not allowed at this position.
    Bad,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
    /// The rest of a string, which is a key or a value.
    Text {
        key: bool,
        escaped: bool,
    },
    /// The rest of a number or a literal.
    Word,
}

/// Scanner of one value, which has to be an object or a list.
///
/// Invariant: `open` holds the enclosing brackets, outermost first, and is empty before the first byte and after the
/// last.
#[derive(Debug)]
pub(super) struct Scanner {
    /// Open brackets; true for `{`.
    open: Vec<bool>,
    expect: Expect,
    /// Key of the current field of the outermost object, at most eight bytes of it.
    key: Vec<u8>,
    /// Value of the field `id` of the outermost object, as written.
    id: Vec<u8>,
    /// Set once the outermost object has a field `method`.
    has_method: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        Self { open: Vec::new(), expect: Expect::Value, key: Vec::new(), id: Vec::new(), has_method: false }
    }
}

impl Scanner {
    /// Returns the `id` of the outermost object, as far as it has been scanned.
    pub(super) fn id(&self) -> &[u8] {
        &self.id
    }

    /// Reports whether the outermost object is a request, as far as it has been scanned; otherwise its `id` is that of
    /// the request which it answers.
    pub(super) fn is_request(&self) -> bool {
        self.has_method
    }

    /// Scans the next byte. After [`ScanStep::Done`] and [`ScanStep::Bad`] a new scanner is needed.
    pub(super) fn step(&mut self, byte: u8) -> ScanStep {
        match self.expect {
            Expect::Text { key, escaped } => return self.text(byte, key, escaped),
            Expect::Word if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.') => {
                self.record_byte(byte, false);
                return ScanStep::More;
            }
            Expect::Word => self.expect = Expect::CommaOrEnd,
            _ => {}
        }
        if byte.is_ascii_whitespace() {
            return ScanStep::More;
        }
        match (self.expect, byte) {
            (Expect::Value | Expect::ValueOrEnd, b'{') => self.enter(true),
            (Expect::Value | Expect::ValueOrEnd, b'[') => self.enter(false),
            (_, _) if self.open.is_empty() => ScanStep::Bad,
            (Expect::Value | Expect::ValueOrEnd, b'"') => self.go(Expect::Text { key: false, escaped: false }, byte),
            (Expect::Value | Expect::ValueOrEnd, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                self.go(Expect::Word, byte)
            }
            (Expect::Key | Expect::KeyOrEnd, b'"') => {
                self.key.clear();
                self.go(Expect::Text { key: true, escaped: false }, byte)
            }
            (Expect::Colon, b':') => self.go(Expect::Value, byte),
            (Expect::CommaOrEnd, b',') if self.in_object() => self.go(Expect::Key, byte),
            (Expect::CommaOrEnd, b',') => self.go(Expect::Value, byte),
            (Expect::KeyOrEnd | Expect::CommaOrEnd, b'}') if self.in_object() => self.leave(),
            (Expect::ValueOrEnd | Expect::CommaOrEnd, b']') if !self.in_object() => self.leave(),
            _ => ScanStep::Bad,
        }
    }

    /// Returns how many of the next bytes are inside a string, where none of them changes the state.
    pub(super) fn plain_text_len(&self, bytes: &[u8]) -> usize {
        if !matches!(self.expect, Expect::Text { key: false, escaped: false }) || self.is_outermost() {
            return 0;
        }
        let end = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
        memchr::memchr2(b'\n', b'\r', &bytes[..end]).unwrap_or(end)
    }

    fn text(&mut self, byte: u8, key: bool, escaped: bool) -> ScanStep {
        // A line break in a string has to be escaped. Other control characters are left to the parser of the value.
        if matches!(byte, b'\n' | b'\r') {
            return ScanStep::Bad;
        }
        self.record_byte(byte, key);
        self.expect = match byte {
            _ if escaped => Expect::Text { key, escaped: false },
            b'\\' => Expect::Text { key, escaped: true },
            b'"' if key => Expect::Colon,
            b'"' => Expect::CommaOrEnd,
            _ => return ScanStep::More,
        };
        ScanStep::More
    }

    fn go(&mut self, expect: Expect, byte: u8) -> ScanStep {
        self.expect = expect;
        if matches!(expect, Expect::Word | Expect::Text { key: false, .. }) {
            self.record_byte(byte, false);
        }
        ScanStep::More
    }

    /// Records the key and the `id` of the outermost object.
    fn record_byte(&mut self, byte: u8, key: bool) {
        if !self.is_outermost() {
            return;
        }
        if key && self.key.len() < 8 {
            self.key.push(byte);
            self.has_method |= self.key == b"method\"";
        } else if !key && self.key == b"id\"" && self.id.len() < MAX_ID {
            self.id.push(byte);
        }
    }

    fn enter(&mut self, object: bool) -> ScanStep {
        if self.open.len() == MAX_DEPTH {
            return ScanStep::Bad;
        }
        self.open.push(object);
        self.expect = if object { Expect::KeyOrEnd } else { Expect::ValueOrEnd };
        ScanStep::More
    }

    fn leave(&mut self) -> ScanStep {
        self.open.pop();
        self.expect = Expect::CommaOrEnd;
        if self.open.is_empty() { ScanStep::Done } else { ScanStep::More }
    }

    fn is_outermost(&self) -> bool {
        self.open.len() == 1 && self.in_object()
    }

    fn in_object(&self) -> bool {
        self.open.last() == Some(&true)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Scans up to the end or the first invalid byte; returns the bytes scanned, the last step and the id.
    fn scan(text: &str) -> (usize, ScanStep, String) {
        let mut scanner = Scanner::default();
        for (at, byte) in text.bytes().enumerate() {
            let step = scanner.step(byte);
            if step != ScanStep::More {
                return (at + 1, step, String::from_utf8(scanner.id).unwrap());
            }
        }
        (text.len(), ScanStep::More, String::from_utf8(scanner.id).unwrap())
    }

    #[test]
    fn what_is_no_json_is_known_at_its_first_wrong_byte() {
        for (text, wrong) in [("[INFO] started", 2), ("{ starting", 3), ("[1/3] x", 3), ("{\"a\" 1}", 6), ("{\"a\n", 4)]
        {
            assert_eq!((scan(text).0, scan(text).1), (wrong, ScanStep::Bad), "{text}");
        }
        assert_eq!(scan(&"[".repeat(MAX_DEPTH + 1)).1, ScanStep::Bad);
        assert_eq!(scan(&"[".repeat(MAX_DEPTH)).1, ScanStep::More);
    }

    #[test]
    fn the_id_is_that_of_the_outermost_object() {
        for (text, id) in [
            (r#"{"result":{"id":1},"id":22}"#, "22"),
            (r#"{"id" : "a\"b" ,"x":{"id":1}}"#, r#""a\"b""#),
            (r#"{"a":"id","b":7}"#, ""),
            (r#"[{"id":1}]"#, ""),
            (r#"{"ids":1,"i":2,"":3}"#, ""),
        ] {
            assert_eq!(scan(text), (text.len(), ScanStep::Done, id.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_has_a_method_asks() {
        for (text, asks) in [
            (r#"{"id":1,"method":"m"}"#, true),
            (r#"{"method":"m","params":{"x":1}}"#, true),
            (r#"{"id":1,"result":{"method":"m"}}"#, false),
            (r#"{"methods":1,"amethod":2,"x":"method"}"#, false),
        ] {
            let mut scanner = Scanner::default();
            let steps = text.bytes().map(|byte| scanner.step(byte)).last();
            assert_eq!(steps, Some(ScanStep::Done), "{text}");
            assert_eq!(scanner.is_request(), asks, "{text}");
        }
    }

    /// Returns a strategy for any JSON value.
    pub(crate) fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_value_ends_where_it_ends(value in value(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let wrapped = format!("{{\"x\":{text}}}");
            prop_assert_eq!(scan(&format!("{wrapped} rest")).0, wrapped.len());
            prop_assert_eq!(scan(&wrapped).1, ScanStep::Done);
        }

        #[test]
        fn what_serde_takes_is_never_bad(text in "[\\[\\]{}:,\"a-e0-9\\\\ \n.-]{0,24}") {
            if serde_json::from_str::<Value>(&text).is_ok_and(|value| value.is_object() || value.is_array()) {
                prop_assert_ne!(scan(&text).1, ScanStep::Bad);
            }
        }
    }
}
