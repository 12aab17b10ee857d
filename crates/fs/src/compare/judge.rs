//! What differs in one inode, as changes of its names.
//!
//! Contents count as changed if what is stored of them differs and so do the length or the time of
//! the last change. If those are the same, the bytes decide: equal bytes may be stored in different
//! pieces, and a program can set a time back.

use data::{Data, FileRef};
use format::acl::{ACCESS, DEFAULT};
use format::extent::{self, Extent};
use format::key::{self, Parsed};
use inode::{Attr, FsError};
use store::{KeyRange, Pinned, Store};
use vfs::FsResult;
use volume::error::{from_store, malformed};

use super::change::{Difference, Fields};
use super::gather::{Noted, Pair};
use super::side::{NEW, Name, OLD, Seen, Side, Stored};
use super::{ChangeKind, Field};

/// Bytes of all paths of one inode in both states that are held at once.
const PATHS_BYTES_MAX: usize = 64 << 20;
/// Bytes that are read at once of each of two files.
const READ_BYTES: u64 = 128 << 10;

/// Compares inodes.
pub(super) struct Judge<'j, 'a> {
    /// What is compared.
    pub(super) pair: &'j mut Pair<'a>,
    /// Where the bytes of files are.
    pub(super) data: &'j Data,
    /// The store as it is now.
    pub(super) store: &'j dyn Store,
    /// Whether the root itself has another name in the new state.
    pub(super) is_moved: bool,
}

/// What became of an inode.
pub(super) enum Verdict {
    /// These changes, maybe none.
    Changes(Vec<Difference>),
    /// Bytes of it differ, and its name is not known.
    Unplaced,
}

