//! Repairs an inode that is stored beside several names: they become names of one inode, the one
//! that was changed last. Contents that only another one has are kept in `lost+found`, and
//! attributes that only another one has are added to the inode.

use format::entry_record::{EntryRecord, Target};
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Parsed, Part};
use format::xattr_record::{TOTAL_BYTES_MAX, XattrRecord};
use ops::execute::execute_alone;
use store::{KeyRange, TreeId};
use vfs::FsResult;
use volume::error::{from_store, inconsistent, malformed};
use volume::view::View;

use super::Checks;

/// A name beside which the inode is stored.
struct NamedInode {
    dir: u64,
    cookie: u64,
    chained: bool,
    name: Vec<u8>,
    inode: InodeRecord,
}

impl Checks<'_> {
    /// Merges the inodes that are stored beside names of one number.
    pub(super) fn join(self, subvol: u64, tree: TreeId, ino: u64) -> FsResult<()> {
        let view = View::new(&*self.store, tree);
        let places = self.places_of(tree, ino)?;
        let known = |place: &&NamedInode| {
            let inode = &place.inode;
            (inode.ctime, inode.has_bulk || inode.has_extents, inode.size)
        };
        let Some(newest) = places.iter().max_by_key(known).filter(|_| places.len() > 1) else {
            // Another problem was repaired by removing a name.
            return Ok(());
        };
        if view.linked(ino)?.is_some() {
            return Err(inconsistent(
                tree,
                "an inode is stored twice: under its own number and beside a name",
                ino,
            ));
        }
        let beside = |place: &NamedInode, part| {
            self.store.get(tree, &key::entry(place.dir, place.cookie, part)).map_err(from_store)
        };
        let contents = beside(newest, Part::Bulk)?;
        // One at a time: the next one must find the names that these were given.
        for place in places.iter().filter(|place| !std::ptr::eq(*place, newest)) {
            let other = beside(place, Part::Bulk)?.filter(|bytes| Some(bytes) != contents.as_ref());
            if other.is_some() {
                execute_alone(&self, |plan| {
                    let kept = self.lost_and_found(plan, subvol, view)?;
                    let name = format!("#{ino}-{:x}-{:x}", place.dir, place.cookie);
                    let old = key::entry(place.dir, place.cookie, Part::Bulk);
                    self.keep_bulk(plan, view, kept, (&name, &old))
                })?;
            }
        }
        execute_alone(&self, |plan| {
            let target = Target::Linked(newest.inode.kind);
            for place in &places {
                let entry = EntryRecord { chained: place.chained, ino, name: &place.name, target };
                plan.put_entry(tree, place.dir, place.cookie, &entry);
                plan.batch().put(tree, &key::back_reference(ino, place.dir, place.cookie), b"");
                let own = std::ptr::eq(place, newest);
                if let Some(bytes) = beside(place, Part::Bulk)?.filter(|_| own) {
                    plan.batch().put(tree, &key::linked(ino, Part::Bulk), &bytes);
                }
                for part in [Part::Bulk, Part::Xattrs] {
                    plan.batch().delete(tree, &key::entry(place.dir, place.cookie, part));
                }
            }
            let mut inode = newest.inode;
            let xattrs = gathered(&places, newest, &|place| beside(place, Part::Xattrs))?;
            if let Some(xattrs) = xattrs {
                inode.has_xattrs = true;
                plan.batch().put(tree, &key::linked(ino, Part::Xattrs), &xattrs);
            }
            let nlink = u32::try_from(places.len()).unwrap_or(u32::MAX);
            plan.put_linked(tree, ino, &LinkedRecord { nlink, inode });
            Ok(())
        })
    }

    /// Notes in an inode beside its name that it has extents. An inode that also has small contents
    /// stays unchanged: which of the two were written last is not known.
    pub(super) fn note_extents(self, tree: TreeId, ino: u64) -> FsResult<()> {
        let places = self.places_of(tree, ino)?;
        let [NamedInode { dir, cookie, chained, name, inode }] = &places[..] else {
            // It was given a number of its own, or a name of it was removed.
            return Ok(());
        };
        if inode.has_bulk {
            return Err(inconsistent(tree, "an inode with small contents and extents", ino));
        }
        let inode = InodeRecord { has_extents: true, ..*inode };
        let target = Target::Embedded(inode);
        execute_alone(&self, |plan| {
            let entry = EntryRecord { chained: *chained, ino, name, target };
            plan.put_entry(tree, *dir, *cookie, &entry);
            Ok(())
        })
    }

    /// All names beside which an inode is stored: walks the names of the tree.
    fn places_of(self, tree: TreeId, ino: u64) -> FsResult<Vec<NamedInode>> {
        let malformed = |error| malformed(tree, &error);
        let mut places = Vec::new();
        let range = KeyRange::prefix(&key::DIRECTORIES_PREFIX);
        let mut cursor = self.store.scan(tree, range).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            let parsed = key::parse(item.key).map_err(malformed)?;
            let Parsed::Entry { directory, cookie: cookie @ 1.., part: Part::Attributes } = parsed
            else {
                continue;
            };
            // What does not decode is another problem.
            let Ok(entry) = EntryRecord::decode(item.value) else { continue };
            if let Target::Embedded(inode) = entry.target
                && entry.ino == ino
            {
                let (chained, name) = (entry.chained, entry.name.to_vec());
                places.push(NamedInode { dir: directory, cookie, chained, name, inode });
            }
        }
        Ok(places)
    }
}

/// Reads the attributes beside a name.
type Beside<'a> = &'a dyn Fn(&NamedInode) -> FsResult<Option<Vec<u8>>>;

/// The attributes of the newest, plus those that only others have, newer ones first. From others it
/// takes only attributes that do not affect permissions. A list or a capability belongs to the
/// contents and the mode beside which it is stored. What does not fit and what does not decode is
/// left out. Where that is the newest's it stays unchanged, which is another problem.
fn gathered(
    places: &[NamedInode],
    newest: &NamedInode,
    beside: Beside<'_>,
) -> FsResult<Option<Vec<u8>>> {
    let own = if newest.inode.has_xattrs { beside(newest)? } else { None };
    let mut all = match own.as_deref().map(XattrRecord::decode) {
        None => XattrRecord::default(),
        Some(Ok(record)) => record,
        Some(Err(_)) => return Ok(own),
    };
    let mut others: Vec<&NamedInode> = places
        .iter()
        .filter(|place| !std::ptr::eq(*place, newest) && place.inode.has_xattrs)
        .collect();
    others.sort_by_key(|place| std::cmp::Reverse(place.inode.ctime));
    for place in others {
        let Some(bytes) = beside(place)? else { continue };
        let Ok(record) = XattrRecord::decode(&bytes) else { continue };
        for (name, value) in record.iter() {
            let plain = name.starts_with(b"user.") || name.starts_with(b"trusted.");
            if plain && all.get(name).is_none() {
                all.set(name, value);
                if all.encode().len() > TOTAL_BYTES_MAX {
                    all.remove(name);
                }
            }
        }
    }
    Ok((!all.is_empty()).then(|| all.encode()))
}
