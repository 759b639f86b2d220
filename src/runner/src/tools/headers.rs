//! Expands `$NAME` and `${NAME}` in the values of a tool's headers from the environment.
//!
//! Credentials reach an agent as environment variables, and a tool only refers to them: to its own, which come from its
//! `headersFrom` or from its server in `toolServers`, and to those of the Agent's `env` and `envFrom`. Variables that the
//! operator sets for the runtime, and the credentials of other tools and servers, are refused, because a Tool may be
//! written by others than the agent's owner. A reference to a variable that is not set is an error: a request with an
//! empty credential would fail with a misleading message. Any other `$` is left unchanged.
//!
//! Headers of the caller that the tool names in `forwardHeaders` follow; the tool's own of the same name go first.

use std::{collections::BTreeMap, fmt};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::error::ToolError;
use crate::{Lookup, caller::RequestHeaders, traces::TraceScope};

/// Headers of a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ToolHeaders {
    /// Names, and values with references to the environment.
    own: Vec<(HeaderName, HeaderText)>,
    /// Names of headers of the caller.
    forwarded: Vec<HeaderName>,
}

/// Value of a header before expansion. It may hold a credential, so it is never printed.
#[derive(Clone, PartialEq)]
struct HeaderText(String);

impl fmt::Debug for HeaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Prefixes of the runtime's own variables, for example of the database URL, the trace exporter and the providers of models.
const RESERVED_PREFIXES: [&str; 4] = ["CORAIL_", "MODEL_", "RECIF_", "OTEL_"];
/// Prefix of the variables that the operator makes of the `headersFrom` of tools.
const TOOLS: &str = "TOOL_";
/// Prefix of the variables that the operator makes of the headers of servers in `toolServers`.
const SERVERS: &str = "MCP_";

/// Reports whether the variable belongs to the runtime, to a tool or to a server.
pub(super) fn is_reserved(name: &str) -> bool {
    name.starts_with(TOOLS) || name.starts_with(SERVERS) || RESERVED_PREFIXES.iter().any(|ours| name.starts_with(ours))
}

/// Allow list of the variables that one tool may send.
pub(super) struct ToolVariables<'a> {
    /// Prefix of its own variables.
    own: String,
    /// Prefixes of other tools that begin with its own prefix: of `a_b` for the tool `a`.
    others: Vec<String>,
    environment: &'a Lookup,
    /// Headers of the request that began the turn, if there is one.
    request: Option<&'a RequestHeaders>,
    /// Value of `Idempotency-Key`, of a call that a person approved.
    idempotency_key: Option<&'a str>,
    /// Place of the call in a trace.
    trace: TraceScope,
}

impl<'a> ToolVariables<'a> {
    /// Creates the list for a tool whose variables begin with `own`; `others` are the prefixes of the other tools.
    pub(super) fn new(own: String, others: impl IntoIterator<Item = String>, environment: &'a Lookup) -> Self {
        let longer = |other: &String| other.len() > own.len() && other.starts_with(&own);
        let others = others.into_iter().filter(longer).collect();
        Self { others, own, environment, request: None, idempotency_key: None, trace: TraceScope::default() }
    }

    /// Adds the headers of the request that began the turn.
    pub(super) fn for_request(self, headers: &'a RequestHeaders) -> Self {
        Self { request: Some(headers), ..self }
    }

    /// Sets the `Idempotency-Key` of the call, if it has one.
    pub(super) fn for_call(self, idempotency_key: Option<&'a str>) -> Self {
        Self { idempotency_key, ..self }
    }

    /// Returns the `Idempotency-Key` of the call, if it has one.
    pub(super) fn idempotency_key(&self) -> Option<&str> {
        self.idempotency_key
    }

    /// Sets the place of the call in a trace.
    pub(super) fn in_trace(self, trace: TraceScope) -> Self {
        Self { trace, ..self }
    }

    /// Returns the place of the call in a trace.
    pub(super) fn trace(&self) -> &TraceScope {
        &self.trace
    }

    /// Returns the value of the variable `name`.
    ///
    /// # Errors
    /// The reason why there is none, phrased to follow "it refers to ".
    pub(super) fn get(&self, name: &str) -> Result<String, String> {
        let own = name.starts_with(&self.own) && !self.others.iter().any(|other| name.starts_with(other));
        if is_reserved(name) && !own {
            return Err(format!(
                "the environment variable {name}, which is not this tool's: name one of its headersFrom, or of the \
                 Agent's env"
            ));
        }
        (self.environment)(name).ok_or_else(|| format!("the environment variable {name}, which is not set"))
    }
}

