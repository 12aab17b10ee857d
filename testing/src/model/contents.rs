//! Contents of files, and open files.

use std::sync::Arc;

use device::Timestamp;
use inode::{Caller, Kind};

use super::attributes::without_set_ids;
use super::op::{AllocateStyle, OpPath, Target};
use super::state::{FsModel, Judged, Key};
use super::verdict::{Checks, Effect, ErrorKind};

impl FsModel {
    pub(super) fn open(&mut self, caller: &Caller, slot: usize, path: &OpPath) -> Judged<Effect> {
        self.slots.remove(&slot);
        let key = self.resolve(caller, path)?;
        self.only_file(key)?;
        self.slots.insert(slot, key);
        Ok(Effect::Done)
    }

    /// Rejects anything but a regular file, with an error that the front end chooses.
    fn only_file(&self, key: Key) -> Judged<()> {
        match self.inode(key).kind {
            Kind::File => Ok(()),
            _ => Err(vec![
                ErrorKind::IsDirectory,
                ErrorKind::InvalidArgument,
                ErrorKind::NotSupported,
                ErrorKind::AccessDenied,
                ErrorKind::ReadOnly,
            ]),
        }
    }

    pub(super) fn read(
        &self,
        caller: &Caller,
        target: &Target,
        offset: u64,
        length: usize,
    ) -> Judged<Effect> {
        let key = self.target(caller, target)?;
        self.only_file(key)?;
        if !self.may(caller, key, 4) {
            return Err(vec![ErrorKind::AccessDenied]);
        }
        let bytes = &self.inode(key).bytes;
        let start = bytes.len().min(offset as usize);
        let end = bytes.len().min(start + length);
        Ok(Effect::Bytes(bytes[start..end].to_vec()))
    }

    pub(super) fn write(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        target: &Target,
        offset: u64,
        written: &[u8],
    ) -> Judged<Effect> {
        let key = self.target(caller, target)?;
        self.only_file(key)?;
        let mut checks = Checks::default();
        checks.require(self.may(caller, key, 2), ErrorKind::AccessDenied);
        checks.require(!self.subvol_of(key).read_only, ErrorKind::ReadOnly);
        checks.finish()?;
        if written.is_empty() {
            return Ok(Effect::Done);
        }
        self.put_bytes(key, offset, written);
        self.changed(now, caller, key);
        Ok(Effect::Done)
    }

    fn put_bytes(&mut self, key: Key, offset: u64, written: &[u8]) {
        let bytes = Arc::make_mut(&mut self.inode_mut(key).bytes);
        let start = offset as usize;
        let end = start + written.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(written);
    }

    /// Times and set-id bits after a change of contents.
    fn changed(&mut self, now: Timestamp, caller: &Caller, key: Key) {
        let inode = self.inode_mut(key);
        inode.mtime = now;
        inode.ctime = now;
        if !caller.is_root() {
            inode.mode = without_set_ids(inode.mode);
        }
    }

    pub(super) fn allocate(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        target: &Target,
        (offset, length): (u64, u64),
        style: AllocateStyle,
    ) -> Judged<Effect> {
        let key = self.target(caller, target)?;
        self.only_file(key)?;
        let mut checks = Checks::default();
        checks.require(length > 0, ErrorKind::InvalidArgument);
        checks.require(self.may(caller, key, 2), ErrorKind::AccessDenied);
        checks.require(!self.subvol_of(key).read_only, ErrorKind::ReadOnly);
        checks.finish()?;
        let bytes = Arc::make_mut(&mut self.inode_mut(key).bytes);
        let (start, end) = (offset as usize, (offset + length) as usize);
        let (from, to) = (start.min(bytes.len()), end.min(bytes.len()));
        let clears =
            matches!(style, AllocateStyle::Punch | AllocateStyle::Zero | AllocateStyle::ZeroKeep);
        if clears {
            bytes[from..to].fill(0);
        }
        if matches!(style, AllocateStyle::Grow | AllocateStyle::Zero) && bytes.len() < end {
            bytes.resize(end, 0);
        }
        self.changed(now, caller, key);
        Ok(Effect::Done)
    }

    pub(super) fn copy_range(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        (from, from_offset): (&Target, u64),
        (to, to_offset): (&Target, u64),
        length: u64,
    ) -> Judged<Effect> {
        let source = self.target(caller, from)?;
        let target = self.target(caller, to)?;
        let mut checks = Checks::default();
        for key in [source, target] {
            for error in self.only_file(key).err().unwrap_or_default() {
                checks.require(false, error);
            }
        }
        checks.require(self.may(caller, source, 4), ErrorKind::AccessDenied);
        checks.require(self.may(caller, target, 2), ErrorKind::AccessDenied);
        checks.require(!self.subvol_of(target).read_only, ErrorKind::ReadOnly);
        let crosses = self.inode(source).subvol != self.inode(target).subvol;
        let across = crosses && !self.subvol_of(source).read_only;
        checks.require(!across, ErrorKind::CrossSubvolume);
        // The kernel limits the copy to the bytes that exist.
        let left = (self.inode(source).bytes.len() as u64).saturating_sub(from_offset);
        let length = if left > 0 { length.min(left) } else { length };
        let apart = from_offset + length <= to_offset || to_offset + length <= from_offset;
        checks.require(source != target || apart || length == 0, ErrorKind::InvalidArgument);
        checks.finish()?;
        let bytes = &self.inode(source).bytes;
        let start = bytes.len().min(from_offset as usize);
        let end = bytes.len().min((from_offset + length) as usize);
        let copied = bytes[start..end].to_vec();
        if !copied.is_empty() {
            self.put_bytes(target, to_offset, &copied);
            self.changed(now, caller, target);
        }
        Ok(Effect::Done)
    }
}
