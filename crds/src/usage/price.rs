//! Price of a model. It is rendered into no Pod: it only turns tokens into an amount.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::UsageTotals;
use crate::schema::rule;

/// Rule on an amount.
pub(crate) const DECIMAL: &str = "self.matches('^[0-9]{1,6}([.][0-9]{1,6})?$')";
/// Message for another text.
pub(crate) const NOT_DECIMAL: &str = "a decimal number, such as \"3\" or \"0.075\"";
/// Most digits before and behind the point.
const DIGITS: usize = 6;

/// Price of a model, for each million tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelPrice {
    /// Currency, by its three letters of ISO 4217. Default: USD.
    #[schemars(
        length(max = 32),
        transform = rule("self.matches('^[A-Z]{3}$')", "three letters of ISO 4217, such as EUR")
    )]
    #[serde(default = "default_currency")]
    pub currency: String,
    /// Price of a million input tokens, such as "3".
    #[schemars(length(max = 32), transform = rule(DECIMAL, NOT_DECIMAL))]
    pub input: String,
    /// Price of a million output tokens, those of reasoning included, such as "15".
    #[schemars(length(max = 32), transform = rule(DECIMAL, NOT_DECIMAL))]
    pub output: String,
    /// Price of a million input tokens that are read from the provider's cache. Default: that of input.
    #[schemars(length(max = 32), transform = rule(DECIMAL, NOT_DECIMAL))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<String>,
    /// Price of a million input tokens that are written to the provider's cache. Default: that of input.
    #[schemars(length(max = 32), transform = rule(DECIMAL, NOT_DECIMAL))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<String>,
}

fn default_currency() -> String {
    "USD".into()
}

impl ModelPrice {
    /// Returns the cost of these tokens in 10⁻⁹ of the currency, rounded; `None` for a price that is not in the documented form,
    /// or a cost beyond 64 bits.
    pub fn cost(&self, totals: &UsageTotals) -> Option<u64> {
        // A millionth of the currency for a million tokens is 10⁻¹² of it for one.
        let parts = totals.priced().into_iter().zip(self.millionths()?);
        let cost: u128 = parts.map(|(tokens, price)| u128::from(tokens) * u128::from(price)).sum();
        u64::try_from((cost + 500) / 1000).ok()
    }

    /// Returns the prices in millionths of the currency, in the order of [`PricedTokens`](super::PricedTokens); `None` for a price
    /// that is not in the documented form.
    pub fn millionths(&self) -> Option<[u64; 4]> {
        let (input, output) = (millionths(&self.input)?, millionths(&self.output)?);
        let or_input = |price: &Option<String>| price.as_deref().map_or(Some(input), millionths);
        Some([input, or_input(&self.cache_read)?, or_input(&self.cache_write)?, output])
    }
}

/// Parses a decimal number, such as "3" or "0.075", as an integer of millionths. `None` for another text.
pub fn millionths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| (1..=DIGITS).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    format!("{whole}{fraction:0<DIGITS$}").parse().ok()
}
