//! Built-in tools, which need no setup: time, arithmetic, HTTP GET, web search.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use url::Url;

use super::{
    calculator::evaluate,
    client::{self, HttpClient},
    error::ToolError,
    parameters::{Parameter, ParameterType},
    web_search::SearchService,
};

/// Reason for which the web search is not offered.
pub(super) const NO_SEARCH: &str =
    "no search service is configured: set SEARXNG_URL to one that speaks the API of SearXNG";

/// Built-in tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Builtin {
    /// Returns the current time in UTC (RFC 3339, whole seconds).
    Datetime,
    /// Evaluates `expression`.
    Calculator,
    /// Returns the body of `url`, fetched with GET.
    FetchUrl,
    /// Searches the web for `query`, by the configured service.
    WebSearch,
}

impl Builtin {
    /// Returns the tool called `name`.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "datetime" => Self::Datetime,
            "calculator" => Self::Calculator,
            "fetch_url" | "fetch-url" => Self::FetchUrl,
            "web_search" | "web-search" => Self::WebSearch,
            _ => return None,
        })
    }

    /// Returns the default description for the model.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Datetime => "The current date and time in UTC (RFC 3339).",
            Self::Calculator => "The value of an arithmetic expression, for example 2 * (3 + 4).",
            Self::FetchUrl => "The text of a web page or another http or https URL.",
            Self::WebSearch => "Searches the web.",
        }
    }

    /// Returns its parameters, which the definition cannot change.
    pub(super) fn parameters(self) -> Vec<Parameter> {
        let name = match self {
            Self::Datetime => return Vec::new(),
            Self::Calculator => "expression",
            Self::FetchUrl => "url",
            Self::WebSearch => "query",
        };
        vec![Parameter::required(name, ParameterType::String)]
    }

    /// Calls it with validated arguments.
    ///
    /// # Errors
    /// The failure, as text for the model.
    pub(super) async fn call(
        self,
        arguments: &BTreeMap<String, Value>,
        client: &HttpClient,
        search: Option<&SearchService>,
    ) -> Result<String, ToolError> {
        let text = |name| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        match self {
            Self::Datetime => Ok(datetime(Timestamp::now())),
            Self::Calculator => {
                evaluate(text("expression")).map(|value| value.to_string()).map_err(ToolError::Arguments)
            }
            Self::FetchUrl => {
                let url = Url::parse(text("url")).map_err(|error| ToolError::Arguments(format!("`url`: {error}")))?;
                client::read(client.for_model_url(&url).await?.get(url).send().await.map_err(client::failed)?).await
            }
            Self::WebSearch => match search {
                Some(search) => search.search(text("query"), client).await,
                None => Err(ToolError::Failed(NO_SEARCH.into())),
            },
        }
    }
}

fn datetime(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_utc_in_whole_seconds() {
        assert_eq!(datetime(Timestamp::from_millisecond(1_500).unwrap()), "1970-01-01T00:00:01Z");
    }
}
