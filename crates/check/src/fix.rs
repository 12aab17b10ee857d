//! Repairing one problem: one commit.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Counter, Parsed, Part};
use format::subvolume_record::SubvolumeRecord;
use ops::txn::Txn;
use store::{Batch, KeyRange, Need, TreeId};
use upkeep::search_bases;
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::subvol::VOLUME;

use super::Checks;
use super::{Edit, Fix};

impl Checks<'_> {
    /// Repairs a problem.
    pub(super) fn apply_fix(&self, fix: &Fix) -> FsResult<()> {
        match fix {
            Fix::Edits(_, edits) => {
                let mut batch = Batch::new();
                for edit in edits {
                    match edit {
                        Edit::Put(tree, key, value) => batch.put(*tree, key, value),
                        Edit::Delete(tree, key) => batch.delete(*tree, key),
                    }
                }
                if edits.iter().any(|edit| matches!(edit, Edit::Delete(..))) {
                    batch.mark(Need::Removes);
                }
                self.store.commit(&batch).map_err(from_store)?;
                for edit in edits {
                    if let Edit::Put(VOLUME, key, value) = edit
                        && key.as_slice() == key::counter(Counter::NextIno)
                        && let Ok(next) = <[u8; 8]>::try_from(value.as_slice())
                    {
                        self.numbers.raise(u64::from_le_bytes(next));
                    }
                    if let Edit::Put(VOLUME, key, value) = edit
                        && let Ok(next) = <[u8; 8]>::try_from(value.as_slice())
                    {
                        self.admin.raise(key, u64::from_le_bytes(next));
                    }
                }
                Ok(())
            }
            Fix::OwnTree(first, id) => self.own_tree(*first, *id),
            Fix::Directory(tree, ino, place) => {
                let mut txn = Txn::new(self);
                let record = self.directory_anew(&txn, *tree, *ino, *place)?;
                txn.put_directory(*tree, *ino, &record);
                txn.commit().map(drop)
            }
            Fix::Keep(subvol, tree, stray) => self.keep(*subvol, *tree, *stray),
            Fix::Join(subvol, tree, ino) => self.join(*subvol, *tree, *ino),
            Fix::Extended(tree, ino) => self.note_extents(*tree, *ino),
            Fix::DropTree(tree) => {
                if !self.store.tree_exists(*tree).map_err(from_store)? {
                    return Ok(());
                }
                let mut batch = Batch::new();
                batch.drop_tree(*tree);
                self.store.commit(&batch).map_err(from_store).map(drop)
            }
            Fix::DropIndex => self.drop_index(),
            Fix::Marks(segment) => self.data.repair_marks(*segment).map_err(from_store),
            // Done before the volume is opened.
            Fix::Header | Fix::LogHeader | Fix::Engine | Fix::Log | Fix::Own | Fix::Checkpoint => {
                Ok(())
            }
        }
    }

    /// Rebuilds the record of a directory from what is in it. Only root may enter it until an
    /// administrator has inspected it.
    pub(super) fn directory_anew(
        &self,
        txn: &Txn<'_>,
        tree: TreeId,
        ino: u64,
        (parent, parent_cookie): (u64, u64),
    ) -> FsResult<DirectoryRecord> {
        let malformed = |error| malformed(tree, &error);
        let (mut entries, mut subdirectories) = (0, 0);
        let range = KeyRange::prefix(&key::directory_prefix(ino));
        let mut cursor = self.store.scan(tree, range).map_err(from_store)?;
        let mut has_xattrs = false;
        while let Some(item) = cursor.next().map_err(from_store)? {
            match key::parse(item.key).map_err(malformed)? {
                Parsed::Entry { cookie: 0, part: Part::Xattrs, .. } => has_xattrs = true,
                Parsed::Entry { cookie: 1.., part: Part::Attributes, .. } => {
                    let entry = EntryRecord::decode(item.value).map_err(malformed)?;
                    entries += i64::from(entry.target != Target::Tombstone);
                    let below = matches!(entry.target, Target::Directory | Target::Subvolume(_));
                    subdirectories += i64::from(below);
                }
                _ => {}
            }
        }
        Ok(DirectoryRecord {
            entries,
            subdirectories,
            mtime: txn.now,
            ctime: txn.now,
            atime: txn.now,
            btime: txn.now,
            parent,
            parent_cookie,
            mode: 0o700,
            uid: 0,
            gid: 0,
            has_xattrs,
            detached: false,
            elsewhere: None,
            charge: None,
        })
    }

    /// Deletes the index: one commit removes the bases, their trees, and the subvolumes' references
    /// to them; then the files are deleted. A crash in between leaves files that nothing names.
    fn drop_index(&self) -> FsResult<()> {
        let mut batch = Batch::new();
        self.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
            let record =
                SubvolumeRecord::decode(value).map_err(|error| malformed(VOLUME, &error))?;
            if record.base != 0 {
                batch.put(VOLUME, key, &SubvolumeRecord { base: 0, ..record }.encode());
            }
            Ok(())
        })?;
        for base in search_bases::all(self)? {
            batch.delete(VOLUME, &key::base(base.tree));
            if self.store.tree_exists(TreeId(base.tree)).map_err(from_store)? {
                batch.drop_tree(TreeId(base.tree));
            }
        }
        let commit = self.store.commit(&batch).map_err(from_store)?;
        self.store.sync(commit).map_err(from_store)?;
        search::index::delete_all(&search::index::Home::of(&self.env))
            .map_err(volume::error::from_search)
    }
}
