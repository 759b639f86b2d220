//! Splits the text that a template printed into messages.
//!
//! Helpers print marks: the beginning of a message, the place of the history, and media. A mark stands between two NUL characters,
//! which no template may hold and which are removed from every value, so that nothing in an input can make itself a system
//! message.

use serde::{Deserialize, Serialize};

/// Part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text(String),
    /// A picture, a sound or a document.
    Media {
        /// A `data:` URL, or the URL from which the provider fetches it.
        url: String,
        /// MIME type; that of the `data:` URL if unset.
        content_type: Option<String>,
    },
}

/// Role of a message's author.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions for the model.
    System,
    /// The user.
    User,
    /// The model.
    Model,
}

/// Message for a model.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedMessage {
    /// Role of its author.
    pub role: Role,
    /// Parts, in order. In a rendered message they are never empty, and no text is only white space.
    pub parts: Vec<Part>,
}

/// Delimiter before and after a mark.
const NUL: char = '\0';

/// Mark in the printed text.
#[derive(Debug, PartialEq)]
pub(super) enum Mark {
    /// The text that follows belongs to a message of this role.
    Role(String),
    /// The conversation so far goes here.
    History,
    /// Media: a picture, a sound or a document.
    Media { url: String, content_type: Option<String> },
    /// A place that other software fills; nothing here does.
    Section,
}

impl Mark {
    /// Renders the mark as it stands in printed text.
    pub(super) fn printed(&self) -> String {
        let text = match self {
            Self::Role(role) => format!("role {role}"),
            Self::History => "history".into(),
            Self::Media { url, content_type: None } => format!("media {url}"),
            Self::Media { url, content_type: Some(content_type) } => format!("media {url} {content_type}"),
            Self::Section => "section".into(),
        };
        format!("{NUL}{}{NUL}", clean(&text))
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        Some(match words.next()? {
            "role" => Self::Role(words.collect::<Vec<_>>().join(" ")),
            "history" => Self::History,
            "media" => Self::Media { url: words.next()?.into(), content_type: words.next().map(str::to_owned) },
            _ => Self::Section,
        })
    }
}

/// Returns `text` without the characters that delimit a mark.
pub(super) fn clean(text: &str) -> String {
    text.replace(NUL, "")
}

/// Reports whether a template's text can be split: it holds no NUL.
pub(super) fn is_clean(text: &str) -> bool {
    !text.contains(NUL)
}

/// Replaces the reference's own markers in the `text` of a template, such as `<<<dotprompt:role:user>>>`, by marks.
pub(super) fn with_marks(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("<<<dotprompt:") {
        let (before, marker) = rest.split_at(at);
        let (mark, length) = match marker.find(">>>").map(|end| (&marker["<<<dotprompt:".len()..end], end + 3)) {
            Some((name, length)) if !name.contains(['\n', '\r']) => (reference_marker(name), length),
            _ => (None, 0),
        };
        out.push_str(before);
        let Some(mark) = mark else {
            out.push_str("<<<");
            rest = &marker[3..];
            continue;
        };
        out.push_str(&mark.printed());
        rest = &marker[length..];
    }
    out + rest
}

fn reference_marker(name: &str) -> Option<Mark> {
    if let Some(role) = name.strip_prefix("role:") {
        let plain = !role.is_empty() && role.bytes().all(|byte| byte.is_ascii_lowercase());
        return plain.then(|| Mark::Role(role.into()));
    }
    if name == "history" {
        return Some(Mark::History);
    }
    if name.starts_with("media:url") {
        let mut words = name.split(' ').skip(1).map(str::to_owned);
        return Some(Mark::Media { url: words.next()?, content_type: words.next() });
    }
    name.starts_with("section").then_some(Mark::Section)
}

/// Splits the printed text into messages and inserts the history: where the template asks for it, else before the last message if
/// that is the user's, else at the end. Text that is only white space is no part, and a message without parts is left out.
///
/// # Errors
/// A role that no message can have.
pub(super) fn to_messages(printed: &str, history: &[RenderedMessage]) -> Result<Vec<RenderedMessage>, String> {
    let mut messages = vec![Draft::new(Role::User)];
    // Indices of the messages before which the history goes.
    let mut placed = Vec::new();
    for chunk in chunks(printed) {
        match chunk {
            Chunk::Role(name) => {
                let role = role(&name)?;
                match messages.last_mut().filter(|last| last.empty) {
                    Some(last) => last.message.role = role,
                    None => messages.push(Draft::new(role)),
                }
            }
            Chunk::History => {
                placed.push(messages.len());
                messages.push(Draft::new(Role::Model));
            }
            Chunk::Parts(parts) => {
                if let Some(last) = messages.last_mut() {
                    last.empty = false;
                    last.message.parts.extend(parts);
                }
            }
        }
    }
    // Messages of the history stay as they are, even without parts.
    let has_parts = |message: &RenderedMessage| !message.parts.is_empty();
    if placed.is_empty() {
        // A section counts for the place of the history, although it is no part.
        let mut before: Vec<_> = messages.into_iter().filter(|draft| !draft.empty).map(|draft| draft.message).collect();
        let last_is_user = before.last().is_some_and(|last| last.role == Role::User);
        let last = before.split_off(before.len() - usize::from(last_is_user));
        let before = before.into_iter().filter(has_parts).chain(history.iter().cloned());
        return Ok(before.chain(last.into_iter().filter(has_parts)).collect());
    }
    let mut out = Vec::new();
    for (at, Draft { message, .. }) in messages.into_iter().enumerate() {
        if placed.contains(&at) {
            out.extend_from_slice(history);
        }
        if has_parts(&message) {
            out.push(message);
        }
    }
    Ok(out)
}

/// Message that is not complete yet; `empty` while nothing was printed for it, not even a section.
struct Draft {
    message: RenderedMessage,
    empty: bool,
}

impl Draft {
    fn new(role: Role) -> Self {
        Self { message: RenderedMessage { role, parts: Vec::new() }, empty: true }
    }
}

fn role(name: &str) -> Result<Role, String> {
    match name {
        "system" => Ok(Role::System),
        "user" => Ok(Role::User),
        "model" => Ok(Role::Model),
        other => Err(format!("unknown role `{other}`; the roles are system, user and model")),
    }
}

/// Mark that begins a message, or the parts between two such marks.
enum Chunk {
    Role(String),
    History,
    Parts(Vec<Part>),
}

fn chunks(printed: &str) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    // `something`: anything but white space was printed since the last mark that begins a message.
    let (mut parts, mut something) = (Vec::new(), false);
    let flush = |chunks: &mut Vec<Chunk>, parts: &mut Vec<Part>, something: &mut bool| {
        if std::mem::take(something) {
            chunks.push(Chunk::Parts(std::mem::take(parts)));
        }
    };
    for (at, piece) in printed.split(NUL).enumerate() {
        if at % 2 == 0 {
            if !piece.trim().is_empty() {
                something = true;
                parts.push(Part::Text(piece.to_owned()));
            }
            continue;
        }
        match Mark::read(piece) {
            Some(Mark::Role(name)) => {
                flush(&mut chunks, &mut parts, &mut something);
                chunks.push(Chunk::Role(name));
            }
            Some(Mark::History) => {
                flush(&mut chunks, &mut parts, &mut something);
                chunks.push(Chunk::History);
            }
            Some(Mark::Media { url, content_type }) => {
                something = true;
                parts.push(Part::Media { url, content_type });
            }
            Some(Mark::Section) => something = true,
            None => {}
        }
    }
    flush(&mut chunks, &mut parts, &mut something);
    chunks
}
