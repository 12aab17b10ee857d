//! One subvolume's tree: its directories in the order of their numbers, each with its entries.
//!
//! Each relation is checked from both ends. An entry points to a directory whose record points
//! back, and a record points to an entry that points to it. A copy of a directory that was not
//! pruned shares its source's whole tree; unreachable records are normal there.

use std::collections::{BTreeMap, BTreeSet};

use device::{Map, Set};
use format::directory_record::DirectoryRecord;
use format::key::{self, Parsed, Part};
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use format::xattr_record::XattrRecord;
use inode::permissions::without_lost_list;
use store::{LostRange, TreeId};
use vfs::FsResult;
use volume::readable::Scan;
use volume::subvol::VOLUME;

use super::latest::{Attached, Last};
use super::look::{self, Look, touches};
use super::sets::InoSet;
use super::{Checker, Edit, Fix, Problem, ProblemKind, Stray, lists};

/// Most directories that are remembered to point to the root.
const REMEMBERED_MAX: usize = 1 << 20;

/// Where the parents of a directory lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// To the subvolume's root.
    Root,
    /// To a directory that was detached and waits to be reclaimed.
    Detached,
    /// Nowhere, or in a loop.
    Nowhere,
    /// To something that cannot be read.
    Unknown,
}

/// What is known of a tree during the walk.
pub(super) struct Tree {
    pub(super) subvol: u64,
    pub(super) id: TreeId,
    pub(super) root: u64,
    /// Whether everything in it must be reachable.
    pub(super) whole: bool,
    /// Whether it is not a copy of another: then everything in it belongs to it.
    pub(super) original: bool,
    reach: Map<u64, Reach>,
    /// Inodes that are stored in entries.
    pub(super) embedded: InoSet,
    /// Directories.
    pub(super) directories: InoSet,
    /// Directories in which subvolumes are mounted.
    pub(super) mounts: BTreeSet<u64>,
    /// Inodes that record extents.
    pub(super) extended: InoSet,
    /// Linked inodes that an entry pointed to.
    pub(super) linked: InoSet,
    /// Inodes that are reachable, and the bytes of their contents.
    pub(super) files: i64,
    pub(super) bytes: i64,
    /// What could not be read.
    pub(super) lost: Vec<LostRange>,
    /// Whether a record does not decode: then the set of inodes is not known.
    pub(super) partial: bool,
    /// Directories that have entries and no record, with their entries.
    headless: BTreeMap<u64, i64>,
    /// Directories without a record to which an entry leads.
    pub(super) remade: BTreeSet<u64>,
}

/// The current directory.
pub(super) struct Directory {
    pub(super) ino: u64,
    pub(super) record: Option<DirectoryRecord>,
    pub(super) reach: Reach,
    pub(super) entries: i64,
    pub(super) subdirectories: i64,
    /// The entry before, and the names of its hash so far.
    pub(super) last: Option<Last>,
    pub(super) attached: Option<Attached>,
    xattrs: bool,
    /// Whether an access list is among its attributes.
    listed: bool,
    /// Whether part of it could not be read or decoded.
    pub(super) partial: bool,
}

impl Tree {
    pub(super) fn new(subvol: u64, record: &SubvolumeRecord) -> Tree {
        let original = record.source.0 == 0;
        Tree {
            subvol,
            id: TreeId(record.tree),
            root: record.root,
            whole: original || record.pruned,
            original,
            reach: Map::default(),
            embedded: InoSet::default(),
            directories: InoSet::default(),
            mounts: BTreeSet::new(),
            extended: InoSet::default(),
            linked: InoSet::default(),
            files: 1,
            bytes: 0,
            lost: Vec::new(),
            partial: false,
            headless: BTreeMap::new(),
            remade: BTreeSet::new(),
        }
    }

    /// Whether a directory is checked.
    pub(super) fn concerns(&self, reach: Reach) -> bool {
        reach == Reach::Root || self.whole
    }

    /// Whether part of it is unknown, to which an object without an owner may belong.
    pub(super) fn is_unsure(&self) -> bool {
        self.partial || !self.lost.is_empty()
    }
}

