//! Checks the parser of prompts. Both the texts of prompts and the inputs of callers are untrusted.

use std::{collections::BTreeMap, env, fs::File, os::unix::fs::FileExt, sync::LazyLock};

use dotprompt::{Part, Prompt, RenderedMessage, Role};
use serde_json::{Value, json};

/// Prompt that prints a value in every way, after a system message.
static PRINTS: LazyLock<Prompt> = LazyLock::new(|| {
    let text = r#"{{role "system"}}Obey.{{role "user"}}<{{a}}|{{{a}}}|{{#if a}}{{json a}}{{/if}}>{{media url=a}}"#;
    Prompt::parse("prints", text).expect("the prompt is good")
});

/// File with the present input: libFuzzer cannot save an input that overflows the stack.
static LAST: LazyLock<Option<File>> =
    LazyLock::new(|| env::var_os("FUZZ_LAST").map(|path| File::create(path).expect("the file can be made")));

/// Checks that a text is refused with a line number within the text, or renders to messages that are not empty; that
/// `dotprompt::syntax` accepts the templates that `handlebars` accepts; and that an input is printed unchanged and makes no
/// message of its own. The byte `0xff` separates the text, a partial and the input.
pub fn prompt(bytes: &[u8]) {
    if let Some(file) = &*LAST {
        let written = file.set_len(bytes.len() as u64).and_then(|()| file.write_all_at(bytes, 0));
        written.expect("the file can be written");
    }
    let mut parts = bytes.splitn(3, |byte| *byte == 0xff).map(str::from_utf8);
    let mut next = || parts.next().unwrap_or(Ok(""));
    let (Ok(text), Ok(partial), Ok(input)) = (next(), next(), next()) else { return };
    judged(text, partial, input);
    in_its_place(input);
}

fn judged(text: &str, partial: &str, input: &str) {
    // YAML ends lines at these characters.
    let lines = text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count();
    let partials = BTreeMap::from([("p".to_owned(), partial.to_owned())]);
    match Prompt::parse_with("it", text, &partials) {
        Err(error) => assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{error}"),
        Ok(prompt) => {
            dotprompt::syntax(text).expect("every reader takes what ours takes");
            let before = [RenderedMessage { role: Role::User, parts: vec![Part::Text("before".into())] }];
            let values = json!({"a": [{"b": {"c": 1}}, input, null], "b": input, "c": {"d": [1, [2]]}});
            for values in [values, Value::Null] {
                let Ok(rendered) = prompt.render(&values, &before) else { continue };
                assert!(rendered.messages.iter().all(says_something), "{rendered:?}");
            }
        }
    }
    let template = dotprompt::template(text);
    if template.is_ok_and(|template| template == text && handlebars::Template::compile(text).is_ok()) {
        dotprompt::syntax(text).expect("every reader takes the blocks that handlebars takes");
    }
}

fn says_something(message: &RenderedMessage) -> bool {
    let says = |part: &Part| !matches!(part, Part::Text(text) if text.trim().is_empty());
    !message.parts.is_empty() && message.parts.iter().all(says)
}

fn in_its_place(input: &str) {
    let Ok(rendered) = PRINTS.render(&json!({ "a": input }), &[]) else { return };
    let [system, user] = rendered.messages.as_slice() else { panic!("{rendered:?}") };
    assert_eq!((system.role, system.parts.as_slice()), (Role::System, &[Part::Text("Obey.".into())][..]));
    let json = if input.is_empty() { String::new() } else { json!(input).to_string() };
    let input = input.replace('\0', "");
    let Some(Part::Text(text)) = user.parts.first() else { panic!("{rendered:?}") };
    assert_eq!((user.role, text), (Role::User, &format!("<{input}|{input}|{json}>")));
    assert!(matches!(user.parts[1..], [] | [Part::Media { .. }]), "{rendered:?}");
}
