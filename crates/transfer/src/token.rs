//! The token of a stream that was cut: which snapshot, and how much of it was applied. Of an
//! increment also from which base, and which steps.
//!
//! As bytes: the snapshot and the number of records (`u64 LE`). Of an increment the base and the
//! digest of the steps (`u64 LE`) follow. A checksum of what is before it is last. It is shown in
//! hexadecimal digits.

use std::fmt::{self, Write as _};

use format::stream::Origin;

/// Bytes of an identity, of a number, and of the checksum.
const ORIGIN_BYTES: usize = 24;
const NUMBER_BYTES: usize = 8;
const CHECK_BYTES: usize = 4;
/// Bytes of the token of a complete stream, and of an increment.
const WHOLE_BYTES: usize = ORIGIN_BYTES + NUMBER_BYTES + CHECK_BYTES;
const INCREMENT_BYTES: usize = WHOLE_BYTES + ORIGIN_BYTES + NUMBER_BYTES;

/// Where a stream continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The snapshot.
    pub origin: Origin,
    /// How many records after the first were applied.
    pub applied: u64,
    /// What an increment continues from; `None`: the stream is complete.
    pub since: Option<Since>,
}

/// What the rest of an increment depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since {
    /// The base.
    pub base: Origin,
    /// The digest of the steps that were applied (`crate::steps`).
    pub steps: u64,
}

impl Token {
    /// Reads a token as it is shown.
    pub fn parse(text: &str) -> Option<Token> {
        let text = text.trim().as_bytes();
        if text.len() > INCREMENT_BYTES * 2 {
            return None;
        }
        let digits = |digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let bytes: Vec<u8> = text.chunks(2).map(digits).collect::<Option<_>>()?;
        let mut rest = &bytes[..];
        let (origin, applied) = (take_origin(&mut rest)?, take_number(&mut rest)?);
        let since = if rest.len() == CHECK_BYTES {
            None
        } else {
            Some(Since { base: take_origin(&mut rest)?, steps: take_number(&mut rest)? })
        };
        let token = Token { origin, applied, since };
        // Only the digits that are shown are a token.
        (token.to_string().as_bytes() == text).then_some(token)
    }

    fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(INCREMENT_BYTES);
        let mut put = |origin: Origin, number: u64| {
            bytes.extend_from_slice(&origin.volume);
            bytes.extend_from_slice(&origin.snapshot.to_le_bytes());
            bytes.extend_from_slice(&number.to_le_bytes());
        };
        put(self.origin, self.applied);
        if let Some(Since { base, steps }) = self.since {
            put(base, steps);
        }
        let check = xxhash_rust::xxh3::xxh3_64(&bytes) as u32;
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes
    }
}

fn take_origin(bytes: &mut &[u8]) -> Option<Origin> {
    let (volume, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(Origin { volume: *volume, snapshot: take_number(bytes)? })
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

impl fmt::Display for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(INCREMENT_BYTES * 2);
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
        let base = Origin { volume: [7; 16], snapshot: 3 };
        for since in [None, Some(Since { base, steps: u64::MAX })] {
            let token = Token { origin, applied: 77, since };
            let text = token.to_string();
            assert_eq!(text.len(), 2 * if since.is_some() { INCREMENT_BYTES } else { WHOLE_BYTES });
            assert_eq!(Token::parse(&text), Some(token));
            for at in 0..text.len() {
                let mut other = text.clone().into_bytes();
                other[at] = if other[at] == b'0' { b'1' } else { b'0' };
                assert_eq!(Token::parse(std::str::from_utf8(&other).unwrap()), None, "{at}");
                assert_eq!(Token::parse(&text[at + 1..]), None, "{at}");
                assert_eq!(Token::parse(&text[..at]), None, "{at}");
            }
            assert_eq!(Token::parse(&format!("{text}00")), None);
            assert_eq!(
                Token::parse(&text.replace('f', "F")),
                if text.contains('f') { None } else { Some(token) }
            );
        }
        assert_eq!(Token::parse("\u{e9}"), None);
    }
}
