//! Puts nodes at any path below the destination, in any order: what archives and manifests need.
//!
//! Directories are made as their names come up. They get their attributes at the end, because
//! anything may still be made below them; until then they are closed to other users. For each of
//! them one record is kept in memory, and for each that existed before, the names in it.
//!
//! An entry that existed before the import began is a conflict, unless it is the same by kind,
//! length, time, target and device number. Then an earlier run has imported it. A directory over a
//! directory is none, either, and neither is a hard link that is there already. Entries below a
//! hidden directory may be of another archive with the same names, lengths and times. There a file
//! is the same only if its contents, its mode and its owner are.

mod end;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use client::Connection;
use indicatif::ProgressBar;
use wire::{Call, Failure, FailureKind, ImportAttr, Item, Kind, ListEntry};

use super::memory::{Memory, of_entries, of_path, of_xattrs};
use super::stream::{Entered, Stream};
use super::{Outcome, before_another_try};
use crate::archive::path::Parts;
use crate::cli::OnConflict;
use crate::failure::Result;
use crate::output::Output;

pub(super) use end::{holes, leftover};

/// Names and values of extended attributes.
pub(super) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// How a directory becomes visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visible<'a> {
    /// Under this name when it is complete; until then it has another one.
    Whole(&'a [u8]),
    /// Name by name.
    Gradually,
}

/// A tree under way.
pub(super) struct Tree<'a> {
    stream: Stream,
    pub(super) outcome: Outcome,
    on_conflict: OnConflict,
    /// Whether everything is below a hidden directory. What is found there, an earlier run left, of
    /// this import or of another one to the same name.
    staged: bool,
    /// Whether the rest gets its name although something failed.
    keep_going: bool,
    levels: Vec<Level>,
    /// Attributes of directories, for the end.
    attributes: BTreeMap<Parts, Directory>,
    /// What directories that existed before hold, while they are not current.
    existing: BTreeMap<Parts, Names>,
    /// Whether everything was sent, and directories get their attributes.
    finishing: bool,
    /// Paths that cannot be entered; everything below is left out.
    blocked: BTreeSet<Parts>,
    bar: &'a ProgressBar,
    interrupted: &'a AtomicBool,
    output: &'a mut Output,
    /// The directory that everything is below, until it gets its name.
    destination: Vec<u8>,
    /// The mode of directories that are only part of a path.
    part_mode: u32,
    memory: Memory,
}

/// Most bytes of a target, or of extended attributes: with others they must fit into a message.
const ITEM_BYTES_MAX: usize = 256 << 10;

/// Bytes of a digest that is kept for verification.
const DIGEST_BYTES: usize = 16;

/// The names that a directory had before the import, and has still.
pub(super) type Names = BTreeMap<Vec<u8>, There>;

/// What was there before the import.
pub(super) struct There {
    pub(super) entry: ListEntry,
    /// Whether this import has the name, too.
    pub(super) seen: bool,
}

/// What a directory gets at the end.
struct Directory {
    attr: ImportAttr,
    xattrs: Xattrs,
    /// Whether the source has them; otherwise the directory is only part of a path.
    is_explicit: bool,
}

impl Directory {
    /// Of one that is only part of a path.
    fn part(mode: u32) -> Directory {
        let now = device::Clock::now(&device::SystemClock::new()).0;
        let attr = ImportAttr { mode, owner: None, atime: now, mtime: now };
        Directory { attr, xattrs: Vec::new(), is_explicit: false }
    }
}

struct Level {
    name: Vec<u8>,
    /// Empty for a new directory.
    existing: Names,
    existed: bool,
}

/// What to do about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// It is made.
    Make,
    /// It is not: it is there, or was reported.
    Done,
    /// A file of this length and time is there, and may have other contents.
    Compare,
}

/// What is made, beside its contents.
pub(super) struct Node<'a> {
    pub(super) kind: Kind,
    pub(super) attr: ImportAttr,
    pub(super) xattrs: &'a Xattrs,
    pub(super) size: u64,
    pub(super) rdev: u32,
    /// The target of a symbolic link.
    pub(super) target: &'a [u8],
}

