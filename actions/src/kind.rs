//! What [`Machine`](crate::machine::Machine) asks of a kind is the same for each, but for its name, the version of its
//! rendering, and where its status keeps the machine's part.

/// Implements [`Machine`](crate::machine::Machine) for a kind that runs Pods. `in` is the path, within its status, of the
/// [`crds::WorkloadStatus`]: nothing when that is the status itself.
macro_rules! workload {
    ($kind:ident, render version $version:literal $(, in $part:ident)? $(, conditions $conditions:expr)?
     $(, offers $($offers:ident).+)?) => {
        impl $crate::machine::Machine for crds::$kind {
            type Phase = crds::WorkloadPhase;
            type World = $crate::ports::World;

            const KIND: &'static str = stringify!($kind);
            const FINALIZER: Option<&'static str> = Some(crds::FINALIZER);
            const RENDER_VERSION: i64 = $version;
            const EDGES: &'static [$crate::machine::Edge<crds::WorkloadPhase>] = $crate::workload::EDGES;
            const NOT_BY_TIME: &'static [&'static str] = $crate::workload::NOT_BY_TIME;
            const CONDITIONS: &'static [&'static str] =
                $crate::kind::first!($($conditions,)? $crate::workload::CONDITIONS);
            const AVAILABLE_BY_PHASE: bool = false;
            const STEERED_BY: &'static [&'static str] = $crate::workload::STEERED_BY;

            $crate::kind::accessors!($($part)?);

            fn outside(&self, world: &Self::World) -> u64 {
                $crate::workload::outside(self, world)
            }

            fn content_hash(&self) -> Option<&str> {
                self.status.as_ref()?$(.$part)?.content_hash.as_deref()
            }

            $(fn offers(&self) -> Option<&str> {
                self.status.as_ref()?.$($offers).+.as_deref()
            })?
        }
    };
}

/// Implements [`Machine`](crate::machine::Machine) for a kind that others refer to.
///
/// Of its own it may have `edges`, failures that the kind looks after by itself, conditions, and where its status keeps the
/// digest of what it `offers`.
macro_rules! reference {
    ($kind:ident, render version $version:literal $(, conditions $conditions:expr)?) => {
        $crate::kind::reference!($kind, render version $version, edges $crate::reference::EDGES,
            failures $crate::reference::NOT_BY_TIME,
            conditions $crate::kind::first!($($conditions,)? &["Available"]));
    };
    ($kind:ident, render version $version:literal, edges $edges:expr, failures $failures:expr, conditions $conditions:expr
     $(, offers $($offers:ident).+)?) => {
        impl $crate::machine::Machine for crds::$kind {
            type Phase = crds::ReferencePhase;
            type World = $crate::ports::World;

            const KIND: &'static str = stringify!($kind);
            const FINALIZER: Option<&'static str> = None;
            const RENDER_VERSION: i64 = $version;
            const EDGES: &'static [$crate::machine::Edge<crds::ReferencePhase>] = $edges;
            const NOT_BY_TIME: &'static [&'static str] = $failures;
            const CONDITIONS: &'static [&'static str] = $conditions;
            const AVAILABLE_BY_PHASE: bool = true;
            const STEERED_BY: &'static [&'static str] = &["publishedTools"];

            $crate::kind::accessors!();

            fn outside(&self, world: &Self::World) -> u64 {
                $crate::reference::outside(self, world)
            }

            $(fn offers(&self) -> Option<&str> {
                self.status.as_ref()?.$($offers).+.as_deref()
            })?
        }
    };
}

/// The first of several expressions.
macro_rules! first {
    ($first:expr $(, $other:expr)*) => {
        $first
    };
}

/// The accessors of [`Machine`](crate::machine::Machine) over an object as `kube` derives it.
macro_rules! accessors {
    ($($part:ident)?) => {
        fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            &self.metadata
        }
        fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            &mut self.metadata
        }
        fn machine(&self) -> Option<&crds::MachineStatus> {
            self.status.as_ref().map(|status| &status$(.$part)?.machine)
        }
        fn machine_mut(&mut self) -> &mut crds::MachineStatus {
            &mut self.status.get_or_insert_default()$(.$part)?.machine
        }
        fn status_json(&self) -> serde_json::Value {
            let mut json = serde_json::to_value(&self.status).unwrap_or_default();
            if let Some(machine) = self.machine() {
                machine.restore_verbatim(&mut json);
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

pub(crate) use {accessors, first, reference, workload};
