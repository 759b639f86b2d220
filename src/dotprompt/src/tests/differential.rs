//! Differential tests: the same prompts, rendered by the reference and by this crate.
//!
//! The reference is the npm package `dotprompt` in the version that `tests/peers/package.json` pins; `hack/peers`
//! installs it. One Node process renders all cases of a test.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;
use testing::peers;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::cases::{BLOCKS, DIFFERENT, FRONTMATTERS, LEAVES, TEMPLATES, input_of_cases, partials};
use super::words;
use crate::{Part, Prompt, RenderedMessage, Role, blocks, input};

/// Prompt with the input, history and partials of its rendering.
#[derive(Debug, Clone)]
struct PromptCase {
    source: String,
    input: Value,
    history: Vec<RenderedMessage>,
    partials: BTreeMap<String, String>,
}

fn case(source: &str, input: Value) -> PromptCase {
    PromptCase { source: source.to_owned(), input, history: Vec::new(), partials: partials() }
}

fn history() -> Vec<RenderedMessage> {
    let text = |role, text: &str| RenderedMessage { role, parts: vec![Part::Text(text.into())] };
    vec![text(Role::User, "earlier"), text(Role::Model, "indeed")]
}

fn role(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Model => "model",
    }
}

fn as_json(messages: &[RenderedMessage]) -> Value {
    let part = |part: &Part| match part {
        Part::Text(text) => json!({"text": text}),
        Part::Media { url, content_type: None } => json!({"media": {"url": url}}),
        Part::Media { url, content_type } => json!({"media": {"url": url, "contentType": content_type}}),
    };
    let message =
        |it: &RenderedMessage| json!({"role": role(it.role), "content": it.parts.iter().map(part).collect::<Value>()});
    messages.iter().map(message).collect()
}

/// Renders a case by this crate, in the form of the script's answers.
fn ours(case: &PromptCase) -> Value {
    let error = |error: String| json!({"error": error});
    let prompt = match Prompt::parse_with("case", &case.source, &case.partials) {
        Ok(prompt) => prompt,
        Err(wrong) => return error(wrong.to_string()),
    };
    let metadata = prompt.metadata();
    let rendered = match prompt.render(&case.input, &case.history) {
        Ok(rendered) => rendered,
        Err(wrong) => return error(wrong.to_string()),
    };
    json!({
        "messages": as_json(&rendered.messages),
        "variables": input::merge(&case.input, &metadata.input_default, None).unwrap(),
        "inputSchema": sorted(metadata.input_schema.clone().unwrap_or_default()),
        "outputSchema": sorted(metadata.output_schema.clone().unwrap_or_default()),
        "model": metadata.model,
        "config": metadata.config,
        "tools": metadata.tools.clone().unwrap_or_default(),
    })
}

/// Renders the cases by the reference, in order.
fn theirs(cases: &[PromptCase]) -> Vec<Value> {
    let asked: Value = cases
        .iter()
        .map(|it| json!({"source": it.source, "input": it.input, "history": as_json(&it.history), "partials": it.partials}))
        .collect();
    let mut node = peers::node("dotprompt.cjs");
    let node = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut node = node.expect("node is needed to compare with the reference: install Node.js 20 and run `make test`");
    let mut stdin = node.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(asked.to_string().as_bytes()).unwrap());
    let output = node.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "node failed; is the package `dotprompt` there? Run `hack/peers` or `make test`");
    let mut results: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results.len(), cases.len());
    results.iter_mut().for_each(normalize);
    results
}

/// Removes sections, parts that are pending, which this crate leaves out on purpose.
fn normalize(result: &mut Value) {
    let Some(messages) = result.get_mut("messages").and_then(Value::as_array_mut) else { return };
    for message in messages.iter_mut() {
        message["content"].as_array_mut().unwrap().retain(|part| part.pointer("/metadata/pending").is_none());
    }
    messages.retain(|message| message["content"] != json!([]));
    for schema in ["inputSchema", "outputSchema"] {
        result[schema] = sorted(result[schema].take());
    }
}

/// Returns a schema with its lists of required properties sorted: their order means nothing.
fn sorted(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(fields) => {
            if let Some(Value::Array(required)) = fields.get_mut("required") {
                required.sort_by_key(Value::to_string);
            }
            fields.iter_mut().for_each(|(_, field)| *field = sorted(field.take()));
        }
        Value::Array(list) => list.iter_mut().for_each(|it| *it = sorted(it.take())),
        _ => {}
    }
    schema
}

/// Reports whether both fail, or both give the same. JavaScript has one type of numbers, so `1` and `1.0` are the same.
fn agree(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| agree(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            (one.contains_key("error") && other.contains_key("error"))
                || (one.len() == other.len()
                    && one.iter().all(|(key, it)| other.get(key).is_some_and(|other| agree(it, other))))
        }
        (one, other) => one == other,
    }
}

