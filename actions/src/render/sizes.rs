//! Largest sizes that Linux and the API server take.

/// Largest variable that Linux passes to a process, in bytes: `NAME=value` and a NUL (`MAX_ARG_STRLEN`).
pub(super) const MAX_VARIABLE: usize = 128 * 1024;
/// Largest ConfigMap or Secret that the API server stores, in bytes of all values.
pub(crate) const MAX_OBJECT: usize = 1024 * 1024;
