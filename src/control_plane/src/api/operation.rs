//! Operations: one row for each, from which the router, the check of parameters and the OpenAPI document are made.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use schemars::{Schema, SchemaGenerator};
use url::form_urlencoded;

use super::{problem::Problem, response::OperationResponse};
use crate::{app::SharedAppState, auth::ApiCaller};

/// Limit of the values of one repeatable parameter.
const MAX_REPEATS: usize = 50;

/// Operation of the API; each is a GET.
#[derive(Debug, Clone, Copy)]
pub(super) struct RestOperation {
    /// Its path, with `{…}` for each variable segment.
    pub(super) path: &'static str,
    /// Its `operationId` in the document.
    pub(super) id: &'static str,
    /// Its summary in the document.
    pub(super) about: &'static str,
    /// Its query parameters.
    pub(super) query: &'static [Param],
    /// Schema of its response.
    pub(super) response: ResponseSchema,
    /// Its handler.
    pub(super) handle: Handle,
}

/// Schema of an operation's response.
#[derive(Debug, Clone, Copy)]
pub(super) enum ResponseSchema {
    /// JSON of this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Stream of server-sent events.
    Events,
}

/// Handler of an operation.
pub(super) type Handle = fn(SharedAppState, ApiCaller, OperationRequest) -> OperationFuture;

/// Response of a handler, under way.
pub(super) type OperationFuture = BoxFuture<'static, Result<OperationResponse, Problem>>;

/// Query parameter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Param {
    /// Its name.
    pub(super) name: &'static str,
    /// Its description in the document.
    pub(super) about: &'static str,
    /// Its accepted values.
    pub(super) values: ParamValues,
    /// True if it may be given several times.
    pub(super) repeatable: bool,
}

/// Values that a parameter accepts.
#[derive(Debug, Clone, Copy)]
pub(super) enum ParamValues {
    /// Any text.
    Text,
    /// One of these words.
    OneOf(fn() -> Vec<&'static str>),
    /// Integer in this range.
    Number(i64, i64),
}

impl ParamValues {
    fn check(self, name: &str, value: &str) -> Result<(), Problem> {
        match self {
            Self::Text => Ok(()),
            Self::OneOf(words) if words().contains(&value) => Ok(()),
            Self::OneOf(words) => {
                let words = words().join(", ");
                Err(Problem::parameter(name, format!("{name}={value}: say one of {words}")))
            }
            Self::Number(least, most) => match value.parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(()),
                _ => {
                    Err(Problem::parameter(name, format!("{name}={value}: say a whole number from {least} to {most}")))
                }
            },
        }
    }
}

/// Validated request of an operation: every parameter is known and has an accepted value.
#[derive(Debug, Clone, Default)]
pub(super) struct OperationRequest {
    /// Variable segments of the path by name.
    pub(super) path: BTreeMap<String, String>,
    /// `Last-Event-ID`, if it was sent.
    pub(super) last_event: Option<String>,
    query: Vec<(&'static str, String)>,
}

impl OperationRequest {
    /// Parses and validates the query of a request.
    ///
    /// # Errors
    /// A parameter that is unknown, is given too often, or has a value that is not accepted; the problem names it.
    pub(super) fn read(params: &'static [Param], query: Option<&str>) -> Result<Self, Problem> {
        let mut asked = Self::default();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let Some(param) = params.iter().find(|param| param.name == name) else {
                let known: Vec<_> = params.iter().map(|param| param.name).collect();
                let known = if known.is_empty() {
                    "this path takes none".into()
                } else {
                    format!("say one of {}", known.join(", "))
                };
                return Err(Problem::parameter(&name, format!("{name}: no such parameter; {known}")));
            };
            param.values.check(param.name, &value)?;
            if !param.repeatable && asked.one(param.name).is_some() {
                return Err(Problem::parameter(&name, format!("{name}: say it once")));
            }
            if asked.many(param.name).count() >= MAX_REPEATS {
                return Err(Problem::parameter(&name, format!("{name}: say it at most {MAX_REPEATS} times")));
            }
            asked.query.push((param.name, value.into_owned()));
        }
        Ok(asked)
    }

