//! Entries of a directory: each is stored where a look-up of its name searches, and points to
//! something that points back.

use format::entry_record::{EntryRecord, Target};
use format::inode_record::{FileKind, InodeRecord, LinkedRecord};
use format::key::{self, Part};
use format::subvolume_record::SubvolumeRecord;
use format::xattr_record::XattrRecord;
use inode::permissions::without_lost_list;
use store::{LostRange, prefix_end};
use vfs::FsResult;
use volume::subvol::VOLUME;

use super::contents::Owner;
use super::latest::{Attached, Last};
use super::look::{self, Look, Named, touches};
use super::small::Remedy;
use super::tree::{Directory, Reach, Tree};
use super::{Checker, Edit, Fix, Problem, ProblemKind, Stray, lists};

impl Checker<'_, '_> {
    /// An entry.
    pub(super) fn entry(
        &mut self,
        tree: &mut Tree,
        dir: &mut Directory,
        cookie: u64,
        value: &[u8],
    ) -> FsResult<()> {
        let named = match EntryRecord::decode(value) {
            Ok(entry) => Named::of(&entry),
            Err(malformed) => {
                (dir.partial, tree.partial) = (true, true);
                dir.last = None;
                let problem = Problem::new(ProblemKind::Structure, malformed.to_string());
                let problem = self.at(problem, (tree.subvol, dir.ino), b"")?;
                self.found(problem);
                return Ok(());
            }
        };
        let inode = match named.target {
            Target::Embedded(inode) => Some(inode),
            _ => None,
        };
        let (bulk, xattrs, listed) = (false, false, false);
        let attached = Attached { cookie, named: named.clone(), inode, bulk, xattrs, listed };
        dir.attached = Some(attached);
        if let Some(inode) = inode {
            self.embedded(tree, dir, (cookie, &named), &inode)?;
        }
        if tree.concerns(dir.reach) {
            self.chain(tree, dir, cookie, &named)?;
            self.target(tree, dir, cookie, &named)?;
        }
        let mut names = Vec::new();
        if let Some(last) = dir.last.take()
            && last.cookie >> 8 == cookie >> 8
        {
            names = last.names;
        }
        names.push(named.name.clone());
        dir.last = Some(Last { cookie, entry: named, names });
        Ok(())
    }

    fn embedded(
        &mut self,
        tree: &mut Tree,
        dir: &Directory,
        (cookie, named): (u64, &Named),
        inode: &InodeRecord,
    ) -> FsResult<()> {
        self.met_ino(named.ino);
        let new = tree.embedded.insert(named.ino);
        if inode.has_extents {
            tree.extended.insert(named.ino);
        }
        if !tree.concerns(dir.reach) {
            return Ok(());
        }
        if tree.directories.contains(named.ino) {
            self.two_of(tree, named.ino, "a directory and of a file beside its name");
        }
        if !new {
            let what = format!("inode {} is also stored beside another name", named.ino);
            let fix = Fix::Join(tree.subvol, tree.id, named.ino);
            let problem = Problem::new(ProblemKind::Name, what).repaired_by(fix);
            let problem = self.at(problem, (tree.subvol, dir.ino), &named.name)?;
            self.found(Problem { ino: named.ino, ..problem });
            return Ok(());
        }
        self.count(tree, dir.reach, inode);
        if inode.has_extents {
            let place = Owner { dir: dir.ino, cookie, name: &named.name };
            self.extents_of(tree, place, named.ino, inode)?;
        }
        Ok(())
    }

    /// Counts an inode that is not a directory.
    fn count(&mut self, tree: &mut Tree, reach: Reach, inode: &InodeRecord) {
        if reach == Reach::Root {
            self.report.files += 1;
            tree.files += 1;
            if inode.kind == FileKind::File && inode.elsewhere.is_none() {
                // Wraps as merges do: sizes of sparse files can add up to more than 63 bits.
                tree.bytes = tree.bytes.wrapping_add(inode.size as i64);
            }
        }
    }

