//! The files of a workload: their directories, their names, and the operation on each.

use std::sync::Arc;

use fs::{FileSystem, Fs, NewNode, RenameMode, WalkControl};
use inode::{Caller, Kind, NodeId};

use super::volume::{Volume, broken, caller};
use crate::cli::Workload;
use program::failure::Result;

/// Files per directory, except for `create-flat`.
pub(super) const FILES_A_DIRECTORY: u64 = 1000;

/// Bytes of a name.
const NAME_BYTES: usize = 12;

/// A name of [`NAME_BYTES`] bytes, made without allocation.
pub(super) struct Name([u8; NAME_BYTES]);

impl Name {
    /// The name of a file; `letter` is its first byte.
    pub(super) fn new(letter: u8, mut number: u64) -> Name {
        let mut bytes = [b'0'; NAME_BYTES];
        bytes[0] = letter;
        for place in bytes[1..].iter_mut().rev() {
            *place = b'0' + (number % 10) as u8;
            number /= 10;
        }
        Name(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Directories with files in them.
pub(super) struct Files {
    fs: Arc<Fs>,
    caller: Caller,
    directories: Vec<NodeId>,
    a_directory: u64,
}

impl Files {
    /// Creates the directories for a number of files.
    pub(super) fn new(volume: &Volume, files: u64, workload: Workload) -> Result<Files> {
        let a_directory = if workload == Workload::CreateFlat { files } else { FILES_A_DIRECTORY };
        let fs = Arc::clone(volume.fs());
        let caller = caller();
        let mut directories = Vec::new();
        for number in 0..files.div_ceil(a_directory) {
            let name = Name::new(b'd', number);
            let made = fs.mkdir(&caller, volume.directory(), name.as_bytes(), 0o755);
            directories.push(made.map_err(broken)?.node);
        }
        Ok(Files { fs, caller, directories, a_directory })
    }

    /// How many directories there are.
    pub(super) fn directories(&self) -> u64 {
        self.directories.len() as u64
    }

    /// Creates a file, as `open(O_CREAT)` through a mount does.
    #[inline]
    pub(super) fn create(&self, file: u64) -> Result<()> {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let made = self.fs.mknod(&self.caller, self.parent(file), name(file).as_bytes(), &new);
        self.fs.forget(made.map_err(broken)?.node, 1);
        Ok(())
    }

    /// Runs the workload's operation on a file (for `list`, on a directory); returns the number of
    /// operations.
    #[inline]
    pub(super) fn work(&self, workload: Workload, file: u64) -> Result<u64> {
        match workload {
            Workload::CreateFlat | Workload::CreateDeep => self.create(file)?,
            Workload::Lookup => {
                let found = self.fs.lookup(&self.caller, self.parent(file), name(file).as_bytes());
                self.fs.forget(found.map_err(broken)?.node, 1);
            }
            Workload::Stat => {
                let found = self.fs.stat_at(&self.caller, self.parent(file), name(file).as_bytes());
                std::hint::black_box(found.map_err(broken)?);
            }
            Workload::Rename => {
                let parent = self.parent(file);
                let (old, new) = (name(file), Name::new(b'r', file));
                let from = (parent, old.as_bytes());
                let to = (parent, new.as_bytes());
                self.fs.rename(&self.caller, from, to, RenameMode::Replace).map_err(broken)?;
            }
            Workload::Unlink => self
                .fs
                .unlink(&self.caller, self.parent(file), name(file).as_bytes())
                .map_err(broken)?,
            Workload::List => return self.list(file),
            _ => unreachable!("invariant: the others do not go file by file"),
        }
        Ok(1)
    }

    fn list(&self, directory: u64) -> Result<u64> {
        let mut entries = 0;
        let node = self.directories[directory as usize];
        let listed = self.fs.readdirplus(&self.caller, node, 0, &mut |entry| {
            entries += 1;
            if std::hint::black_box(entry.attr).is_some() {
                self.fs.forget(entry.node, 1);
            }
            WalkControl::Continue
        });
        listed.map_err(broken)?;
        Ok(entries)
    }

    fn parent(&self, file: u64) -> NodeId {
        self.directories[(file / self.a_directory) as usize]
    }
}

fn name(file: u64) -> Name {
    Name::new(b'f', file)
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn names_are_of_one_length() {
        assert_eq!(Name::new(b'f', 0).as_bytes(), b"f00000000000");
        assert_eq!(Name::new(b'r', 1_234_567).as_bytes(), b"r00001234567");
    }
}
