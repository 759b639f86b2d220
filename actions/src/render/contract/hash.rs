//! Computes the content hash of flows: SHA-256 over every file's flow, kind, name and bytes, in sorted order, and over the digest
//! of every value that reaches the container without a rendered file.
//!
//! Each part is preceded by its length, so that no two contents give the same bytes.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::flow_files::FlowFiles;

/// Content by flow, kind of file and file name. An empty flow stands for all flows.
type HashedFiles<'a> = BTreeMap<(&'a str, &'static str, &'a str), &'a str>;

/// Returns SHA-256 (hex) of everything that the Pods read, and of the data that the environment refers to.
pub(super) fn content_hash(manifest: Option<&str>, flows: &[FlowFiles], data: &BTreeMap<String, String>) -> String {
    let mut parts = HashedFiles::new();
    if let Some(manifest) = manifest {
        parts.insert(("", "manifest", "manifest.json"), manifest);
    }
    parts.extend(data.iter().map(|(object, digest)| (("", "data", object.as_str()), digest.as_str())));
    let mut fallbacks: BTreeMap<(&str, String), &str> = BTreeMap::new();
    for flow in flows {
        let credentials = flow.credentials.as_ref().map(|credentials| &credentials.values);
        let folders = [
            ("prompt", Some(&flow.prompts)),
            // A tool that moves between ConfigMap and Secret is the same file for the runner.
            ("tool", Some(&flow.plain_tools)),
            ("tool", Some(&flow.secret_tools)),
            ("credential", credentials),
            ("header", Some(&flow.header_values)),
        ];
        for (kind, files) in folders {
            let files = files.into_iter().flatten();
            parts.extend(files.map(|(name, text)| ((flow.name.as_str(), kind, name.as_str()), text.as_str())));
        }
        for (plugin, found) in &flow.fallback_credentials {
            let files = found.values.iter();
            fallbacks
                .extend(files.map(|(key, digest)| ((flow.name.as_str(), format!("{plugin}/{key}")), digest.as_str())));
        }
        if let Some(config) = &flow.config {
            parts.insert((&flow.name, "config", "config.json"), config);
        }
    }
    parts.extend(fallbacks.iter().map(|((flow, file), digest)| ((*flow, "fallback", file.as_str()), *digest)));
    let mut hash = Sha256::new();
    for ((flow, kind, name), bytes) in parts {
        for part in [flow, kind, name, bytes] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    hex::encode(hash.finalize())
}
