//! Operator and runner refuse the same prompts, with the same lines.

use super::ContractFolder;

/// A flow: expected refusal, and prompts.
type RefusalCase = (RefusedBy, &'static [(&'static str, &'static str)]);

#[derive(Debug, Clone, Copy, PartialEq)]
enum RefusedBy {
    /// Accepted.
    Nowhere,
    /// Refused by every Dotprompt parser, so the Prompt is `Error` for every user of it.
    Everywhere,
    /// Refused by Récif's runner only, so a flow with its image is `InvalidSpec`.
    Ours,
}

use RefusedBy::{Everywhere, Nowhere, Ours};

const CASES: &[RefusalCase] = &[
    (Nowhere, &[("main", "Hello {{name}}!")]),
    (Nowhere, &[("main", "---\ninput:\n  schema: {name: string, 'tags?(array)': string}\n---\nHello {{name}}")]),
    (Nowhere, &[("main", "{{role \"system\"}}Be kind.{{role \"user\"}}{{message}}")]),
    (Nowhere, &[("main", "<<<dotprompt:role:system>>>Be kind.<<<dotprompt:role:user>>>Hi")]),
    (Nowhere, &[("main", "<<<dotprompt:role:robot>>>Be kind.")]),
    (Nowhere, &[("main", "{{#if a}}x{{else if b}}y{{else}}z{{/if}}")]),
    (Nowhere, &[("main", "{{#*inline \"p\"}}x{{/inline}}{{> p}}")]),
    (Nowhere, &[("main", "{{> style}}"), ("_style", "Be {{mood}}.")]),
    (Nowhere, &[("main", "{{#> style}}nothing{{/style}}")]),
    (Nowhere, &[("main", "---\nmodel: stub/x\nconfig: {temperature: 1}\nmaxTurns: 2\n---\n{{{html}}}")]),
    // Frontmatter that no parser accepts.
    (Everywhere, &[("main", "---\nmodel: a\n b: c\n---\nHi")]),
    (Everywhere, &[("main", "---\nmodel: a\nHi")]),
    (Everywhere, &[("main", "---\n- a\n---\nHi")]),
    // Handlebars that no parser accepts.
    (Everywhere, &[("main", "one\nHello {{name")]),
    (Everywhere, &[("main", "---\na: 1\n---\none\n{{#if a}}\ntwo")]),
    (Everywhere, &[("main", "{{#if a}}\n{{/unless}}")]),
    (Everywhere, &[("main", "one\n{{/if}}")]),
    (Everywhere, &[("main", "one\n\n{{else}}")]),
    (Nowhere, &[("main", "Hi{{!-- note }}")]),
    (Everywhere, &[("main", "Hi\n{{! note }")]),
    // Prompts that only Récif's runner refuses.
    (Ours, &[("main", "---\ninput:\n  schema: {a: text}\n---\nHi")]),
    (Ours, &[("main", "---\na: 1\ninput: {schema: {type: object, required: 5}}\n---\nHi")]),
    (Ours, &[("main", "---\na: 1\ninput: {schema: string}\n---\nHi")]),
    (Ours, &[("main", "---\noutput: {schema: {type: object, required: 5}}\n---\nHi")]),
    (Ours, &[("main", "---\noutput: {schema: {type: object, properties: {a: {$ref: '#/nowhere'}}}}\n---\nHi")]),
    (Ours, &[("main", "---\na: 1\nmaxTurns: 0\n---\nHi")]),
    (Ours, &[("main", "---\noutput: {format: xml}\n---\nHi")]),
    (Ours, &[("main", "one\n{{upper name}}")]),
    (Ours, &[("main", "one\n{{if a}}")]),
    (Ours, &[("main", "{{^name}}none{{/name}}")]),
    (Ours, &[("main", "one\n{{.}}")]),
    (Ours, &[("main", "one\n{{> gone}}")]),
    (Ours, &[("main", "one\n{{> main}}")]),
    (Ours, &[("a", "{{> b}}"), ("b", "{{> a}}"), ("main", "Hi")]),
    (Ours, &[("main", "one\n\0")]),
    // A broken partial is named, and so is the prompt that includes it.
    (Ours, &[("main", "{{> part}}"), ("part", "one\n{{upper name}}")]),
    (Everywhere, &[("main", "{{> part}}"), ("part", "one\n{{#if a}}")]),
];

/// Converts the operator's message to the runner's form: with the file in place of the prompt.
fn as_files(sentence: &str) -> String {
    let parts = sentence.split("prompt \"").skip(1).map(|part| {
        let (name, problem) = part.trim_end_matches("; ").split_once('"').unwrap();
        match problem.strip_prefix(", line ") {
            Some(problem) => format!("prompts/{name}.prompt:{problem}"),
            None => format!("prompts/{name}.prompt{problem}"),
        }
    });
    parts.collect::<Vec<_>>().join("; ")
}

#[tokio::test]
async fn operator_and_runner_refuse_the_same_prompts_in_the_same_words() {
    for (refusal, prompts) in CASES {
        let runner = ContractFolder::flow(prompts).serve(&[]).await;
        let (status, ready) = runner.get("/readyz").await;
        let owned: Vec<_> = prompts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let operator = actions::prompt::rejection(&owned);
        let everywhere = prompts.iter().any(|(_, text)| dotprompt::syntax(text).is_err());
        let found = match (&operator, everywhere) {
            (None, false) => Nowhere,
            (Some(_), false) => Ours,
            (_, true) => Everywhere,
        };
        assert_eq!(found, *refusal, "{prompts:?}: {operator:?}");
        match operator {
            None => assert_eq!(status, 200, "{prompts:?}: {ready}"),
            Some(sentence) => {
                let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
                assert_eq!((status, ready["error"].as_str()), (503, Some(&*as_files(&sentence))), "{prompts:?}");
                assert!(sentence.contains("line "), "{sentence}");
            }
        }
    }
}