    /// An entry is found by its name: it is stored under the name's hash, in an unbroken chain.
    fn chain(&mut self, tree: &Tree, dir: &Directory, cookie: u64, named: &Named) -> FsResult<()> {
        let before = dir.last.as_ref().filter(|last| last.cookie >> 8 == cookie >> 8);
        if named.target != Target::Tombstone {
            let misplaced = if cookie >> 8 != self.fs.hash.hash(&named.name) {
                Some("the name is stored under a key that no lookup reads")
            } else if before.is_some_and(|last| last.names.contains(&named.name)) {
                Some("the name is stored twice")
            } else {
                None
            };
            if let Some(what) = misplaced {
                let stray = Stray::Entry(dir.ino, cookie);
                let fix = Fix::Keep(tree.subvol, tree.id, stray);
                let problem = Problem::new(ProblemKind::Name, what.to_owned()).repaired_by(fix);
                let problem = self.at(problem, (tree.subvol, dir.ino), &named.name)?;
                self.found(Problem { ino: named.ino, ..problem });
            }
        }
        if cookie.trailing_zeros() >= 8 || dir.partial {
            return Ok(());
        }
        let predecessor = before.filter(|last| last.cookie + 1 == cookie);
        if predecessor.is_some_and(|last| last.entry.chained) {
            return Ok(());
        }
        let entry = match predecessor {
            Some(last) => Named { chained: true, ..last.entry.clone() },
            // Where damage hides it nothing can be done.
            None => match look::entry(self.pin, tree.id, dir.ino, cookie - 1)? {
                Look::Unknown | Look::Found(_) => return Ok(()),
                Look::Absent => {
                    let name = Vec::new();
                    Named { ino: 0, chained: true, name, target: Target::Tombstone }
                }
            },
        };
        let what = "the chain of names of its hash is broken before it".to_owned();
        let key = key::entry(dir.ino, cookie - 1, Part::Attributes).to_vec();
        let fix = Fix::Edits("join the chain", vec![Edit::Put(tree.id, key, entry.encode())]);
        let problem = Problem::new(ProblemKind::Name, what).repaired_by(fix);
        let problem = self.at(problem, (tree.subvol, dir.ino), &named.name)?;
        self.found(Problem { ino: named.ino, ..problem });
        Ok(())
    }

    /// What an entry points to.
    fn target(
        &mut self,
        tree: &mut Tree,
        dir: &mut Directory,
        cookie: u64,
        named: &Named,
    ) -> FsResult<()> {
        if named.target == Target::Tombstone {
            return Ok(());
        }
        dir.entries += 1;
        let problem = match named.target {
            Target::Tombstone | Target::Embedded(_) => None,
            Target::Linked(kind) => self.points_to_linked(tree, dir, (cookie, named), kind)?,
            Target::Directory => {
                dir.subdirectories += 1;
                self.points_to_directory(tree, dir, (cookie, named))?
            }
            Target::Subvolume(id) => {
                tree.mounts.insert(dir.ino);
                dir.subdirectories += 1;
                self.points_to_subvolume(tree, dir, (cookie, named), id)?
            }
        };
        if let Some(problem) = problem {
            let problem = self.at(problem, (tree.subvol, dir.ino), &named.name)?;
            self.found(Problem { ino: named.ino, ..problem });
        }
        Ok(())
    }

    /// Removes the entry: what it points to is proven to be gone.
    fn dangling(tree: &Tree, dir: &Directory, cookie: u64, named: &Named, what: &str) -> Problem {
        let key = key::entry(dir.ino, cookie, Part::Attributes).to_vec();
        let edit = if named.chained {
            let name = Vec::new();
            let stone = Named { ino: 0, chained: true, name, target: Target::Tombstone };
            Edit::Put(tree.id, key, stone.encode())
        } else {
            Edit::Delete(tree.id, key)
        };
        let fix = Fix::Edits("remove the name", vec![edit]);
        Problem::new(ProblemKind::Name, what.to_owned()).repaired_by(fix)
    }

    fn points_to_linked(
        &mut self,
        tree: &mut Tree,
        dir: &Directory,
        (cookie, named): (u64, &Named),
        kind: FileKind,
    ) -> FsResult<Option<Problem>> {
        let key = key::linked(named.ino, Part::Attributes);
        let inode = match look::get(self.pin, tree.id, &key, LinkedRecord::decode)? {
            Look::Absent => {
                let what = "the inode that the name points to does not exist";
                return Ok(Some(Self::dangling(tree, dir, cookie, named, what)));
            }
            Look::Unknown => return Ok(Some(unreadable("the inode"))),
            Look::Found(record) => record.inode,
        };
        if tree.linked.insert(named.ino) {
            self.count(tree, dir.reach, &inode);
        }
        if inode.kind != kind {
            let what = format!("the name has kind {kind:?}, the inode {:?}", inode.kind);
            let entry = Named { target: Target::Linked(inode.kind), ..named.clone() };
            let key = key::entry(dir.ino, cookie, Part::Attributes).to_vec();
            let edits = vec![Edit::Put(tree.id, key, entry.encode())];
            let fix = Fix::Edits("set the kind to the inode's", edits);
            return Ok(Some(Problem::new(ProblemKind::Name, what).repaired_by(fix)));
        }
        let back = key::back_reference(named.ino, dir.ino, cookie);
        if look::exists(self.pin, tree.id, &back)? == Look::Absent {
            let what = "the inode has no back reference to this name".to_owned();
            let edits = vec![Edit::Put(tree.id, back.to_vec(), Vec::new())];
            let fix = Fix::Edits("add it to its names", edits);
            return Ok(Some(Problem::new(ProblemKind::Name, what).repaired_by(fix)));
        }
        Ok(None)
    }