impl Checker<'_, '_> {
    /// Checks a subvolume.
    pub(super) fn subvolume(&mut self, id: u64) -> FsResult<()> {
        let Some(record) = self.table.subvolumes.get(&id).cloned() else { return Ok(()) };
        self.report.subvolumes += 1;
        self.root_record(&record, id)?;
        if self.by_difference(&record, id)? || self.report.stopped {
            return Ok(());
        }
        let mut tree = Tree::new(id, &record);
        let before = self.report.problems_count;
        match look::directory(self.pin, tree.id, tree.root)? {
            Look::Found(_) => {}
            Look::Unknown => {
                let what = "the record of its root directory cannot be read".to_owned();
                let problem = Problem::new(ProblemKind::Unreadable, what);
                let problem = self.at(problem, (id, tree.root), b"")?;
                self.found(problem);
            }
            Look::Absent => {
                let what = "its root directory has no record".to_owned();
                let fix = Fix::Directory(tree.id, tree.root, (tree.root, 0));
                let problem = Problem::new(ProblemKind::Name, what).repaired_by(fix);
                let problem = self.at(problem, (id, tree.root), b"")?;
                self.found(problem);
            }
        }
        self.directories(&mut tree, &key::DIRECTORIES_PREFIX)?;
        self.linked_inodes(&mut tree, &key::LINKED_PREFIX)?;
        self.owners_of_extents(&mut tree)?;
        if !self.report.stopped {
            self.compare_usage(&tree, &record)?;
        }
        if !self.report.stopped && self.report.problems_count == before && !tree.is_unsure() {
            self.note_clean(tree, &record);
        }
        Ok(())
    }

    /// The root of a subvolume was not removed; the root of one that is no copy is its own parent.
    fn root_record(&mut self, of: &SubvolumeRecord, id: u64) -> FsResult<()> {
        let tree = TreeId(of.tree);
        let Look::Found(record) = look::directory(self.pin, tree, of.root)? else { return Ok(()) };
        let is_elsewhere = of.source.0 == 0 && record.parent != of.root;
        if !is_elsewhere && !record.detached {
            return Ok(());
        }
        let what = if record.detached {
            "its root directory is marked as removed".to_owned()
        } else {
            format!("its root directory names directory {} as its parent", record.parent)
        };
        let (parent, parent_cookie) =
            if is_elsewhere { (of.root, 0) } else { (record.parent, record.parent_cookie) };
        let value = DirectoryRecord { parent, parent_cookie, detached: false, ..record }.encode();
        let key = key::directory(of.root, Part::Attributes).to_vec();
        let fix = Fix::Edits("record that it is the root", vec![Edit::Put(tree, key, value)]);
        let problem = Problem::new(ProblemKind::Name, what).repaired_by(fix);
        let problem = self.at(problem, (id, of.root), b"")?;
        self.found(Problem { ino: of.root, ..problem });
        Ok(())
    }

    /// Reports that two objects have one number. Which of them it belongs to is not known.
    pub(super) fn two_of(&mut self, tree: &Tree, ino: u64, what: &str) {
        let what = format!("{ino} is the number of {what}");
        let problem = Problem::new(ProblemKind::Name, what);
        self.found(Problem { subvolume: tree.subvol, ino, ..problem });
    }

    /// Reports what cannot be read of a tree.
    pub(super) fn report_lost(&mut self, tree: &Tree, lost: &[LostRange]) {
        for range in lost {
            let what = format!(
                "keys {} of tree {} cannot be read: {}",
                describe_range(range),
                tree.id.0,
                range.damage
            );
            let problem = Problem::new(ProblemKind::Unreadable, what);
            let problem = problem.in_file(&range.damage.file, range.damage.offset);
            self.found(Problem { subvolume: tree.subvol, ..problem });
        }
    }

    /// Checks the directories whose keys start with a prefix.
    pub(super) fn directories(&mut self, tree: &mut Tree, prefix: &[u8]) -> FsResult<()> {
        let mut scan = Scan::new(self.pin, tree.id, prefix)?;
        let mut at: Option<Directory> = None;
        while scan.advance()? {
            if !self.did_record() {
                return Ok(());
            }
            let Ok(Parsed::Entry { directory, cookie, part }) = key::parse(&scan.key) else {
                tree.partial = true;
                let what = format!("no key of a directory: {:02x?}", scan.key);
                let problem = Problem::new(ProblemKind::Structure, what);
                self.found(Problem { subvolume: tree.subvol, ..problem });
                continue;
            };
            if at.as_ref().is_none_or(|at| at.ino != directory) {
                if let Some(done) = at.take() {
                    self.finish(tree, done, &scan.lost)?;
                }
                at = Some(self.begin(tree, directory)?);
            }
            let dir = at.as_mut().expect("invariant: it was just set");
            match (cookie, part) {
                (0, Part::Attributes) => self.own_record(tree, dir, &scan.value)?,
                (0, Part::Xattrs) => self.own_xattrs(tree, dir, &scan.value)?,
                (1.., Part::Attributes) => {
                    self.close_attached(tree, dir, &scan.lost)?;
                    self.entry(tree, dir, cookie, &scan.value)?;
                }
                (1.., Part::Bulk | Part::Xattrs) => {
                    self.attached(tree, dir, (cookie, part), &scan.value, &scan.lost)?;
                }
                _ => {
                    let what = format!("a record that no directory has: {part:?}");
                    let edits = vec![Edit::Delete(tree.id, scan.key.clone())];
                    let fix = Fix::Edits("remove it", edits);
                    let problem = Problem::new(ProblemKind::Structure, what).repaired_by(fix);
                    let problem = self.at(problem, (tree.subvol, directory), b"")?;
                    self.found(problem);
                }
            }
        }
        if let Some(done) = at.take() {
            self.finish(tree, done, &scan.lost)?;
        }
        self.report_lost(tree, &scan.lost);
        tree.lost.append(&mut scan.lost);
        self.headless(tree);
        Ok(())
    }

