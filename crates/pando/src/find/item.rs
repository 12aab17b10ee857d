//! A row that `find` was sent, and what is derived from it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use wire::{Attr, Kind};

/// A row, with details of where it was found.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    /// Its path, as shown.
    pub(crate) path: &'a [u8],
    /// The path that the search began at, as shown.
    pub(crate) start: &'a [u8],
    /// Its depth.
    pub(crate) depth: u32,
    /// Its attributes; meaningless if none were requested.
    pub(crate) attr: &'a Attr,
    /// Target of a symbolic link.
    pub(crate) target: &'a [u8],
    /// The device number that `stat` reports.
    pub(crate) device: u64,
    /// Type of the file system.
    pub(crate) file_system: &'a str,
}

impl Item<'_> {
    /// The path below the start.
    pub(super) fn below(&self) -> &[u8] {
        let rest = self.path.get(self.start.len()..).unwrap_or_default();
        rest.strip_prefix(b"/").unwrap_or(rest)
    }

    /// The letter for what a symbolic link points to: `N` nothing, `L` a loop of links.
    pub(super) fn target_letter(&self) -> u8 {
        if self.attr.kind != Kind::Symlink {
            return letter(self.attr.kind);
        }
        use std::os::unix::fs::FileTypeExt;
        match std::fs::metadata(Path::new(OsStr::from_bytes(self.path))) {
            Ok(found) => {
                let kind = found.file_type();
                match () {
                    () if kind.is_file() => b'f',
                    () if kind.is_dir() => b'd',
                    () if kind.is_fifo() => b'p',
                    () if kind.is_socket() => b's',
                    () if kind.is_char_device() => b'c',
                    () if kind.is_block_device() => b'b',
                    () => b'U',
                }
            }
            Err(error) => match rustix::io::Errno::from_io_error(&error) {
                Some(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => b'N',
                Some(rustix::io::Errno::LOOP) => b'L',
                _ => b'?',
            },
        }
    }
}

/// The letter of a kind in `%y`.
pub(super) fn letter(kind: Kind) -> u8 {
    match kind {
        Kind::File => b'f',
        Kind::Directory => b'd',
        Kind::Symlink => b'l',
        Kind::Fifo => b'p',
        Kind::Socket => b's',
        Kind::CharDevice => b'c',
        Kind::BlockDevice => b'b',
    }
}
