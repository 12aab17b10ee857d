//! Puts nodes at any path below the destination, in any order: what archives and manifests need.
//!
//! Directories are made as their names come up. They get their attributes at the end, because
//! anything may still be made below them; until then they are closed to other users. For each of
//! them one record is kept in memory, and for each that existed before, the names in it.
//!
//! What existed before the import began is a conflict, unless it is the same by kind, length, time
//! and target: then an earlier run has imported it. A directory over a directory is none, either.
//! What is below a hidden directory may be of another archive with the same names, lengths and
//! times: there a file is the same only if its contents are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use client::Connection;
use indicatif::ProgressBar;
use wire::{Answer, Call, Failure, FailureKind, ImportAttr, Item, Kind, ListEntry};

use super::memory::{Memory, of_path, of_xattrs};
use super::stream::Stream;
use super::{Outcome, before_another_try};
use crate::archive::path::Parts;
use crate::cli::OnConflict;
use crate::failure::Result;
use crate::output::{self, Output};
use crate::session;

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
    attributes: BTreeMap<Parts, (ImportAttr, Xattrs)>,
    /// What directories that existed before hold, while they are not current.
    existing: BTreeMap<Parts, Names>,
    /// Whether everything was sent, and directories get their attributes.
    finishing: bool,
    /// Paths that cannot be entered; what is below is left out.
    blocked: BTreeSet<Parts>,
    bar: &'a ProgressBar,
    interrupted: &'a AtomicBool,
    output: &'a mut Output,
    /// The directory that everything is below, until it gets its name.
    destination: Vec<u8>,
    memory: Memory,
}

/// What a digest takes that is kept to be verified.
const DIGEST_BYTES: usize = 16;

/// The names that a directory had before the import, and has still.
type Names = BTreeMap<Vec<u8>, There>;

