//! Usage of models: tokens and their cost, summed by agent, flow, model, caller or namespace.

use std::collections::HashMap;

use crds::{
    Period,
    usage::{UsageTotals, hour_of, hour_start, quantile_ms},
};
use futures::FutureExt as _;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use store::{UsageGroup, UsageQuery, UsageStep, UsageSum};

use super::{
    history::{store_unavailable, store_visibility},
    operation::{OperationFuture, OperationRequest, Param, ParamValues},
    problem::Problem,
    response::OperationResponse,
};
use crate::{app::SharedAppState, auth::ApiCaller};

/// Groupings by name; the first one is the default.
const GROUPS: [(&str, UsageGroup); 5] = [
    ("agents", UsageGroup::Agents),
    ("flows", UsageGroup::Flows),
    ("models", UsageGroup::Models),
    ("callers", UsageGroup::Callers),
    ("namespaces", UsageGroup::Namespaces),
];
/// Limit of the sums.
const MAX_ITEMS: usize = 1000;
/// Time that is summed unless the caller gives one.
const DEFAULT_SINCE: &str = "24h";
/// Seconds of a day.
const DAY: i64 = 24 * 60 * 60;

/// Parameters of the usage.
pub(super) const USAGE: &[Param] = &[
    Param {
        name: "group",
        about: "What to sum by; agents by default.",
        values: ParamValues::OneOf(|| GROUPS.iter().map(|(name, _)| *name).collect()),
        repeatable: false,
    },
    Param {
        name: "since",
        about: "Where it begins, at the start of that hour: a time, or a duration before now such as 24h or 30d. 24h by default.",
        values: ParamValues::Text,
        repeatable: false,
    },
    Param {
        name: "until",
        about: "Where it ends, at the end of that hour: a time, or a duration before now. Now by default.",
        values: ParamValues::Text,
        repeatable: false,
    },
    Param {
        name: "step",
        about: "Sum each hour or day (UTC) apart.",
        values: ParamValues::OneOf(|| vec!["hour", "day"]),
        repeatable: false,
    },
    Param {
        name: "namespace",
        about: "Only what is in these namespaces.",
        values: ParamValues::Text,
        repeatable: true,
    },
];

/// What models used.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Usage {
    /// Start of the first hour, RFC 3339.
    since: String,
    /// End of the last hour, RFC 3339.
    until: String,
    /// Sums, those of the most tokens first.
    items: Vec<UsageItem>,
    /// True if there are more than these.
    truncated: bool,
}

/// Sum of one agent, flow, model, caller or namespace.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct UsageItem {
    /// Start of the hour or day, RFC 3339; absent without `step`.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    /// Namespace of the agent or flow; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// Provider of the model; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    /// Its name; empty for callers that did not sign in.
    name: String,
    /// Requests to models that were answered.
    calls: u64,
    /// Requests to models that failed or were cut off.
    failed: u64,
    /// Input tokens, cached ones included.
    input: u64,
    /// Input tokens that were read from the provider's cache.
    cache_read: u64,
    /// Input tokens that were written to the provider's cache.
    cache_write: u64,
    /// Output tokens, those of reasoning included.
    output: u64,
    /// Output tokens of reasoning.
    reasoning: u64,
    /// Tokens of these that are estimated, because the provider did not report them.
    estimated: u64,
    /// Tokens of these whose model had no price.
    unpriced: u64,
    /// Cost, by currency.
    cost: Vec<UsageCost>,
    /// Milliseconds that 95 % of the requests to models did not exceed; null: there were none.
    p95_ms: Option<u64>,
}

/// Cost in one currency.
#[derive(Debug, Serialize, JsonSchema)]
struct UsageCost {
    /// Currency, by its three letters of ISO 4217.
    currency: String,
    /// Decimal number with nine digits behind the point.
    amount: String,
}

/// Sums tokens and cost.
pub(super) fn usage(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let now = Timestamp::now().as_second();
        let wanted = asked.one("group").unwrap_or_default();
        let group = GROUPS.iter().find(|(name, _)| *name == wanted).map_or(UsageGroup::Agents, |(_, group)| *group);
        let step = match asked.one("step") {
            Some("hour") => UsageStep::Hour,
            Some("day") => UsageStep::Day,
            _ => UsageStep::Whole,
        };
        let time = |name: &'static str, default: &str| {
            let text = asked.one(name).filter(|text| !text.is_empty()).unwrap_or(default);
            let time = read_time(text, now);
            time.ok_or_else(|| {
                let how = "say a time such as 2026-01-31T00:00:00Z, or a duration such as 24h or 30d";
                Problem::parameter(name, format!("{name}={text}: {how}"))
            })
        };
        let (since, until) = (hour_of(time("since", DEFAULT_SINCE)?), hour_of(time("until", "0s")?) + 1);
        if since >= until {
            return Err(Problem::parameter("since", "since: it must be before until"));
        }
        let namespaces: Vec<String> =
            asked.many("namespace").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let visible = app.auth.visibility(&caller, &app.fleet, &[], &namespaces).await?;
        let visible = store_visibility(&visible, &app.fleet);
        let (hours, limit) = ((since, until), MAX_ITEMS + 1);
        let query = UsageQuery { group, hours, step, namespaces: &namespaces, visible: &visible, limit };
        let mut sums = app.store.usage(&query).await.map_err(|error| store_unavailable(&error))?;
        let truncated = sums.len() > MAX_ITEMS;
        sums.truncate(MAX_ITEMS);
        let items = items(sums, group, step);
        OperationResponse::of(&Usage { since: rfc3339(since), until: rfc3339(until), items, truncated })
    }
    .boxed()
}

