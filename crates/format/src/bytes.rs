//! Cursor over bytes for decoders, and appending for encoders. Bounds are checked here, once.

/// Bytes that are not valid for the structure they were decoded as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{structure}: at byte {at}: expected {expected}, found {found}")]
pub struct Malformed {
    /// The structure being decoded.
    pub structure: &'static str,
    /// Offset inside the structure, in bytes.
    pub at: u64,
    /// The expected content.
    pub expected: &'static str,
    /// The content found.
    pub found: String,
}

impl Malformed {
    /// Adds the file, and the offset of the structure in it.
    pub fn located(self, file: &str, offset: u64) -> crate::Corruption {
        crate::Corruption {
            file: file.to_owned(),
            offset: offset.saturating_add(self.at),
            structure: self.structure,
            expected: self.expected.to_owned(),
            found: self.found,
            unread: false,
        }
    }
}

/// Greatest sequence number (of records, checkpoints, blobs, runs). No volume comes near it in its
/// life, and a greater number is damage. A reader that accepted one may count on from it without
/// overflow.
pub const COUNTED_MAX: u64 = 1 << 62;

/// Reads fields one after the other.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    structure: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    pub fn new(structure: &'static str, bytes: &'a [u8]) -> Reader<'a> {
        Reader { structure, bytes, at: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// An error at the present position.
    pub fn malformed(&self, expected: &'static str, found: impl Into<String>) -> Malformed {
        Malformed {
            structure: self.structure,
            at: u64::try_from(self.at).unwrap_or(u64::MAX),
            expected,
            found: found.into(),
        }
    }

    /// The next `length` bytes.
    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(length);
        match end.and_then(|end| self.bytes.get(self.at..end)) {
            Some(slice) => {
                self.at = self.at.saturating_add(length);
                Ok(slice)
            }
            None => Err(self.too_few(length)),
        }
    }

    // Errors are made in functions of their own, so that reading a field is a few instructions.
    #[cold]
    fn too_few(&self, length: usize) -> Malformed {
        self.malformed("more bytes", format!("{} of {length} bytes left", self.remaining()))
    }

    /// The next bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        match self.bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
            Some(bytes) => {
                self.at = self.at.saturating_add(N);
                Ok(*bytes)
            }
            None => Err(self.too_few(N)),
        }
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A little-endian number of two bytes.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// A little-endian number of four bytes.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// A little-endian number of eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A sequence number of at most [`COUNTED_MAX`], as [`Reader::u64`].
    pub fn counted(&mut self) -> Result<u64, Malformed> {
        let before = self.clone();
        let number = self.u64()?;
        if number <= COUNTED_MAX {
            Ok(number)
        } else {
            Err(before.malformed("a number of at most 2^62", number.to_string()))
        }
    }

    /// A little-endian signed number of eight bytes.
    #[inline]
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_le_bytes)
    }

    /// A LEB128 number: seven bits a byte, at most ten bytes, in its shortest form.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        if let Some(&byte) = self.bytes.get(self.at)
            && byte < 0x80
        {
            self.at = self.at.saturating_add(1);
            return Ok(u64::from(byte));
        }
        if let Some(&[low, high]) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk)
            && high < 0x80
        {
            self.at = self.at.saturating_add(2);
            return Ok(u64::from(low & 0x7f) | u64::from(high) << 7);
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        let mut shift = 0_u32;
        loop {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7f);
            let moved =
                part.checked_shl(shift).filter(|moved| moved.checked_shr(shift) == Some(part));
            match moved {
                Some(moved) if shift < 64 => value |= moved,
                _ => return Err(self.malformed("a number of 64 bits", "a longer one")),
            }
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift = shift.saturating_add(7);
        }
    }

    /// A varint as a size, at most `most`.
    #[inline]
    pub fn length(&mut self, most: usize) -> Result<usize, Malformed> {
        let value = self.varint()?;
        match usize::try_from(value) {
            Ok(length) if length <= most => Ok(length),
            _ => Err(self.out_of_bounds("a length within bounds", value)),
        }
    }

    /// An error about a number.
    #[cold]
    pub(crate) fn out_of_bounds(&self, expected: &'static str, found: u64) -> Malformed {
        self.malformed(expected, found.to_string())
    }

    /// Fails unless everything was read.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.remaining() == 0 {
            Ok(())
        } else {
            Err(self.malformed("the end", format!("{} more bytes", self.remaining())))
        }
    }
}

/// Appends fields one after the other.
pub trait Writer {
    /// Appends bytes as they are.
    fn raw(&mut self, bytes: &[u8]);

    /// One byte.
    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.raw(&[value]);
    }

    /// Two bytes, little-endian.
    fn put_u16(&mut self, value: u16) {
        self.raw(&value.to_le_bytes());
    }

    /// Four bytes, little-endian.
    fn put_u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    /// Eight bytes, little-endian.
    fn put_u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    /// Eight bytes, little-endian, signed.
    fn put_i64(&mut self, value: i64) {
        self.raw(&value.to_le_bytes());
    }

    /// LEB128.
    #[inline]
    fn put_varint(&mut self, value: u64) {
        match value.to_le_bytes() {
            [low @ 0..0x80, 0, 0, 0, 0, 0, 0, 0] => self.put_u8(low),
            _ => self.put_long_varint(value),
        }
    }

    /// LEB128 of a number that has two bytes or more. Apart, so that the case of one byte, which is
    /// most of them, is compiled into its callers.
    #[inline(never)]
    fn put_long_varint(&mut self, mut value: u64) {
        let mut bytes = [0_u8; 10];
        let mut used = 0_usize;
        for slot in &mut bytes {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            *slot = if value == 0 { low & 0x7f } else { low | 0x80 };
            used = used.saturating_add(1);
            if value == 0 {
                break;
            }
        }
        self.raw(bytes.get(..used).unwrap_or_default());
    }

    /// A varint length, then the bytes.
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.raw(bytes);
    }
}

impl Writer for Vec<u8> {
    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::{Reader, Writer};

    #[test]
    fn varints_round_trip_at_the_edges() {
        for value in [0, 1, 127, 128, 16383, 16384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            bytes.put_varint(value);
            let mut reader = Reader::new("test", &bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.end().is_ok());
        }
    }

    #[test]
    fn an_overlong_varint_is_refused() {
        assert!(Reader::new("test", &[0xff; 11]).varint().is_err());
        assert!(Reader::new("test", &[0x80; 10]).varint().is_err());
    }
}
