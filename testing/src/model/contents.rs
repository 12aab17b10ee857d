//! Contents of files, and files that are held open.

use std::sync::Arc;

use device::Timestamp;
use inode::{Caller, Kind};

use super::attributes::without_set_ids;
use super::op::{OpPath, Target};
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

    /// Anything but a regular file is refused, with an error that is the front end's choice.
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
        let inode = self.inode_mut(key);
        let bytes = Arc::make_mut(&mut inode.bytes);
        let start = offset as usize;
        let end = start + written.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(written);
        inode.mtime = now;
        inode.ctime = now;
        if !caller.is_root() {
            inode.mode = without_set_ids(inode.mode);
        }
        Ok(Effect::Done)
    }
}
