//! Schemas of the traffic fields of workloads: durations with their bounds, and rules on mutually exclusive fields.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::add_rules;
use crate::{PROXY_PORT, Period};

pub(crate) fn timeout(generator: &mut SchemaGenerator) -> Schema {
    period(generator, "1s", "1h", "90s or 5m")
}

pub(crate) fn drain_timeout(generator: &mut SchemaGenerator) -> Schema {
    period(generator, "0s", "1h", "25s or 5m")
}

pub(crate) fn stable_window(generator: &mut SchemaGenerator) -> Schema {
    period(generator, "1s", "1h", "60s or 5m")
}

pub(crate) fn scale_to_zero_after(generator: &mut SchemaGenerator) -> Schema {
    period(generator, "1s", "24h", "5m or 1h30m")
}

/// Returns the schema of a [`Period`] within these bounds. It has one rule and no pattern, so that a violation has one
/// message, and a readable one.
pub(super) fn period(generator: &mut SchemaGenerator, least: &str, most: &str, example: &str) -> Schema {
    let mut schema = Period::json_schema(generator);
    let rule = json!({
        "rule": format!(
            "self.matches('^([0-9]{{1,5}}(h|m|s|ms)){{1,4}}$') && duration(self) >= duration('{least}') \
             && duration(self) <= duration('{most}')"
        ),
        "message": format!("must be a length of time from {least} to {most}: write it with its unit, such as {example}"),
    });
    add_rules(&mut schema, [rule]);
    schema
}

/// Adds the rule that `minReplicas` is at most `maxReplicas`.
pub(crate) fn scaling_rules(schema: &mut Schema) {
    let rule = json!({
        "rule": "self.minReplicas <= self.maxReplicas",
        "message": "minReplicas is more than maxReplicas: lower the one or raise the other",
    });
    add_rules(schema, [rule]);
}

/// Adds the rules on mutually exclusive fields of a workload.
pub(crate) fn traffic_rules(schema: &mut Schema) {
    let rules = [
        json!({
            "rule": "!has(self.scaling) || self.proxy.enabled",
            "message": "scaling needs the sidecar, which tells the load: leave out scaling, or proxy.enabled",
        }),
        json!({
            "rule": "!has(self.proxy.requireIdentity) || !self.proxy.requireIdentity || self.proxy.enabled",
            "message": "requireIdentity needs the sidecar, which knows who calls: leave out proxy.requireIdentity, or proxy.enabled",
        }),
        // Objects stored before the sidecar existed pass as long as these two fields stay unchanged, because they could
        // otherwise never be changed or deleted.
        json!({
            "rule": format!(
                "self.port != {PROXY_PORT} || !self.proxy.enabled || (oldSelf.hasValue() \
                 && oldSelf.value().port == {PROXY_PORT} && oldSelf.value().proxy.enabled)"
            ),
            "message": format!(
                "port {PROXY_PORT} is the sidecar's: let the container listen on another one, or set proxy.enabled to false"
            ),
            "optionalOldSelf": true,
        }),
    ];
    add_rules(schema, rules);
}

/// Returns the schema of paths that begin with '/', with at most one '*', at the end and after a '/'.
pub(crate) fn anonymous_paths(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "maxLength": 1024,
            "x-kubernetes-validations": [
                { "rule": "self.startsWith('/')", "message": "must begin with '/', such as /public or /public/*" },
                {
                    "rule": "self.matches('^[^*?#]*(/[*])?$')",
                    "message": "is a path, exactly or with '/*' at its end: use no other '*', and no '?' or '#'",
                },
            ],
        },
    })
}
