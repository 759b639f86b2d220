//! Limits of what callers may use of a workload, which the gateways enforce.

use meta::schema::list_map;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::{
    schema::rule,
    usage::{DECIMAL, NOT_DECIMAL},
};

/// Limit of all requests to a workload together.
pub const PER_WORKLOAD: &str = "workload";
/// Limit of the requests of each caller.
pub const PER_CALLER: &str = "caller";

/// Limit of the requests to a workload, and of the tokens that its models use, or of their cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rule(
    "has(self.requestsPerMinute) || has(self.tokensPerDay) || has(self.costPerDay)",
    "set requestsPerMinute, tokensPerDay or costPerDay",
))]
pub struct Limit {
    /// Requests that count together: those of all callers (workload), or those of each caller (caller).
    // A string and not an enum: a value written by another version must not make the object unreadable.
    #[schemars(extend("enum" = [PER_WORKLOAD, PER_CALLER]))]
    pub per: String,
    /// Most requests in a minute, 1 to 1000000. The gateway answers 429 to further ones.
    #[schemars(range(min = 1, max = 1000000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<i32>,
    /// Most tokens of input and output in a day (UTC), 1 to 10000000000000. Once as many are used, the gateway answers 429 to
    /// requests until the next day begins, and a running turn of our runner ends before its next request to a model.
    #[schemars(range(min = 1, max = 10_000_000_000_000_i64))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<i64>,
    /// Highest cost of tokens in a day (UTC), more than 0, such as "2.50", by `price` of the models and in their currency, which must be
    /// the same. It holds as tokensPerDay does. While a model has no price, the condition WithinLimits says so and the last prices
    /// hold; without any there is no such limit.
    #[schemars(
        length(max = 32),
        transform = rule(DECIMAL, NOT_DECIMAL),
        transform = rule("self.matches('[1-9]')", "more than 0, such as \"2.50\"")
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_day: Option<String>,
}

/// Returns the schema of a list of limits, at most one for each `per`.
pub(crate) fn list(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = list_map::<Limit>(generator, "per");
    schema.ensure_object().insert("maxItems".into(), 2.into());
    schema
}
