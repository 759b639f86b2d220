//! Generates identifiers that cannot be guessed.

/// Returns `N` random bytes of the system as hexadecimal digits.
///
/// # Errors
/// The system has no random numbers.
pub fn random_hex<const N: usize>() -> Result<String, getrandom::Error> {
    let mut random = [0; N];
    getrandom::fill(&mut random)?;
    Ok(hex::encode(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ids_differ() {
        let (one, other) = (random_hex::<8>().unwrap(), random_hex::<8>().unwrap());
        assert_eq!(one.len(), 16);
        assert_ne!(one, other);
    }
}
