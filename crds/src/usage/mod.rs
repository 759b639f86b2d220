//! Usage of models: tokens by caller and model, as a grow-only counter
//! ([G-Counter](https://en.wikipedia.org/wiki/Conflict-free_replicated_data_type#G-Counter_(Grow-only_Counter))).
//!
//! A cell holds totals since its hour began, so a report that comes twice, late or out of order changes nothing: of two
//! versions of a cell the larger number counts. Only the process that counts a cell lets it grow.

mod counted;
mod counter;
mod latency;
mod left;
mod model_prices;
mod price;
mod reported;
mod spent;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::digest::sha256_hex;

pub use counted::{CELLS_PER_REPORT, CountedCells};
pub use counter::UsageCounter;
pub use latency::{LATENCY_BUCKETS, latency_bucket, quantile_ms};
pub use left::{LEFT_COST_HEADER, LEFT_HEADER, LeftTokens};
pub use model_prices::{ModelPrices, PRICES_HEADER, PricedTokens, priced_name};
pub(crate) use price::{DECIMAL, NOT_DECIMAL};
pub use price::{ModelPrice, millionths};
pub use reported::{ReportedUsage, TokenDirection};
pub(crate) use spent::member;
pub use spent::{COST_HEADER, SPENT_HEADER, SpentTokens, day_of, day_of_hour};

/// Path at which a runtime, and the sidecar in front of it, reports the usage of models.
pub const USAGE_PATH: &str = "/_recif/usage";
/// Header of a response with what the models of its request used, a dictionary as in RFC 9651.
pub const USAGE_HEADER: &str = "x-recif-usage";
/// Most cells that a process counts; further callers are counted as [`OTHER_CALLER`].
pub const MAX_CELLS: usize = 10_000;
/// Name of the callers that no cell is left for.
pub const OTHER_CALLER: &str = "other";
/// Hours for which a process keeps its cells.
pub const KEPT_HOURS: i64 = 26;
/// Longest caller, provider or model in bytes; a longer one is cut.
pub const MAX_NAME_BYTES: usize = 256;
/// Largest number in a cell that is believed: more than two million tokens a second. Sums of 900 million cells stay in 64 bits.
const MAX_COUNT: u64 = 10_000_000_000;
/// Seconds of an hour.
const HOUR_SECONDS: i64 = 3600;

/// Purpose of a request to a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Answer to a message.
    #[default]
    Turn,
    /// Title of a conversation.
    Title,
    /// Vector of a text.
    Embed,
}

impl Purpose {
    /// Returns the name of the purpose.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Title => "title",
            Self::Embed => "embed",
        }
    }
}

/// Key of a cell: what is counted apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UsageKey {
    /// Hours since 1970, UTC.
    pub hour: i64,
    /// User name of the caller; empty: not known.
    pub caller: String,
    /// Provider of the model.
    pub provider: String,
    /// Id of the model at its provider.
    pub model: String,
    /// Purpose.
    pub purpose: Purpose,
}

/// Totals of a cell since its hour began. Each number only grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageTotals {
    /// Requests that were answered.
    pub calls: u64,
    /// Requests that failed or were cut off.
    pub failed: u64,
    /// Input tokens, cached ones included.
    pub input: u64,
    /// Input tokens that were read from the provider's cache.
    pub cache_read: u64,
    /// Input tokens that were written to the provider's cache.
    pub cache_write: u64,
    /// Output tokens, those of reasoning included.
    pub output: u64,
    /// Output tokens of reasoning.
    pub reasoning: u64,
    /// Tokens, of input and output, that were estimated because the provider did not report them.
    pub estimated: u64,
    /// Requests by duration, see [`latency_bucket`].
    pub latency: [u64; LATENCY_BUCKETS],
}

/// Cell of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageCell {
    /// Key.
    pub key: UsageKey,
    /// Totals.
    pub totals: UsageTotals,
}

/// Report of a process: the cells that changed after a revision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReport {
    /// Name of this run of the process.
    pub instance: String,
    /// Number of the last change in it.
    pub revision: u64,
    /// Cells.
    pub cells: Vec<UsageCell>,
}

impl UsageTotals {
    /// Returns the totals of both, of which each counts other requests.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        self.combine(other, u64::saturating_add)
    }

    /// Returns the newer of two versions of one cell: the larger of each number.
    #[must_use]
    pub fn join(self, other: &Self) -> Self {
        self.combine(other, u64::max)
    }

    /// Reports whether the numbers are plausible: none is so large that sums overflow, and no part exceeds its whole.
    pub fn is_plausible(&self) -> bool {
        let Self { calls, failed, input, cache_read, cache_write, output, reasoning, estimated, latency } = self;
        let all = [calls, failed, input, cache_read, cache_write, output, reasoning, estimated];
        all.into_iter().chain(latency).all(|number| *number <= MAX_COUNT)
            && cache_read + cache_write <= *input
            && reasoning <= output
            && *estimated <= input + output
    }

    fn combine(self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let mut latency = self.latency;
        for (own, others) in latency.iter_mut().zip(other.latency) {
            *own = combine(*own, others);
        }
        Self {
            calls: combine(self.calls, other.calls),
            failed: combine(self.failed, other.failed),
            input: combine(self.input, other.input),
            cache_read: combine(self.cache_read, other.cache_read),
            cache_write: combine(self.cache_write, other.cache_write),
            output: combine(self.output, other.output),
            reasoning: combine(self.reasoning, other.reasoning),
            estimated: combine(self.estimated, other.estimated),
            latency,
        }
    }
}

impl UsageCell {
    /// Reports whether the cell of another process can be stored: it is of the last hours, and its names and numbers have
    /// bounds.
    pub fn is_plausible(&self, now: i64) -> bool {
        let UsageKey { hour, caller, provider, model, .. } = &self.key;
        let current = hour_of(now);
        let names = [caller, provider, model];
        (current - KEPT_HOURS..=current + 1).contains(hour)
            && names.into_iter().all(|name| name.len() <= MAX_NAME_BYTES)
            && self.totals.is_plausible()
    }
}

/// Returns the hour of a time in seconds since 1970.
pub fn hour_of(seconds: i64) -> i64 {
    seconds.div_euclid(HOUR_SECONDS)
}

/// Returns the time in seconds since 1970 at which an hour begins.
pub fn hour_start(hour: i64) -> i64 {
    hour.saturating_mul(HOUR_SECONDS)
}

/// Returns the key for a sidecar's usage, derived from the secret of the Pod's hooks. Readers of the Pod can derive it; it does not
/// reveal the secret, even if the address belongs to another Pod by now. `None`: the sidecar has no secret, and answers no caller.
pub fn usage_key(secret: &str) -> Option<String> {
    (!secret.is_empty()).then(|| sha256_hex(format!("recif usage {secret}").as_bytes()))
}

/// Cuts a name to [`MAX_NAME_BYTES`].
pub fn cut_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME_BYTES)]
}
