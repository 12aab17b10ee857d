//! Extents of one file: they do not overlap, can be read, and add up to what the inode records.

use format::entry_record::Target;
use format::extent::{Extent, Stored, decode, encode_stored};
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Parsed, Part};
use format::subvolume_record::SubvolumeRecord;
use vfs::FsResult;
use volume::error::from_store;
use volume::readable::Scan;
use volume::subvol::VOLUME;

use super::look::Named;
use super::tree::Tree;
use super::{Checker, Edit, Fix, Problem, ProblemKind};

/// Where a file's inode is: beside an entry, or, with an empty name, under its own number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner<'n> {
    pub(super) dir: u64,
    pub(super) cookie: u64,
    pub(super) name: &'n [u8],
}

impl Checker<'_, '_> {
    /// Checks the extents of a file that has some.
    pub(super) fn extents_of(
        &mut self,
        tree: &Tree,
        place: Owner<'_>,
        ino: u64,
        inode: &InodeRecord,
    ) -> FsResult<()> {
        let mut scan = Scan::new(self.pin, tree.id, &key::extent_prefix(ino))?;
        let (mut covered, mut end) = (0, 0);
        let mut whole = true;
        while scan.advance()? {
            if !self.did_record() {
                return Ok(());
            }
            let Ok(Parsed::Extent { offset, .. }) = key::parse(&scan.key) else { continue };
            let (length, stored) = match decode(&scan.value) {
                Ok(Extent::Inline(bytes)) => (bytes.len() as u64, None),
                Ok(Extent::Stored(stored)) => (u64::from(stored.length), Some(stored)),
                Err(malformed) => {
                    whole = false;
                    let what = format!("byte {offset} of the file: {malformed}");
                    let problem = Problem::new(ProblemKind::Structure, what);
                    self.about_file(tree, place, ino, problem)?;
                    continue;
                }
            };
            if offset < end {
                let what = format!("byte {offset} of the file: two extents overlap");
                let problem = Problem::new(ProblemKind::Contents, what);
                self.about_file(tree, place, ino, problem)?;
            }
            covered += length;
            end = offset.saturating_add(length);
            if let Some(stored) = stored.filter(|stored| self.takes_from_another(tree, stored)) {
                self.not_alone(tree, place, ino, (&scan.key, offset, stored))?;
            }
            let Some(stored) = stored.filter(|stored| self.contents.is_suspect(stored)) else {
                continue;
            };
            let (mut file, mut at) = self.fs.data.extent_place(&stored);
            let mut kind = ProblemKind::Contents;
            let what = match self.fs.data.verify_extent(&stored) {
                Err(store::Error::Device(error)) if error.is_unread() => {
                    kind = ProblemKind::ReadError;
                    (file, at) = (error.path.clone(), error.offset.unwrap_or(at));
                    error.to_string()
                }
                Err(store::Error::Device(error)) if !error.is_not_found() => {
                    return Err(from_store(error.into()));
                }
                Err(error) => error.to_string(),
                Ok(()) => match self.contents.bad.get(&(stored.segment, u32::from(stored.page))) {
                    Some(suspicion) if suspicion.overlaps => suspicion.what.clone(),
                    _ => continue,
                },
            };
            // The state is pinned, and a page may have been punched since. What counts is what the
            // file has after that read: what is named then was named all the time.
            if !self.is_named_still(tree, &scan.key, &scan.value)? {
                continue;
            }
            let what = format!("bytes {offset} to {end} of the file cannot be read: {what}");
            let problem = Problem::new(kind, what).in_file(&file, at);
            self.about_file(tree, place, ino, problem)?;
        }
        if !scan.lost.is_empty() {
            let what = format!("the addresses of its contents cannot be read, from byte {end} on");
            let bad = &scan.lost[0].damage;
            let problem = Problem::new(ProblemKind::Unreadable, what);
            let problem = problem.in_file(&bad.file, bad.offset);
            return self.about_file(tree, place, ino, problem);
        }
        if whole && covered != inode.allocated {
            let what = format!(
                "the inode counts {} allocated bytes, but extents cover {covered}",
                inode.allocated
            );
            let problem = Problem::new(ProblemKind::Contents, what);
            let fix = self.set_allocated(tree, place, ino, (inode, covered))?;
            return self.about_file(tree, place, ino, Problem { fix, ..problem });
        }
        Ok(())
    }

