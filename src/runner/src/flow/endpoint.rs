//! Prompt endpoint: a compiled prompt with everything that a request needs.

use std::borrow::Cow;
use std::sync::Arc;

use dotprompt::{Prompt, RenderError, RenderedMessage, Role};
use serde_json::{Map, Value};
use tokio::sync::mpsc::Sender;

use super::output::JsonOutput;
use crate::{
    caller::RequestHeaders,
    models::{Message, Model, ModelError, ModelRequest},
    tools::Toolbox,
    turn::{TurnLoop, TurnOutcome},
    turn_event::TurnEvent,
};

/// Prompts of a flow.
pub(super) struct Flow {
    /// Entry prompt.
    pub(super) entry: Arc<PromptEndpoint>,
    /// All prompts, by name.
    pub(super) prompts: Vec<(String, Arc<PromptEndpoint>)>,
}

/// Compiled prompt with its model and tools.
pub(super) struct PromptEndpoint {
    pub(super) prompt: Prompt,
    pub(super) model: Arc<dyn Model>,
    /// Generation config of the prompt, merged over the model's.
    pub(super) config: Arc<Map<String, Value>>,
    pub(super) tools: Toolbox,
    /// Set when the answer must be JSON.
    pub(super) output: Option<JsonOutput>,
    /// Maximum number of tool turns; a second attempt at the JSON counts as one.
    pub(super) tool_turns: usize,
    /// Handling of the user's last message in a chat.
    pub(super) message: ChatMessage,
}

/// Handling of the user's last message in a chat, as text.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChatMessage {
    /// The prompt gets it as the variable `message`.
    pub(super) is_variable: bool,
    /// The template uses that variable, so the message is left out of the conversation.
    pub(super) in_template: bool,
}

/// Failure of a prompt. The text is for the user.
#[derive(Debug, thiserror::Error)]
pub(super) enum PromptRunError {
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The answer does not match the output format or schema.
    #[error("the model's answer does not fit the prompt's output: {0}")]
    Output(String),
}

impl PromptRunError {
    fn word(&self) -> Cow<'static, str> {
        match self {
            Self::Model(error) => error.word(),
            Self::Output(_) => "malformed".into(),
        }
    }
}

impl PromptEndpoint {
    /// Renders the request for the model: the template with `variables`, and `history` where the template places it.
    ///
    /// # Errors
    /// Variables that do not match the input schema, or a template that fails with them.
    pub(super) fn render(&self, variables: &Value, history: &[Arc<Message>]) -> Result<ModelRequest, RenderError> {
        // Dotprompt cannot represent tool calls, so a placeholder with an empty text, which no template produces, marks
        // the place of the history.
        let place = [RenderedMessage { role: Role::Model, parts: vec![dotprompt::Part::Text(String::new())] }];
        let place = if history.is_empty() { &[][..] } else { &place };
        let mut rendered = self.prompt.render(variables, place)?.messages.into_iter().peekable();
        let system = rendered.next_if(|message| message.role == Role::System).map(|message| text(message).into());
        let mut messages = Vec::with_capacity(history.len() + 2);
        for message in rendered {
            if matches!(&message.parts[..], [dotprompt::Part::Text(text)] if text.is_empty()) {
                messages.extend_from_slice(history);
            } else {
                messages.push(Arc::new(to_message(message)));
            }
        }
        let output = self.output.as_ref().map(JsonOutput::format);
        let (tools, config) = (self.tools.specs(), self.config.clone());
        Ok(ModelRequest { system, messages, tools, config, output, ..ModelRequest::default() })
    }

