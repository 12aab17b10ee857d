//! Inodes under their own number, their names and link counts; and extents without an inode.

use format::entry_record::Target;
use format::inode_record::LinkedRecord;
use format::key::{self, Parsed, Part};
use format::xattr_record::XattrRecord;
use inode::permissions::without_lost_list;
use store::LostRange;
use vfs::FsResult;
use volume::readable::Scan;
use volume::subvol::VOLUME;

use super::contents::Owner;
use super::look::{self, Look, touches};
use super::small::Remedy;
use super::tree::Tree;
use super::{Checker, Edit, Fix, Problem, ProblemKind, Stray, lists};

/// The current inode.
#[derive(Default)]
struct Linked {
    ino: u64,
    record: Option<LinkedRecord>,
    /// Number of its names that were found.
    names: u32,
    /// Bytes of small contents that were found.
    bulk: Option<u64>,
    xattrs: bool,
    /// Whether an access list is among its attributes.
    listed: bool,
    /// Whether part of it could not be read or decoded.
    partial: bool,
}

impl Checker<'_, '_> {
    /// Checks the inodes under their own number whose keys start with a prefix.
    pub(super) fn linked_inodes(&mut self, tree: &mut Tree, prefix: &[u8]) -> FsResult<()> {
        let mut scan = Scan::new(self.pin, tree.id, prefix)?;
        let mut at: Option<Linked> = None;
        while scan.advance()? {
            if !self.did_record() {
                return Ok(());
            }
            let Ok(parsed) = key::parse(&scan.key) else {
                tree.partial = true;
                let what = format!("no key of an inode: {:02x?}", scan.key);
                let problem = Problem::new(ProblemKind::Structure, what);
                self.found(Problem { subvolume: tree.subvol, ..problem });
                continue;
            };
            let (Parsed::Linked { ino, .. } | Parsed::BackReference { ino, .. }) = parsed else {
                continue;
            };
            if at.as_ref().is_none_or(|at| at.ino != ino) {
                if let Some(done) = at.take() {
                    self.finish_linked(tree, &done, &scan.lost)?;
                }
                at = Some(Linked { ino, ..Linked::default() });
            }
            let inode = at.as_mut().expect("invariant: it was just set");
            match parsed {
                Parsed::BackReference { directory, cookie, .. } => {
                    self.name_of(tree, inode, (directory, cookie), &scan.key)?;
                }
                Parsed::Linked { part: Part::Attributes, .. } => {
                    match LinkedRecord::decode(&scan.value) {
                        Ok(record) => inode.record = Some(record),
                        Err(malformed) => {
                            (inode.partial, tree.partial) = (true, true);
                            let what = malformed.to_string();
                            self.about(tree, ino, Problem::new(ProblemKind::Structure, what))?;
                        }
                    }
                }
                Parsed::Linked { part: Part::Bulk, .. } => {
                    inode.bulk = Some(scan.value.len() as u64);
                }
                Parsed::Linked { part: Part::Xattrs, .. } => {
                    inode.xattrs = true;
                    let decoded = XattrRecord::decode(&scan.value);
                    inode.listed = lists::may_list(&decoded);
                    if let Err(malformed) = decoded {
                        let what = malformed.to_string();
                        self.about(tree, ino, Problem::new(ProblemKind::Structure, what))?;
                    }
                }
                _ => {}
            }
        }
        if let Some(done) = at.take() {
            self.finish_linked(tree, &done, &scan.lost)?;
        }
        self.report_lost(tree, &scan.lost);
        tree.lost.append(&mut scan.lost);
        Ok(())
    }

    fn about(&mut self, tree: &Tree, ino: u64, problem: Problem) -> FsResult<()> {
        let path = self.path_of_linked(tree.subvol, tree.id, ino)?;
        self.found(Problem { subvolume: tree.subvol, path, ino, ..problem });
        Ok(())
    }

    /// A name of an inode: the entry points back.
    fn name_of(
        &mut self,
        tree: &Tree,
        inode: &mut Linked,
        (directory, cookie): (u64, u64),
        key: &[u8],
    ) -> FsResult<()> {
        match look::entry(self.pin, tree.id, directory, cookie)? {
            Look::Unknown => {
                inode.names += 1;
                inode.partial = true;
                return Ok(());
            }
            Look::Found(entry) if entry.ino == inode.ino && matches_linked(&entry.target) => {
                inode.names += 1;
                return Ok(());
            }
            Look::Found(_) | Look::Absent => {}
        }
        let what = format!("inode {} refers to a missing entry", inode.ino);
        let edits = vec![Edit::Delete(tree.id, key.to_vec())];
        let fix = Fix::Edits("forget that name", edits);
        let problem = Problem::new(ProblemKind::Name, what).repaired_by(fix);
        self.about(tree, inode.ino, problem)
    }

