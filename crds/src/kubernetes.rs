//! Versions of Kubernetes that Récif supports, as minor versions of Kubernetes 1.
//!
//! Native sidecars are on since 1.29; ValidatingAdmissionPolicy is stable, and `optionalOldSelf` on, since 1.30.

/// Oldest minor version on which it can run.
pub const MINIMUM_MINOR: u32 = 30;
/// Oldest minor version on which it is tested.
pub const OLDEST_SUPPORTED_MINOR: u32 = 32;
/// Newest minor version on which it is tested.
pub const NEWEST_SUPPORTED_MINOR: u32 = 37;

const _: () = assert!(MINIMUM_MINOR <= OLDEST_SUPPORTED_MINOR && OLDEST_SUPPORTED_MINOR <= NEWEST_SUPPORTED_MINOR);
