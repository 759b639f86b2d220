//! Hosts and paths of AWS.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

/// Characters that are escaped in a part of a path: all but those that RFC 3986 calls unreserved.
pub(super) const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Returns the domain of AWS that a region belongs to.
pub(super) fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}