    fn begin(&mut self, tree: &mut Tree, ino: u64) -> FsResult<Directory> {
        self.met_ino(ino);
        let reach = self.reach(tree, ino)?;
        tree.directories.insert(ino);
        if tree.embedded.contains(ino) && tree.concerns(reach) {
            self.two_of(tree, ino, "a directory and of a file beside its name");
        }
        self.report.directories += u64::from(reach == Reach::Root);
        Ok(Directory {
            ino,
            record: None,
            reach,
            entries: 0,
            subdirectories: 0,
            last: None,
            attached: None,
            xattrs: false,
            listed: false,
            partial: false,
        })
    }

    /// Where the parents of a directory lead. A loop is reported when it is first met.
    pub(super) fn reach(&mut self, tree: &mut Tree, dir: u64) -> FsResult<Reach> {
        let mut chain: Vec<u64> = Vec::new();
        let mut met: Set<u64> = Set::default();
        let mut at = dir;
        let reach = loop {
            if at == tree.root {
                break Reach::Root;
            }
            if let Some(&known) = tree.reach.get(&at) {
                break known;
            }
            if !met.insert(at) {
                self.circle(tree, &chain, at)?;
                break Reach::Nowhere;
            }
            chain.push(at);
            match look::directory(self.pin, tree.id, at)? {
                Look::Unknown => break Reach::Unknown,
                Look::Absent => break Reach::Nowhere,
                Look::Found(record) if record.detached => break Reach::Detached,
                Look::Found(record) => at = record.parent,
            }
        };
        if tree.reach.len() + chain.len() > REMEMBERED_MAX {
            tree.reach.clear();
        }
        for dir in chain {
            tree.reach.insert(dir, reach);
        }
        Ok(reach)
    }

    fn circle(&mut self, tree: &Tree, chain: &[u64], from: u64) -> FsResult<()> {
        let start = chain.iter().position(|&dir| dir == from).unwrap_or(0);
        let least = chain[start..].iter().copied().min().unwrap_or(from);
        if !tree.whole {
            return Ok(());
        }
        let what = format!(
            "{} directories contain each other, and not below the root",
            chain.len() - start
        );
        let fix = Fix::Keep(tree.subvol, tree.id, Stray::Directory(least));
        let problem = Problem::new(ProblemKind::Name, what).repaired_by(fix);
        let problem = self.at(problem, (tree.subvol, least), b"")?;
        self.found(Problem { ino: least, ..problem });
        Ok(())
    }

    /// The record of a directory: an entry points to it.
    fn own_record(&mut self, tree: &mut Tree, dir: &mut Directory, value: &[u8]) -> FsResult<()> {
        let record = match DirectoryRecord::decode(value) {
            Ok(record) => record,
            Err(malformed) => {
                (dir.partial, tree.partial) = (true, true);
                let problem = Problem::new(ProblemKind::Structure, malformed.to_string());
                let problem = self.at(problem, (tree.subvol, dir.ino), b"")?;
                self.found(Problem { ino: dir.ino, ..problem });
                return Ok(());
            }
        };
        dir.record = Some(record);
        if dir.ino == tree.root || !tree.concerns(dir.reach) {
            return Ok(());
        }
        if record.detached {
            self.detached(tree, dir);
            return Ok(());
        }
        let place = look::entry(self.pin, tree.id, record.parent, record.parent_cookie)?;
        let is_named = match place {
            Look::Unknown => return Ok(()),
            Look::Absent => false,
            Look::Found(entry) => {
                entry.ino == dir.ino && entry.target == format::entry_record::Target::Directory
            }
        };
        if !is_named {
            let what = format!("no entry points to directory {}", dir.ino);
            let fix = Fix::Keep(tree.subvol, tree.id, Stray::Directory(dir.ino));
            let problem = Problem::new(ProblemKind::Name, what).repaired_by(fix);
            let problem = self.at(problem, (tree.subvol, dir.ino), b"")?;
            self.found(Problem { ino: dir.ino, ..problem });
        }
        Ok(())
    }

