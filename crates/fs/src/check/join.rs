//! An inode that stands beside several names: they are made names of one inode, that which was
//! changed last. Contents that only another of them has are kept in `lost+found`.

use format::entry_record::{EntryRecord, Target};
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Parsed, Part};
use store::{KeyRange, TreeId};

use crate::error::{from_store, inconsistent, malformed};
use crate::txn::Txn;
use crate::view::View;
use crate::{Fs, FsResult};

/// A name beside which the inode stands.
struct Place {
    dir: u64,
    cookie: u64,
    chained: bool,
    name: Vec<u8>,
    inode: InodeRecord,
}

impl Fs {
    /// Makes one inode of those that stand beside names of one number.
    pub(super) fn join(&self, subvol: u64, tree: TreeId, ino: u64) -> FsResult<()> {
        let view = View::new(&*self.store, tree);
        let places = self.places_of(tree, ino)?;
        let known = |place: &&Place| {
            let inode = &place.inode;
            (inode.ctime, inode.has_bulk || inode.has_extents, inode.size)
        };
        let Some(newest) = places.iter().max_by_key(known).filter(|_| places.len() > 1) else {
            // Another problem was mended by removing a name.
            return Ok(());
        };
        if view.linked(ino)?.is_some() {
            return Err(inconsistent(tree, "an inode under its own number and beside names", ino));
        }
        let beside = |place: &Place, part| {
            self.store.get(tree, &key::entry(place.dir, place.cookie, part)).map_err(from_store)
        };
        let contents = beside(newest, Part::Bulk)?;
        // Each by itself: the next one must find the names that these were given.
        for place in places.iter().filter(|place| !std::ptr::eq(*place, newest)) {
            let other = beside(place, Part::Bulk)?.filter(|bytes| Some(bytes) != contents.as_ref());
            if other.is_some() {
                let mut txn = Txn::new(self);
                let kept = self.lost_and_found(&mut txn, subvol, view)?;
                let name = format!("#{ino}-{:x}-{:x}", place.dir, place.cookie);
                let old = key::entry(place.dir, place.cookie, Part::Bulk);
                self.keep_bulk(&mut txn, view, kept, (&name, &old))?;
                txn.commit()?;
            }
        }
        let mut txn = Txn::new(self);
        let target = Target::Linked(newest.inode.kind);
        for place in &places {
            let entry = EntryRecord { chained: place.chained, ino, name: &place.name, target };
            txn.put_entry(tree, place.dir, place.cookie, &entry);
            txn.batch().put(tree, &key::back_reference(ino, place.dir, place.cookie), b"");
            let own = std::ptr::eq(place, newest);
            for part in [Part::Bulk, Part::Xattrs] {
                if let Some(bytes) = beside(place, part)?.filter(|_| own) {
                    txn.batch().put(tree, &key::linked(ino, part), &bytes);
                }
                txn.batch().delete(tree, &key::entry(place.dir, place.cookie, part));
            }
        }
        let nlink = u32::try_from(places.len()).unwrap_or(u32::MAX);
        txn.put_linked(tree, ino, &LinkedRecord { nlink, inode: newest.inode });
        txn.commit().map(drop)
    }

    /// All names beside which an inode stands: a walk over the names of the tree.
    fn places_of(&self, tree: TreeId, ino: u64) -> FsResult<Vec<Place>> {
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
                places.push(Place { dir: directory, cookie, chained, name, inode });
            }
        }
        Ok(places)
    }
}
