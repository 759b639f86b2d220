//! Implements [`PhasedObject`](meta::PhasedObject) for the kinds. The implementations differ only in the name, and in
//! the place of the common part in the status.

/// Implements [`PhasedObject`](meta::PhasedObject) for a kind by its life cycle. `in` is the field of its status that
/// holds the [`WorkloadStatus`](crate::WorkloadStatus), and is absent if the status is one. Each `offers` is the path in
/// its status of a digest of what it publishes to its referrers.
macro_rules! phased_object {
    (workload $kind:ident $plural:literal $(, in $part:ident)? $(, offers $($offers:ident).+)*) => {
        impl meta::PhasedObject for $kind {
            type Phase = $crate::WorkloadPhase;

            const KIND: &'static str = stringify!($kind);
            const CRD: &'static str = concat!($plural, ".agents.recif.dev");
            const FINALIZER: Option<&'static str> = Some($crate::FINALIZER);

            $crate::phased_object::accessors!($($part)?);

            fn content_hash(&self) -> Option<&str> {
                self.status.as_ref()?$(.$part)?.content_hash.as_deref()
            }

            fn published_digests(&self) -> Vec<Option<&str>> {
                vec![$(self.status.as_ref().and_then(|status| status.$($offers).+.as_deref())),*]
            }
        }

        $crate::phased_object::custom_object!($kind $plural);
    };
    (reference $kind:ident $plural:literal $(, offers $($offers:ident).+)*) => {
        impl meta::PhasedObject for $kind {
            type Phase = $crate::ReferencePhase;

            const KIND: &'static str = stringify!($kind);
            const CRD: &'static str = concat!($plural, ".agents.recif.dev");
            const FINALIZER: Option<&'static str> = None;

            $crate::phased_object::accessors!();

            fn published_digests(&self) -> Vec<Option<&str>> {
                vec![$(self.status.as_ref().and_then(|status| status.$($offers).+.as_deref())),*]
            }
        }

        $crate::phased_object::custom_object!($kind $plural);
    };
}

/// Implements the accessors of [`PhasedObject`](meta::PhasedObject) over an object as `kube` derives it.
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
            $crate::digest::spec_digest(&self.spec)
        }
        fn same_spec(&self, other: &Self) -> bool {
            self.spec == other.spec
        }
    };
}

/// Implements [`CustomObject`](crate::CustomObject) over an object as `kube` derives it.
macro_rules! custom_object {
    ($kind:ident $plural:literal) => {
        impl $crate::CustomObject for $kind {
            type Spec = <Self as kube::core::object::HasSpec>::Spec;
            type Status = <Self as kube::core::object::HasStatus>::Status;

            const PLURAL: &'static str = $plural;

            fn from_parts(
                metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                spec: Self::Spec,
                status: Option<Self::Status>,
            ) -> Self {
                Self { metadata, spec, status }
            }
        }
    };
}

pub(crate) use {accessors, custom_object, phased_object};
