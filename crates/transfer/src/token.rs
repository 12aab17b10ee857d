//! The token of a stream that was cut: which snapshot, and how much of it was applied.

use std::fmt::{self, Write as _};

use format::stream::Origin;

/// Bytes of a token.
const BYTES: usize = 36;

/// Where a stream continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The snapshot.
    pub origin: Origin,
    /// How many records after the first were applied.
    pub applied: u64,
}

impl Token {
    /// Reads a token as it is shown.
    pub fn parse(text: &str) -> Option<Token> {
        let text = text.trim().as_bytes();
        if text.len() != BYTES * 2 {
            return None;
        }
        let mut bytes = [0_u8; BYTES];
        for (byte, digits) in bytes.iter_mut().zip(text.chunks(2)) {
            let digits = std::str::from_utf8(digits).ok()?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        let volume = bytes.first_chunk::<16>()?;
        let snapshot = u64::from_le_bytes(bytes.get(16..24)?.try_into().ok()?);
        let applied = u64::from_le_bytes(bytes.get(24..32)?.try_into().ok()?);
        let token = Token { origin: Origin { volume: *volume, snapshot }, applied };
        (token.bytes() == bytes).then_some(token)
    }

    fn bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..16].copy_from_slice(&self.origin.volume);
        bytes[16..24].copy_from_slice(&self.origin.snapshot.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.applied.to_le_bytes());
        let check = xxhash_rust::xxh3::xxh3_64(&bytes[..32]) as u32;
        bytes[32..].copy_from_slice(&check.to_le_bytes());
        bytes
    }
}

impl fmt::Display for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(BYTES * 2);
        for byte in self.bytes() {
            write!(text, "{byte:02x}")?;
        }
        formatter.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_is_shown_and_no_other_is() {
        let origin = Origin { volume: [9; 16], snapshot: 1 << 40 };
        let token = Token { origin, applied: 77 };
        let text = token.to_string();
        assert_eq!(Token::parse(&text), Some(token));
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(Token::parse(std::str::from_utf8(&other).unwrap()), None, "{at}");
        }
        assert_eq!(Token::parse(&text[2..]), None);
        assert_eq!(Token::parse("\u{e9}"), None);
    }
}