    fn finish_linked(
        &mut self,
        tree: &mut Tree,
        inode: &Linked,
        lost: &[LostRange],
    ) -> FsResult<()> {
        let ino = inode.ino;
        self.met_ino(ino);
        let partial = inode.partial || touches(lost, &key::linked_prefix(ino));
        let Some(record) = inode.record else {
            if !partial
                && look::exists(self.pin, tree.id, &key::linked(ino, Part::Attributes))?
                    == Look::Absent
            {
                self.leftovers(tree, inode)?;
            }
            return Ok(());
        };
        for (known, what) in [(&tree.embedded, "beside a name"), (&tree.directories, "a directory")]
        {
            if known.contains(ino) {
                self.two_of(
                    tree,
                    ino,
                    &format!("an inode under its own number and of one, {what}"),
                );
            }
        }
        if record.inode.has_extents {
            tree.extended.insert(ino);
            let owner = Owner { dir: 0, cookie: 0, name: b"" };
            self.extents_of(tree, owner, ino, &record.inode)?;
        }
        if partial {
            return Ok(());
        }
        if !self.linked_beside(tree, inode, &record)? {
            return Ok(());
        }
        if lists::lacks_list(record.inode.mode, inode.listed) {
            let key = key::linked(ino, Part::Xattrs);
            let Some((mut edits, has_xattrs)) = self.strip_list(tree.id, &key)? else {
                return Ok(());
            };
            let mut less = record;
            less.inode.has_xattrs = has_xattrs;
            less.inode.mode = without_lost_list(less.inode.mode);
            edits.push(put_edit(tree, ino, &less));
            let problem = lists::problem().repaired_by(Fix::Edits(lists::REMEDY, edits));
            return self.about(tree, ino, problem);
        }
        self.links_of(tree, inode, &record, lost)
    }

    /// An inode has as many names as it counts; one without names waits to be removed.
    fn links_of(
        &mut self,
        tree: &Tree,
        inode: &Linked,
        record: &LinkedRecord,
        lost: &[LostRange],
    ) -> FsResult<()> {
        let ino = inode.ino;
        if record.nlink == inode.names && record.nlink > 0 {
            return Ok(());
        }
        if inode.names > 0 {
            let what =
                format!("its link count is {}, but it has {} names", record.nlink, inode.names);
            let right = record.with_nlink(inode.names);
            let fix = put(tree, ino, &right, "set the count of links");
            let problem = Problem::new(ProblemKind::Links, what).repaired_by(fix);
            return self.about(tree, ino, problem);
        }
        if record.nlink > 0 {
            if !tree.whole || tree.is_unsure() {
                return Ok(());
            }
            let what = format!("inode {ino} has a link count of {} and no name", record.nlink);
            let fix = Fix::Keep(tree.subvol, tree.id, Stray::Linked(ino));
            let problem = Problem::new(ProblemKind::Name, what).repaired_by(fix);
            return self.about(tree, ino, problem);
        }
        // What cannot be read may be its name, and a removal cannot be undone.
        if tree.is_unsure() || !lost.is_empty() {
            return Ok(());
        }
        // It was unlinked and has no name; a copy has the inode, but not the note that it waits.
        let note = key::orphan(tree.subvol, ino);
        if !tree.original || look::exists(self.pin, VOLUME, &note)? != Look::Absent {
            return Ok(());
        }
        let what = format!("inode {ino} was unlinked, but is not queued for removal");
        let edits = vec![Edit::Put(VOLUME, note.to_vec(), Vec::new())];
        let fix = Fix::Edits("have it removed", edits);
        self.about(tree, ino, Problem::new(ProblemKind::Name, what).repaired_by(fix))
    }