impl<'a> Judge<'_, 'a> {
    /// Compares an inode.
    pub(super) fn inode(&mut self, ino: u64, noted: &Noted) -> FsResult<Verdict> {
        let [old, new] = noted.slots;
        let seen = [
            Self::seen(self.pair.sides[OLD].as_mut(), ino, [old, new])?,
            Self::seen(self.pair.sides[NEW].as_mut(), ino, [new, old])?,
        ];
        let [old, new] = match seen {
            [Some(old), Some(new)] => [old, new],
            [None, None] if noted.has_data && !noted.is_placed => {
                let differs = self.extents_differ(ino, (u64::MAX >> 1, u64::MAX >> 1))?;
                return Ok(if differs { Verdict::Unplaced } else { Verdict::Changes(Vec::new()) });
            }
            [None, None] => return Ok(Verdict::Changes(Vec::new())),
            [Some(only), None] => return self.one(OLD, ino, &only).map(Verdict::Changes),
            [None, Some(only)] => return self.one(NEW, ino, &only).map(Verdict::Changes),
        };
        let fields = self.fields(ino, [&old, &new], noted.has_data)?;
        self.both(ino, [old, new], fields).map(Verdict::Changes)
    }

    fn seen(
        side: Option<&mut Side<'_>>,
        ino: u64,
        slots: [Option<(u64, u64)>; 2],
    ) -> FsResult<Option<Seen>> {
        side.map_or(Ok(None), |side| side.seen(ino, slots))
    }

    fn side(&mut self, which: usize) -> &mut Side<'a> {
        let side = self.pair.sides[which].as_mut();
        side.expect("invariant: an inode was seen in this state")
    }

    /// The path of a name, counted: a file may have a million names of any length. Ends when the
    /// caller has left.
    fn path(&mut self, which: usize, name: &Name, bytes: &mut usize) -> FsResult<Vec<u8>> {
        self.pair.check_wanted()?;
        let path = self.side(which).path(name)?;
        *bytes += path.len();
        if *bytes > PATHS_BYTES_MAX {
            return Err(FsError::LimitReached(
                "the paths of one inode's names take more than 64 MiB; compare a directory below",
            ));
        }
        Ok(path)
    }

    /// The paths of names, in order.
    fn paths(&mut self, which: usize, names: &[Name], bytes: &mut usize) -> FsResult<Vec<Vec<u8>>> {
        let mut paths: Vec<Vec<u8>> =
            names.iter().map(|name| self.path(which, name, bytes)).collect::<FsResult<_>>()?;
        paths.sort();
        Ok(paths)
    }

    /// The names of an inode that is in one state alone.
    fn one(&mut self, which: usize, ino: u64, seen: &Seen) -> FsResult<Vec<Difference>> {
        let attr = self.side(which).attr(ino, &seen.stored);
        let mut paths = self.paths(which, &seen.names, &mut 0)?;
        if ino == self.side(which).half.root {
            paths.push(self.side(which).half.path.clone());
        }
        let change = |path| single(which, path, attr, (Fields::default(), false));
        Ok(paths.into_iter().map(change).collect())
    }

    /// The names of an inode that is in both states.
    fn both(
        &mut self,
        ino: u64,
        [old, new]: [Seen; 2],
        fields: Fields,
    ) -> FsResult<Vec<Difference>> {
        let attrs = [self.side(OLD).attr(ino, &old.stored), self.side(NEW).attr(ino, &new.stored)];
        let mut changes = Vec::new();
        let mut add = |kind, paths: [Vec<u8>; 2]| {
            let [old, new] = paths;
            let (old, new) = (Some((old, attrs[OLD])), Some((new, attrs[NEW])));
            changes.push(Difference { kind, old, new, fields, is_link: false });
        };
        let roots = [OLD, NEW].map(|which| self.side(which).half.root == ino);
        if roots[OLD] || roots[NEW] {
            let paths = [OLD, NEW].map(|which| self.side(which).half.path.clone());
            if self.is_moved {
                add(ChangeKind::Renamed, paths);
            } else if !fields.is_empty() {
                add(ChangeKind::Modified, paths);
            }
            return Ok(changes);
        }
        let [mut gone, mut fresh] = [old.names, new.names];
        gone.sort();
        fresh.sort();
        let kept: Vec<Name> =
            gone.iter().filter(|name| fresh.binary_search(name).is_ok()).cloned().collect();
        gone.retain(|name| kept.binary_search(name).is_err());
        fresh.retain(|name| kept.binary_search(name).is_err());
        let mut bytes = 0;
        if !fields.is_empty() {
            for name in &kept {
                let old = self.path(OLD, name, &mut bytes)?;
                add(ChangeKind::Modified, [old, self.path(NEW, name, &mut bytes)?]);
            }
        }
        let gone = self.paths(OLD, &gone, &mut bytes)?;
        let fresh = self.paths(NEW, &fresh, &mut bytes)?;
        let renamed = gone.len().min(fresh.len());
        for (old, new) in gone.iter().zip(&fresh) {
            add(ChangeKind::Renamed, [old.clone(), new.clone()]);
        }
        for (which, paths) in [(OLD, gone), (NEW, fresh)] {
            for path in paths.into_iter().skip(renamed) {
                changes.push(single(which, path, attrs[which], (fields, true)));
            }
        }
        Ok(changes)
    }

    /// In which fields an inode differs.
    fn fields(&mut self, ino: u64, [old, new]: [&Seen; 2], has_data: bool) -> FsResult<Fields> {
        let attrs = [self.side(OLD).attr(ino, &old.stored), self.side(NEW).attr(ino, &new.stored)];
        let mut fields = of_attributes(attrs);
        let is_contents = self.contents_differ(ino, [&old.stored, &new.stored], attrs, has_data)?;
        fields.add_if(Field::Contents, is_contents);
        let old = self.side(OLD).xattrs(ino, &old.stored)?;
        let new = self.side(NEW).xattrs(ino, &new.stored)?;
        let lists = [ACCESS, DEFAULT];
        fields.add_if(Field::Acl, lists.iter().any(|name| old.get(name) != new.get(name)));
        let others = |(name, _): &(&[u8], &[u8])| !lists.contains(name);
        fields.add_if(Field::Xattrs, !old.iter().filter(others).eq(new.iter().filter(others)));
        Ok(fields)
    }

    fn contents_differ(
        &mut self,
        ino: u64,
        stored: [&Stored; 2],
        attrs: [Attr; 2],
        has_data: bool,
    ) -> FsResult<bool> {
        let [Stored::File { inode: old, .. }, Stored::File { inode: new, .. }] = stored else {
            return Ok(false);
        };
        let [bulk_old, bulk_new] =
            [self.side(OLD).bulk(ino, stored[OLD])?, self.side(NEW).bulk(ino, stored[NEW])?];
        if attrs[OLD].size != attrs[NEW].size {
            return Ok(true);
        }
        let is_stored_alike = bulk_old == bulk_new && old.has_extents == new.has_extents;
        if is_stored_alike && !has_data {
            return Ok(false);
        }
        let sizes = (old.size, new.size);
        if attrs[OLD].mtime != attrs[NEW].mtime {
            return Ok(true);
        }
        match (old.has_extents, new.has_extents) {
            (true, true) => self.extents_differ(ino, sizes),
            (false, false) => Ok(bulk_old != bulk_new),
            (is_old, _) => {
                let (which, bulk) = if is_old { (OLD, bulk_new) } else { (NEW, bulk_old) };
                self.differs_from(ino, which, old.size, &bulk)
            }
        }
    }

    /// Whether bytes in the extents of two states of a file differ.
    fn extents_differ(&mut self, ino: u64, sizes: (u64, u64)) -> FsResult<bool> {
        let pin = self.pair.pin;
        let [Some(old), Some(new)] = &self.pair.sides else { return Ok(false) };
        let trees = [old.half.tree, new.half.tree];
        let range = KeyRange::prefix(&key::extent_prefix(ino));
        let mut cursor = pin.diff(trees[OLD], pin, trees[NEW], range).map_err(from_store)?;
        while let Some(diff) = cursor.next().map_err(from_store)? {
            self.pair.check_wanted()?;
            let parsed = key::parse(diff.key).map_err(|error| malformed(trees[NEW], &error))?;
            let Parsed::Extent { offset, .. } = parsed else { continue };
            let mut end = offset;
            for (tree, value) in trees.into_iter().zip([diff.old, diff.new]) {
                let Some(value) = value else { continue };
                let length = match extent::decode(value).map_err(|e| malformed(tree, &e))? {
                    Extent::Stored(stored) => u64::from(stored.length),
                    Extent::Inline(bytes) => bytes.len() as u64,
                };
                end = end.max(offset.saturating_add(length));
            }
            let files = trees.map(|tree| FileRef { tree, ino });
            for at in (offset..end).step_by(READ_BYTES as usize) {
                let length = (end - at).min(READ_BYTES) as usize;
                let mut bytes = [vec![0; length], vec![0; length]];
                for (which, size) in [(OLD, sizes.0), (NEW, sizes.1)] {
                    if !self.read(files[which], size, at, &mut bytes[which])? {
                        return Ok(true);
                    }
                }
                if bytes[OLD] != bytes[NEW] {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether the extents of a file hold other bytes than these, with zeros behind them.
    fn differs_from(&self, ino: u64, which: usize, size: u64, other: &[u8]) -> FsResult<bool> {
        let Some(side) = self.pair.sides[which].as_ref() else { return Ok(true) };
        let file = FileRef { tree: side.half.tree, ino };
        let range = KeyRange::prefix(&key::extent_prefix(ino));
        let mut cursor = self.pair.pin.scan(file.tree, range).map_err(from_store)?;
        let mut bytes = vec![0; other.len()];
        if !self.read(file, size, 0, &mut bytes)? || bytes != other {
            return Ok(true);
        }
        while let Some(item) = cursor.next().map_err(from_store)? {
            let parsed = key::parse(item.key).map_err(|error| malformed(file.tree, &error))?;
            let Parsed::Extent { offset, .. } = parsed else { continue };
            let length = match extent::decode(item.value).map_err(|e| malformed(file.tree, &e))? {
                Extent::Stored(stored) => stored.length as usize,
                Extent::Inline(bytes) => bytes.len(),
            };
            let mut bytes = vec![0; length];
            if !self.read(file, size, offset, &mut bytes)? {
                return Ok(true);
            }
            let behind = (other.len() as u64).saturating_sub(offset) as usize;
            if bytes.iter().skip(behind).any(|byte| *byte != 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads bytes of a file of the pinned state; `false`: the file was changed since, so that its
    /// former bytes may be gone.
    fn read(&self, file: FileRef, size: u64, offset: u64, buffer: &mut [u8]) -> FsResult<bool> {
        let pin: &dyn Pinned = self.pair.pin;
        match self.data.read(pin, file, size, offset, buffer) {
            Ok(_) => Ok(true),
            Err(error @ (store::Error::Corrupt(_) | store::Error::Missing { .. })) => {
                if self.is_changed_since(file)? { Ok(false) } else { Err(from_store(error)) }
            }
            Err(error) => Err(from_store(error)),
        }
    }

    /// Whether the extents of a file are other ones now than in the pinned state.
    fn is_changed_since(&self, file: FileRef) -> FsResult<bool> {
        let (pin, now) = (self.pair.pin, self.store.pin().map_err(from_store)?);
        let range = KeyRange::prefix(&key::extent_prefix(file.ino));
        match pin.diff(file.tree, &*now, file.tree, range) {
            Ok(mut cursor) => Ok(cursor.next().map_err(from_store)?.is_some()),
            Err(store::Error::NoTree(_)) => Ok(true),
            Err(error) => Err(from_store(error)),
        }
    }
}

/// A name that is in one state alone.
fn single(
    which: usize,
    path: Vec<u8>,
    attr: Attr,
    (fields, is_link): (Fields, bool),
) -> Difference {
    let (kind, old, new) = if which == OLD {
        (ChangeKind::Removed, Some((path, attr)), None)
    } else {
        (ChangeKind::Created, None, Some((path, attr)))
    };
    Difference { kind, old, new, fields, is_link }
}

/// The attributes that differ. Reading a file, and counting its names, changes none of these.
fn of_attributes([old, new]: [Attr; 2]) -> Fields {
    let mut fields = Fields::default();
    fields.add_if(Field::Size, old.size != new.size);
    fields.add_if(Field::Mode, old.mode != new.mode);
    fields.add_if(Field::Uid, old.uid != new.uid);
    fields.add_if(Field::Gid, old.gid != new.gid);
    fields.add_if(Field::Device, old.rdev != new.rdev);
    fields.add_if(Field::Mtime, old.mtime != new.mtime);
    fields.add_if(Field::Ctime, old.ctime != new.ctime);
    fields.add_if(Field::Btime, old.btime != new.btime);
    fields
}
