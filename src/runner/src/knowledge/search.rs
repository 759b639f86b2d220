//! Hybrid search: vector search (embedding distance) and full-text search, merged by [reciprocal rank
//! fusion](https://doi.org/10.1145/1571941.1572114).
//!
//! The score of a text is the sum of 1 / (60 + rank) over the two result lists that contain it (Cormack, Clarke and
//! Büttcher, 2009), so distances and text ranks need no common scale.

use std::fmt::Write;

use sqlx::Row;

use crate::database::{DatabaseError, PostgresPool};

/// Query with $1 the query's vector, $2 the knowledge base, $3 the query text, $4 the maximum number of hits.
const QUERY: &str = "
WITH nearest AS (
    SELECT id, embedding <=> $1::vector AS distance FROM chunks
    WHERE kb_id = $2 AND embedding IS NOT NULL ORDER BY distance LIMIT 20
), matching AS (
    SELECT id, ts_rank_cd(tsv, query) AS rank FROM chunks, plainto_tsquery($3) AS query
    WHERE kb_id = $2 AND tsv @@ query ORDER BY rank DESC LIMIT 20
), places AS (
    SELECT id, row_number() OVER (ORDER BY distance, id) AS place FROM nearest
    UNION ALL
    SELECT id, row_number() OVER (ORDER BY rank DESC, id) AS place FROM matching
), best AS (
    SELECT id, sum(1.0 / (60 + place)) AS score FROM places GROUP BY id ORDER BY score DESC, id LIMIT $4
)
SELECT content, metadata::text AS metadata FROM best JOIN chunks USING (id) WHERE kb_id = $2 ORDER BY score DESC, id";

/// Maximum number of hits.
const TEXTS: i64 = 5;

/// Text that was found.
#[derive(Debug, PartialEq)]
pub(super) struct SearchHit {
    /// Text.
    content: String,
    /// Metadata of the text, as JSON.
    metadata: Option<String>,
}

/// Returns the best texts of a knowledge base, the best first.
///
/// # Errors
/// The database is unreachable, has no such table, or holds vectors of another dimension.
pub(super) async fn hybrid(
    database: &PostgresPool,
    kb_id: &str,
    query: &str,
    vector: &[f32],
) -> Result<Vec<SearchHit>, DatabaseError> {
    // PostgreSQL's text type rejects U+0000.
    let words = query.replace('\0', " ");
    let rows = sqlx::query(QUERY).bind(literal(vector)).bind(kb_id).bind(words).bind(TEXTS);
    let rows = database.with_deadline(rows.fetch_all(database.pool())).await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let content: Option<String> = row.try_get("content")?;
        found.push(SearchHit { content: content.unwrap_or_default(), metadata: row.try_get("metadata")? });
    }
    Ok(found)
}

/// Formats the hits as text for a model.
pub(super) fn text(found: &[SearchHit]) -> String {
    if found.is_empty() {
        return "Nothing was found. Other words may help.".into();
    }
    let mut text = String::new();
    for (index, one) in found.iter().enumerate() {
        let gap = if index == 0 { "" } else { "\n\n" };
        let _ = write!(text, "{gap}[{}] {}", index + 1, one.content.trim());
        if let Some(metadata) = one.metadata.as_deref().filter(|json| !matches!(*json, "{}" | "null")) {
            let _ = write!(text, "\n    {metadata}");
        }
    }
    text
}

/// Formats a vector as a pgvector literal.
fn literal(vector: &[f32]) -> String {
    let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
    format!("[{}]", numbers.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_reads() {
        let found = |content: &str, metadata: Option<&str>| SearchHit {
            content: content.into(),
            metadata: metadata.map(str::to_owned),
        };
        assert_eq!(text(&[]), "Nothing was found. Other words may help.");
        let two = [found(" a\n", Some(r#"{"page": 1}"#)), found("b", Some("{}")), found("c", None)];
        assert_eq!(text(&two), "[1] a\n    {\"page\": 1}\n\n[2] b\n\n[3] c");
        assert_eq!(literal(&[1.0, -0.5, 1e-7]), "[1,-0.5,0.0000001]");
    }
}
