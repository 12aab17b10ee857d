//! Removes what the source no longer contains.

use format::entry_record::{EntryRecord, Target};
use format::inode_record::LinkedRecord;
use format::key::{self, Parsed, Part};
use store::{KeyRange, prefix_end};
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::view::FoundEntry;

use super::Scan;
use super::rows::ScanDirectory;

/// Entries that are read before their effects are applied, so that memory stays bounded.
const CHUNK: usize = 1024;

impl Scan<'_> {
    /// Removes the names of a directory that were not passed.
    pub(super) fn vanish(&mut self, dir: &ScanDirectory) -> FsResult<()> {
        self.flush()?;
        let mut from = key::entry(dir.ino, 1, Part::Attributes).to_vec();
        loop {
            let (found, next) = self.entries(dir.ino, from)?;
            for found in &found {
                if dir.seen.binary_search_by_key(&found.cookie, |seen| seen.cookie).is_err() {
                    self.erase(dir.ino, found)?;
                }
            }
            let Some(next) = next else { return Ok(()) };
            from = next;
        }
    }

    /// Removes a name and everything that only it points to.
    pub(super) fn erase(&mut self, dir: u64, found: &FoundEntry) -> FsResult<()> {
        if found.target == Target::Directory {
            self.erase_tree(found.ino)?;
        } else {
            self.let_go(dir, found);
        }
        let view = self.view();
        self.plan.erase_entry(view, dir, found, false)?;
        // Other names of this hash must see that the name is gone.
        if found.chained || found.cookie & 0xff != 0 { self.flush() } else { self.flush_if_large() }
    }

    /// Removes what a name pointed to and what is stored beside it; not for directories.
    pub(super) fn let_go(&mut self, dir: u64, found: &FoundEntry) {
        let tree = self.tree;
        if let Target::Linked(_) = found.target {
            let reference = key::back_reference(found.ino, dir, found.cookie);
            self.plan.batch().delete(tree, &reference);
            self.links.touch(found.ino);
        } else {
            self.plan.erase_attached(tree, dir, found);
            self.record.files -= 1;
        }
    }

    /// Removes a directory with everything below it; not its name.
    pub(super) fn erase_tree(&mut self, root: u64) -> FsResult<()> {
        self.flush()?;
        let mut left = vec![root];
        while let Some(dir) = left.pop() {
            let mut from = key::entry(dir, 1, Part::Attributes).to_vec();
            loop {
                let (found, next) = self.entries(dir, from)?;
                for found in &found {
                    match found.target {
                        Target::Directory => left.push(found.ino),
                        Target::Linked(_) => self.let_go(dir, found),
                        _ => self.record.files -= 1,
                    }
                }
                self.flush_if_large()?;
                let Some(next) = next else { break };
                from = next;
            }
            let prefix = key::directory_prefix(dir);
            let end = prefix_end(&prefix).expect("invariant: the prefix starts with D");
            let tree = self.tree;
            self.plan.batch().delete_range(tree, &prefix, &end);
            self.record.files -= 1;
        }
        self.flush_if_large()
    }

    /// Some entries of a directory as the tree holds them, and where the next ones start.
    fn entries(&self, dir: u64, from: Vec<u8>) -> FsResult<(Vec<FoundEntry>, Option<Vec<u8>>)> {
        let to = prefix_end(&key::directory_prefix(dir));
        let range = KeyRange { from, to };
        let mut cursor = self.fs.store.scan(self.tree, range).map_err(from_store)?;
        let mut entries = Vec::new();
        while let Some(item) = cursor.next().map_err(from_store)? {
            let malformed = |error| malformed(self.tree, &error);
            let Parsed::Entry { cookie, part: Part::Attributes, .. } =
                key::parse(item.key).map_err(malformed)?
            else {
                continue;
            };
            if entries.len() == CHUNK {
                return Ok((entries, Some(item.key.to_vec())));
            }
            let entry = EntryRecord::decode(item.value).map_err(malformed)?;
            if entry.target != Target::Tombstone {
                let EntryRecord { chained, ino, target, .. } = entry;
                entries.push(FoundEntry { cookie, chained, ino, target });
            }
        }
        Ok((entries, None))
    }

    /// Removes linked inodes that lost their last name.
    pub(super) fn sweep_links(&mut self) -> FsResult<()> {
        self.flush()?;
        for ino in self.links.take_touched() {
            let range = KeyRange::prefix(&key::back_reference_prefix(ino));
            let mut cursor = self.fs.store.scan(self.tree, range).map_err(from_store)?;
            if cursor.next().map_err(from_store)?.is_some() {
                continue;
            }
            drop(cursor);
            let record =
                self.view().read(&key::linked(ino, Part::Attributes), LinkedRecord::decode)?;
            let Some(record) = record else { continue };
            if let Some(of) = record.inode.elsewhere {
                self.links.remove(of, ino);
            }
            let tree = self.tree;
            for part in [Part::Attributes, Part::Bulk, Part::Xattrs] {
                self.plan.batch().delete(tree, &key::linked(ino, part));
            }
            self.record.files -= 1;
            self.flush_if_large()?;
        }
        Ok(())
    }
}
