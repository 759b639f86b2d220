//! x
/// x
pub struct Why;
/// x
pub fn why() {}