    /// Sends the request to the model, as a turn of the flow of this name; `headers` are those of the request that began the
    /// turn. Text is sent to `tokens` as it arrives, JSON only once it is complete and valid. Dropping the future cancels the turn.
    ///
    /// # Errors
    /// The model failed, the budget is spent, or the answer is not valid, also in a second attempt if a tool turn is left for one.
    pub(super) async fn respond(
        &self,
        flow: &str,
        mut request: ModelRequest,
        headers: &RequestHeaders,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<TurnOutcome, PromptRunError> {
        let span = request.account.trace().begin_turn(flow);
        request.account = request.account.within(span.scope());
        let outcome = self.run(request, headers, tokens).await;
        span.end_turn(outcome.as_ref().map_err(PromptRunError::word));
        outcome
    }

    async fn run(
        &self,
        mut request: ModelRequest,
        headers: &RequestHeaders,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<TurnOutcome, PromptRunError> {
        let listener = tokens.filter(|_| self.output.is_none());
        let tools = self.tools.for_request(headers, &request.account);
        let turn = TurnLoop { model: &*self.model, tools: &tools, events: listener, may_wait: false };
        let mut left = self.tool_turns;
        let mut outcome = turn.run(&mut request, &mut left).await?;
        let Some(output) = &self.output else { return Ok(outcome) };
        let end = request.account.budget_end();
        outcome.text = match (output.check(last_reply(&request)), end) {
            (Ok(json), _) => json.to_owned(),
            (Err(_), Some(end)) => return Err(ModelError::over_budget(end.unit).into()),
            (Err(problem), None) if left == 0 => return Err(PromptRunError::Output(problem)),
            (Err(problem), None) => {
                let text = format!("That does not fit: {problem}. Answer again, with JSON alone.");
                request.messages.push(Arc::new(Message::user(text)));
                outcome.add(turn.run(&mut request, &mut { left - 1 }).await?);
                output.check(last_reply(&request)).map_err(PromptRunError::Output)?.to_owned()
            }
        };
        if let Some(tokens) = tokens {
            // If the receiver is gone, the whole turn is being dropped.
            let _ = tokens.send(TurnEvent::Text(outcome.text.clone())).await;
        }
        Ok(outcome)
    }
}

/// Returns the model's last message, after all tool calls.
fn last_reply(request: &ModelRequest) -> &str {
    match request.messages.last().map(Arc::as_ref) {
        Some(Message::Assistant(text)) => text,
        _ => "",
    }
}

/// Converts a rendered message into one for models.
fn to_message(message: RenderedMessage) -> Message {
    match message.role {
        Role::System => Message::System(text(message)),
        Role::Model => Message::Assistant(text(message)),
        Role::User => Message::User(message.parts),
    }
}

/// Returns the text of a message; only user messages have media.
fn text(message: RenderedMessage) -> String {
    let mut texts = message.parts.into_iter().filter_map(|part| match part {
        dotprompt::Part::Text(text) => Some(text),
        dotprompt::Part::Media { .. } => None,
    });
    // There is nearly always one part, which need not be copied.
    let mut whole = texts.next().unwrap_or_default();
    whole.extend(texts);
    whole
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use dotprompt::Part;
    use futures::{
        StreamExt,
        stream::{self, BoxStream},
    };
    use serde_json::json;

    use super::*;
    use crate::{
        metrics::RunnerMetrics,
        models::{Chunk, ModelErrorKind, ToolCall},
        tools::CallableTool,
    };

    /// Model that returns these answers one after the other, a call of `datetime` for an empty one, and fails when none
    /// is left; records its requests.
    struct ScriptedModel(Mutex<Vec<&'static str>>, Mutex<Vec<ModelRequest>>);

    impl Model for ScriptedModel {
        fn respond(&self, request: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
            self.1.lock().unwrap().push(request);
            let mut answers = self.0.lock().unwrap();
            let next = if answers.is_empty() { None } else { Some(answers.remove(0)) };
            let chunk = match next {
                None => Err(ModelError::new(ModelErrorKind::Unavailable, "it is asleep")),
                Some("") => Ok(Chunk::Call(ToolCall { name: "datetime".into(), ..ToolCall::default() })),
                Some(text) => Ok(Chunk::Token(text.into())),
            };
            stream::iter([chunk]).boxed()
        }
    }

    fn endpoint(text: &str, answers: &[&'static str]) -> (PromptEndpoint, Arc<ScriptedModel>) {
        let model = Arc::new(ScriptedModel(Mutex::new(answers.to_vec()), Mutex::default()));
        let prompt = Prompt::parse("p", text).unwrap();
        let tools = r#"{"name": "datetime", "implementation": {"builtin": "datetime"}}"#;
        let tools = vec![CallableTool::read_contract(tools).unwrap()];
        let endpoint = PromptEndpoint {
            model: model.clone(),
            config: Arc::new(prompt.metadata().config.clone()),
            tools: Toolbox::new(tools, Arc::new(|_: &str| None), RunnerMetrics::default()),
            output: prompt.metadata().output_schema.clone().map(|schema| JsonOutput::new(Some(schema)).unwrap()),
            tool_turns: prompt.metadata().max_turns.unwrap_or(5) as usize,
            message: ChatMessage::default(),
            prompt,
        };
        (endpoint, model)
    }

    async fn run_prompt(endpoint: &PromptEndpoint) -> Result<String, String> {
        let request = endpoint.render(&json!({ "name": "Ada" }), &[]).unwrap();
        let outcome = endpoint.respond("p", request, &RequestHeaders::default(), None).await;
        outcome.map(|outcome| outcome.text).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_prompt_becomes_what_a_model_is_asked() {
        let text = "---\nconfig:\n  temperature: 0.5\n---\n{{role \"system\"}}be kind{{role \"user\"}}I am {{name}}\
                    {{role \"model\"}}Hello{{role \"system\"}}now rhyme{{role \"user\"}}See {{media url=\"data:image/png;base64,AA==\"}}";
        let (endpoint, model) = endpoint(text, &["fine"]);
        assert_eq!(run_prompt(&endpoint).await, Ok("fine".into()));
        let asked = &model.1.lock().unwrap()[0];
        assert_eq!((asked.system.as_deref(), asked.config["temperature"].as_f64()), (Some("be kind"), Some(0.5)));
        let media = Part::Media { url: "data:image/png;base64,AA==".into(), content_type: None };
        let outcome: Vec<_> = asked.messages.iter().map(|message| (**message).clone()).collect();
        assert_eq!(
            outcome,
            [
                Message::user("I am Ada"),
                Message::Assistant("Hello".into()),
                Message::System("now rhyme".into()),
                Message::User(vec![Part::Text("See ".into()), media]),
            ]
        );
    }

    #[tokio::test]
    async fn a_model_that_never_has_enough_of_tools_is_stopped() {
        for (text, calls, limit) in [("hi", 7, 5), ("---\nmaxTurns: 2\n---\nhi", 7, 2)] {
            let (endpoint, model) = endpoint(text, &vec![""; calls]);
            let stopped = format!("[stopped: the model asked for tools more than {limit} times]");
            assert_eq!(run_prompt(&endpoint).await, Ok(stopped));
            assert_eq!(model.1.lock().unwrap().len(), limit + 1);
        }
    }

    #[tokio::test]
    async fn json_that_does_not_fit_gets_one_more_try_if_a_turn_is_left() {
        let json = |turns: u32| format!("---\nmaxTurns: {turns}\noutput:\n  schema:\n    n: integer\n---\nhi");
        for (turns, answers, answer) in [
            (1, &["", "{\"n\": 1}"][..], Ok("{\"n\": 1}")),
            (1, &["{\"n\": \"x\"}", "```json\n{\"n\": 1}\n```"], Ok("{\"n\": 1}")),
            (1, &["no", "no", "{\"n\": 1}"], Err("it is not JSON: expected ident at line 1 column 2")),
            (1, &["", "{\"n\": \"x\"}", "{\"n\": 1}"], Err("/n: \"x\" is not of type \"integer\"")),
            (2, &["", "{\"n\": \"x\"}", "{\"n\": 1}"], Ok("{\"n\": 1}")),
            (5, &["", "", "", "", "", ""], Err("it is not JSON: expected value at line 1 column 2")),
        ] {
            let (endpoint, _) = endpoint(&json(turns), answers);
            let expected = answer.map(str::to_owned);
            let expected =
                expected.map_err(|why| format!("the model's answer does not fit the prompt's output: {why}"));
            assert_eq!(run_prompt(&endpoint).await, expected, "{turns} {answers:?}");
        }
        let (endpoint, model) = endpoint(&json(1), &["{\"n\": \"x\"}", "{\"n\": 1}"]);
        run_prompt(&endpoint).await.unwrap();
        let asked = model.1.lock().unwrap();
        let feedback = "That does not fit: /n: \"x\" is not of type \"integer\". Answer again, with JSON alone.";
        assert_eq!(**asked[1].messages.last().unwrap(), Message::user(feedback));
        assert!(asked[1].output.is_some());
    }

    #[tokio::test]
    async fn a_failing_model_is_a_failure() {
        let (endpoint, _) = endpoint("hi", &[]);
        assert_eq!(run_prompt(&endpoint).await, Err("the model did not answer: it is asleep".into()));
    }
}