impl<'a> Tree<'a> {
    /// Begins an import to a path of the volume.
    pub(super) fn open(
        connection: Connection,
        (destination, visible): (&[u8], Visible<'_>),
        (on_conflict, verify): (OnConflict, bool),
        (bar, interrupted): (&'a ProgressBar, &'a AtomicBool),
        (memory, output): (usize, &'a mut Output),
    ) -> Result<Tree<'a>> {
        let mut stream = Stream::new(connection, bar);
        if verify {
            stream.keep(false);
        }
        let staged = visible != Visible::Gradually;
        let open = Call::ImportOpen { path: destination, directory: true, staged };
        let mut memory = Memory::new(memory);
        let Entered { existing, existed, unfinished } = stream.ask(open, &memory)?;
        memory.take(of_entries(&existing))?;
        let existing = by_name(existing);
        let top = Level { name: Vec::new(), existing, existed };
        let mut tree = Tree {
            stream,
            outcome: Outcome::default(),
            on_conflict: if staged { OnConflict::Replace } else { on_conflict },
            staged,
            keep_going: false,
            levels: vec![top],
            attributes: BTreeMap::new(),
            existing: BTreeMap::new(),
            finishing: false,
            blocked: BTreeSet::new(),
            bar,
            interrupted,
            output,
            destination: destination.to_vec(),
            part_mode: 0o755,
            memory,
        };
        if !existed || staged || unfinished {
            tree.attributes.insert(Vec::new(), Directory::part(tree.part_mode));
        }
        Ok(tree)
    }

    /// Whether the destination did not exist, so that nothing can be there already.
    pub(super) fn is_new(&self) -> bool {
        self.levels.first().is_some_and(|level| !level.existed)
    }

    /// What grows with the import.
    pub(super) fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// Whether the caller interrupted the import.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Makes a directory, or finds it; its attributes are set at the end. Returns whether it is
    /// current now.
    pub(super) fn directory(
        &mut self,
        path: &[Vec<u8>],
        attr: ImportAttr,
        xattrs: Xattrs,
    ) -> Result<bool> {
        if !self.go_to(path)? {
            return Ok(false);
        }
        let xattrs = if of_xattrs(&xattrs) > ITEM_BYTES_MAX {
            self.fail(too_long().at(&path.join(&b'/')));
            Xattrs::new()
        } else {
            xattrs
        };
        // What is not this import's keeps its attributes, unless it is replaced.
        if self.on_conflict == OnConflict::Replace || self.attributes.contains_key(path) {
            self.memory.take(of_xattrs(&xattrs))?;
            let directory = Directory { attr, xattrs, is_explicit: true };
            if let Some(before) = self.attributes.insert(path.to_vec(), directory) {
                self.memory.release(of_xattrs(&before.xattrs));
            }
        }
        Ok(true)
    }

    /// Makes a directory that has no attributes of its own, or finds it. One that was there before
    /// keeps its attributes.
    pub(super) fn plain_directory(&mut self, path: &[Vec<u8>], attr: ImportAttr) -> Result<()> {
        if self.go_to(path)?
            && let Some(unset) = self.attributes.get_mut(path)
        {
            unset.attr = attr;
        }
        Ok(())
    }

    /// Sets the mode of directories that are only part of a path.
    pub(super) fn part_mode(&mut self, mode: u32) {
        self.part_mode = mode;
        self.attributes.values_mut().for_each(|directory| directory.attr.mode = mode);
    }

    /// Gives the whole its name although some of it failed.
    pub(super) fn keep_going(&mut self) {
        self.keep_going = true;
    }

    /// Prepares to make something in a directory: enters it, and looks at what has the name.
    pub(super) fn begin(&mut self, path: &[Vec<u8>], node: &Node<'_>) -> Result<Begun> {
        let Some((name, parent)) = path.split_last() else {
            let message = "the destination is a directory, which this would replace";
            let failure = Failure::new(FailureKind::IsDirectory, message);
            self.fail(failure.hint("name a destination that does not exist"));
            return Ok(Begun::Done);
        };
        if !self.go_to(parent)? {
            self.left_out(path);
            return Ok(Begun::Done);
        }
        if node.target.len().max(of_xattrs(node.xattrs)) > ITEM_BYTES_MAX {
            self.fail(too_long().at(&path.join(&b'/')));
            return Ok(Begun::Done);
        }
        let staged = self.staged;
        let Some(there) = self.there(name) else { return Ok(Begun::Make) };
        if is_same(&there.entry, node, staged) {
            if staged && node.kind == Kind::File && node.size > 0 {
                return Ok(Begun::Compare);
            }
            self.outcome.unchanged += 1;
            self.bar.inc(1);
            return Ok(Begun::Done);
        }
        let kind = there.entry.attr.kind;
        Ok(if self.replace(path, kind)? { Begun::Make } else { Begun::Done })
    }

    /// Whether the file that is there already has these contents; otherwise it is made again.
    pub(super) fn has(&mut self, path: &[Vec<u8>], contents: &[u8]) -> Result<bool> {
        let whole = [&self.destination[..], b"/", &path.join(&b'/')].concat();
        if self.stream.has_contents(&whole, contents)? {
            self.outcome.unchanged += 1;
            self.bar.inc(1);
            return Ok(true);
        }
        self.replace(path, Kind::File).map(|_| false)
    }

    /// Makes a file again whose contents are not compared.
    pub(super) fn again(&mut self, path: &[Vec<u8>]) -> Result<()> {
        self.replace(path, Kind::File).map(drop)
    }

    /// What existed before under a name of the current directory.
    fn there(&mut self, name: &[u8]) -> Option<&There> {
        let there = self.levels.last_mut()?.existing.get_mut(name)?;
        there.seen = true;
        Some(there)
    }

    /// The number of the node that a path had before the import, and has still.
    fn node_at(&self, path: &[Vec<u8>]) -> Option<u64> {
        let (name, parent) = path.split_last()?;
        let names = self.levels.iter().skip(1).map(|level| &level.name);
        let is_current = parent.len() < self.levels.len() && names.zip(parent).all(|(a, b)| a == b);
        let existing = if is_current {
            &self.levels[parent.len()].existing
        } else {
            self.existing.get(parent)?
        };
        existing.get(name).map(|there| there.entry.attr.node)
    }

    /// Makes a further name of what has a path below the destination.
    pub(super) fn link(&mut self, path: &[Vec<u8>], target: &[Vec<u8>]) -> Result<()> {
        let Some((name, parent)) = path.split_last() else {
            let message = "the destination is a directory, which a link would replace";
            let failure = Failure::new(FailureKind::IsDirectory, message);
            self.fail(failure.hint("name a destination that does not exist"));
            return Ok(());
        };
        if !self.go_to(parent)? {
            self.left_out(path);
            return Ok(());
        }
        let there = self.there(name).map(|there| (there.entry.attr.kind, there.entry.attr.node));
        if let Some((_, node)) = there
            && self.node_at(target) == Some(node)
        {
            self.outcome.unchanged += 1;
            self.bar.inc(1);
            return Ok(());
        }
        if let Some((kind, _)) = there
            && !self.replace(path, kind)?
        {
            return Ok(());
        }
        if target.iter().map(Vec::len).sum::<usize>() > ITEM_BYTES_MAX {
            self.fail(too_long().at(&path.join(&b'/')));
            return Ok(());
        }
        let target = target.iter().map(Vec::as_slice).collect();
        self.made(&Item::LinkTo { name, target })
    }

    /// Sends what makes one name.
    pub(super) fn made(&mut self, item: &Item<'_>) -> Result<()> {
        self.outcome.imported += 1;
        if self.stream.keeps() {
            self.memory.take(DIGEST_BYTES)?;
        }
        self.push(item)
    }

    /// Sends a part of what makes a name.
    pub(super) fn push(&mut self, item: &Item<'_>) -> Result<()> {
        self.stream.push(item)?;
        if self.stream.has_errors() {
            self.report_errors()?;
        }
        Ok(())
    }

    /// Reports to the daemon that the import continues, if it has sent nothing for long.
    pub(super) fn proceed(&mut self) -> Result<()> {
        self.stream.proceed()
    }

    /// Reports a name that is left out.
    #[expect(clippy::needless_pass_by_value, reason = "failures are made where they are passed")]
    pub(super) fn fail(&mut self, failure: Failure) {
        self.outcome.fail(failure.kind);
        let Tree { bar, output, .. } = self;
        bar.suspend(|| output.failure(&failure));
    }

    /// What to do about a name of the current directory that existed before: whether to replace
    /// it. A kept entry is still there for a later member of the same name.
    fn replace(&mut self, path: &[Vec<u8>], kind: Kind) -> Result<bool> {
        let shown = path.join(&b'/');
        match self.on_conflict {
            OnConflict::Replace if kind == Kind::Directory => {
                let message = "a directory is there, which nothing replaces";
                let failure = Failure::new(FailureKind::IsDirectory, message).at(&shown);
                self.fail(failure.hint("remove the directory, and import again"));
                Ok(false)
            }
            OnConflict::Replace => {
                if let (Some(level), Some(name)) = (self.levels.last_mut(), path.last()) {
                    level.existing.remove(name);
                }
                Ok(true)
            }
            OnConflict::Skip => {
                self.outcome.kept += 1;
                self.bar.inc(1);
                Ok(false)
            }
            OnConflict::Fail => Err(conflict().at(&shown)),
        }
    }

    /// Makes the directory at a path the current one. `false`: it cannot be entered.
    fn go_to(&mut self, path: &[Vec<u8>]) -> Result<bool> {
        let same = self.levels.iter().skip(1).zip(path).take_while(|(one, two)| one.name == **two);
        let keep = same.count() + 1;
        while self.levels.len() > keep {
            self.stream.push(&Item::Back)?;
            if let Some(level) = self.levels.pop() {
                self.put_back(level);
            }
        }
        for depth in keep..=path.len() {
            let at = &path[..depth];
            if self.blocked.contains(at) || !self.enter(at)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Keeps what a directory held that is no longer current.
    fn put_back(&mut self, level: Level) {
        if level.existed {
            let mut path: Parts = self.levels.iter().skip(1).map(|one| one.name.clone()).collect();
            path.push(level.name);
            self.existing.insert(path, level.existing);
        }
    }

    /// Enters a subdirectory of the current directory.
    fn enter(&mut self, path: &[Vec<u8>]) -> Result<bool> {
        let Some((name, _)) = path.split_last() else { return Ok(true) };
        let there = self.there(name).map(|there| there.entry.attr.kind);
        let known = self.existing.remove(path);
        let (mut counted, mut unfinished) = (0, false);
        let (existing, existed) = match (there, known) {
            (_, Some(existing)) => {
                self.stream.push(&Item::Enter { name })?;
                (existing, true)
            }
            (None, None) => {
                self.stream.push(&Item::Enter { name })?;
                (Names::new(), false)
            }
            (Some(kind), None) if kind != Kind::Directory => {
                if self.on_conflict == OnConflict::Fail {
                    return Err(conflict().at(&path.join(&b'/')));
                }
                let message = "this exists, and is not a directory";
                let failure = Failure::new(FailureKind::NotDirectory, message);
                let hint = "remove it, and import again: what is below was left out";
                self.fail(failure.at(&path.join(&b'/')).hint(hint));
                self.blocked.insert(path.to_vec());
                return Ok(false);
            }
            (Some(_), None) => match self.stream.ask(Call::ImportEnter { name }, &self.memory) {
                Ok(entered) => {
                    counted = of_entries(&entered.existing);
                    unfinished = entered.unfinished;
                    (by_name(entered.existing), entered.existed)
                }
                Err(failure) => return self.not_entered(path, failure),
            },
        };
        // It is the daemon's current directory: this comes before what may fail.
        self.levels.push(Level { name: name.clone(), existing, existed });
        let known = self.finishing || self.attributes.contains_key(path);
        self.outcome.unchanged += u64::from(!known && existed);
        self.outcome.imported += u64::from(!known && !existed);
        if !known && (!existed || self.staged || unfinished) {
            self.attributes.insert(path.to_vec(), Directory::part(self.part_mode));
            counted += of_path(path) + size_of::<Directory>();
        }
        if counted > 0 {
            self.memory.take(counted)?;
        }
        Ok(true)
    }

    fn not_entered(&mut self, path: &[Vec<u8>], failure: Failure) -> Result<bool> {
        match failure.kind {
            FailureKind::Permission | FailureKind::NotDirectory | FailureKind::NotFound => {
                self.fail(failure.at(&path.join(&b'/')));
                self.blocked.insert(path.to_vec());
                Ok(false)
            }
            _ => Err(failure),
        }
    }

    /// Counts a name below a directory that cannot be entered, which was reported.
    fn left_out(&mut self, path: &[Vec<u8>]) {
        tracing::debug!(path = %path.join(&b'/').escape_ascii(), "left out");
        self.outcome.fail(FailureKind::NotDirectory);
    }

    fn report_errors(&mut self) -> Result<()> {
        let (errors, more) = self.stream.take_errors();
        self.outcome.failed += more;
        self.outcome.imported = self.outcome.imported.saturating_sub(more);
        for error in errors {
            self.outcome.imported = self.outcome.imported.saturating_sub(1);
            let failure = Failure::new(error.kind, error.message).at(&error.path.0);
            if let Some(stop) = error.stop {
                self.outcome.fail(failure.kind);
                let what = before_another_try(stop);
                return Err(failure.hint(format!("{what}, and run the same command again")));
            }
            self.fail(failure);
        }
        Ok(())
    }
}

/// The failure about what no volume keeps.
fn too_long() -> Failure {
    let message = "its target, its link's path or its extended attributes exceed 256 KiB";
    Failure::new(FailureKind::Invalid, message).hint("shorten them in the source")
}

/// The failure about a name that existed before.
pub(super) fn conflict() -> Failure {
    let message = "this existed before the import, and differs";
    let failure = Failure::new(FailureKind::Exists, message);
    failure.hint("--on-conflict skip keeps it, --on-conflict replace replaces it")
}

/// Whether the destination has the same, by kind, length, time, target and device number. What an
/// earlier run left is the same only if it has the mode and the owner, too. Its extended attributes
/// are not known, so the member must have none.
fn is_same(there: &ListEntry, node: &Node<'_>, staged: bool) -> bool {
    let attr = &there.attr;
    let is_device = matches!(node.kind, Kind::CharDevice | Kind::BlockDevice);
    attr.kind == node.kind
        && attr.mtime == node.attr.mtime
        && (node.kind != Kind::File || attr.size == node.size)
        && (!is_device || attr.rdev == node.rdev)
        && (!staged || is_dressed(there, &node.attr) && node.xattrs.is_empty())
        && there.target.as_ref().is_none_or(|target| target.0 == node.target)
}

/// Whether what an earlier run left has the mode and the owner that it gets now.
pub(super) fn is_dressed(there: &ListEntry, attr: &ImportAttr) -> bool {
    let there = &there.attr;
    let same_mode = there.kind == Kind::Symlink || there.mode & 0o7777 == attr.mode & 0o7777;
    same_mode && attr.owner.is_none_or(|owner| owner == (there.uid, there.gid))
}

/// Entries by their names.
pub(super) fn by_name(entries: Vec<ListEntry>) -> Names {
    let there = |entry: ListEntry| (entry.name.0.clone(), There { entry, seen: false });
    entries.into_iter().map(there).collect()
}

pub(super) fn borrowed(xattrs: &Xattrs) -> Vec<(&[u8], &[u8])> {
    xattrs.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect()
}
