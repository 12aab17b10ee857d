//! Encodes and decodes messages. Decoding accepts any bytes and never panics; its allocations are
//! bounded by the length of the frame.

use serde::{Deserialize, Serialize};

/// A message that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not a message of this version.
    #[error("not a message of this protocol: {0}")]
    Malformed(postcard::Error),
    /// Extra bytes follow the message.
    #[error("{0} bytes after the end of a message")]
    Trailing(usize),
}

/// Appends the encoding of a message to `out`.
pub fn encode<T: Serialize>(message: &T, out: &mut Vec<u8>) {
    let taken = std::mem::take(out);
    *out = postcard::to_extend(message, taken)
        .expect("invariant: encoding into memory fails for no type of this crate");
}

/// Decodes a message that fills `bytes`. Byte strings in it may borrow from them.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    let (message, rest) = postcard::take_from_bytes(bytes).map_err(DecodeError::Malformed)?;
    if rest.is_empty() { Ok(message) } else { Err(DecodeError::Trailing(rest.len())) }
}
