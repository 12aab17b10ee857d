//! Names: look up, create, remove, rename.

use inode::{FsError, Kind};
use vfs::{NewNode, RenameMode};

use super::{Adapter, Answer, Maker, Named, ROOT, Who, failed};
use crate::attr::kind_of_new;
use crate::errno::{self, Errno};

const WHITEOUT_NO_REPLACE: u32 = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;

impl Adapter {
    /// Looks a name up; `None` means that it does not exist and that the kernel may cache this.
    pub(crate) fn lookup(&self, who: Who, parent: u64, name: &[u8]) -> Answer<Option<Named>> {
        if name == b"." {
            return self.find_by_number(parent).map(Some);
        }
        let directory = self.node(parent);
        let volatile = self.fs.is_volatile(directory);
        let caller = if volatile { self.searcher(who) } else { self.caller(who) };
        match self.fs.lookup(&caller, directory, name) {
            Ok(entry) => {
                self.advice.looked_up(parent);
                let named = self.named(&entry);
                if named.node == ROOT {
                    // Above a directory that a handle pointed to; see `forget`.
                    self.fs.forget(entry.node, 1);
                }
                Ok(Some(named))
            }
            Err(FsError::NotFound) if volatile => Err(Errno::NOT_FOUND),
            Err(FsError::NotFound) if self.timeouts.negative.is_zero() => Err(Errno::NOT_FOUND),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(errno::report("lookup", parent, &error)),
        }
    }

    /// Finds the node of a number that the kernel, or a program that it trusts with handles, has.
    /// The root is always held, so no request asks for it.
    fn find_by_number(&self, number: u64) -> Answer<Named> {
        let found = self.fs.find_by_number(self.root(), self.node(number));
        found.map(|entry| self.named(&entry)).map_err(failed("find", number))
    }

    /// The kernel returns look-ups. It never took any of the root.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        if number != ROOT {
            self.fs.forget(self.node(number), lookups);
        }
    }

    /// Creates a regular file, as the first half of `open(O_CREAT)`.
    pub(crate) fn create(
        &self,
        maker: &Maker,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: i32,
    ) -> Answer<Named> {
        let (caller, directory, mode) = (self.maker(maker), self.node(parent), mode & 0o7777);
        let exclusive = flags & libc::O_EXCL != 0;
        let created = if self.is_remote {
            self.fs.create(&caller, directory, name, (mode, flags as u32))
        } else {
            let new = NewNode { kind: Kind::File, mode, rdev: 0 };
            self.fs.mknod(&caller, directory, name, &new)
        };
        match created {
            Ok(entry) => Ok(self.named(&entry)),
            // Another process created the file since the kernel looked. At ESTALE the kernel looks
            // once more and opens what it finds, with all the checks that an existing file needs.
            Err(FsError::Exists) if !exclusive => Err(Errno::STALE),
            Err(error) => Err(errno::report("create", parent, &error)),
        }
    }

    /// Makes a file, fifo, socket or device node.
    pub(crate) fn mknod(
        &self,
        maker: &Maker,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Answer<Named> {
        let kind = kind_of_new(mode).ok_or(Errno::INVALID)?;
        let new = NewNode { kind, mode: mode & 0o7777, rdev };
        self.fs
            .mknod(&self.maker(maker), self.node(parent), name, &new)
            .map(|entry| self.named(&entry))
            .map_err(failed("mknod", parent))
    }

    /// Creates a file without a name.
    pub(crate) fn tmpfile(&self, maker: &Maker, parent: u64, mode: u32) -> Answer<Named> {
        self.fs
            .tmpfile(&self.maker(maker), self.node(parent), mode & 0o7777)
            .map(|entry| self.named(&entry))
            .map_err(failed("tmpfile", parent))
    }

    /// Makes a directory.
    pub(crate) fn mkdir(
        &self,
        maker: &Maker,
        parent: u64,
        name: &[u8],
        mode: u32,
    ) -> Answer<Named> {
        let parent_node = self.node(parent);
        let mut caller = self.maker(maker);
        if self.fs.takes_snapshots(parent_node) {
            // Limits of all groups count, and the kernel sends none along for this directory.
            caller.groups = self.searcher(maker.who).groups;
        }
        self.fs
            .mkdir(&caller, parent_node, name, mode & 0o7777)
            .map(|entry| self.named(&entry))
            .map_err(failed("mkdir", parent))
    }

    /// Makes a symbolic link.
    pub(crate) fn symlink(
        &self,
        who: Who,
        parent: u64,
        name: &[u8],
        target: &[u8],
    ) -> Answer<Named> {
        self.fs
            .symlink(&self.caller(who), self.node(parent), name, target)
            .map(|entry| self.named(&entry))
            .map_err(failed("symlink", parent))
    }

    /// Gives a node another name.
    pub(crate) fn link(&self, who: Who, number: u64, parent: u64, name: &[u8]) -> Answer<Named> {
        self.fs
            .link(&self.caller(who), self.node(number), self.node(parent), name)
            .map(|entry| self.named(&entry))
            .map_err(failed("link", parent))
    }

    /// Removes a name that is not a directory's.
    pub(crate) fn unlink(&self, who: Who, parent: u64, name: &[u8]) -> Answer<()> {
        self.fs.unlink(&self.caller(who), self.node(parent), name).map_err(failed("unlink", parent))
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&self, who: Who, parent: u64, name: &[u8]) -> Answer<()> {
        self.fs.rmdir(&self.caller(who), self.node(parent), name).map_err(failed("rmdir", parent))
    }

    /// Renames; `flags` are those of renameat2(2).
    pub(crate) fn rename(
        &self,
        who: Who,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Answer<()> {
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            libc::RENAME_WHITEOUT => RenameMode::Whiteout,
            WHITEOUT_NO_REPLACE => RenameMode::NoReplaceWhiteout,
            _ => return Err(Errno::INVALID),
        };
        let (source, target) = ((self.node(from.0), from.1), (self.node(to.0), to.1));
        self.fs.rename(&self.caller(who), source, target, mode).map_err(failed("rename", from.0))
    }
}
