//! Tests the life of an Agent over the simulated cluster.

mod agent_fields;
mod anywhere;
mod budgets;
mod crash;
mod drift;
mod egress;
mod errors;
mod failing;
mod failure_reports;
mod keys;
mod lag;
mod life;
mod models;
mod pods;
mod policies;
mod rollout;
mod running;
mod scaling;
mod scenarios;
mod stopped;
mod strangers;
mod telemetry;
