//! `Blobs`: immutable named objects, with the semantics of an object store.
//!
//! The trait requires only what S3, GCS, Azure, a local directory and memory all provide:
//! create-if-absent of a new name, ranged read, list, delete. It does not assume conditional
//! overwrite. Names consist of parts that `/` separates ([`valid_name`]). A part is not an object:
//! there is nothing to create before `log/7/1`, and nothing left when it is deleted.

use std::io;

use crate::{Device, Error, Result};

/// Suffix of an object that is being written; never listed.
pub const STAGED: &str = ".staged";

/// Maximum bytes of a name. S3 has 1024 for the name and the prefix of the store.
const NAME_BYTES_MAX: usize = 900;
/// Maximum bytes of a part of a name: a file name of every file system.
const PART_BYTES_MAX: usize = 240;

/// Whether a name is one that every store accepts: parts of ASCII letters, digits, `-`, `_` and
/// `.`, separated by `/`. No part is empty, begins with `.` or ends with [`STAGED`]: stores in
/// directories use those names themselves.
pub fn valid_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let valid = |part: &str| {
        !part.is_empty()
            && part.len() <= PART_BYTES_MAX
            && !part.starts_with('.')
            && !part.ends_with(STAGED)
            && part.bytes().all(allowed)
    };
    name.len() <= NAME_BYTES_MAX && name.split('/').all(valid)
}

/// Refuses a name that is not valid. Names come from the program, never from users.
pub fn check_name(operation: &'static str, name: &str) -> Result<()> {
    if valid_name(name) {
        return Ok(());
    }
    let why = "this is not the name of an object: expected parts of letters, digits, '-', '_' and \
               '.' between '/'";
    Err(Error::new(operation, name, io::Error::new(io::ErrorKind::InvalidInput, why)))
}

/// Immutable named objects.
pub trait Blobs: Send + Sync {
    /// Creates `name` with these bytes, durable on return. `false`: the name exists, and nothing
    /// changed.
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool>;

    /// Creates `name` from a finished file of the volume's device, durable on return, and removes
    /// the file. `false`: the name exists, and the file stays. After a crash during the call, the
    /// file, the object, or both exist; the call may be repeated. An error of the file names its
    /// path ([`Error::is_of`]): any other is one of the store.
    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool>;

    /// Reads at `offset` until `buffer` is full or the object ends; returns the bytes read.
    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// Length in bytes, or `None` when there is no such object.
    fn length(&self, name: &str) -> Result<Option<u64>>;

    /// All names that start with `prefix`, at any depth. A caller that also runs on servers gives a
    /// prefix that ends with `/` and does not rely on the order. Some servers require such a
    /// prefix, and some keep no order.
    fn list(&self, prefix: &str) -> Result<Vec<String>>;

    /// Deletes an object; an absent one is not an error.
    fn delete(&self, name: &str) -> Result<()>;

    /// Deletes several objects; absent ones are not an error. After an error, any of them may be
    /// deleted.
    fn delete_all(&self, names: &[String]) -> Result<()> {
        names.iter().try_for_each(|name| self.delete(name))
    }

    /// Deallocates a range; it reads as zero afterwards. `false`: this store cannot punch holes (an
    /// object store), so the caller rewrites the object under another name.
    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool>;

    /// Bytes occupied on disk by one object.
    fn disk_bytes(&self, name: &str) -> Result<u64>;

    /// Allocated bytes in a range of an object, excluding holes. A store that cannot find holes
    /// counts all of the object's bytes in the range.
    fn occupied(&self, name: &str, offset: u64, length: u64) -> Result<u64> {
        let end = offset.saturating_add(length).min(self.length(name)?.unwrap_or(0));
        Ok(end.saturating_sub(offset))
    }

    /// Bytes occupied on disk by the objects whose names start with `prefix`.
    fn disk_bytes_below(&self, prefix: &str) -> Result<u64> {
        self.list(prefix)?.iter().map(|name| self.disk_bytes(name)).sum()
    }

    /// Bytes occupied on disk by all objects.
    fn disk_bytes_all(&self) -> Result<u64> {
        self.disk_bytes_below("")
    }

    /// Maximum length of an object in bytes.
    fn bytes_max(&self) -> u64 {
        u64::MAX
    }

    /// Whether a creation that returned an error may still have succeeded, or may succeed later.
    /// The request or the answer may have been lost on the network.
    fn answers_may_be_lost(&self) -> bool {
        false
    }
}

/// Result of comparing the object under a name with the expected bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// No object.
    Nothing,
    /// An object with the same bytes.
    Same,
    /// An object with other bytes.
    Other,
}

/// Reads the expected bytes at an offset, until the buffer is full or they end.
pub type ReadPart<'a> = &'a dyn Fn(&mut [u8], u64) -> Result<usize>;

/// Bytes compared per step.
const COMPARED_BYTES: u64 = 1 << 20;

/// Compares an object with the `length` bytes it should hold: for a caller that does not know
/// whether its creation succeeded.
pub fn compare(blobs: &dyn Blobs, name: &str, length: u64, part: ReadPart<'_>) -> Result<Compared> {
    match blobs.length(name)? {
        None => return Ok(Compared::Nothing),
        Some(found) if found != length => return Ok(Compared::Other),
        Some(_) => {}
    }
    let mut at = 0;
    while at < length {
        let bytes = (length - at).min(COMPARED_BYTES) as usize;
        let (mut found, mut expected) = (vec![0; bytes], vec![0; bytes]);
        let read = blobs.read_at(name, &mut found, at)?;
        if read != bytes || part(&mut expected, at)? != bytes || found != expected {
            return Ok(Compared::Other);
        }
        at += bytes as u64;
    }
    Ok(Compared::Same)
}

/// Removes a file of which a store has made an object by copying it. A failure is no error: the
/// object is durable, and an opening removes files that nothing points to.
pub fn remove_adopted(device: &dyn Device, path: &str) {
    device.remove(path).ok();
}

/// Copies the part of in-memory bytes that begins at an offset.
pub fn part_of(bytes: &[u8], buffer: &mut [u8], offset: u64) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let count = rest.len().min(buffer.len());
    buffer[..count].copy_from_slice(&rest[..count]);
    count
}