/// Compares the cases with the reference.
///
/// # Panics
/// With all cases that differ.
fn compare(cases: &[PromptCase]) {
    let mut wrong = Vec::new();
    for (case, theirs) in cases.iter().zip(theirs(cases)) {
        let ours = ours(case);
        if !agree(&ours, &theirs) {
            let sentence = |of: &Value| of.get("error").unwrap_or(&of["messages"]).to_string();
            let (sentence, schemas) =
                ([sentence(&ours), sentence(&theirs)], [&ours["outputSchema"], &theirs["outputSchema"]]);
            wrong.push(format!("{:?}\n  ours, then theirs: {sentence:#?} {schemas:?}", case.source));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn templates_print_what_the_reference_prints() {
    let cases = TEMPLATES.iter().map(|source| case(source, input_of_cases()));
    compare(&cases.clone().chain(cases.map(|it| PromptCase { history: history(), ..it })).collect::<Vec<_>>());
}

#[test]
fn frontmatters_say_what_they_say_to_the_reference() {
    compare(&FRONTMATTERS.iter().map(|source| case(source, json!({"name": "Ada"}))).collect::<Vec<_>>());
}

#[test]
fn what_differs_from_the_reference_differs_on_purpose() {
    let cases: Vec<_> = DIFFERENT.iter().map(|(source, _)| case(source, input_of_cases())).collect();
    for ((case, theirs), (_, expected)) in cases.iter().zip(theirs(&cases)).zip(DIFFERENT) {
        let ours = ours(case);
        let wanted = match expected {
            Ok(messages) => ours["messages"] == serde_json::from_str::<Value>(messages).unwrap(),
            Err(part) => ours["error"].as_str().is_some_and(|error| error.contains(part)),
        };
        assert!(wanted, "{:?} gives {ours}", case.source);
        assert!(!agree(&ours, &theirs), "{:?} is no longer different: {theirs}", case.source);
    }
}

#[test]
fn random_templates_print_what_the_reference_prints() {
    let mut runner = TestRunner::deterministic();
    // The crate does not count white space at the very end as the rest of a tag's line.
    let mut source = || template().new_tree(&mut runner).unwrap().current().trim_end_matches([' ', '\t']).to_owned();
    let cases: Vec<_> =
        (0..RANDOM).map(|_| PromptCase { history: history(), ..case(&source(), input_of_cases()) }).collect();
    compare(&cases);
}

#[test]
fn what_no_reader_takes_the_reference_does_not_take() {
    let mut runner = TestRunner::deterministic();
    let texts = std::iter::repeat_with(|| words().new_tree(&mut runner).unwrap().current());
    let refused = texts.filter(|text| !text.contains("---") && blocks::check_blocks(text, 0).is_err());
    let cases: Vec<_> = refused.take(2 * RANDOM).map(|text| case(&text, input_of_cases())).collect();
    for (case, theirs) in cases.iter().zip(theirs(&cases)) {
        assert!(theirs.get("error").is_some(), "{:?} gives {theirs}", case.source);
    }
}

/// Number of random templates that are compared.
const RANDOM: usize = 500;

/// Generates templates in which white space, tags and blocks meet in every order. Tildes meet neither line ends nor comments, for
/// there the crate differs from the reference.
fn template() -> impl Strategy<Value = String> {
    let plain = nested(&["a", "b c", "\n", "  ", "\n\n", " \n  ", "\t", "\r\n", "\\"], LEAVES, 0.0);
    let tildes = nested(&["a", "b c", "  ", "\t", "\\"], &LEAVES[2..], 0.25);
    prop_oneof![plain, tildes]
}

fn nested(texts: &'static [&'static str], tags: &'static [&'static str], tildes: f64) -> impl Strategy<Value = String> {
    let leaf = prop_oneof![prop::sample::select(texts), prop::sample::select(tags)];
    let leaf = (leaf, prop::bool::weighted(tildes), prop::bool::weighted(tildes));
    let leaf =
        leaf.prop_map(|(text, before, after)| match text.strip_prefix("{{").and_then(|it| it.strip_suffix("}}")) {
            Some(tag) => format!(
                "{{{{{}{tag}{}}}}}",
                tilde(before && !tag.starts_with('!')),
                tilde(after && !tag.starts_with('{'))
            ),
            None => text.to_owned(),
        });
    let tree = leaf.prop_recursive(4, 24, 5, move |inner| {
        let body = prop::collection::vec(inner, 0..5).prop_map(|parts| parts.concat());
        let open = prop::sample::select(BLOCKS);
        let marks = prop::array::uniform6(prop::bool::weighted(tildes));
        (open, body.clone(), prop::option::of(body), marks).prop_map(|((open, close), body, otherwise, marks)| {
            let [a, b, c, d, e, f] = marks.map(tilde);
            let otherwise = otherwise.map(|text| format!("{{{{{c}else{d}}}}}{text}")).unwrap_or_default();
            format!("{{{{{a}#{open}{b}}}}}{body}{otherwise}{{{{{e}/{close}{f}}}}}")
        })
    });
    prop::collection::vec(tree, 1..6).prop_map(|parts| parts.concat())
}

fn tilde(there: bool) -> &'static str {
    if there { "~" } else { "" }
}
