//! Names of directory entries: any bytes but `/` and NUL, 1 to 255 of them.

use crate::FsError;

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path that one call accepts, in bytes, as in Linux (with the terminating NUL).
pub const PATH_BYTES_MAX: usize = 4096;
/// Longest target of a symbolic link, in bytes.
pub const SYMLINK_BYTES_MAX: usize = 4095;

/// A checked name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks a name to be looked up or created. `.` and `..` are not names here: the kernel, or
    /// the code that walks a path, resolves them.
    pub fn new(bytes: &'a [u8]) -> Result<Name<'a>, FsError> {
        if bytes.len() > NAME_BYTES_MAX {
            Err(FsError::NameTooLong)
        } else if bytes.is_empty() || bytes.contains(&b'/') || bytes.contains(&0) {
            Err(FsError::InvalidArgument("a name is 1 to 255 bytes without '/' and NUL"))
        } else if bytes == b"." || bytes == b".." {
            Err(FsError::Exists)
        } else {
            Ok(Name(bytes))
        }
    }

    /// Its bytes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}
