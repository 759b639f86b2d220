//! Implements [`PhasedObject`](meta::PhasedObject) for the kinds: it is the same for each but for its name, and for where its
//! status keeps the common part.

/// Implements [`PhasedObject`](meta::PhasedObject) for a kind by its life cycle. `in` is the path, within its status, of the
/// [`WorkloadStatus`](crate::WorkloadStatus): nothing when that is the status itself. `offers` is where its status keeps the
/// digest of what it offers to its referrers.
macro_rules! phased_object {
    (workload $kind:ident $plural:literal $(, in $part:ident)? $(, offers $($offers:ident).+)?) => {
        impl meta::PhasedObject for $kind {
            type Phase = $crate::WorkloadPhase;

            const KIND: &'static str = stringify!($kind);
            const CRD: &'static str = concat!($plural, ".agents.recif.dev");
            const FINALIZER: Option<&'static str> = Some($crate::FINALIZER);

            $crate::phased_object::accessors!($($part)?);

            fn content_hash(&self) -> Option<&str> {
                self.status.as_ref()?$(.$part)?.content_hash.as_deref()
            }

            $(fn published_digest(&self) -> Option<&str> {
                self.status.as_ref()?.$($offers).+.as_deref()
            })?
        }
    };
    (reference $kind:ident $plural:literal $(, offers $($offers:ident).+)?) => {
        impl meta::PhasedObject for $kind {
            type Phase = $crate::ReferencePhase;

            const KIND: &'static str = stringify!($kind);
            const CRD: &'static str = concat!($plural, ".agents.recif.dev");
            const FINALIZER: Option<&'static str> = None;

            $crate::phased_object::accessors!();

            $(fn published_digest(&self) -> Option<&str> {
                self.status.as_ref()?.$($offers).+.as_deref()
            })?
        }
    };
}

/// The accessors of [`PhasedObject`](meta::PhasedObject) over an object as `kube` derives it.
macro_rules! accessors {
    ($($part:ident)?) => {
        fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            &self.metadata
        }
        fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            &mut self.metadata
        }
        fn common(&self) -> Option<&meta::CommonStatus> {
            self.status.as_ref().map(|status| &status$(.$part)?.machine)
        }
        fn common_mut(&mut self) -> &mut meta::CommonStatus {
            &mut self.status.get_or_insert_default()$(.$part)?.machine
        }
        fn status_json(&self) -> serde_json::Value {
            let mut json = serde_json::to_value(&self.status).unwrap_or_default();
            if let Some(machine) = meta::PhasedObject::common(self) {
                machine.restore_raw(&mut json);
            }
            json
        }
        fn spec_digest(&self) -> String {
            self.spec.digest()
        }
        fn same_spec(&self, other: &Self) -> bool {
            self.spec == other.spec
        }
    };
}

pub(crate) use {accessors, phased_object};
