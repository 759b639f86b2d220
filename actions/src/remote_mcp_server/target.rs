//! Target of the discovery of a remote server.

use crds::{HasReferences as _, RemoteMCPServer};
use meta::PhasedObject as _;

use crate::{deps::Deps, discovery::DiscoveryTarget, references::Resolver};

/// Returns the target of the discovery.
pub(super) fn target(cr: &RemoteMCPServer, deps: &Deps) -> DiscoveryTarget {
    let key = cr.key();
    let spec = &cr.spec;
    DiscoveryTarget {
        kind: RemoteMCPServer::KIND,
        uid: cr.uid().to_owned(),
        url: spec.url.clone(),
        headers: spec.headers_from.clone(),
        tls: spec.tls.clone().unwrap_or_default(),
        sse: spec.protocol == "SSE",
        silence: spec.sse_read_timeout(),
        terminates: spec.terminate_on_close,
        timeout: spec.timeout(),
        resync: spec.resync(),
        data: Resolver::new(deps, &key.namespace).data(&cr.references()),
        key,
    }
}