struct There {
    entry: ListEntry,
    /// Whether this import has the name, too.
    seen: bool,
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
        let (existing, existed) = stream.ask(open)?;
        let mut memory = Memory::new(memory);
        let existing = counted(existing, &mut memory)?;
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
            memory,
        };
        if !existed || staged {
            tree.attributes.insert(Vec::new(), (default_directory(), Vec::new()));
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

    /// Ends the import: directories get their attributes, and the whole its name.
    pub(super) fn finish(&mut self, visible: Visible<'_>) -> Result<()> {
        let whole = matches!(visible, Visible::Whole(_));
        if whole && !self.is_interrupted() {
            // Before directories are closed: the same import may continue.
            self.stream.wait()?;
            self.report_errors()?;
            self.refuse_holes()?;
        }
        let mut attributes = std::mem::take(&mut self.attributes);
        self.finishing = true;
        // A directory follows all that is below it.
        while let Some((path, (attr, xattrs))) = attributes.pop_last() {
            if self.is_interrupted() {
                return Ok(());
            }
            if !self.go_to(&path)? {
                continue;
            }
            self.stream.push(&Item::Leave { attr, xattrs: borrowed(&xattrs) })?;
            if let Some(level) = self.levels.pop() {
                self.put_back(level);
            }
            self.report_errors()?;
        }
        self.go_to(&[])?;
        // What failed is known only when everything is done.
        self.stream.wait()?;
        self.report_errors()?;
        if let Visible::Whole(name) = visible
            && !self.is_interrupted()
        {
            self.refuse_holes()?;
            self.refuse_leftovers()?;
            match self.stream.request(Call::ImportPublish { name })? {
                Answer::Nothing => {}
                other => return Err(session::unexpected(&other)),
            }
        }
        self.stream.close()?;
        self.outcome.sent = self.stream.take_kept();
        self.report_errors()
    }

    /// Refuses to show a part as the whole.
    fn refuse_holes(&mut self) -> Result<()> {
        if self.outcome.failed == 0 || self.keep_going {
            return Ok(());
        }
        self.stream.close()?;
        self.report_errors()?;
        Err(holes(&self.outcome, &self.destination))
    }

    /// Refuses to show what an import of something else left below the hidden name.
    fn refuse_leftovers(&mut self) -> Result<()> {
        let top = self.levels.first().map(|level| (Vec::new(), &level.existing));
        let below = self.existing.iter().map(|(path, names)| (path.clone(), names));
        let left = top.into_iter().chain(below).find_map(|(mut path, names)| {
            let (name, _) = names.iter().find(|(_, there)| !there.seen)?;
            path.push(name.clone());
            Some(path.join(&b'/'))
        });
        let Some(left) = left else { return Ok(()) };
        self.stream.close()?;
        self.report_errors()?;
        let message = "an earlier import left this, and it is not in what is imported now";
        let hidden = self.destination.escape_ascii();
        let hint = format!("remove the directory {hidden} of the volume, and run it again");
        Err(Failure::new(FailureKind::Exists, message).at(&left).hint(hint))
    }

    /// Makes what was sent so far durable, without ending the import.
    pub(super) fn abandon(&mut self) -> Result<()> {
        self.stream.close()?;
        self.report_errors()
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
        let existed = self.levels.last().is_some_and(|level| level.existed);
        // What is not this import's keeps its attributes, unless it is replaced.
        if !existed || self.on_conflict == OnConflict::Replace {
            self.memory.take(of_xattrs(&xattrs))?;
            if let Some((_, before)) = self.attributes.insert(path.to_vec(), (attr, xattrs)) {
                self.memory.release(of_xattrs(&before));
            }
        }
        Ok(true)
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
        let Some(there) = self.there(name) else { return Ok(Begun::Make) };
        if is_same(&there.entry, node) {
            if self.staged && node.kind == Kind::File && node.size > 0 {
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
        let kind = self.there(name).map(|there| there.entry.attr.kind);
        if let Some(kind) = kind
            && !self.replace(path, kind)?
        {
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
    /// it. What is kept is still there for a later member of the same name.
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
            (Some(_), None) => match self.stream.ask(Call::ImportEnter { name }) {
                Ok((existing, existed)) => (counted(existing, &mut self.memory)?, existed),
                Err(failure) => return self.not_entered(path, failure),
            },
        };
        let known = self.finishing || self.attributes.contains_key(path);
        if !known && (!existed || self.staged) {
            let unset = (default_directory(), Vec::new());
            self.memory.take(of_path(path) + size_of::<(ImportAttr, Xattrs)>())?;
            self.attributes.insert(path.to_vec(), unset);
        }
        self.outcome.unchanged += u64::from(!known && existed);
        self.outcome.imported += u64::from(!known && !existed);
        self.levels.push(Level { name: name.clone(), existing, existed });
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

/// The failure about a part, which is not shown as the whole.
pub(super) fn holes(outcome: &Outcome, destination: &[u8]) -> Failure {
    let was = output::count(outcome.failed, "name was", "names were");
    let message = format!("{was} not imported as a whole, so nothing is visible");
    let hidden = destination.escape_ascii();
    let hint = format!(
        "the same command continues; --keep-going gives the rest its name; `pando rmr` removes the \
         directory {hidden} of the volume"
    );
    Failure::new(outcome.worst.unwrap_or(FailureKind::Other), message).hint(hint)
}

/// The failure about a name that existed before.
pub(super) fn conflict() -> Failure {
    let message = "this existed before the import, and differs";
    let failure = Failure::new(FailureKind::Exists, message);
    failure.hint("--on-conflict skip keeps it, --on-conflict replace replaces it")
}

/// Whether the destination has the same, by kind, length, time and target.
fn is_same(there: &ListEntry, node: &Node<'_>) -> bool {
    let attr = &there.attr;
    attr.kind == node.kind
        && attr.mtime == node.attr.mtime
        && (node.kind != Kind::File || attr.size == node.size)
        && there.target.as_ref().is_none_or(|target| target.0 == node.target)
}

/// The attributes of a directory that is only part of a path.
fn default_directory() -> ImportAttr {
    let now = device::Clock::now(&device::SystemClock::new()).0;
    ImportAttr { mode: 0o755, owner: None, atime: now, mtime: now }
}

/// The entries of a directory, within the memory of the import.
fn counted(entries: Vec<ListEntry>, memory: &mut Memory) -> Result<Names> {
    for entry in &entries {
        let target = entry.target.as_ref().map_or(0, |target| target.0.len());
        memory.take(2 * entry.name.0.len() + target + size_of::<There>())?;
    }
    Ok(by_name(entries))
}

fn by_name(entries: Vec<ListEntry>) -> Names {
    let there = |entry: ListEntry| (entry.name.0.clone(), There { entry, seen: false });
    entries.into_iter().map(there).collect()
}

pub(super) fn borrowed(xattrs: &Xattrs) -> Vec<(&[u8], &[u8])> {
    xattrs.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect()
}
