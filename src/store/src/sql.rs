//! Statements with numbered values, which both databases read: `$1`, `$2` and so on.

use sqlx::{Any, Arguments as _, AssertSqlSafe, any::AnyArguments, query::Query};

/// A value of a statement.
pub(super) enum Value<'a> {
    /// Text. It has no U+0000, which PostgreSQL has no place for.
    Text(&'a str),
    /// A number.
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

/// A statement that is being put together. Only values come from outside; its text is written in this room.
#[derive(Default)]
pub(super) struct Sql {
    text: String,
    values: AnyArguments,
    count: usize,
}

impl Sql {
    /// Begins with this text.
    pub(super) fn new(text: &'static str) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Appends text.
    #[must_use]
    pub(super) fn text(mut self, text: &'static str) -> Self {
        self.text.push_str(text);
        self
    }

    /// Appends a value.
    #[must_use]
    pub(super) fn value<'a>(mut self, value: impl Into<Value<'a>>) -> Self {
        self.push(value.into());
        self
    }

    /// Appends rows of values: `($1, $2), ($3, $4)`.
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

    /// Appends a list of values: `($1, $2)`.
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
        // The drivers of this database take every text and number; an error would show as a missing value.
        let _ = match value {
            Value::Text(text) => self.values.add(text.replace('\0', "\u{fffd}")),
            Value::Number(number) => self.values.add(number),
        };
        self.count += 1;
        self.text.push('$');
        self.text.push_str(&self.count.to_string());
    }

    /// The statement. It is remembered by the connection if it is one of few.
    pub(super) fn query(self, remember: bool) -> Query<'static, Any, AnyArguments> {
        sqlx::query_with(AssertSqlSafe(self.text), self.values).persistent(remember)
    }
}
