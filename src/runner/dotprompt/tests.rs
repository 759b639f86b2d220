//! What a prompt becomes, case by case.

use serde_json::json;

use super::{Part, Prompt, RenderedMessage, Role};

fn text(role: Role, text: &str) -> RenderedMessage {
    RenderedMessage { role, parts: vec![Part::Text(text.into())] }
}

#[test]
fn a_prompt_becomes_messages() {
    let source = "---\nmodel: stub/echo\nconfig:\n  temperature: 0.5\ninput:\n  schema:\n    name: string\n    list?(array): string\n  default:\n    name: Ada\n---\n{{role \"system\"}}\nBe kind.\n{{role \"user\"}}\nHello {{name}}{{#each list}}, {{@index}} {{this}}{{/each}}!\n";
    let prompt = Prompt::parse("hello", source).unwrap();
    let history = [text(Role::User, "before"), text(Role::Model, "answer")];
    let rendered = prompt.render(&json!({"list": ["a", "b"]}), &history).unwrap();
    let [system, before, answer, user] = rendered.messages.as_slice() else { panic!("{rendered:?}") };
    assert_eq!((system, user), (&text(Role::System, "\nBe kind.\n"), &text(Role::User, "\nHello Ada, 0 a, 1 b!")));
    assert_eq!([before.clone(), answer.clone()], history);
    assert_eq!(rendered.metadata.model.as_deref(), Some("stub/echo"));
}
