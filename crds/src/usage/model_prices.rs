//! Prices of the models of a workload, as the operator tells them to the gateway, and the gateway to the Pods.

use std::fmt;

use super::UsageTotals;

/// Header of a request with the [prices](ModelPrices) by which its Pod is to count what was spent.
pub const PRICES_HEADER: &str = "x-recif-prices";

/// Tokens that have prices of their own: input that is not cached, read from and written to the provider's cache, and output.
pub type PricedTokens = [u64; 4];

/// Prices of models in one currency, in millionths of it for a million of each kind of tokens.
///
/// Invariant: there is at least one model; its prices hold for models that are not named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPrices {
    currency: String,
    models: Vec<(String, [u64; 4])>,
}

impl ModelPrices {
    /// Longest text that is read, in bytes.
    pub const MAX_TEXT: usize = 8192;

    /// Creates the prices of these models, by their [names](priced_name). `None`: there are none.
    pub fn new(currency: &str, models: Vec<(String, [u64; 4])>) -> Option<Self> {
        (!models.is_empty()).then(|| Self { currency: currency.to_owned(), models })
    }

    /// Reads prices as they were written. `None`: it is no such text.
    pub fn read(text: &str) -> Option<Self> {
        // It goes into a header.
        let is_visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let mut items = Some(text).filter(|text| text.len() <= Self::MAX_TEXT && is_visible)?.split(", ");
        let currency = items.next().filter(|currency| currency.len() == 3)?;
        let model = |item: &str| {
            let mut words = item.split(' ');
            let name = words.next().filter(|name| !name.is_empty())?;
            let prices = words.map(|price| price.parse::<u64>().ok()).collect::<Option<Vec<_>>>()?;
            Some((name.to_owned(), <[u64; 4]>::try_from(prices).ok()?))
        };
        Self::new(currency, items.map(model).collect::<Option<Vec<_>>>()?)
    }

    /// Returns the currency, by its three letters.
    pub fn currency(&self) -> &str {
        &self.currency
    }

    /// Returns the cost of the tokens of these models, in 10⁻⁹ of the currency, rounded.
    pub fn cost<'a>(&self, used: impl IntoIterator<Item = (&'a str, PricedTokens)>) -> u64 {
        let cost = used.into_iter().flat_map(|(model, tokens)| {
            let prices = self.prices(model);
            tokens.into_iter().zip(prices).map(|(tokens, price)| u128::from(tokens) * u128::from(price))
        });
        // A millionth of the currency for a million tokens is 10⁻¹² of it for one.
        let cost = cost.fold(0, u128::saturating_add);
        u64::try_from(cost.saturating_add(500) / 1000).unwrap_or(u64::MAX)
    }

    fn prices(&self, model: &str) -> [u64; 4] {
        let named = self.models.iter().find(|(name, _)| name == model);
        named.or(self.models.first()).map(|(_, prices)| *prices).unwrap_or_default()
    }
}

impl fmt::Display for ModelPrices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.currency)?;
        for (name, [fresh, read, write, output]) in &self.models {
            write!(f, ", {name} {fresh} {read} {write} {output}")?;
        }
        Ok(())
    }
}

impl UsageTotals {
    /// Returns the tokens that have prices of their own.
    pub fn priced(&self) -> PricedTokens {
        let Self { input, cache_read, cache_write, output, .. } = *self;
        [input.saturating_sub(cache_read).saturating_sub(cache_write), cache_read, cache_write, output]
    }
}

/// Returns the name of a model among [prices](ModelPrices), such as `openai/gpt-5`: other characters than those of usual names are `_`.
pub fn priced_name(provider: &str, model: &str) -> String {
    let usual = |letter: char| if letter.is_ascii_alphanumeric() || "-._:/@".contains(letter) { letter } else { '_' };
    [provider, "/", model].into_iter().flat_map(str::chars).map(usual).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "EUR, openai/gpt-5 3000000 300000 3750000 15000000, ollama/a_b 0 0 0 1";

    #[test]
    fn prices_are_read_as_they_were_written() {
        let models = vec![
            (priced_name("openai", "gpt-5"), [3_000_000, 300_000, 3_750_000, 15_000_000]),
            (priced_name("ollama", "a,b"), [0, 0, 0, 1]),
        ];
        let prices = ModelPrices::new("EUR", models).unwrap();
        assert_eq!((prices.to_string().as_str(), prices.currency()), (TEXT, "EUR"));
        assert_eq!(ModelPrices::read(TEXT), Some(prices));
        for wrong in [
            "",
            "EUR",
            "EURO, a/b 1 2 3 4",
            "EUR, a/b 1 2 3",
            "EUR, a/b 1 2 3 4 5",
            "EUR, a/b 1 2 3 x",
            "EUR,  1 2 3 4",
            "EUR, a\r\nb 1 2 3 4",
        ] {
            assert_eq!(ModelPrices::read(wrong), None, "{wrong}");
        }
        let long = format!("EUR{}", ", a/b 1 2 3 4".repeat(ModelPrices::MAX_TEXT / 13));
        assert_eq!(ModelPrices::read(&long), None);
    }

    #[test]
    fn each_model_has_its_price_and_one_without_has_that_of_the_first() {
        let prices = ModelPrices::read(TEXT).unwrap();
        let totals =
            UsageTotals { input: 1200, cache_read: 800, cache_write: 100, output: 340, ..UsageTotals::default() };
        assert_eq!(totals.priced(), [300, 800, 100, 340]);
        let gpt = 300 * 3000 + 800 * 300 + 100 * 3750 + 340 * 15_000;
        assert_eq!(prices.cost([("openai/gpt-5", totals.priced())]), gpt);
        assert_eq!(prices.cost([("openai/gpt-5", totals.priced()), ("x/y", totals.priced())]), 2 * gpt);
        assert_eq!(prices.cost([("ollama/a_b", [9, 9, 9, 1400])]), 1, "rounded");
        assert_eq!(prices.cost([("openai/gpt-5", [u64::MAX; 4])]), u64::MAX);
    }
}
