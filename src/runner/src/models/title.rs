//! Titles of conversations.

use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};

use super::{Chunk, Message, ModelError, ModelRequest};

/// Maximum characters of a title.
const LENGTH: usize = 60;
/// Maximum bytes of the message that the model gets.
const MAX_SHOWN: usize = 4096;
/// Timeout of the model's title.
const TITLE_TIMEOUT: Duration = Duration::from_secs(10);

const INSTRUCTION: &str = "Write a title for a conversation that begins with the user's message. Answer with the \
                           title alone, in the language of the message: at most eight words on one line, without \
                           quotation marks.";

/// Requests a title from the model; falls back to the beginning of the message.
pub(super) async fn request_title(
    answer: impl FnOnce(ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>>,
    first: &str,
) -> String {
    let shown = &first[..first.floor_char_boundary(MAX_SHOWN)];
    let request = ModelRequest {
        system: Some(INSTRUCTION.into()),
        messages: vec![Message::user(shown).into()],
        ..ModelRequest::default()
    };
    let mut stream = answer(request);
    let read = async {
        let mut text = String::new();
        while let Some(chunk) = stream.next().await {
            match chunk {
                Ok(Chunk::Token(token)) => text.push_str(&token),
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!("no title: {error}");
                    return None;
                }
            }
            if text.len() > MAX_SHOWN {
                break;
            }
        }
        Some(text)
    };
    let text = tokio::time::timeout(TITLE_TIMEOUT, read).await.ok().flatten().unwrap_or_default();
    // Models often quote or emphasise a title.
    let title = first_line(&text).trim_matches(|c: char| c.is_whitespace() || "\"'*#`".contains(c));
    cut(if title.is_empty() { first } else { title })
}

/// Returns the first non-blank line, at most 60 characters of it.
pub(super) fn cut(text: &str) -> String {
    first_line(text).chars().take(LENGTH).collect()
}

fn first_line(text: &str) -> &str {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::super::ModelErrorKind;
    use super::*;

    async fn title(chunks: Vec<Result<Chunk, ModelError>>) -> String {
        request_title(move |_| stream::iter(chunks).boxed(), "\n Where is Bern?\nI forgot").await
    }

    fn token(text: &str) -> Result<Chunk, ModelError> {
        Ok(Chunk::Token(text.into()))
    }

    #[tokio::test]
    async fn a_title_is_one_short_line() {
        for (answer, expected) in [
            ("\"Bern, where it is\"\n", "Bern, where it is".to_owned()),
            ("**Bern**\nand more", "Bern".to_owned()),
            ("", "Where is Bern?".to_owned()),
            (&"é".repeat(90), "é".repeat(60)),
        ] {
            assert_eq!(title(vec![token(answer)]).await, expected, "{answer:?}");
        }
        assert_eq!(title(vec![token("On"), token("e t"), Ok(Chunk::Truncated), token("wo")]).await, "One two");
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_that_fails_or_is_slow_leaves_the_beginning_of_the_message() {
        let failed = Err(ModelError::new(ModelErrorKind::Unavailable, "it is asleep"));
        assert_eq!(title(vec![token("Half a ti"), failed]).await, "Where is Bern?");
        assert_eq!(request_title(|_| stream::pending().boxed(), "hello").await, "hello");
    }
}