    /// Whether a file still has an extent, and its subvolume the tree. An extent that was pruned,
    /// or whose subvolume is gone, still exists for a while, and no collection marks it. So its
    /// unreachable contents, such as those of a file that had no name when a copy was taken, may be
    /// punched then.
    fn is_named_still(&self, tree: &Tree, key: &[u8], value: &[u8]) -> FsResult<bool> {
        match self.fs.store.get(tree.id, key).map_err(store::Error::as_damage) {
            Ok(Some(now)) if now == value => {}
            Ok(_) | Err(store::Error::NoTree(_)) => return Ok(false),
            Err(store::Error::Corrupt(_)) => {}
            Err(error) => return Err(from_store(error)),
        }
        // After the extent: a tree that is no longer named is never named again.
        let named = key::subvolume(tree.subvol);
        match self.fs.store.get(VOLUME, &named).map_err(store::Error::as_damage) {
            // One that does not decode is reported by the check of the table.
            Ok(Some(record)) => {
                Ok(SubvolumeRecord::decode(&record).map_or(true, |record| record.tree == tree.id.0))
            }
            Ok(None) => Ok(false),
            Err(store::Error::Corrupt(_)) => Ok(true),
            Err(error) => Err(from_store(error)),
        }
    }

    /// Whether freeing an extent would free what another inode has. This applies only to writable
    /// trees: in a snapshot nothing is freed.
    pub(super) fn takes_from_another(&self, tree: &Tree, stored: &Stored) -> bool {
        if stored.reflinked || !self.contents.is_of_two(stored) {
            return false;
        }
        let record = self.table.subvolumes.get(&tree.subvol);
        record.is_some_and(|of| !of.read_only && stored.birth > of.last_clone_epoch)
    }

    /// An extent whose pages another inode has, too: this is noted, and a collection frees them.
    fn not_alone(
        &mut self,
        tree: &Tree,
        place: Owner<'_>,
        ino: u64,
        (key, offset, stored): (&[u8], u64, Stored),
    ) -> FsResult<()> {
        let end = offset.saturating_add(u64::from(stored.length));
        let what = format!(
            "bytes {offset} to {end} of the file also belong to another file, without the flag \
             for shared contents, and would be freed with it"
        );
        let mut value = Vec::new();
        encode_stored(&mut value, &Stored { reflinked: true, ..stored });
        let edits = vec![Edit::Put(tree.id, key.to_vec(), value)];
        let (file, at) = self.fs.data.extent_place(&stored);
        let problem = Problem::new(ProblemKind::Contents, what).in_file(&file, at);
        let problem = problem.repaired_by(Fix::Edits("set the flag for shared contents", edits));
        self.about_file(tree, place, ino, problem)
    }

    fn about_file(
        &mut self,
        tree: &Tree,
        Owner { dir, name, .. }: Owner<'_>,
        ino: u64,
        problem: Problem,
    ) -> FsResult<()> {
        let problem = Problem { subvolume: tree.subvol, ino, ..problem };
        let problem = if name.is_empty() {
            let path = self.path_of_linked(tree.subvol, tree.id, ino)?;
            Problem { path, ..problem }
        } else {
            self.at(problem, (tree.subvol, dir), name)?
        };
        self.found(problem);
        Ok(())
    }

    /// The inode with its space corrected: `None` if its record changed meanwhile.
    fn set_allocated(
        &self,
        tree: &Tree,
        Owner { dir, cookie, name }: Owner<'_>,
        ino: u64,
        (inode, allocated): (&InodeRecord, u64),
    ) -> FsResult<Option<Fix>> {
        let inode = InodeRecord { allocated, ..*inode };
        let (key, value) = if name.is_empty() {
            let key = key::linked(ino, Part::Attributes);
            let look = super::look::get(self.pin, tree.id, &key, LinkedRecord::decode)?;
            let Some(record) = look.found() else { return Ok(None) };
            let mut value = Vec::new();
            LinkedRecord { inode, ..record }.encode(&mut value);
            (key.to_vec(), value)
        } else {
            let entry = super::look::entry(self.pin, tree.id, dir, cookie)?;
            let Some(entry) = entry.found() else { return Ok(None) };
            let key = key::entry(dir, cookie, Part::Attributes).to_vec();
            (key, Named { target: Target::Embedded(inode), ..entry }.encode())
        };
        Ok(Some(Fix::Edits("set the allocated bytes", vec![Edit::Put(tree.id, key, value)])))
    }
}