    fn points_to_directory(
        &mut self,
        tree: &mut Tree,
        dir: &Directory,
        (cookie, named): (u64, &Named),
    ) -> FsResult<Option<Problem>> {
        let record = match look::directory(self.pin, tree.id, named.ino)? {
            Look::Unknown => return Ok(Some(unreadable("the directory's record"))),
            Look::Found(record) => record,
            Look::Absent => {
                let prefix = key::directory_prefix(named.ino);
                let mut below = volume::readable::Scan::new(self.pin, tree.id, &prefix)?;
                if !below.advance()? && below.lost.is_empty() {
                    let what = "the directory that the name points to does not exist";
                    return Ok(Some(Self::dangling(tree, dir, cookie, named, what)));
                }
                tree.remade.insert(named.ino);
                let what = "the record of the directory is missing; its names exist".to_owned();
                let fix = Fix::Directory(tree.id, named.ino, (dir.ino, cookie));
                return Ok(Some(Problem::new(ProblemKind::Name, what).repaired_by(fix)));
            }
        };
        if dir.reach == Reach::Root {
            tree.files += 1;
        }
        let right = (record.parent, record.parent_cookie) == (dir.ino, cookie);
        if right && !record.detached {
            return Ok(None);
        }
        if !right {
            let place = look::entry(self.pin, tree.id, record.parent, record.parent_cookie)?;
            match place {
                Look::Unknown => return Ok(Some(unreadable("its other name"))),
                Look::Found(other)
                    if other.ino == named.ino && other.target == Target::Directory =>
                {
                    let what = "the directory has a second name";
                    return Ok(Some(Self::dangling(tree, dir, cookie, named, what)));
                }
                Look::Found(_) | Look::Absent => {}
            }
        }
        let what = if right {
            "the directory is marked as removed".to_owned()
        } else {
            format!("the directory names directory {} as its parent", record.parent)
        };
        let value = format::directory_record::DirectoryRecord {
            parent: dir.ino,
            parent_cookie: cookie,
            detached: false,
            ..record
        };
        let key = key::directory(named.ino, Part::Attributes).to_vec();
        let fix = Fix::Edits(
            "set the directory above to this one",
            vec![Edit::Put(tree.id, key, value.encode())],
        );
        Ok(Some(Problem::new(ProblemKind::Name, what).repaired_by(fix)))
    }

    fn points_to_subvolume(
        &mut self,
        tree: &Tree,
        dir: &Directory,
        (cookie, named): (u64, &Named),
        id: u64,
    ) -> FsResult<Option<Problem>> {
        if dir.reach != Reach::Root {
            // A mount in a part that a copy does not show is the source's.
            return Ok(None);
        }
        let key = key::subvolume(id);
        let look = look::get(self.pin, VOLUME, &key, SubvolumeRecord::decode)?;
        let from_copy = self.table.subvolumes.get(&id);
        let from_copy = from_copy.filter(|_| self.table.from_copies.contains(&key[..]));
        let record = match from_copy.cloned().map_or(look, Look::Found) {
            Look::Unknown => return Ok(Some(unreadable("the subvolume's record"))),
            Look::Absent => {
                let what = format!("subvolume {id} does not exist");
                return Ok(Some(Self::dangling(tree, dir, cookie, named, &what)));
            }
            Look::Found(record) => record,
        };
        let place = (tree.subvol, dir.ino, cookie);
        if record.parent == place && record.root == named.ino && !record.detached {
            return Ok(None);
        }
        if record.detached && record.parent == place && !self.table.subvolume_waits(id) {
            // It was not; the check of its record reports that.
            return Ok(None);
        }
        if record.root == named.ino && self.inherits(place, &record) {
            return Ok(None);
        }
        if record.detached {
            let what = format!("subvolume {id} was removed");
            return Ok(Some(Self::dangling(tree, dir, cookie, named, &what)));
        }
        if record.parent != place {
            let (above, directory, other) = record.parent;
            let tree_above = self.table.subvolumes.get(&above);
            let elsewhere = match tree_above {
                None => Look::Absent,
                Some(above) => look::entry(self.pin, store::TreeId(above.tree), directory, other)?,
            };
            match elsewhere {
                Look::Unknown => return Ok(Some(unreadable("its other place"))),
                Look::Found(entry) if entry.target == Target::Subvolume(id) => {
                    let what = format!("subvolume {id} is also mounted elsewhere");
                    return Ok(Some(Self::dangling(tree, dir, cookie, named, &what)));
                }
                Look::Found(_) | Look::Absent => {}
            }
            let what = format!("the record of subvolume {id} has another mount point");
            let value = SubvolumeRecord { parent: place, ..record }.encode();
            let edits = vec![Edit::Put(VOLUME, key.to_vec(), value)];
            let fix = Fix::Edits("set its mount point to this name", edits);
            return Ok(Some(Problem::new(ProblemKind::Subvolume, what).repaired_by(fix)));
        }
        let what = format!("the name points to inode {}, not to its root", named.ino);
        let entry = Named { ino: record.root, ..named.clone() };
        let key = key::entry(dir.ino, cookie, Part::Attributes).to_vec();
        let fix = Fix::Edits("point it to the root", vec![Edit::Put(tree.id, key, entry.encode())]);
        Ok(Some(Problem::new(ProblemKind::Subvolume, what).repaired_by(fix)))
    }

