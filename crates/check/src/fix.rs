//! Repairing one problem: one commit.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Counter, Parsed, Part};
use format::subvolume_record::SubvolumeRecord;
use ops::execute::execute_alone;
use ops::plan::Plan;
use ops::subvolumes::execute_with;
use store::{KeyRange, TreeId};
use upkeep::search_bases;
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::subvol::VOLUME;

use super::Checks;
use super::{Edit, Fix};

impl Checks<'_> {
    /// Repairs a problem.
    pub(super) fn apply_fix(self, fix: &Fix) -> FsResult<()> {
        match fix {
            Fix::Edits(_, edits) => {
                execute_alone(&self, |plan| {
                    for edit in edits {
                        match edit {
                            Edit::Put(tree, key, value) => plan.batch().put(*tree, key, value),
                            Edit::Delete(tree, key) => plan.batch().delete(*tree, key),
                        }
                    }
                    if edits.iter().any(|edit| matches!(edit, Edit::Delete(..))) {
                        plan.removes();
                    }
                    Ok(())
                })?;
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
            Fix::Directory(tree, ino, place) => execute_alone(&self, |plan| {
                let record = self.rebuilt_directory(plan, *tree, *ino, *place)?;
                plan.put_directory(*tree, *ino, &record);
                Ok(())
            }),
            Fix::Keep(subvol, tree, stray) => self.keep(*subvol, *tree, *stray),
            Fix::Join(subvol, tree, ino) => self.join(*subvol, *tree, *ino),
            Fix::Extended(tree, ino) => self.note_extents(*tree, *ino),
            Fix::DropTree(tree) => execute_alone(&self, |plan| {
                if self.store.tree_exists(*tree).map_err(from_store)? {
                    plan.batch().drop_tree(*tree);
                    plan.collects();
                }
                Ok(())
            }),
            Fix::DropIndex => self.drop_index(),
            Fix::Marks(segment) => self.data.repair_marks(*segment).map_err(from_store),
            // Done before the volume is opened.
            Fix::Header
            | Fix::LogHeader
            | Fix::Engine
            | Fix::Log
            | Fix::VolumeRecords
            | Fix::Checkpoint => Ok(()),
        }
    }

    /// Rebuilds the record of a directory from what is in it. Only root may enter it until an
    /// administrator has inspected it.
    pub(super) fn rebuilt_directory(
        self,
        plan: &Plan,
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
            mtime: plan.now,
            ctime: plan.now,
            atime: plan.now,
            btime: plan.now,
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
    fn drop_index(self) -> FsResult<()> {
        execute_with(&self, &mut self.admin.lock(), |_, plan| {
            self.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
                let record =
                    SubvolumeRecord::decode(value).map_err(|error| malformed(VOLUME, &error))?;
                if record.base != 0 {
                    let record = SubvolumeRecord { base: 0, ..record };
                    plan.batch().put(VOLUME, key, &record.encode());
                }
                Ok(())
            })?;
            for base in search_bases::all(&self)? {
                plan.batch().delete(VOLUME, &key::base(base.tree));
                if self.store.tree_exists(TreeId(base.tree)).map_err(from_store)? {
                    plan.batch().drop_tree(TreeId(base.tree));
                }
            }
            Ok(())
        })?;
        self.store.sync(self.store.last_commit()).map_err(from_store)?;
        search::index::delete_all(&search::index::Home::of(&self.env))
            .map_err(volume::error::from_search)
    }
}