    /// A detached directory waits to be reclaimed.
    fn detached(&mut self, tree: &Tree, dir: &Directory) {
        // A copy has the directories that were detached in its source, and not their records.
        if !tree.original || self.table.waits(tree.subvol, dir.ino) {
            return;
        }
        let what = format!("directory {} was removed, but is not queued for reclaim", dir.ino);
        let fix = self.table.detach(tree.subvol, dir.ino);
        let problem = Problem::new(ProblemKind::Name, what).repaired_by(fix);
        self.found(Problem { subvolume: tree.subvol, ino: dir.ino, ..problem });
    }

    fn own_xattrs(&mut self, tree: &Tree, dir: &mut Directory, value: &[u8]) -> FsResult<()> {
        dir.xattrs = true;
        let flagged = dir.record.is_some_and(|record| record.has_xattrs);
        let mut problem = None;
        let decoded = XattrRecord::decode(value);
        dir.listed = lists::may_list(&decoded);
        if let Err(malformed) = decoded {
            problem = Some(Problem::new(ProblemKind::Structure, malformed.to_string()));
        } else if dir.record.is_some() && !flagged && tree.concerns(dir.reach) {
            let what = "unexpected attributes: the directory has no such flag".to_owned();
            let fix = dir.record.map(|record| {
                let value = DirectoryRecord { has_xattrs: true, ..record }.encode();
                let key = key::directory(dir.ino, Part::Attributes).to_vec();
                Fix::Edits("set the flag for them", vec![Edit::Put(tree.id, key, value)])
            });
            problem = Some(Problem { fix, ..Problem::new(ProblemKind::Name, what) });
        }
        if let Some(problem) = problem {
            let problem = self.at(problem, (tree.subvol, dir.ino), b"")?;
            self.found(Problem { ino: dir.ino, ..problem });
        }
        Ok(())
    }

    /// The end of a directory: its own counts match what was there.
    fn finish(&mut self, tree: &mut Tree, mut dir: Directory, lost: &[LostRange]) -> FsResult<()> {
        self.close_attached(tree, &mut dir, lost)?;
        if !tree.concerns(dir.reach) {
            return Ok(());
        }
        let partial = dir.partial || touches(lost, &key::directory_prefix(dir.ino));
        let Some(record) = dir.record else { return self.without_record(tree, &dir, partial) };
        if dir.record.is_some_and(|record| record.has_xattrs) && !dir.xattrs && !partial {
            let what = "its attributes are missing".to_owned();
            let mode = without_lost_list(record.mode);
            let value = DirectoryRecord { has_xattrs: false, mode, ..record }.encode();
            let key = key::directory(dir.ino, Part::Attributes).to_vec();
            let fix = Fix::Edits("clear the flag for them", vec![Edit::Put(tree.id, key, value)]);
            let problem = Problem::new(ProblemKind::Name, what).repaired_by(fix);
            let problem = self.at(problem, (tree.subvol, dir.ino), b"")?;
            self.found(Problem { ino: dir.ino, ..problem });
            return Ok(());
        }
        if lists::lacks_list(record.mode, dir.listed) && !partial {
            return self.without_list(tree, dir.ino, record);
        }
        let (entries, directories) = (dir.entries, dir.subdirectories);
        if (record.entries, record.subdirectories) == (entries, directories) {
            return Ok(());
        }
        if partial {
            let less = record.entries.saturating_sub(entries);
            let what = format!("{less} of {} names cannot be read", record.entries);
            let problem = Problem::new(ProblemKind::Unreadable, what);
            let problem = self.at(problem, (tree.subvol, dir.ino), b"")?;
            self.found(Problem { ino: dir.ino, ..problem });
            return Ok(());
        }
        let what = format!(
            "it counts {} names, {} of them directories; there are {entries} and {directories}",
            record.entries, record.subdirectories
        );
        let value = DirectoryRecord { entries, subdirectories: directories, ..record }.encode();
        let key = key::directory(dir.ino, Part::Attributes).to_vec();
        let fix = Fix::Edits("set the counts", vec![Edit::Put(tree.id, key, value)]);
        let problem = Problem::new(ProblemKind::Links, what).repaired_by(fix);
        let problem = self.at(problem, (tree.subvol, dir.ino), b"")?;
        self.found(Problem { ino: dir.ino, ..problem });
        Ok(())
    }

