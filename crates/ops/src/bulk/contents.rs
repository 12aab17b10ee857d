//! Contents of drafts: in memory while they are small, in segments after that, as
//! `crate::contents` has them for inodes.

use data::FileRef;
use format::inode_record::InodeRecord;
use inode::permissions::{WRITE, without_set_id};
use inode::{FsError, SetAttr};
use vfs::FsResult;
use volume::error::from_store;

use super::draft::{DirId, Draft, FileId};
use super::state::{Bulk, Drafted, Maker, Refusal};
use crate::contents::{FILE_BYTES_MAX, SMALL_CONTENTS_BYTES_MAX};

/// Most bytes that are written with one plan.
const PIECE_BYTES: usize = 8 << 20;

/// Extents that a draft may have, however short they are. Of more, each has so many bytes on
/// average: a draft does not join what is written in small pieces, and ordinary writes do.
const SHORT_EXTENTS_MAX: usize = 64;
const EXTENT_BYTES_MIN: u64 = 4 << 10;

impl Bulk {
    /// Writes behind what was written before. Other writes are refused with [`Refusal::Flush`].
    pub fn write(
        &mut self,
        maker: &Maker<'_>,
        file: FileId,
        offset: u64,
        bytes: &[u8],
    ) -> Drafted<()> {
        let owned = self.owned_file(file);
        Bulk::refuse_other(&owned)?;
        owned.check(maker.caller, WRITE, || self.list_of(Draft::File(file)))?;
        if maker.caller.ends.capabilities && !bytes.is_empty() {
            return Err(Refusal::Flush);
        }
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(FsError::FileTooLarge.into());
        }
        if offset < self.chunk.file(file).inode.size && !bytes.is_empty() {
            return Err(Refusal::Flush);
        }
        if self.is_in_pieces(file) {
            return Err(Refusal::Flush);
        }
        let mut at = offset;
        for piece in bytes.chunks(PIECE_BYTES) {
            maker.fs.make_space(piece.len() as u64)?;
            self.write_piece(maker, file, at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Whether a draft was written in pieces that are small on average.
    fn is_in_pieces(&self, file: FileId) -> bool {
        let file = self.chunk.file(file);
        let extents = file.extents.len();
        extents >= SHORT_EXTENTS_MAX
            && file.inode.allocated < (extents as u64).saturating_mul(EXTENT_BYTES_MIN)
    }

    /// Sets the length, which is at least that of what was written.
    pub fn set_size(&mut self, maker: &Maker<'_>, file: FileId, size: u64) -> Drafted<()> {
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        let acl = || self.list_of(Draft::File(file));
        let owned = self.owned_file(file).change(maker.caller, &changes, &acl)?;
        if size > FILE_BYTES_MAX {
            return Err(FsError::FileTooLarge.into());
        }
        let before = self.chunk.file(file).inode;
        if size < before.size || maker.caller.ends.capabilities {
            return Err(Refusal::Flush);
        }
        if !before.has_extents && size > SMALL_CONTENTS_BYTES_MAX as u64 {
            self.move_out(maker, file)?;
        }
        let now = self.now(maker);
        let moved = self.chunk.file(file).inode;
        let after = InodeRecord { size, mode: owned.mode, mtime: now, ctime: now, ..moved };
        self.changed(maker, file, after, None)?;
        if !moved.has_extents {
            self.weigh(DirId(self.chunk.file(file).dir), (size - before.size) as usize);
            self.chunk.file_mut(file).bulk.resize(size as usize, 0);
        }
        Ok(())
    }

    fn write_piece(
        &mut self,
        maker: &Maker<'_>,
        file: FileId,
        offset: u64,
        bytes: &[u8],
    ) -> Drafted<()> {
        let now = self.now(maker);
        let before = self.chunk.file(file).inode;
        let end = offset + bytes.len() as u64;
        let ends = maker.caller.ends_set_id();
        let mode = if ends { without_set_id(before.mode) } else { before.mode };
        let grown = InodeRecord { size: end, mode, mtime: now, ctime: now, ..before };
        if !before.has_extents && end <= SMALL_CONTENTS_BYTES_MAX as u64 {
            self.changed(maker, file, grown, None)?;
            let bulk = &mut self.chunk.file_mut(file).bulk;
            bulk.resize(offset as usize, 0);
            bulk.extend_from_slice(bytes);
            self.weigh(DirId(self.chunk.file(file).dir), bytes.len());
            return Ok(());
        }
        let in_memory = self.chunk.file(file).bulk.len() as u64;
        if !before.has_extents && in_memory > 0 && offset == in_memory {
            let mut all = std::mem::take(&mut self.chunk.file_mut(file).bulk);
            all.extend_from_slice(bytes);
            let after = InodeRecord { has_extents: true, allocated: end, ..grown };
            let written = self.changed(maker, file, after, Some((0, &all)));
            if written.is_err() {
                all.truncate(in_memory as usize);
                self.chunk.file_mut(file).bulk = all;
            }
            return written;
        }
        if !before.has_extents && in_memory > 0 {
            self.move_out(maker, file)?;
        }
        let allocated = self.chunk.file(file).inode.allocated + bytes.len() as u64;
        let after = InodeRecord { has_extents: true, allocated, ..grown };
        self.changed(maker, file, after, Some((offset, bytes)))
    }

    /// Moves contents from memory to segments.
    fn move_out(&mut self, maker: &Maker<'_>, file: FileId) -> Drafted<()> {
        let bulk = std::mem::take(&mut self.chunk.file_mut(file).bulk);
        let before = self.chunk.file(file).inode;
        let allocated = bulk.len() as u64;
        let after = InodeRecord { has_extents: true, allocated, ..before };
        let moved = self.changed(maker, file, after, Some((0, &bulk)));
        if moved.is_err() {
            self.chunk.file_mut(file).bulk = bulk;
        }
        moved
    }

    /// Charges changed contents to quotas, and writes bytes to segments. What is refused changes
    /// nothing.
    fn changed(
        &mut self,
        maker: &Maker<'_>,
        file: FileId,
        mut after: InodeRecord,
        bytes: Option<(u64, &[u8])>,
    ) -> Drafted<()> {
        self.now(maker);
        let (ino, mut before) = (self.chunk.file(file).ino, self.chunk.file(file).inode);
        let whose = (self.subvol.id.0, ino);
        let (charging, charged) = ((maker.fs, maker.caller), maker.charges(before.charge));
        if charged {
            self.chunk.charge(charging, |plan| {
                maker.policy.changes(plan, whose, (Some(&before), &mut after), true)
            })?;
        }
        let written = match bytes {
            Some((offset, bytes)) if !bytes.is_empty() => self.store(maker, file, offset, bytes),
            _ => Ok(()),
        };
        if let Err(error) = written {
            // What shrinks a charge is not refused.
            if charged {
                self.chunk.charge(charging, |plan| {
                    maker.policy.changes(plan, whose, (Some(&after), &mut before), true)
                })?;
            }
            return Err(error.into());
        }
        self.chunk.file_mut(file).inode = after;
        Ok(())
    }

    /// Writes bytes to segments, before the next flush at the latest.
    fn store(
        &mut self,
        maker: &Maker<'_>,
        file: FileId,
        offset: u64,
        bytes: &[u8],
    ) -> FsResult<()> {
        let (fs, tree) = (maker.fs, self.subvol.tree());
        let owner = fs.extent_owner(&self.subvol)?;
        let at = FileRef { tree, ino: self.chunk.file(file).ino };
        let mut batch = std::mem::take(&mut self.chunk.scratch);
        batch.clear();
        let written = if fs.data.gathers() {
            fs.data.gather(&mut self.chunk.gathered, (at, offset, bytes), owner, &mut batch)
        } else {
            fs.data.write(&*fs.store, at, offset, bytes, owner, &mut batch)
        };
        let taken = written.map_err(from_store).and_then(|freed| {
            self.chunk.contents += bytes.len() as u64;
            self.chunk.take_extents(tree, file, &batch, freed)
        });
        self.chunk.scratch = batch;
        taken
    }
}
