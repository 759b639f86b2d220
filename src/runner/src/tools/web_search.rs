//! Web search by a service that speaks the API of [SearXNG](https://docs.searxng.org/dev/search_api.html), as the builtin
//! tool `web_search`. Without such a service the tool is not offered to models.

use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::{
    bounded_buffer::CAP,
    client::{self, HttpClient},
    error::ToolError,
};
use crate::{Lookup, variables::search_service};

/// Most results of one search that the model gets.
const MAX_RESULTS: usize = 10;
/// Most characters of the text of one result.
const MAX_CONTENT: usize = 1000;

/// Search service.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SearchService {
    /// URL of the search, without its query.
    url: Url,
}

/// Answer of the service, as far as models need it.
#[derive(Deserialize)]
struct SearchAnswer {
    #[serde(default)]
    results: Vec<SearchResult>,
    /// Direct answers: texts, or objects with an `answer`.
    #[serde(default)]
    answers: Vec<Value>,
}

#[derive(Deserialize)]
struct SearchResult {
    title: Option<String>,
    /// Unset for what is no page, which is left out.
    url: Option<String>,
    content: Option<String>,
}

impl SearchService {
    /// Returns the service that the environment names, if it names a usable one.
    pub(super) fn from_environment(lookup: &Lookup) -> Option<Self> {
        let mut url = search_service(lookup).ok().flatten()?;
        let path = url.path().trim_end_matches('/');
        if !path.ends_with("/search") {
            let path = format!("{path}/search");
            url.set_path(&path);
        }
        Some(Self { url })
    }

    /// Searches for `query`.
    ///
    /// # Errors
    /// The failure, as text for the model.
    pub(super) async fn search(&self, query: &str, client: &HttpClient) -> Result<String, ToolError> {
        if query.trim().is_empty() {
            return Err(ToolError::Arguments("`query` is empty".into()));
        }
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair("q", query).append_pair("format", "json");
        let request = client.for_url(&url).await?.get(url).header("accept", "application/json");
        let body = client::read(request.send().await.map_err(client::failed)?).await?;
        let answer: SearchAnswer = serde_json::from_str(&body).map_err(|_| {
            let problem = if body.len() > CAP {
                "the search service answered with more than 1 MiB: ask more precisely"
            } else {
                "the search service did not answer with JSON: allow `json` in its `search.formats`"
            };
            ToolError::Failed(problem.into())
        })?;
        Ok(text(&answer))
    }
}

/// Writes an answer as text for a model.
fn text(answer: &SearchAnswer) -> String {
    let direct = answer.answers.iter().filter_map(|one| one.as_str().or_else(|| one["answer"].as_str()));
    let mut parts: Vec<String> = direct.map(|text| format!("Answer: {}", shortened(text))).collect();
    let results = answer.results.iter().filter_map(|result| Some((result, result.url.as_deref()?)));
    for (number, (result, url)) in results.take(MAX_RESULTS).enumerate() {
        let content = result.content.as_deref().map(shortened).filter(|text| !text.is_empty());
        let content = content.map_or_else(String::new, |text| format!("\n{text}"));
        let title = shortened(result.title.as_deref().unwrap_or_default());
        parts.push(format!("{}. {title}\n{url}{content}", number + 1));
    }
    if parts.is_empty() { "nothing was found".into() } else { parts.join("\n\n") }
}

fn shortened(text: &str) -> String {
    text.trim().chars().take(MAX_CONTENT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(value: &str) -> Option<String> {
        let value = value.to_owned();
        let lookup = move |name: &str| (name == "SEARXNG_URL").then(|| value.clone());
        SearchService::from_environment(&lookup).map(|service| service.url.to_string())
    }

    #[test]
    fn the_search_is_below_the_address_of_the_service() {
        for (value, expected) in [
            ("http://searxng:8080", Some("http://searxng:8080/search")),
            ("https://a.example/searx/", Some("https://a.example/searx/search")),
            ("https://a.example/search", Some("https://a.example/search")),
            ("", None),
            ("searxng:8080", None),
        ] {
            assert_eq!(url(value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn a_model_gets_the_first_results_and_what_answers_directly() {
        let results: Vec<_> = (0..12)
            .map(|n| serde_json::json!({ "title": format!("t{n}"), "url": format!("http://r/{n}"), "content": " c " }))
            .collect();
        let answer = serde_json::json!({ "results": results, "answers": ["42", { "answer": "43", "url": null }] });
        let text = text(&serde_json::from_value(answer).unwrap());
        assert!(text.starts_with("Answer: 42\n\nAnswer: 43\n\n1. t0\nhttp://r/0\nc\n\n2. t1\n"), "{text}");
        assert!(text.ends_with("10. t9\nhttp://r/9\nc"), "{text}");
        assert_eq!(super::text(&serde_json::from_str("{}").unwrap()), "nothing was found");
    }

    #[test]
    fn a_result_without_a_page_is_left_out_and_one_without_a_title_is_not() {
        let answer = serde_json::json!({ "results": [
            { "title": "a", "content": "no page" },
            { "title": "b", "url": null },
            { "title": null, "url": "http://c/", "content": null },
        ] });
        assert_eq!(text(&serde_json::from_value(answer).unwrap()), "1. \nhttp://c/");
    }
}