    fn without_list(&mut self, tree: &Tree, ino: u64, record: DirectoryRecord) -> FsResult<()> {
        let key = key::directory(ino, Part::Xattrs);
        let Some((mut edits, has_xattrs)) = self.strip_list(tree.id, &key)? else {
            return Ok(());
        };
        let mode = without_lost_list(record.mode);
        let value = DirectoryRecord { has_xattrs, mode, ..record }.encode();
        edits.push(Edit::Put(tree.id, key::directory(ino, Part::Attributes).to_vec(), value));
        let problem = lists::problem().repaired_by(Fix::Edits(lists::REMEDY, edits));
        let problem = self.at(problem, (tree.subvol, ino), b"")?;
        self.found(Problem { ino, ..problem });
        Ok(())
    }

    /// Entries of a directory that has no record of its own.
    fn without_record(&mut self, tree: &mut Tree, dir: &Directory, partial: bool) -> FsResult<()> {
        if partial || dir.ino == tree.root || !tree.whole {
            return Ok(());
        }
        if look::directory(self.pin, tree.id, dir.ino)? == Look::Absent {
            tree.headless.insert(dir.ino, dir.entries);
        }
        Ok(())
    }

    /// Directories without a record to which no entry leads; where an entry does, that entry's
    /// repair rebuilds the record.
    fn headless(&mut self, tree: &mut Tree) {
        for (ino, entries) in std::mem::take(&mut tree.headless) {
            if tree.remade.contains(&ino) || tree.is_unsure() {
                continue;
            }
            let what = format!("{entries} names in directory {ino}, which is gone");
            let fix = Fix::Keep(tree.subvol, tree.id, Stray::Entries(ino));
            let problem = Problem::new(ProblemKind::Name, what).repaired_by(fix);
            self.found(Problem { subvolume: tree.subvol, ino, ..problem });
        }
    }

    /// The volume's counts of a subvolume's files match what was there.
    fn compare_usage(&mut self, tree: &Tree, record: &SubvolumeRecord) -> FsResult<()> {
        let unsure = tree.is_unsure()
            || self.table.has_detached(tree.subvol)
            // What a running scan has added is in a separate tree, and is counted when the scan
            // ends.
            || self.table.scans(record.lineage) && !self.recounts;
        if unsure {
            self.counts_are_compared = false;
            return Ok(());
        }
        let key = key::usage(tree.subvol);
        let look = look::get(self.pin, VOLUME, &key, UsageRecord::decode)?;
        let Look::Found(usage) = look else { return Ok(()) };
        if !usage.counted || (usage.files, usage.bytes) == (tree.files, tree.bytes) {
            return Ok(());
        }
        let what = format!(
            "its record counts {} inodes and {} bytes; it holds {} and {}",
            usage.files, usage.bytes, tree.files, tree.bytes
        );
        let value = UsageRecord { files: tree.files, bytes: tree.bytes, counted: true }.encode();
        let fix = Fix::Edits("set the counts", vec![Edit::Put(VOLUME, key.to_vec(), value)]);
        let problem = Problem::new(ProblemKind::Space, what).repaired_by(fix);
        let problem = self.at(problem, (tree.subvol, tree.root), b"")?;
        self.found(problem);
        Ok(())
    }
}

/// A range of keys in words: which directories and inodes it covers.
fn describe_range(range: &LostRange) -> String {
    let key_in_words = |key: &[u8]| match key::parse(key) {
        Ok(Parsed::Entry { directory, cookie, .. }) => {
            format!("directory {directory}, cookie {cookie:x}")
        }
        Ok(Parsed::Linked { ino, .. } | Parsed::BackReference { ino, .. }) => {
            format!("linked inode {ino}")
        }
        Ok(Parsed::Extent { ino, offset }) => format!("inode {ino}, byte {offset}"),
        Err(_) if key == key::DIRECTORIES_PREFIX => "the first directory".to_owned(),
        Err(_) if key == key::LINKED_PREFIX => "the first linked inode".to_owned(),
        Err(_) if key == key::EXTENTS_PREFIX => "the first extent".to_owned(),
        Err(_) => format!("{key:02x?}"),
    };
    let end = |key: &[u8]| match key.split_last() {
        // The first behind a key.
        Some((0, before)) if key::parse(before).is_ok() => {
            format!("behind {}", key_in_words(before))
        }
        _ => key_in_words(key),
    };
    let from = if range.from.is_empty() { "the first".to_owned() } else { end(&range.from) };
    let to = range.to.as_ref().map_or_else(|| "the last".to_owned(), |to| end(to));
    format!("from {from} to {to}")
}