    /// Whether the data beside an inode is what the inode records; reports it if not.
    fn linked_beside(
        &mut self,
        tree: &Tree,
        inode: &Linked,
        record: &LinkedRecord,
    ) -> FsResult<bool> {
        let ino = inode.ino;
        let recorded = record.inode;
        if let Some(wrong) = self.small_contents(tree.id, ino, &recorded, inode.bulk)? {
            let fix = match wrong.remedy {
                Remedy::Note(how, inode) => {
                    Some(put(tree, ino, &LinkedRecord { inode, ..*record }, how))
                }
                Remedy::Keep => Some(Fix::Keep(tree.subvol, tree.id, Stray::LinkedBulk(ino))),
                Remedy::Nothing => None,
            };
            let is_repaired = fix.is_some();
            let problem = Problem::new(wrong.kind, wrong.what);
            self.about(tree, ino, Problem { fix, ..problem })?;
            if is_repaired {
                return Ok(false);
            }
        }
        if inode.xattrs == recorded.has_xattrs {
            return Ok(true);
        }
        let what = "attributes are missing, or unexpected".to_owned();
        let mut right = *record;
        right.inode.has_xattrs = inode.xattrs;
        if !inode.xattrs {
            right.inode.mode = without_lost_list(recorded.mode);
        }
        let fix = put(tree, ino, &right, "set the flags to what exists");
        self.about(tree, ino, Problem::new(ProblemKind::Contents, what).repaired_by(fix))?;
        Ok(false)
    }

    /// Names, contents or attributes of an inode whose record is gone. Entries that point to it are
    /// reported, and removed, in their directories. Contents are kept, as those beside an entry
    /// are.
    fn leftovers(&mut self, tree: &Tree, inode: &Linked) -> FsResult<()> {
        if inode.names > 0 || !(inode.bulk.is_some() || inode.xattrs) {
            return Ok(());
        }
        if inode.bulk.is_some() {
            if !tree.whole || tree.is_unsure() {
                return Ok(());
            }
            let what = format!("contents of inode {}, which is missing", inode.ino);
            let fix = Fix::Keep(tree.subvol, tree.id, Stray::LinkedBulk(inode.ino));
            let problem = Problem::new(ProblemKind::Name, what).repaired_by(fix);
            return self.about(tree, inode.ino, problem);
        }
        let what = format!("attributes of inode {}, which is missing", inode.ino);
        let key = key::linked(inode.ino, Part::Xattrs).to_vec();
        let fix = Fix::Edits("remove them", vec![Edit::Delete(tree.id, key)]);
        self.about(tree, inode.ino, Problem::new(ProblemKind::Name, what).repaired_by(fix))
    }

    /// Each extent belongs to an inode that records extents.
    pub(super) fn owners_of_extents(&mut self, tree: &mut Tree) -> FsResult<()> {
        let mut scan = Scan::new(self.pin, tree.id, &key::EXTENTS_PREFIX)?;
        let mut last = None;
        while scan.advance()? {
            if !self.did_record() {
                return Ok(());
            }
            let Ok(Parsed::Extent { ino, .. }) = key::parse(&scan.key) else {
                let what = format!("no key of an extent: {:02x?}", scan.key);
                let problem = Problem::new(ProblemKind::Structure, what);
                self.found(Problem { subvolume: tree.subvol, ..problem });
                continue;
            };
            // A record that could not be read may have been that of the inode.
            let known = last == Some(ino) || tree.extended.contains(ino);
            if known || !tree.whole || tree.is_unsure() {
                continue;
            }
            last = Some(ino);
            let key = key::linked(ino, Part::Attributes);
            let linked = look::get(self.pin, tree.id, &key, LinkedRecord::decode)?;
            let problem = match linked {
                Look::Unknown => continue,
                Look::Found(record) => {
                    let what = "it has extents, but no flag for them".to_owned();
                    let mut right = record;
                    right.inode.has_extents = true;
                    let fix = put(tree, ino, &right, "set the flag for extents");
                    Problem::new(ProblemKind::Contents, what).repaired_by(fix)
                }
                Look::Absent if tree.embedded.contains(ino) => {
                    let what = format!("inode {ino} has extents, but no flag for them");
                    let fix = Fix::Extended(tree.id, ino);
                    Problem::new(ProblemKind::Contents, what).repaired_by(fix)
                }
                Look::Absent => {
                    let what = format!("extents of inode {ino}, which is missing");
                    let fix = Fix::Keep(tree.subvol, tree.id, Stray::Extents(ino));
                    Problem::new(ProblemKind::Contents, what).repaired_by(fix)
                }
            };
            self.about(tree, ino, problem)?;
        }
        tree.lost.append(&mut scan.lost);
        Ok(())
    }
}

fn matches_linked(target: &Target) -> bool {
    matches!(target, Target::Linked(_))
}

fn put(tree: &Tree, ino: u64, record: &LinkedRecord, what: &'static str) -> Fix {
    Fix::Edits(what, vec![put_edit(tree, ino, record)])
}

fn put_edit(tree: &Tree, ino: u64, record: &LinkedRecord) -> Edit {
    let mut value = Vec::new();
    record.encode(&mut value);
    Edit::Put(tree.id, key::linked(ino, Part::Attributes).to_vec(), value)
}
