//! Bytes kept compressed (DEFLATE): an object is sent whole far less often than it is listed, and JSON shrinks to a quarter.

use std::{
    fmt,
    io::{Read as _, Write as _},
};

use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};

/// Compressed bytes, with their length before compression.
pub(super) struct Packed {
    bytes: Box<[u8]>,
    length: u32,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Packed {
    /// Compresses bytes, for speed rather than size.
    pub(super) fn new(plain: &[u8]) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::with_capacity(plain.len() / 3), Compression::fast());
        // Writing into memory cannot fail.
        let bytes = encoder.write_all(plain).and_then(|()| encoder.finish()).unwrap_or_default();
        Self { bytes: bytes.into(), length: u32::try_from(plain.len()).unwrap_or_default() }
    }

    /// Decompresses the bytes.
    pub(super) fn unpack(&self) -> Vec<u8> {
        let mut plain = Vec::with_capacity(self.length as usize);
        // The bytes were compressed here, so decompressing them cannot fail.
        let _ = DeflateDecoder::new(&*self.bytes).read_to_end(&mut plain);
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again_and_is_smaller_meanwhile() {
        for plain in [Vec::new(), b"x".to_vec(), br#"{"phase":"Running"},"#.repeat(200)] {
            let packed = Packed::new(&plain);
            assert_eq!(packed.unpack(), plain);
            assert!(packed.bytes.len() < plain.len().max(20));
        }
    }
}