    /// Returns the value of a parameter that is given at most once.
    pub(super) fn one(&self, name: &'static str) -> Option<&str> {
        self.many(name).next()
    }

    /// Returns the values of a parameter.
    pub(super) fn many(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.query.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of an integer parameter.
    pub(super) fn number(&self, name: &'static str) -> Option<i64> {
        self.one(name)?.parse().ok()
    }

    /// Returns a variable segment of the path; empty if there is none.
    pub(super) fn path_segment(&self, name: &str) -> &str {
        self.path.get(name).map(String::as_str).unwrap_or_default()
    }

    /// Returns the key of a list for its cursors: the path and every parameter that filters or sorts.
    pub(super) fn selection_key(&self, path: &str) -> String {
        let selects = self.query.iter().filter(|(name, _)| !["limit", "continue"].contains(name));
        let mut parts: Vec<String> = selects.map(|(name, value)| format!("{name}={value:?}")).collect();
        parts.sort();
        format!("{path} {:?} {}", self.path, parts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: &[Param] = &[
        Param { name: "kind", about: "", values: ParamValues::OneOf(|| vec!["Agent", "Flow"]), repeatable: true },
        Param { name: "q", about: "", values: ParamValues::Text, repeatable: false },
        Param { name: "limit", about: "", values: ParamValues::Number(1, 1000), repeatable: false },
    ];

    #[test]
    fn parameters_are_taken_or_named() {
        for (query, expected) in [
            ("", Ok(())),
            ("kind=Agent&kind=Flow&q=a%20b&limit=5", Ok(())),
            ("colour=red", Err(("colour", "colour: no such parameter; say one of kind, q, limit"))),
            ("Kind=Agent", Err(("Kind", "Kind: no such parameter; say one of kind, q, limit"))),
            ("kind=agent", Err(("kind", "kind=agent: say one of Agent, Flow"))),
            ("kind=", Err(("kind", "kind=: say one of Agent, Flow"))),
            ("q=a&q=b", Err(("q", "q: say it once"))),
            ("limit=0", Err(("limit", "limit=0: say a whole number from 1 to 1000"))),
            ("limit=1001", Err(("limit", "limit=1001: say a whole number from 1 to 1000"))),
            ("limit=5x", Err(("limit", "limit=5x: say a whole number from 1 to 1000"))),
            (
                "limit=99999999999999999999",
                Err(("limit", "limit=99999999999999999999: say a whole number from 1 to 1000")),
            ),
        ] {
            let expected = expected.map_err(|(name, detail)| Problem::parameter(name, detail));
            assert_eq!(OperationRequest::read(PARAMS, Some(query)).map(drop), expected, "{query}");
        }
        let kinds = |count: usize| OperationRequest::read(PARAMS, Some(&"kind=Flow&".repeat(count))).map(drop);
        assert_eq!(kinds(50), Ok(()));
        assert_eq!(kinds(51), Err(Problem::parameter("kind", "kind: say it at most 50 times")));
        let detail = OperationRequest::read(&[], Some("a=b")).unwrap_err();
        assert_eq!(detail.detail(), "a: no such parameter; this path takes none");
    }

    #[test]
    fn a_list_is_told_by_what_selects_it() {
        let list = |query| OperationRequest::read(PARAMS, Some(query)).unwrap().selection_key("/x");
        assert_eq!(list("q=a&kind=Flow&limit=5"), list("kind=Flow&q=a"));
        assert_ne!(list("q=a"), list("q=b"));
        assert_ne!(list("q=a"), OperationRequest::read(PARAMS, Some("q=a")).unwrap().selection_key("/y"));
    }
}
