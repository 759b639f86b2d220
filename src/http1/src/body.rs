//! Message framing: finds the end of a body, by `Content-Length` or by the chunked transfer coding (RFC 9112, section
//! 7.1).

use std::{borrow::Cow, ops::Range};

use super::InvalidMessage;

/// Framing of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The body ends after this many bytes (`Content-Length`).
    Length(u64),
    /// The body ends after its last chunk (`Transfer-Encoding: chunked`).
    Chunked,
    /// The body ends with the connection. Only a response may be framed so.
    Close,
}

/// Incremental scanner that follows a body to its end without changing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyScanner {
    state: BodyState,
    /// Bytes of trailers so far.
    trailers: u16,
}

/// Result of [`BodyScanner::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyProgress {
    /// Number of bytes that belong to the body. Smaller than the input only if the body ended.
    pub consumed: usize,
    /// Set if the body has ended.
    pub ended: bool,
}

/// Most bytes of one chunk's extensions.
const MAX_CHUNK_EXTENSIONS: u16 = 1024;
/// Most bytes of the trailers.
const MAX_TRAILERS: u16 = 8192;
/// Most hexadecimal digits of a chunk size, which limits it to less than 2⁶⁰ bytes.
const MAX_SIZE_DIGITS: u8 = 15;

#[derive(Debug, Clone, PartialEq, Eq)]
enum BodyState {
    Ended,
    /// In a body of which this many bytes are left.
    Length(u64),
    Close,
    /// In a chunk size, after this many digits.
    Size {
        digits: u8,
        size: u64,
    },
    /// In the extensions of a chunk of this size.
    Extensions {
        size: u64,
        seen: u16,
    },
    /// After the CR of a chunk's first line.
    SizeEnd {
        size: u64,
    },
    /// In the data of a chunk, of which this many bytes are left.
    Data(u64),
    /// After the data of a chunk.
    DataEnd,
    /// After the CR that follows the data.
    DataEndLine,
    /// At the beginning of a line after the last chunk.
    TrailerStart,
    /// In the name of a trailer.
    TrailerName,
    /// In the value of a trailer.
    Trailer,
    /// After the CR of a trailer.
    TrailerEnd,
    /// After the CR of the empty line.
    LastEnd,
}

/// Progress in a body, and the bytes to forward.
pub(super) type ForwardedBody<'b> = (BodyProgress, Cow<'b, [u8]>);

