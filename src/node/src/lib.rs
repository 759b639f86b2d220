//! A node on this machine: runs the Pods of Deployments as processes, without cluster, container or root. It does what the kubelet,
//! kube-proxy and the controllers of Deployments and EndpointSlices do on a cluster, as far as Récif needs it.
//!
//! [`LocalNode`] reads the API by informer caches ([`cache`]) and acts on them level-triggered ([`node`]): [`roll_out`] decides which
//! Pods a Deployment gets, [`pod_spec`] moves them to this machine, [`pod`] runs each of them, and [`slices`] and [`relays`] lead to
//! them.
//! All Pods are on 127.0.0.1, so each of their ports becomes a free one ([`ports`]), and a URL that names a Service becomes that of
//! its relay ([`names`]).

mod back_off;
mod cache;
mod check;
mod config;
mod config_error;
mod container;
mod container_end;
mod context;
mod deployment_status;
mod deployments;
mod env;
mod events;
mod leftovers;
mod log_files;
mod logs;
mod names;
mod node;
mod objects;
mod output;
mod pod;
mod pod_logs;
mod pod_spec;
mod ports;
mod prepare;
mod probes;
mod process;
mod programs;
mod relays;
mod roll_out;
mod services;
mod shared;
mod slices;
mod states;
#[cfg(test)]
mod testing;
mod tokens;
mod volumes;
mod workers;

pub use config::{Environment, NODE_NAME, NodeConfig, NodeError};
pub use logs::Logs;
pub use node::{LocalNode, Names};
pub use output::{LineSource, Output, readable};
pub use programs::{DEV_COMMAND, DEV_FOLDER, PROXY_IMAGE, Programs, RUNNER_IMAGE};
pub use tokens::Tokens;
