//! Text of the load, as `x-recif-load` has it.

/// Text of two numbers and a slash on the stack, without an allocation.
#[derive(Debug, Default)]
pub(super) struct LoadText {
    bytes: [u8; 21],
    length: usize,
}

impl LoadText {
    /// Adds a number.
    pub(super) fn push(&mut self, number: u32) {
        let digits = number.checked_ilog10().map_or(1, |log| log as usize + 1);
        let mut rest = number;
        for at in (self.length..self.length + digits).rev() {
            self.bytes[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.length += digits;
    }

    /// Adds a text.
    pub(super) fn append(&mut self, text: &str) {
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
    }
}

impl AsRef<[u8]> for LoadText {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        for (number, expected) in [(0, "0"), (9, "9"), (10, "10"), (4_294_967_295, "4294967295")] {
            let mut text = LoadText::default();
            text.push(number);
            assert_eq!(text.as_ref(), expected.as_bytes());
        }
    }
}