/// Parses a time, or a duration before `now`, as seconds since 1970.
fn read_time(text: &str, now: i64) -> Option<i64> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok()).map(|days| i64::from(days) * DAY);
    let length = || Period::from(text).length().and_then(|length| i64::try_from(length.as_secs()).ok());
    let time = || text.parse::<Timestamp>().ok().map(Timestamp::as_second);
    // The hours of earlier times are negative, and nothing was counted then.
    days.or_else(length).map(|ago| now.saturating_sub(ago)).or_else(time).map(|time| time.max(0))
}

fn rfc3339(hour: i64) -> String {
    Timestamp::from_second(hour_start(hour)).unwrap_or(Timestamp::MAX).to_string()
}

/// Joins the sums of several currencies.
fn items(sums: Vec<UsageSum>, group: UsageGroup, step: UsageStep) -> Vec<UsageItem> {
    let mut places: HashMap<(i64, String, String), usize> = HashMap::new();
    let mut joined: Vec<(UsageItem, UsageTotals)> = Vec::new();
    for UsageSum { hour, scope, name, currency, totals, cost } in sums {
        let place = *places.entry((hour, scope.clone(), name.clone())).or_insert_with(|| {
            joined.push((UsageItem::new((group, step), hour, scope, name), UsageTotals::default()));
            joined.len() - 1
        });
        let Some((item, all)) = joined.get_mut(place) else { continue };
        *all = all.plus(&totals);
        match currency.is_empty() {
            true => item.unpriced += totals.input + totals.output,
            false => item.cost.push(UsageCost { currency, amount: amount(cost) }),
        }
    }
    joined.into_iter().map(|(item, totals)| item.with(&totals)).collect()
}

fn amount(cost: u64) -> String {
    const ONE: u64 = 1_000_000_000;
    format!("{}.{:09}", cost / ONE, cost % ONE)
}

impl UsageItem {
    /// Creates the item of a group without numbers.
    fn new((group, step): (UsageGroup, UsageStep), hour: i64, scope: String, name: String) -> Self {
        let (namespace, provider) = match group {
            UsageGroup::Agents | UsageGroup::Flows => (Some(scope), None),
            UsageGroup::Models => (None, Some(scope)),
            UsageGroup::Callers | UsageGroup::Namespaces => (None, None),
        };
        Self {
            at: (step != UsageStep::Whole).then(|| rfc3339(hour)),
            namespace,
            provider,
            name,
            calls: 0,
            failed: 0,
            input: 0,
            cache_read: 0,
            cache_write: 0,
            output: 0,
            reasoning: 0,
            estimated: 0,
            unpriced: 0,
            cost: Vec::new(),
            p95_ms: None,
        }
    }

    /// Sets the numbers.
    fn with(self, totals: &UsageTotals) -> Self {
        let UsageTotals { calls, failed, input, cache_read, cache_write, output, reasoning, estimated, latency } =
            *totals;
        let p95_ms = quantile_ms(&latency, 95);
        Self { calls, failed, input, cache_read, cache_write, output, reasoning, estimated, p95_ms, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_one_or_so_long_ago() {
        let now = 1_800_000_000;
        for (text, expected) in [
            ("24h", Some(now - 86_400)),
            ("30d", Some(now - 30 * 86_400)),
            ("0s", Some(now)),
            ("1970-01-02T00:00:00Z", Some(86_400)),
            ("1969-01-02T00:00:00Z", Some(0)),
            ("99999999d", Some(0)),
            ("", None),
            ("yesterday", None),
            ("-1d", None),
            ("24", None),
        ] {
            assert_eq!(read_time(text, now), expected, "{text}");
        }
    }

    #[test]
    fn currencies_of_one_model_are_one_item() {
        let sum = |currency: &str, calls: u64, cost: u64| UsageSum {
            hour: 0,
            scope: "openai".into(),
            name: "gpt".into(),
            currency: currency.into(),
            totals: UsageTotals { calls, input: 10 * calls, output: calls, ..UsageTotals::default() },
            cost,
        };
        let sums = vec![sum("EUR", 3, 1_234_567_891), sum("", 2, 0), sum("USD", 1, 5)];
        let items = items(sums, UsageGroup::Models, UsageStep::Whole);
        let [item] = &items[..] else { panic!("{items:?}") };
        assert_eq!((item.calls, item.input, item.unpriced, item.at.as_deref()), (6, 60, 22, None));
        assert_eq!((item.provider.as_deref(), item.namespace.as_deref()), (Some("openai"), None));
        let cost: Vec<_> = item.cost.iter().map(|cost| format!("{} {}", cost.amount, cost.currency)).collect();
        assert_eq!(cost, ["1.234567891 EUR", "0.000000005 USD"]);
    }
}
