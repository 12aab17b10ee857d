//! Whether names point to a directory, in one pinned state of the volume. Read one after another,
//! records of what is renamed meanwhile may point to nothing, however often one looks.

use std::collections::BTreeMap;

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::kept_twice::RootCounter;
use format::key::{self, Counter, Part};
use format::subvolume_record::SubvolumeRecord;
use store::{KeyRange, Pinned, Store, TreeId};
use vfs::FsResult;
use volume::error::{from_store, inconsistent, malformed};
use volume::subvol::VOLUME;

/// Most steps of a way up: more are a loop.
const STEPS_MAX: usize = 1 << 20;

/// A state of the volume.
pub(super) struct NamedState {
    pin: Box<dyn Pinned>,
    root: u64,
    /// Subvolumes that are neither snapshots nor removed.
    live: BTreeMap<u64, SubvolumeRecord>,
}

impl NamedState {
    /// The present state.
    pub(super) fn read(store: &dyn Store) -> FsResult<NamedState> {
        let pin = store.pin().map_err(from_store)?;
        let root = pin.get(VOLUME, &key::counter(Counter::Root)).map_err(from_store)?;
        let root = root.ok_or_else(|| inconsistent(VOLUME, "no root is named", 0))?;
        let root = RootCounter::decode(&root).map_err(|error| malformed(VOLUME, &error))?;
        let mut live = BTreeMap::new();
        let range = KeyRange::prefix(&key::SUBVOLUMES_PREFIX);
        let mut cursor = pin.scan(VOLUME, range).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            let malformed = |error| malformed(VOLUME, &error);
            let record = SubvolumeRecord::decode(item.value).map_err(malformed)?;
            if !record.detached && !record.read_only {
                live.insert(key::parse_number(item.key).map_err(malformed)?, record);
            }
        }
        drop(cursor);
        Ok(NamedState { pin, root: root.subvolume, live })
    }

    /// Whether names point from the volume's root to the directory of a lineage and number.
    pub(super) fn points_to(&self, lineage: u64, ino: u64) -> FsResult<bool> {
        for (&subvol, record) in &self.live {
            if record.lineage == lineage && self.points_to_member(subvol, ino)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn points_to_member(&self, subvol: u64, ino: u64) -> FsResult<bool> {
        let (mut subvol, mut dir) = (subvol, ino);
        for _ in 0..STEPS_MAX {
            let Some(record) = self.live.get(&subvol) else { return Ok(false) };
            if dir != record.root {
                let tree = TreeId(record.tree);
                let Some(found) = self.directory(tree, dir)? else { return Ok(false) };
                let (parent, cookie) = (found.parent, found.parent_cookie);
                // A subvolume that began as a directory has all of the tree that this was in. The
                // root of that tree has no name.
                if cookie == 0 {
                    return Ok(false);
                }
                let entry = self.target(tree, parent, cookie)?;
                if found.detached || entry != Some((dir, Target::Directory)) {
                    return Ok(false);
                }
                dir = parent;
            } else if subvol == self.root {
                return Ok(true);
            } else {
                let (above, directory, cookie) = record.parent;
                let Some(up) = self.live.get(&above) else { return Ok(false) };
                let entry = self.target(TreeId(up.tree), directory, cookie)?;
                if entry.is_none_or(|(_, target)| target != Target::Subvolume(subvol)) {
                    return Ok(false);
                }
                (subvol, dir) = (above, directory);
            }
        }
        Err(inconsistent(VOLUME, "directories contain each other", ino))
    }

    fn directory(&self, tree: TreeId, ino: u64) -> FsResult<Option<DirectoryRecord>> {
        let value = self.pin.get(tree, &key::directory(ino, Part::Attributes));
        let decode = |value: Vec<u8>| DirectoryRecord::decode(&value);
        let record = value.map_err(from_store)?.map(decode).transpose();
        record.map_err(|error| malformed(tree, &error))
    }

    /// What the entry at a place points to.
    fn target(&self, tree: TreeId, dir: u64, cookie: u64) -> FsResult<Option<(u64, Target)>> {
        let value = self.pin.get(tree, &key::entry(dir, cookie, Part::Attributes));
        let Some(value) = value.map_err(from_store)? else { return Ok(None) };
        let entry = EntryRecord::decode(&value).map_err(|error| malformed(tree, &error))?;
        Ok(Some((entry.ino, entry.target)))
    }
}