impl BodyScanner {
    /// Creates a scanner at the start of a body with this framing.
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(0) => BodyState::Ended,
            Framing::Length(length) => BodyState::Length(length),
            Framing::Chunked => BodyState::Size { digits: 0, size: 0 },
            Framing::Close => BodyState::Close,
        };
        Self { state, trailers: 0 }
    }

    /// Reports whether the body has ended.
    pub fn has_ended(&self) -> bool {
        self.state == BodyState::Ended
    }

    /// Reports whether the end of the connection is a valid end of the body, and not a truncation.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.state, BodyState::Ended | BodyState::Close)
    }

    /// Scans bytes that follow those of earlier calls.
    ///
    /// # Errors
    /// Invalid framing, with the number of valid bytes before it. Those may have been forwarded; the message must then
    /// be aborted, never ended.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<BodyProgress, (usize, InvalidMessage)> {
        self.advance_with(bytes, |_| {})
    }

    /// Performs [`BodyScanner::advance`], and returns the bytes to forward: the body without its trailers, because
    /// servers may take trailers for fields of a head that was validated without them.
    ///
    /// # Errors
    /// Those of [`BodyScanner::advance`].
    pub fn advance_without_trailers<'b>(
        &mut self,
        bytes: &'b [u8],
    ) -> Result<ForwardedBody<'b>, (usize, InvalidMessage)> {
        let before = self.trailers;
        let progress = self.advance(bytes)?;
        let body = &bytes[..progress.consumed];
        let trailers = self.trailers_since(before, body.len());
        if trailers.is_empty() {
            return Ok((progress, Cow::Borrowed(body)));
        }
        Ok((progress, Cow::Owned([&body[..trailers.start], &body[trailers.end..]].concat())))
    }

    /// Returns the number of bytes of trailers so far.
    pub(super) fn trailer_bytes(&self) -> u16 {
        self.trailers
    }

    /// Returns the range of the trailers within the last `consumed` bytes, if `before` bytes of trailers came earlier;
    /// `0..0` without trailers.
    pub(super) fn trailers_since(&self, before: u16, consumed: usize) -> Range<usize> {
        let length = usize::from(self.trailers - before);
        if length == 0 {
            return 0..0;
        }
        // Trailers are contiguous, and are followed by as much of the body's final empty line as has arrived.
        let behind = match self.state {
            BodyState::Ended => 2,
            BodyState::LastEnd => 1,
            _ => 0,
        };
        let end = consumed - behind;
        end - length..end
    }

    /// Reports whether all trailers have arrived.
    pub(super) fn is_behind_trailers(&self) -> bool {
        matches!(self.state, BodyState::LastEnd | BodyState::Ended)
    }

    /// Performs [`BodyScanner::advance`], and passes each run of content bytes, without framing, to `data`.
    ///
    /// # Errors
    /// Those of [`BodyScanner::advance`].
    pub fn advance_with(
        &mut self,
        bytes: &[u8],
        mut data: impl FnMut(&[u8]),
    ) -> Result<BodyProgress, (usize, InvalidMessage)> {
        let mut at = 0;
        while at < bytes.len() && self.state != BodyState::Ended {
            if matches!(self.state, BodyState::Size { digits: 0, .. })
                && let Some((from, to)) = whole_chunk(&bytes[at..])
            {
                data(&bytes[at + from..at + to]);
                at += to + 2;
                continue;
            }
            let is_data = matches!(self.state, BodyState::Data(_) | BodyState::Length(_) | BodyState::Close);
            let taken = self.step(&bytes[at..]).map_err(|bad| (at, bad))?;
            if is_data {
                data(&bytes[at..at + taken]);
            }
            at += taken;
        }
        Ok(BodyProgress { consumed: at, ended: self.has_ended() })
    }

    /// Consumes one byte, or a run of data. `bytes` is not empty.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, InvalidMessage> {
        let available = bytes.len() as u64;
        let byte = bytes.first().copied().unwrap_or_default();
        let (state, taken) = match self.state {
            BodyState::Ended => (BodyState::Ended, 0),
            BodyState::Close => (BodyState::Close, bytes.len()),
            BodyState::Length(left) if left <= available => (BodyState::Ended, left as usize),
            BodyState::Length(left) => (BodyState::Length(left - available), bytes.len()),
            BodyState::Data(left) if left <= available => (BodyState::DataEnd, left as usize),
            BodyState::Data(left) => (BodyState::Data(left - available), bytes.len()),
            BodyState::Size { digits, size } => (next_size_state(digits, size, byte)?, 1),
            BodyState::Extensions { size, seen } => match byte {
                b'\r' => (BodyState::SizeEnd { size }, 1),
                _ if seen >= MAX_CHUNK_EXTENSIONS => return Err(InvalidMessage::ChunkLimits),
                b'\t' | b' '..=b'~' | 0x80.. => (BodyState::Extensions { size, seen: seen + 1 }, 1),
                _ => return Err(InvalidMessage::ChunkFrame),
            },
            BodyState::SizeEnd { size } => match (byte, size) {
                (b'\n', 0) => (BodyState::TrailerStart, 1),
                (b'\n', size) => (BodyState::Data(size), 1),
                _ => return Err(InvalidMessage::ChunkFrame),
            },
            BodyState::DataEnd if byte == b'\r' => (BodyState::DataEndLine, 1),
            BodyState::DataEndLine if byte == b'\n' => (BodyState::Size { digits: 0, size: 0 }, 1),
            BodyState::TrailerStart if byte == b'\r' => (BodyState::LastEnd, 1),
            BodyState::TrailerStart | BodyState::TrailerName if super::fields::is_token(byte) => {
                (BodyState::TrailerName, 1)
            }
            BodyState::TrailerName if byte == b':' => (BodyState::Trailer, 1),
            BodyState::Trailer => match byte {
                b'\r' => (BodyState::TrailerEnd, 1),
                b'\t' | b' '..=b'~' | 0x80.. => (BodyState::Trailer, 1),
                _ => return Err(InvalidMessage::ChunkFrame),
            },
            BodyState::TrailerEnd if byte == b'\n' => (BodyState::TrailerStart, 1),
            BodyState::LastEnd if byte == b'\n' => (BodyState::Ended, 1),
            _ => return Err(InvalidMessage::ChunkFrame),
        };
        if matches!(state, BodyState::TrailerName | BodyState::Trailer | BodyState::TrailerEnd)
            || self.state == BodyState::TrailerEnd
        {
            if self.trailers >= MAX_TRAILERS {
                return Err(InvalidMessage::ChunkLimits);
            }
            self.trailers += 1;
        }
        self.state = state;
        Ok(taken)
    }
}

/// Returns the range of the data of a chunk that is complete in `bytes` and has a plain first line: the fast path for
/// most chunks, which then need no scan byte by byte. A CRLF follows the data.
fn whole_chunk(bytes: &[u8]) -> Option<(usize, usize)> {
    // Six digits exceed the size of any single read.
    let line = bytes.first_chunk::<8>()?;
    let (mut size, mut digits) = (0, 0);
    while digits < 6 {
        let digit = HEX[line[digits] as usize];
        if digit == NO_DIGIT {
            break;
        }
        size = size << 4 | usize::from(digit);
        digits += 1;
    }
    let from = digits + 2;
    let to = from + size;
    let is_whole = size > 0 && line[digits..from] == *b"\r\n" && bytes.get(to..to + 2)? == b"\r\n";
    is_whole.then_some((from, to))
}

const NO_DIGIT: u8 = 16;

/// Value of each byte as a hexadecimal digit.
const HEX: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value] as usize] = value as u8;
        table[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    table
};

fn next_size_state(digits: u8, size: u64, byte: u8) -> Result<BodyState, InvalidMessage> {
    match (byte, digits) {
        (b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F', digits) if digits < MAX_SIZE_DIGITS => {
            let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
            Ok(BodyState::Size { digits: digits + 1, size: size * 16 + digit })
        }
        (b'\r', 1..) => Ok(BodyState::SizeEnd { size }),
        (b';', 1..) => Ok(BodyState::Extensions { size, seen: 0 }),
        _ => Err(InvalidMessage::ChunkSize),
    }
}
