//! Encodes and decodes messages. Decoding accepts any bytes and never panics; its allocations are
//! bounded by the length of the frame.

use postcard::ser_flavors::Flavor;
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

/// Where an encoding goes. Contents are copied as a run: `postcard::to_extend` passes them byte by
/// byte, which was most of what the client of an import did.
struct Appended<'a>(&'a mut Vec<u8>);

impl Flavor for Appended<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends the encoding of a message to `out`.
pub fn encode<T: Serialize>(message: &T, out: &mut Vec<u8>) {
    postcard::serialize_with_flavor(message, Appended(out))
        .expect("invariant: encoding into memory fails for no type of this crate");
}

/// Decodes a message that fills `bytes`. Byte strings in it may borrow from them.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    let (message, rest) = decode_first(bytes)?;
    if rest.is_empty() { Ok(message) } else { Err(DecodeError::Trailing(rest.len())) }
}

/// Decodes what bytes begin with, and returns the rest.
pub(crate) fn decode_first<'a, T: Deserialize<'a>>(
    bytes: &'a [u8],
) -> Result<(T, &'a [u8]), DecodeError> {
    postcard::take_from_bytes(bytes).map_err(DecodeError::Malformed)
}