    /// Contents or attributes beside an entry.
    pub(super) fn attached(
        &mut self,
        tree: &Tree,
        dir: &mut Directory,
        (cookie, part): (u64, Part),
        value: &[u8],
        lost: &[LostRange],
    ) -> FsResult<()> {
        if dir.attached.as_ref().is_some_and(|attached| attached.cookie != cookie) {
            self.close_attached(tree, dir, lost)?;
        }
        let decoded = (part == Part::Xattrs).then(|| XattrRecord::decode(value));
        let listed = decoded.as_ref().is_some_and(lists::may_list);
        let malformed = decoded.and_then(Result::err);
        let mut owner = None;
        if let Some(attached) = &mut dir.attached {
            attached.bulk |= part == Part::Bulk;
            attached.xattrs |= part == Part::Xattrs;
            attached.listed |= listed;
            owner = Some((attached.named.clone(), attached.inode));
        }
        if !tree.concerns(dir.reach) {
            return Ok(());
        }
        let name = owner.as_ref().map(|(named, _)| named.name.clone()).unwrap_or_default();
        let unknown = || format!("an unexpected {part:?} record: the inode has no such flag");
        let problem = match owner {
            _ if malformed.is_some() => {
                let what = malformed.map(|malformed| malformed.to_string()).unwrap_or_default();
                Problem::new(ProblemKind::Structure, what)
            }
            Some((named, Some(inode))) if part == Part::Bulk => {
                let length = Some(value.len() as u64);
                let wrong = self.small_contents(tree.id, named.ino, &inode, length)?;
                let Some(wrong) = wrong else { return Ok(()) };
                let fix = match wrong.remedy {
                    Remedy::Note(how, inode) => {
                        Some(corrected(tree, (dir.ino, cookie), &named, inode, how))
                    }
                    Remedy::Keep => Some(keep_bulk(tree, dir, cookie)),
                    Remedy::Nothing => None,
                };
                Problem { fix, ino: named.ino, ..Problem::new(wrong.kind, wrong.what) }
            }
            Some((_, Some(inode))) if inode.has_xattrs => return Ok(()),
            Some((named, Some(inode))) => {
                let right = InodeRecord { has_xattrs: true, ..inode };
                let how = "set the flag for them";
                let fix = corrected(tree, (dir.ino, cookie), &named, right, how);
                let problem = Problem::new(ProblemKind::Name, unknown()).repaired_by(fix);
                Problem { ino: named.ino, ..problem }
            }
            Some((_, None)) if part == Part::Bulk => {
                Problem::new(ProblemKind::Name, unknown()).repaired_by(keep_bulk(tree, dir, cookie))
            }
            None if part == Part::Bulk => {
                let prefix = key::entry(dir.ino, cookie, Part::Attributes);
                let unsure = touches(lost, &prefix) || dir.partial;
                if unsure || look::exists(self.pin, tree.id, &prefix)? != Look::Absent {
                    return Ok(());
                }
                let what = format!("{} bytes of contents whose name is gone", value.len());
                Problem::new(ProblemKind::Name, what).repaired_by(keep_bulk(tree, dir, cookie))
            }
            None if dir.partial || !lost.is_empty() => return Ok(()),
            Some((_, None)) | None => {
                let edits = vec![Edit::Delete(tree.id, key::entry(dir.ino, cookie, part).to_vec())];
                let fix = Fix::Edits("remove it", edits);
                Problem::new(ProblemKind::Name, unknown()).repaired_by(fix)
            }
        };
        let problem = self.at(problem, (tree.subvol, dir.ino), &name)?;
        self.found(problem);
        Ok(())
    }

