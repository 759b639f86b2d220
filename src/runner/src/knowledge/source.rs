//! Configuration of knowledge bases in `CORAIL_KNOWLEDGE_BASES`. Errors never quote a value: the URL holds a password.

use serde::Deserialize;
use serde_json::Value;

use crate::{database::Dsn, models::ModelRef};

/// Maximum length of a tool name that every model provider accepts.
const NAME: usize = 64;

/// Configuration of one knowledge base.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KnowledgeSource {
    /// Name.
    pub(super) name: String,
    /// Name of its tool: `search_` and its name, with `_` for characters that a tool name may not have.
    pub(super) tool: String,
    /// Description of its content, for the model.
    pub(super) description: String,
    /// URL of its database.
    pub(super) dsn: Dsn,
    /// Value of the column `kb_id` in its rows.
    pub(super) kb_id: String,
    /// Embedding model of its vectors.
    pub(super) embedding: ModelRef,
}

/// Element of the JSON array.
#[derive(Deserialize)]
struct Element {
    name: String,
    #[serde(rename = "type", default = "pgvector")]
    type_: String,
    connection_url: String,
    kb_id: Option<String>,
    description: Option<String>,
    embedding_provider: Option<String>,
    embedding_model: Option<String>,
}

fn pgvector() -> String {
    "pgvector".into()
}

impl KnowledgeSource {
    /// Parses the whole array; `ollama` is the base URL of Ollama, if configured.
    ///
    /// # Errors
    /// The first invalid knowledge base, and its problem.
    pub(crate) fn read_all(json: &str, ollama: Option<&str>) -> Result<Vec<Self>, String> {
        let list: Vec<Value> = serde_json::from_str(json)
            .map_err(|error| format!("not a JSON array (line {}, column {})", error.line(), error.column()))?;
        let mut sources: Vec<Self> = Vec::with_capacity(list.len());
        for (index, element) in list.into_iter().enumerate() {
            let shape = "it must be an object with the strings `name` and `connection_url`";
            let element: Element =
                serde_json::from_value(element).map_err(|_| format!("knowledge base at index {index}: {shape}"))?;
            let name = element.name.clone();
            let source =
                Self::read(element, ollama).map_err(|problem| format!("knowledge base `{name}`: {problem}"))?;
            if sources.iter().any(|known| known.tool == source.tool) {
                return Err(format!("two knowledge bases would be searched by the tool `{}`", source.tool));
            }
            sources.push(source);
        }
        Ok(sources)
    }

    fn read(element: Element, ollama: Option<&str>) -> Result<Self, String> {
        if element.name.is_empty() {
            return Err("it has no name".into());
        }
        if element.type_ != "pgvector" {
            return Err("its type is not pgvector".into());
        }
        let allowed = |one: char| if one.is_ascii_alphanumeric() || "_-".contains(one) { one } else { '_' };
        let provider = element.embedding_provider.unwrap_or_else(|| "ollama".into());
        let mut embedding =
            ModelRef::new(provider, element.embedding_model.unwrap_or_else(|| "nomic-embed-text".into()));
        embedding.base_url = ollama.filter(|_| embedding.provider == "ollama").map(str::to_owned);
        let about = format!("Search for information in the {} knowledge base.", element.name);
        Ok(Self {
            tool: format!("search_{}", element.name).chars().map(allowed).take(NAME).collect(),
            description: element.description.filter(|text| !text.is_empty()).unwrap_or(about),
            dsn: Dsn::parse(&element.connection_url)
                .ok_or("its connection_url does not start with `postgres://` or `postgresql://`")?,
            kb_id: element.kb_id.unwrap_or_else(|| element.name.clone()),
            name: element.name,
            embedding,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_has_a_default() {
        let list = json!([
            {"name": "docs v2/é", "connection_url": "postgresql://h/d"},
            {"name": "x", "type": "pgvector", "connection_url": "postgres://h/d", "kb_id": "7", "description": "All.",
             "embedding_provider": "openai", "embedding_model": "m"},
        ]);
        let sources = KnowledgeSource::read_all(&list.to_string(), Some("http://o")).unwrap();
        let [docs, other] = &sources[..] else { panic!("{sources:?}") };
        assert_eq!((docs.tool.as_str(), docs.kb_id.as_str()), ("search_docs_v2__", "docs v2/é"));
        assert_eq!(docs.description, "Search for information in the docs v2/é knowledge base.");
        assert_eq!((docs.embedding.provider.as_str(), docs.embedding.id.as_str()), ("ollama", "nomic-embed-text"));
        assert_eq!((docs.embedding.base_url.as_deref(), other.embedding.base_url.as_deref()), (Some("http://o"), None));
        assert_eq!((other.tool.as_str(), other.kb_id.as_str(), other.description.as_str()), ("search_x", "7", "All."));
    }

    #[test]
    fn what_is_wrong_is_named_and_no_value_is_shown() {
        let url = "postgresql://u:SECRET@h/d";
        for (list, problem) in [
            (json!(["SECRET"]), "knowledge base at index 0: it must be an object"),
            (json!([{"name": "a", "connection_url": "mysql://SECRET"}]), "knowledge base `a`: its connection_url does"),
            (json!([{"name": "a", "type": "SECRET", "connection_url": url}]), "knowledge base `a`: its type is not"),
            (
                json!([{"name": "a b", "connection_url": url}, {"name": "a/b", "connection_url": url}]),
                "two knowledge bases would be searched by the tool `search_a_b`",
            ),
        ] {
            let error = KnowledgeSource::read_all(&list.to_string(), None).unwrap_err();
            assert!(error.starts_with(problem) && !error.contains("SECRET"), "{error}");
        }
        let fine = KnowledgeSource::read_all(&json!([{"name": "a", "connection_url": url}]).to_string(), None).unwrap();
        assert!(!format!("{fine:?}").contains("SECRET"));
    }
}
