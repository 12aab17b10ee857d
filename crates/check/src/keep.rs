//! Keeps what has no name in `lost+found` of its subvolume's root, under its number. Moves an entry
//! that is stored where no look-up searches to the place of its name.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::extent::{Extent, decode};
use format::inode_record::{FileKind, InodeRecord};
use format::key::{self, Parsed, Part};
use format::subvolume_record::SubvolumeRecord;
use inode::{FsError, SubvolId};
use ops::plan::Plan;
use ops::subvolumes::{Ledger, execute_with};
use volume::attributes::fresh_inode;

use store::{KeyRange, TreeId};
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::subvol::{VOLUME, read_record};
use volume::view::{NameBuf, Search, View};

use super::Checks;
use super::Stray;

/// Name of the directory for what was found; if that name is taken, a similar one is used.
const LOST_AND_FOUND: &str = "lost+found";
/// Names that are tried for one object.
const NAMES_MAX: u32 = 1000;
/// Deepest path.
const DEPTH_MAX: usize = 1 << 20;

impl Checks<'_> {
    /// Gives an object a name.
    pub(super) fn keep(self, subvol: u64, tree: TreeId, stray: Stray) -> FsResult<()> {
        execute_with(&self, &mut self.admin.lock(), |ledger, plan| {
            self.plan_keeping(ledger, plan, (subvol, tree), stray)
        })
    }

    fn plan_keeping(
        self,
        ledger: &mut Ledger,
        plan: &mut Plan,
        (subvol, tree): (u64, TreeId),
        stray: Stray,
    ) -> FsResult<()> {
        let view = View::new(&*self.store, tree);
        if let Stray::Entry(dir, cookie) = stray {
            return self.move_entry(plan, (subvol, view), dir, cookie);
        }
        if self.is_named(view, subvol, stray)? {
            return Ok(());
        }
        let kept = self.lost_and_found(plan, subvol, view)?;
        let name = match stray {
            Stray::Bulk(dir, cookie) => format!("#{dir}-{cookie:x}"),
            Stray::Subvolume(id) => format!("#subvolume-{id}"),
            Stray::Tree(tree, _) => format!("#tree-{tree}"),
            Stray::Directory(ino)
            | Stray::Linked(ino)
            | Stray::Extents(ino)
            | Stray::LinkedBulk(ino)
            | Stray::Entries(ino)
            | Stray::Entry(ino, _) => format!("#{ino}"),
        };
        match stray {
            Stray::Directory(ino) => {
                let record = view.directory(ino)?.ok_or(FsError::NotFound)?;
                Checks::take_away(plan, view, ino, &record)?;
                let cookie = self.name(plan, view, kept, (&name, ino, Target::Directory))?;
                let record = DirectoryRecord {
                    parent: kept,
                    parent_cookie: cookie,
                    detached: false,
                    ..record
                };
                plan.put_directory(tree, ino, &record);
            }
            Stray::Entries(ino) => {
                let cookie = self.name(plan, view, kept, (&name, ino, Target::Directory))?;
                let record = self.rebuilt_directory(plan, tree, ino, (kept, cookie))?;
                plan.put_directory(tree, ino, &record);
            }
            Stray::Linked(ino) => {
                let record = view.linked(ino)?.ok_or(FsError::NotFound)?;
                let target = Target::Linked(record.inode.kind);
                let cookie = self.name(plan, view, kept, (&name, ino, target))?;
                plan.put_linked(tree, ino, &record.with_nlink(1));
                plan.batch().put(tree, &key::back_reference(ino, kept, cookie), b"");
            }
            Stray::Extents(ino) => {
                let inode = self.inode_of_extents(plan, tree, ino)?;
                let target = Target::Embedded(inode);
                self.name(plan, view, kept, (&name, ino, target))?;
            }
            Stray::Bulk(dir, cookie) => {
                let old = key::entry(dir, cookie, Part::Bulk);
                self.keep_bulk(plan, view, kept, (&name, &old))?;
            }
            Stray::LinkedBulk(ino) => {
                let old = key::linked(ino, Part::Bulk);
                self.keep_bulk(plan, view, kept, (&name, &old))?;
            }
            Stray::Subvolume(id) => {
                let record = read_record(&*self.store, SubvolId(id))?.ok_or(FsError::NotFound)?;
                let target = Target::Subvolume(id);
                self.unmount(plan, id, &record)?;
                let cookie = self.name(plan, view, kept, (&name, record.root, target))?;
                let record = SubvolumeRecord { parent: (subvol, kept, cookie), ..record };
                plan.batch().put(VOLUME, &key::subvolume(id), &record.encode());
            }
            Stray::Tree(lost, root) => {
                self.keep_tree((ledger, plan), view, (subvol, kept), (&name, lost, root))?;
            }
            Stray::Entry(..) => unreachable!("it was moved above"),
        }
        Ok(())
    }

    /// Whether an object has a name by now: its name, or one above it, was repaired meanwhile.
    fn is_named(self, view: View<'_>, subvol: u64, stray: Stray) -> FsResult<bool> {
        let mut name = NameBuf::empty();
        match stray {
            Stray::Directory(ino) => {
                let root = read_record(&*self.store, SubvolId(subvol))?;
                let root = root.ok_or(FsError::NotFound)?.root;
                let mut at = ino;
                for _ in 0..DEPTH_MAX {
                    let Some(record) = view.directory(at)? else { return Ok(false) };
                    let place = (record.parent, record.parent_cookie);
                    let found = view.entry_at(place.0, place.1, &mut name)?;
                    let leads = found.is_some_and(|found| found.ino == at);
                    if !leads || record.parent == ino {
                        return Ok(false);
                    }
                    if record.parent == root {
                        return Ok(true);
                    }
                    at = record.parent;
                }
                Ok(false)
            }
            Stray::Entries(ino) => Ok(view.directory(ino)?.is_some()),
            Stray::Linked(ino) => {
                let range = KeyRange::prefix(&key::back_reference_prefix(ino));
                let mut cursor = self.store.scan(view.tree, range).map_err(from_store)?;
                Ok(cursor.next().map_err(from_store)?.is_some())
            }
            Stray::Subvolume(id) => {
                let record = read_record(&*self.store, SubvolId(id))?.ok_or(FsError::NotFound)?;
                let (above, directory, cookie) = record.parent;
                let Some(above) = read_record(&*self.store, SubvolId(above))? else {
                    return Ok(false);
                };
                let view = View::new(&*self.store, TreeId(above.tree));
                let found = view.entry_at(directory, cookie, &mut name)?;
                let leads = found.is_some_and(|found| found.target == Target::Subvolume(id));
                Ok(leads && !self.is_in_itself(id)?)
            }
            Stray::Tree(lost, _) => self.is_of_a_subvolume(lost),
            Stray::Extents(_) | Stray::Bulk(..) | Stray::LinkedBulk(_) | Stray::Entry(..) => {
                Ok(false)
            }
        }
    }

    /// Creates a file, with its own number, from small contents at a key.
    pub(super) fn keep_bulk(
        self,
        plan: &mut Plan,
        view: View<'_>,
        kept: u64,
        (name, old): (&str, &[u8]),
    ) -> FsResult<()> {
        let bytes = view.bulk(old)?;
        let ino = self.numbers.next_ino(&*self.store)?;
        let mut inode = fresh_inode(FileKind::File, plan.now);
        (inode.mode, inode.has_bulk, inode.size) = (0o600, true, bytes.len() as u64);
        let cookie = self.name(plan, view, kept, (name, ino, Target::Embedded(inode)))?;
        plan.batch().put(view.tree, &key::entry(kept, cookie, Part::Bulk), &bytes);
        plan.batch().delete(view.tree, old);
        Ok(())
    }

    /// The directory for what was found; created in this batch if there is none.
    pub(super) fn lost_and_found(
        self,
        plan: &mut Plan,
        subvol: u64,
        view: View<'_>,
    ) -> FsResult<u64> {
        let record = read_record(&*self.store, SubvolId(subvol))?.ok_or(FsError::NotFound)?;
        let root = record.root;
        let mut attempts = 0..NAMES_MAX;
        let (name, vacancy) = loop {
            let name = like(LOST_AND_FOUND, attempts.next().ok_or(FsError::Exists)?);
            match view.find(root, self.hash.hash(name.as_bytes()), name.as_bytes())? {
                Search::Found(found) if found.target == Target::Directory => return Ok(found.ino),
                Search::Found(_) => {}
                Search::Vacant(vacancy) => break (name, vacancy),
            }
        };
        let ino = self.numbers.next_ino(&*self.store)?;
        let (name, target) = (name.as_bytes(), Target::Directory);
        let entry = EntryRecord { chained: false, ino, name, target };
        plan.insert_entry(view, root, &vacancy, &entry)?;
        plan.touch_directory(view.tree, root, 1, 1);
        let record = DirectoryRecord {
            entries: 0,
            subdirectories: 0,
            mtime: plan.now,
            ctime: plan.now,
            atime: plan.now,
            btime: plan.now,
            parent: root,
            parent_cookie: vacancy.cookie,
            mode: 0o700,
            uid: 0,
            gid: 0,
            has_xattrs: false,
            detached: false,
            elsewhere: None,
            charge: None,
        };
        plan.put_directory(view.tree, ino, &record);
        Ok(ino)
    }

    /// Adds a name to a directory, or a similar one if it is taken. Returns its cookie.
    pub(super) fn name(
        self,
        plan: &mut Plan,
        view: View<'_>,
        dir: u64,
        (name, ino, target): (&str, u64, Target),
    ) -> FsResult<u64> {
        for attempt in 0..NAMES_MAX {
            let name = like(name, attempt);
            let name = name.as_bytes();
            let Search::Vacant(vacancy) = view.find(dir, self.hash.hash(name), name)? else {
                continue;
            };
            let entry = EntryRecord { chained: false, ino, name, target };
            plan.insert_entry(view, dir, &vacancy, &entry)?;
            let below = matches!(target, Target::Directory | Target::Subvolume(_));
            plan.touch_directory(view.tree, dir, 1, i64::from(below));
            return Ok(vacancy.cookie);
        }
        Err(FsError::Exists)
    }

    /// Removes the entry of a directory that is in a loop.
    fn take_away(
        plan: &mut Plan,
        view: View<'_>,
        ino: u64,
        record: &DirectoryRecord,
    ) -> FsResult<()> {
        let mut name = NameBuf::empty();
        let found = view.entry_at(record.parent, record.parent_cookie, &mut name)?;
        let here = found.filter(|found| found.ino == ino && found.target == Target::Directory);
        if let Some(found) = here {
            plan.erase_entry(view, record.parent, &found, found.chained)?;
            plan.touch_directory(view.tree, record.parent, -1, -1);
        }
        Ok(())
    }

    /// Keeps a file of which only extents are left.
    fn inode_of_extents(self, plan: &Plan, tree: TreeId, ino: u64) -> FsResult<InodeRecord> {
        let malformed = |error| malformed(tree, &error);
        let range = KeyRange::prefix(&key::extent_prefix(ino));
        let mut cursor = self.store.scan(tree, range).map_err(from_store)?;
        let mut inode = fresh_inode(FileKind::File, plan.now);
        (inode.mode, inode.has_extents) = (0o600, true);
        while let Some(item) = cursor.next().map_err(from_store)? {
            let Parsed::Extent { offset, .. } = key::parse(item.key).map_err(malformed)? else {
                continue;
            };
            let length = match decode(item.value).map_err(malformed)? {
                Extent::Inline(bytes) => bytes.len() as u64,
                Extent::Stored(stored) => u64::from(stored.length),
            };
            inode.allocated += length;
            inode.size = inode.size.max(offset.saturating_add(length));
        }
        Ok(inode)
    }

    /// Moves an entry to where its name is looked up, or keeps it in `lost+found` if that is taken.
    fn move_entry(
        self,
        plan: &mut Plan,
        (subvol, view): (u64, View<'_>),
        dir: u64,
        cookie: u64,
    ) -> FsResult<()> {
        let mut name = NameBuf::empty();
        let Some(found) = view.entry_at(dir, cookie, &mut name)? else {
            // Another problem with it was repaired by removing it.
            return Ok(());
        };
        let name = name.as_bytes();
        let (ino, target) = (found.ino, found.target);
        let keys = [Part::Bulk, Part::Xattrs].map(|part| key::entry(dir, cookie, part));
        let beside = [
            self.store.get(view.tree, &keys[0]).map_err(from_store)?,
            self.store.get(view.tree, &keys[1]).map_err(from_store)?,
        ];
        let own = key::entry(dir, cookie, Part::Attributes);
        if found.chained {
            let stone = EntryRecord { chained: true, ino: 0, name: b"", target: Target::Tombstone };
            plan.put_entry(view.tree, dir, cookie, &stone);
        } else {
            plan.batch().delete(view.tree, &own);
        }
        for key in &keys {
            plan.batch().delete(view.tree, key);
        }
        let below = i64::from(found.is_directory());
        let (to, new) = match view.find(dir, self.hash.hash(name), name)? {
            Search::Vacant(vacancy) => {
                let entry = EntryRecord { chained: false, ino, name, target };
                plan.insert_entry(view, dir, &vacancy, &entry)?;
                (dir, vacancy.cookie)
            }
            Search::Found(_) => {
                plan.touch_directory(view.tree, dir, -1, -below);
                let kept = self.lost_and_found(plan, subvol, view)?;
                (kept, self.name(plan, view, kept, (&format!("#{ino}"), ino, target))?)
            }
        };
        for (bytes, part) in beside.iter().zip([Part::Bulk, Part::Xattrs]) {
            if let Some(bytes) = bytes {
                plan.batch().put(view.tree, &key::entry(to, new, part), bytes);
            }
        }
        match target {
            Target::Directory => {
                if let Some(record) = view.directory(ino)? {
                    let record = DirectoryRecord { parent: to, parent_cookie: new, ..record };
                    plan.put_directory(view.tree, ino, &record);
                }
            }
            Target::Linked(_) => {
                plan.batch().delete(view.tree, &key::back_reference(ino, dir, cookie));
                plan.batch().put(view.tree, &key::back_reference(ino, to, new), b"");
            }
            Target::Subvolume(id) => {
                let record = read_record(&*self.store, SubvolId(id))?;
                // Inherited subvolumes stay where they are mounted.
                let own = |record: &SubvolumeRecord| record.parent == (subvol, dir, cookie);
                if let Some(record) = record.filter(own) {
                    let record = SubvolumeRecord { parent: (subvol, to, new), ..record };
                    plan.batch().put(VOLUME, &key::subvolume(id), &record.encode());
                }
            }
            Target::Embedded(_) | Target::Tombstone => {}
        }
        Ok(())
    }
}

/// The name that one of the attempts tries.
fn like(name: &str, attempt: u32) -> String {
    if attempt == 0 { name.to_owned() } else { format!("{name}.{attempt}") }
}
