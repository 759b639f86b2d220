use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const LIMIT: usize = 4096;

fn frames(text: &[u8], cuts: &[usize]) -> Vec<Frame> {
    let mut framer = Framer::new(LIMIT);
    let mut found = VecDeque::new();
    let mut from = 0;
    for cut in cuts.iter().copied().chain([text.len()]) {
        let cut = cut.clamp(from, text.len());
        framer.push(&text[from..cut], &mut found);
        from = cut;
    }
    found.into()
}

fn messages(text: &str) -> Vec<Value> {
    let json = |frame| match frame {
        Frame::Json(bytes) => Some(serde_json::from_slice(&bytes).unwrap()),
        _ => None,
    };
    frames(text.as_bytes(), &[]).into_iter().filter_map(json).collect()
}

#[test]
fn a_message_over_several_lines_is_one() {
    let text = "{\n  \"a\": [\n    1,\n\r\n 2\n  ]\n}\n{\"b\":1}\n";
    assert_eq!(messages(text), [json!({"a": [1, 2]}), json!({"b": 1})]);
    let Frame::Json(bytes) = &frames(text.as_bytes(), &[])[0] else { panic!("a message") };
    assert!(!bytes.contains(&b'\n') && !bytes.contains(&b'\r'));
}

#[test]
fn messages_need_no_line_break_between_them() {
    assert_eq!(messages("{\"a\":1}{\"b\":1}\r\n[]"), [json!({"a": 1}), json!({"b": 1}), json!([])]);
}

#[test]
fn noise_does_not_hide_the_messages_around_it() {
    for noise in [
        "hello",
        "[INFO] ready",
        "{ starting",
        "{",
        "[",
        "{\"a\":",
        "[1,",
        "\"",
        "{\"half\": \"text",
        "[[[[",
        "{}}",
        "\u{fffd}{",
    ] {
        let text = format!("{{\"a\":1}}\n{noise}\n{{\"b\":1}}\n{{\"c\":1}}\n{{\"d\":1}}\n");
        let found = messages(&text);
        assert!(found.contains(&json!({"a": 1})) && found.contains(&json!({"d": 1})), "{noise}: {found:?}");
    }
    let noise = frames(b"{\"a\":1}\nhello\n[INFO] x\n", &[]);
    assert_eq!(noise[1..], [Frame::Noise(b"hello".to_vec()), Frame::Noise(b"[INFO] x".to_vec())]);
}

#[test]
fn a_message_after_the_start_of_something_is_known_at_its_end() {
    let message = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    for start in ["[", "{\"a\":", "[1,\n"] {
        let found = frames(format!("{start}\n{message}\n").as_bytes(), &[]);
        assert_eq!(found.last(), Some(&Frame::Json(message.into())), "{start}");
    }
}

#[test]
fn what_is_too_large_is_not_held_but_its_id_is_known() {
    let mut framer = Framer::new(LIMIT);
    let mut found = VecDeque::new();
    framer.push(b"{\"result\":\"", &mut found);
    for _ in 0..100 {
        framer.push(&[b'x'; 1000], &mut found);
        assert!(framer.buffer.capacity() <= 2 * LIMIT);
    }
    framer.push(b"\",\"id\":\"a\\u0062\"}\n{\"b\":1}\n", &mut found);
    let next = Frame::Json(b"{\"b\":1}".to_vec());
    let too_large = UndeliveredMessage { id: Some(RpcId::Text("ab".into())), is_request: false };
    assert_eq!(Vec::from(found), [Frame::TooLarge(too_large), next]);
}

#[test]
fn what_there_is_no_room_for_is_like_what_is_too_large() {
    let mut framer = Framer::new(LIMIT);
    let mut found = VecDeque::new();
    framer.push(b"{\"id\":7,\"method\":\"", &mut found);
    assert!(framer.buffered() > 0);
    framer.discard();
    assert_eq!(framer.buffered(), 0);
    framer.push(b"m\"}{\"b\":1}", &mut found);
    let too_large = UndeliveredMessage { id: Some(RpcId::Number(7)), is_request: true };
    assert_eq!(Vec::from(found), [Frame::TooLarge(too_large), Frame::Json(b"{\"b\":1}".to_vec())]);
}

#[test]
fn noise_without_end_is_not_held() {
    let mut framer = Framer::new(LIMIT);
    let mut found = VecDeque::new();
    for start in ["x", "{\"a\":\"", "[", "{\"a\":1}{"] {
        framer.push(start.as_bytes(), &mut found);
        for _ in 0..100 {
            framer.push(&[b'['; 1000], &mut found);
            framer.push(&[b'x'; 1000], &mut found);
            assert!(framer.buffer.capacity() <= 2 * LIMIT);
        }
        framer.push(b"\n", &mut found);
    }
    assert!(found.len() < 20, "{}", found.len());
}

proptest! {
    #[test]
    fn every_cut_gives_the_same(
        parts in prop::collection::vec((super::super::scanner::tests::value(), any::<bool>(), "[ -~]{0,12}"), 0..5),
        cuts in prop::collection::vec(0_usize..2000, 0..8),
    ) {
        let mut text = String::new();
        let mut wanted = Vec::new();
        for (value, pretty, noise) in parts {
            let message = json!({"v": value});
            let json = if pretty { serde_json::to_string_pretty(&message) } else { serde_json::to_string(&message) };
            // Noise that does not begin like JSON, on a line of its own.
            text.push_str(&format!("x{noise}\n{}\n", json.unwrap()));
            wanted.push(message);
        }
        let mut cuts = cuts;
        cuts.sort_unstable();
        let whole = frames(text.as_bytes(), &[]);
        prop_assert_eq!(&frames(text.as_bytes(), &cuts), &whole);
        if text.len() < LIMIT {
            let floats_are_near = |a: &Value, b: &Value| a.to_string().len().abs_diff(b.to_string().len()) < 8;
            let found = messages(&text);
            prop_assert_eq!(found.len(), wanted.len());
            prop_assert!(found.iter().zip(&wanted).all(|(a, b)| a == b || floats_are_near(a, b)));
        }
    }

    #[test]
    fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut framer = Framer::new(64);
        let mut found = VecDeque::new();
        framer.push(&bytes, &mut found);
        prop_assert!(framer.buffer.len() <= MAX_LOGGED_NOISE);
    }
}
