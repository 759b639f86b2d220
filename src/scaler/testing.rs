//! Pods to play with.

use std::{collections::BTreeMap, net::IpAddr};

use actions::ports::Pod;

/// A ready Pod of this name, which is its uid too.
pub(super) fn pod(name: &str, ip: impl Into<IpAddr>) -> Pod {
    Pod {
        name: name.to_owned(),
        uid: name.to_owned(),
        resource_version: 1,
        labels: BTreeMap::new(),
        ready: true,
        terminating: false,
        ip: Some(ip.into()),
        deletion_cost: None,
        trouble: None,
    }
}
