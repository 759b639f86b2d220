//! Random uids, and the ends of generated names.

use crate::errors::StatusError;

/// Characters of generated names: no vowels, so that no words arise.
const SUFFIX: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of what is appended to `generateName`.
const SUFFIX_LENGTH: usize = 5;
/// Longest text before it.
pub(crate) const MAX_BASE: usize = 63 - SUFFIX_LENGTH;

/// Makes a random uid (UUID version 4).
pub(crate) fn new_uid() -> Result<String, StatusError> {
    let mut bytes = random::<16>()?;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

/// Makes the end of a generated name.
pub(crate) fn suffix() -> Result<String, StatusError> {
    let bytes = random::<SUFFIX_LENGTH>()?;
    Ok(bytes.iter().map(|byte| char::from(SUFFIX[usize::from(*byte) % SUFFIX.len()])).collect())
}

fn random<const N: usize>() -> Result<[u8; N], StatusError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| StatusError::unknown(error.to_string()))?;
    Ok(bytes)
}
