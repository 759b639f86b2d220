//! Statements with numbered parameters, which both databases support: `$1`, `$2` and so on.

use sqlx::{Any, Arguments as _, AssertSqlSafe, any::AnyArguments, query::Query};

/// Parameter of a statement.
pub(super) enum Value<'a> {
    /// Text. U+0000 is replaced in it, because PostgreSQL cannot store it.
    Text(&'a str),
    /// Integer.
    Number(i64),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// Builder of a statement. Only parameters come from outside; all text is written in this crate, which prevents SQL injection.
///
/// Invariant: `text` refers to exactly the parameters `$1` to `$count`, whose values are in `values`.
#[derive(Default)]
pub(super) struct Sql {
    text: String,
    values: AnyArguments,
    count: usize,
}

impl Sql {
    /// Starts a statement with this text.
    pub(super) fn new(text: &'static str) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Appends text.
    #[must_use]
    pub(super) fn text(mut self, text: &'static str) -> Self {
        self.text.push_str(text);
        self
    }

    /// Appends a parameter.
    #[must_use]
    pub(super) fn value<'a>(mut self, value: impl Into<Value<'a>>) -> Self {
        self.push(value.into());
        self
    }

    /// Appends rows of parameters: `($1, $2), ($3, $4)`.
    #[must_use]
    pub(super) fn rows<'a, const N: usize>(mut self, rows: impl IntoIterator<Item = [Value<'a>; N]>) -> Self {
        for (at, row) in rows.into_iter().enumerate() {
            self.text.push_str(if at == 0 { "(" } else { ", (" });
            for (column, value) in row.into_iter().enumerate() {
                if column > 0 {
                    self.text.push_str(", ");
                }
                self.push(value);
            }
            self.text.push(')');
        }
        self
    }

    /// Appends a list of parameters: `($1, $2)`.
    #[must_use]
    pub(super) fn list<'a>(mut self, values: impl IntoIterator<Item = Value<'a>>) -> Self {
        self.text.push('(');
        for (at, value) in values.into_iter().enumerate() {
            if at > 0 {
                self.text.push_str(", ");
            }
            self.push(value);
        }
        self.text.push(')');
        self
    }

    fn push(&mut self, value: Value<'_>) {
        // The drivers accept every text and number; an error would show as a missing parameter.
        let _ = match value {
            Value::Text(text) => self.values.add(text.replace('\0', "\u{fffd}")),
            Value::Number(number) => self.values.add(number),
        };
        self.count += 1;
        self.text.push('$');
        self.text.push_str(&self.count.to_string());
    }

    /// Builds the statement. `remember` caches it as prepared in the connection, for texts of which there are few.
    pub(super) fn query(self, remember: bool) -> Query<'static, Any, AnyArguments> {
        sqlx::query_with(AssertSqlSafe(self.text), self.values).persistent(remember)
    }
}