/// Returns the prefix of a tool's variables, as the operator builds it.
pub(super) fn tool_prefix(tool: &str) -> String {
    prefix(TOOLS, tool)
}

/// Returns the prefix of the variables that the tools of a server in `toolServers` share, as the operator builds it.
pub(super) fn server_prefix(server: &str) -> String {
    prefix(SERVERS, server)
}

fn prefix(kind: &str, name: &str) -> String {
    format!("{kind}{}_", upper_snake(name))
}

/// Returns the text in upper case, every character but letters and digits an underscore.
pub(crate) fn upper_snake(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

impl ToolHeaders {
    /// Parses the names of headers.
    ///
    /// # Errors
    /// The problem, without a value.
    pub(super) fn read(headers: &BTreeMap<String, String>) -> Result<Self, String> {
        let named = |(name, value): (&String, &String)| match name.parse() {
            Ok(parsed) => Ok((parsed, HeaderText(value.clone()))),
            Err(_) => Err(format!("`{name}` is not a header name")),
        };
        Ok(Self { own: headers.iter().map(named).collect::<Result<_, _>>()?, forwarded: Vec::new() })
    }

    /// Adds the names of headers of the caller.
    ///
    /// # Errors
    /// A name that is none.
    pub(super) fn forwarding(self, names: &[String]) -> Result<Self, String> {
        let parsed = |name: &String| name.parse::<HeaderName>().map_err(|_| format!("`{name}` is not a header name"));
        Ok(Self { forwarded: names.iter().map(parsed).collect::<Result<_, _>>()?, ..self })
    }

    /// Returns the values with the variables that they refer to; one that refers to a variable without a value is left as it is.
    pub(super) fn values(&self, environment: &Lookup) -> Vec<String> {
        let value = |HeaderText(text): &HeaderText| {
            expand(text, |name| environment(name).ok_or_else(String::new)).unwrap_or_else(|_| text.clone())
        };
        self.own.iter().map(|(_, text)| value(text)).collect()
    }

    /// Expands the values for a request that is not for the caller.
    ///
    /// # Errors
    /// The problem, without a value.
    pub(super) fn expand_own(&self, environment: &ToolVariables<'_>) -> Result<HeaderMap, ToolError> {
        let mut headers = HeaderMap::new();
        for (name, HeaderText(value)) in &self.own {
            let value = expand(value, |variable| environment.get(variable))
                .map_err(|problem| ToolError::Failed(format!("header {name} refers to {problem}")))?;
            // A mounted Secret often ends with a newline, which is invalid in a header.
            let mut value = HeaderValue::from_str(value.trim_end_matches(['\r', '\n']))
                .map_err(|_| ToolError::Failed(format!("header {name} has a value that no header may hold")))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    /// Expands the values for a request, and adds the headers of the caller.
    ///
    /// # Errors
    /// The problem, without a value.
    pub(super) fn expand(&self, environment: &ToolVariables<'_>) -> Result<HeaderMap, ToolError> {
        let mut headers = self.expand_own(environment)?;
        for name in &self.forwarded {
            if headers.contains_key(name) {
                continue;
            }
            for value in environment.request.into_iter().flat_map(|request| request.values(name)) {
                let mut value = value.clone();
                value.set_sensitive(true);
                headers.append(name, value);
            }
        }
        Ok(headers)
    }
}

/// Expands the references in `value`.
///
/// # Errors
/// The error of `lookup` for the first variable without a value.
pub(crate) fn expand(value: &str, lookup: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (name, tail) = match after.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
            Some((name, tail)) if name_length(name) == name.len() => (name, tail),
            _ => after.split_at(name_length(after)),
        };
        if name.is_empty() {
            out.push('$');
        } else {
            out.push_str(&lookup(name)?);
        }
        rest = if name.is_empty() { after } else { tail };
    }
    out.push_str(rest);
    Ok(out)
}

/// Returns the length of the variable name at the start of `text` (POSIX: a letter or `_`, then letters, digits, `_`).
fn name_length(text: &str) -> usize {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return 0;
    }
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lookup(name: &str) -> Result<String, String> {
        match name {
            "KEY" => Ok("k$KEY".into()),
            "A_1" => Ok("one".into()),
            _ => Err(name.into()),
        }
    }

    #[test]
    fn a_tool_sends_its_own_variables_and_those_of_the_agent() {
        let environment = |name: &str| Some(format!("<{name}>"));
        let others = ["a", "a_b", "shop"].map(tool_prefix).into_iter().chain([server_prefix("docs")]);
        let variables = ToolVariables::new(tool_prefix("a"), others, &environment);
        for (name, is_sent) in [
            ("KEY", true),
            ("OPENAI_API_KEY", true),
            ("TOOL_A_AUTHORIZATION", true),
            ("TOOL_A_B_AUTHORIZATION", false),
            ("TOOL_SHOP_AUTHORIZATION", false),
            ("MCP_DOCS_AUTHORIZATION", false),
            ("CORAIL_DATABASE_URL", false),
            ("MODEL_OPENAI_X_KEY", false),
            ("RECIF_USAGE_URL", false),
            ("OTEL_EXPORTER_OTLP_HEADERS", false),
        ] {
            let sent = variables.get(name);
            assert_eq!(sent.is_ok(), is_sent, "{name}: {sent:?}");
        }
        let of_server = ToolVariables::new(server_prefix("docs"), [server_prefix("docs-eu")], &environment);
        let sent = ["MCP_DOCS_AUTHORIZATION_1a2b3c4d", "MCP_DOCS_EU_KEY", "MCP_WEB_KEY", "TOOL_A_KEY"];
        assert_eq!(sent.map(|name| of_server.get(name).is_ok()), [true, false, false, false]);
        let refused = variables.get("CORAIL_DATABASE_URL").unwrap_err();
        assert!(
            refused.starts_with("the environment variable CORAIL_DATABASE_URL, which is not this tool's"),
            "{refused}"
        );
    }

    #[test]
    fn references_are_replaced_once() {
        for (value, expected) in [
            ("plain", Ok("plain")),
            ("Bearer $KEY", Ok("Bearer k$KEY")),
            ("${KEY}x$A_1.", Ok("k$KEYxone.")),
            ("$KEYS", Err("KEYS")),
            ("${MISSING}", Err("MISSING")),
            ("cost $5 $", Ok("cost $5 $")),
            ("${}", Ok("${}")),
            ("${1}", Ok("${1}")),
            ("${KEY", Ok("${KEY")),
            ("$$KEY", Ok("$k$KEY")),
            ("${a-b}", Ok("${a-b}")),
        ] {
            assert_eq!(expand(value, lookup), expected.map(Into::into).map_err(String::from), "{value}");
        }
    }

    #[test]
    fn headers_of_the_caller_follow_unless_the_tool_has_its_own() {
        let request = [("x-tenant", "blue"), ("x-tenant", "red"), ("x-own", "no"), ("cookie", "no")];
        let request = request.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut sent = HeaderMap::new();
        for (name, value) in request {
            sent.append(name, value);
        }
        let caller = RequestHeaders::from(sent);
        let own = BTreeMap::from([("X-Own".to_owned(), "yes".to_owned())]);
        let names = ["X-Tenant", "x-tenant", "X-Own", "X-Absent"].map(str::to_owned);
        let headers = ToolHeaders::read(&own).unwrap().forwarding(&names).unwrap();
        let environment = |_: &str| None::<String>;
        let variables = || ToolVariables::new(tool_prefix("t"), Vec::<String>::new(), &environment);
        let found = headers.expand(&variables().for_request(&caller)).unwrap();
        let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(found, [("x-own", "yes"), ("x-tenant", "blue"), ("x-tenant", "red")]);
        assert_eq!(headers.expand(&variables()).unwrap().len(), 1, "no request began a turn");
        assert_eq!(format!("{caller:?}"), "***");
        let problem = ToolHeaders::default().forwarding(&["a b".to_owned()]).unwrap_err();
        assert_eq!(problem, "`a b` is not a header name");
    }

    proptest! {
        #[test]
        fn any_value_is_expanded_without_a_panic(value in ".*") {
            let _ = expand(&value, |_| Ok(String::new()));
        }
    }
}
