//! A key of an in-memory tree, and which way a walk over keys goes. Keys up to [`INLINE_BYTES`] are
//! stored in the node of the tree itself, so that a descent does not touch other memory for each
//! comparison. A file system's keys are 17 bytes long.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// Longest key that needs no separate allocation.
pub(crate) const INLINE_BYTES: usize = 22;

/// A key.
#[derive(Clone)]
pub(crate) enum Key {
    /// How many of the bytes are used.
    Inline(u8, [u8; INLINE_BYTES]),
    Shared(Arc<[u8]>),
}

const _: () = assert!(size_of::<Key>() == 24);

impl Key {
    /// Bytes of memory outside of the key itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Key::Inline(..) => 0,
            Key::Shared(bytes) => 16 + bytes.len(),
        }
    }
}

impl From<&[u8]> for Key {
    #[inline]
    fn from(bytes: &[u8]) -> Key {
        if bytes.len() > INLINE_BYTES {
            return Key::Shared(Arc::from(bytes));
        }
        let mut inline = [0; INLINE_BYTES];
        inline[..bytes.len()].copy_from_slice(bytes);
        Key::Inline(bytes.len() as u8, inline)
    }
}

impl Deref for Key {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Key::Inline(length, bytes) => &bytes[..usize::from(*length)],
            Key::Shared(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Key {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Key) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl PartialOrd for Key {
    #[inline]
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{INLINE_BYTES, Key};

    #[test]
    fn keys_compare_as_their_bytes_do_however_long_they_are() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut draw = || -> Vec<u8> {
            let length = random.usize(0..2 * INLINE_BYTES);
            (0..length).map(|_| random.u8(0..2)).collect()
        };
        for _ in 0..2000 {
            let (a, b) = (draw(), draw());
            let keys = (Key::from(a.as_slice()), Key::from(b.as_slice()));
            assert_eq!(keys.0.cmp(&keys.1), a.cmp(&b), "{a:?}, {b:?}");
            assert_eq!(keys.0 == keys.1, a == b);
            assert_eq!(&*keys.0, a.as_slice());
            assert_eq!(keys.0.heap_bytes() > 0, a.len() > INLINE_BYTES);
        }
    }
}