    /// The end of what is stored beside an entry: all that the entry announced was there.
    pub(super) fn close_attached(
        &mut self,
        tree: &Tree,
        dir: &mut Directory,
        lost: &[LostRange],
    ) -> FsResult<()> {
        let Some(attached) = dir.attached.take() else { return Ok(()) };
        let Some(inode) = attached.inode else { return Ok(()) };
        let (bulk, xattrs) =
            (inode.has_bulk && !attached.bulk, inode.has_xattrs && !attached.xattrs);
        if !tree.concerns(dir.reach) {
            return Ok(());
        }
        if !bulk && !xattrs {
            return self.close_list(tree, dir, &attached, inode, lost);
        }
        let name = &attached.named.name;
        let parts = [(bulk, Part::Bulk, "contents"), (xattrs, Part::Xattrs, "attributes")];
        for (missing, part, what) in parts {
            if !missing {
                continue;
            }
            let key = key::entry(dir.ino, attached.cookie, part);
            let end = prefix_end(&key).unwrap_or_default();
            let hidden = lost.iter().any(|lost| {
                lost.from < end && lost.to.as_ref().is_none_or(|to| to.as_slice() > &key[..])
            });
            let problem = if hidden {
                unreadable(what)
            } else {
                let problem =
                    Problem::new(ProblemKind::Contents, format!("its {what} are missing"));
                let how = "clear the flag for them";
                let less = if part == Part::Bulk {
                    let wrong = self.small_contents(tree.id, attached.named.ino, &inode, None)?;
                    match wrong.map(|wrong| wrong.remedy) {
                        Some(Remedy::Note(_, less)) => Some(less),
                        _ => None,
                    }
                } else {
                    let mode = without_lost_list(inode.mode);
                    Some(InodeRecord { has_xattrs: false, mode, ..inode })
                };
                let place = (dir.ino, attached.cookie);
                let fix = less.map(|less| corrected(tree, place, &attached.named, less, how));
                Problem { fix, ..problem }
            };
            let problem = self.at(problem, (tree.subvol, dir.ino), name)?;
            self.found(Problem { ino: attached.named.ino, ..problem });
        }
        Ok(())
    }

    fn close_list(
        &mut self,
        tree: &Tree,
        dir: &Directory,
        attached: &Attached,
        inode: InodeRecord,
        lost: &[LostRange],
    ) -> FsResult<()> {
        let key = key::entry(dir.ino, attached.cookie, Part::Xattrs);
        if !lists::lacks_list(inode.mode, attached.listed) || touches(lost, &key) {
            return Ok(());
        }
        let Some((mut edits, has_xattrs)) = self.strip_list(tree.id, &key)? else {
            return Ok(());
        };
        let less = InodeRecord { has_xattrs, mode: without_lost_list(inode.mode), ..inode };
        let named = &attached.named;
        let entry = Named { target: Target::Embedded(less), ..named.clone() };
        let at = key::entry(dir.ino, attached.cookie, Part::Attributes).to_vec();
        edits.push(Edit::Put(tree.id, at, entry.encode()));
        let problem = lists::problem().repaired_by(Fix::Edits(lists::REMEDY, edits));
        let problem = self.at(problem, (tree.subvol, dir.ino), &named.name)?;
        self.found(Problem { ino: named.ino, ..problem });
        Ok(())
    }
}

/// The entry with a corrected inode.
fn corrected(
    tree: &Tree,
    (dir, cookie): (u64, u64),
    named: &Named,
    inode: InodeRecord,
    how: &'static str,
) -> Fix {
    let entry = Named { target: Target::Embedded(inode), ..named.clone() };
    let at = key::entry(dir, cookie, Part::Attributes).to_vec();
    Fix::Edits(how, vec![Edit::Put(tree.id, at, entry.encode())])
}

/// Keeps small contents as a separate file.
fn keep_bulk(tree: &Tree, dir: &Directory, cookie: u64) -> Fix {
    Fix::Keep(tree.subvol, tree.id, Stray::Bulk(dir.ino, cookie))
}

/// What cannot be read, and why nothing is done about it.
fn unreadable(what: &str) -> Problem {
    Problem::new(ProblemKind::Unreadable, format!("{what} cannot be read"))
}
