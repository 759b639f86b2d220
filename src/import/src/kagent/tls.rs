//! Verification of certificates, as kagent writes it.

use serde_json::{Value, json};

use crate::{fields::Fields, subject::Subject};

/// Returns `tls` of a server or provider of ours; `None` if the spec has none.
pub(super) fn tls(subject: &Subject<'_>, spec: &Fields<'_>) -> Option<Value> {
    let tls = spec.part("tls");
    let (name, key) = (tls.text("caCertSecretRef"), tls.text("caCertSecretKey"));
    let (insecure, without_system) = (tls.flag("disableVerify"), tls.flag("disableSystemCAs"));
    if insecure {
        // Any certificate is taken then, so the others say nothing.
        return Some(json!({ "insecureSkipVerify": true }));
    }
    let Some(name) = name else {
        if without_system {
            subject.notes.loss(&tls.path("disableSystemCAs"), "no authority would be trusted; the system's are");
        }
        return None;
    };
    subject.needs(&tls.path("caCertSecretRef"), "Secret", name);
    let mut ours = json!({ "caSecretRef": { "name": name } });
    if let Some(key) = key {
        ours["caSecretRef"]["key"] = key.into();
    }
    if without_system {
        ours["systemCAs"] = false.into();
    }
    Some(ours)
}
