//! Runs a comparison: over one pinned state, pair by pair, and for each in as many passes as its
//! inodes take.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use device::Set;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Parsed, Part};
use inode::{Caller, FsError, NodeId};
use search::{CARRY_NOTHING, Records};
use store::{KeyRange, Pinned};
use vfs::FsResult;
use volume::error::{from_search, from_store, malformed};
use volume::subvol::VOLUME;

use super::bounds::Bounds;
use super::change::{Compared, Difference};
use super::gather::{Gathering, Noted, Notes, Pair};
use super::judge::{Judge, Verdict};
use super::mounts::{Lineages, Mounts, Task, half};
use super::side::{NEW, Side};
use crate::Fs;

/// Bytes of memory of a comparison whose caller states none.
const MEMORY: usize = 64 << 20;

/// Takes changes; `Break` ends the comparison.
pub type Changes<'a> = &'a mut dyn FnMut(&Difference) -> ControlFlow<()>;

impl Fs {
    /// Compares two states of a directory, as the caller may see each: snapshots, clones, the
    /// present, or a directory in them. The changes lead from `old` to `new`. They come in the
    /// order of their paths; beyond 32 MiB of them, several such runs follow one another.
    ///
    /// The cost is that of the differences between the trees of the two subvolumes. If only one of
    /// them was pruned, it is that of the directory.
    pub fn compare(
        &self,
        caller: &Caller,
        (old, new): (NodeId, NodeId),
        cancel: &AtomicBool,
        emit: Changes<'_>,
    ) -> FsResult<Compared> {
        self.compare_within(caller, (old, new), MEMORY, (cancel, emit))
    }

    /// As [`Fs::compare`], with so many bytes of memory. What takes more and cannot be divided is
    /// [`FsError::MemoryExceeded`]; a limit that memory does not change is
    /// [`FsError::LimitReached`].
    pub fn compare_within(
        &self,
        caller: &Caller,
        (old, new): (NodeId, NodeId),
        memory: usize,
        (cancel, emit): (&AtomicBool, Changes<'_>),
    ) -> FsResult<Compared> {
        self.compare_bounded(caller, (old, new), Bounds::of(memory), (cancel, emit))
    }

    /// As [`Fs::compare`], with no more than so many inodes noted at one time. The trees are
    /// compared once for each part of that size, and the changes of each part are a run of their
    /// own.
    pub fn compare_in_passes(
        &self,
        caller: &Caller,
        (old, new): (NodeId, NodeId),
        inodes_max: usize,
        (cancel, emit): (&AtomicBool, Changes<'_>),
    ) -> FsResult<Compared> {
        let bounds = Bounds { inodes: inodes_max, ..Bounds::of(MEMORY) };
        self.compare_bounded(caller, (old, new), bounds, (cancel, emit))
    }

    fn compare_bounded(
        &self,
        caller: &Caller,
        (old, new): (NodeId, NodeId),
        bounds: Bounds,
        (cancel, emit): (&AtomicBool, Changes<'_>),
    ) -> FsResult<Compared> {
        let places = [self.place(old)?, self.place(new)?];
        let tops = [&places[0], &places[1]].map(|(subvol, ino)| (subvol.id.0, *ino));
        let pin = self.pin_corrected(&tops)?;
        let records = Records { read: &*pin, tree: VOLUME, searchable: &CARRY_NOTHING };
        let (mut halves, mut lineages) = ([None, None], [0; 2]);
        for (which, (subvol, ino)) in places.into_iter().enumerate() {
            let record = records.subvolume(subvol.id.0).map_err(from_search)?;
            let record = record.ok_or(FsError::Stale)?;
            lineages[which] = record.lineage;
            let mut half = half(subvol.id.0, &record, Vec::new());
            half.root = ino;
            let mut side = Side::new(records, half.clone(), (caller, bounds));
            match side.directory(ino)? {
                Some(record) if !record.detached => {}
                Some(_) => return Err(FsError::NotFound),
                None => return Err(FsError::NotDirectory),
            }
            if !side.is_open(ino)? {
                return Err(FsError::AccessDenied);
            }
            halves[which] = Some(half);
        }
        if let [Some(old), Some(new)] = &halves
            && old.root != new.root
        {
            return Err(FsError::InvalidArgument("not two states of one directory"));
        }
        let mut run = Run {
            fs: self,
            caller,
            pin: &*pin,
            records,
            bounds,
            cancel,
            lineages: Lineages::default(),
            sorted: Sorted::new(emit, bounds.sorted_bytes),
        };
        run.lineages.pair(lineages);
        let mut tasks = vec![Task { halves, is_moved: false }];
        while let Some(task) = tasks.pop() {
            if run.task(task, &mut tasks)?.is_break() {
                break;
            }
        }
        run.sorted.compared.separated += run.lineages.separated();
        Ok(run.sorted.finish())
    }
}

/// A comparison under way.
struct Run<'a, 'e> {
    fs: &'a Fs,
    caller: &'a Caller,
    pin: &'a dyn Pinned,
    records: Records<'a>,
    bounds: Bounds,
    cancel: &'a AtomicBool,
    lineages: Lineages,
    sorted: Sorted<'e>,
}

impl Run<'_, '_> {
    /// Compares two directories, and adds what is mounted below them to the tasks.
    fn task(&mut self, task: Task, tasks: &mut Vec<Task>) -> FsResult<ControlFlow<()>> {
        let (records, of, bounds) = (self.records, (self.caller, self.bounds), self.bounds);
        let sides = task.halves.map(|half| half.map(|half| Side::new(records, half, of)));
        let mut pair = Pair { pin: self.pin, sides, bounds, cancel: self.cancel };
        let mut mounts = Some(Mounts::new(bounds));
        let mut from = Some(0);
        while let Some(first) = from {
            let mut notes = Notes::new(first, bounds.inodes);
            let gathered = mounts.as_mut();
            let (pair_of, notes_of) = (&mut pair, &mut notes);
            let mut gathering = Gathering {
                pair: pair_of,
                notes: notes_of,
                mounts: gathered,
                last: (0, 0),
                has_passed: false,
            };
            gathering.run(task.is_moved)?;
            let has_passed = gathering.has_passed;
            if let Some(mut mounts) = mounts.take() {
                mounts.drop_separate(&mut pair.sides)?;
                self.sorted.compared.separated += mounts.separated();
                tasks.extend(mounts.pair(&mut self.lineages));
            }
            from = notes.next_range();
            let how = (task.is_moved, has_passed);
            if self.judge(&mut pair, how, &notes)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if from.is_some() && self.sorted.flush().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Compares the inodes that were noted.
    fn judge(
        &mut self,
        pair: &mut Pair<'_>,
        (is_moved, has_passed): (bool, bool),
        notes: &Notes,
    ) -> FsResult<ControlFlow<()>> {
        let mut unplaced = Set::default();
        let mut judge = Judge { pair, data: &self.fs.data, store: &*self.fs.store, is_moved };
        for (&ino, noted) in &notes.inodes {
            judge.pair.check_wanted()?;
            match judge.inode(ino, noted)? {
                Verdict::Changes(changes) => {
                    if self.sorted.add(changes).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Verdict::Unplaced => {
                    if !is_orphan(judge.pair, ino)? {
                        unplaced.insert(ino);
                    }
                }
            }
        }
        if has_passed {
            drop_placed(judge.pair, &mut unplaced)?;
        }
        if unplaced.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        for (ino, slot) in names_of(judge.pair, &unplaced)? {
            let noted = Noted { slots: [Some(slot); 2], has_data: true, is_placed: true };
            if let Verdict::Changes(changes) = judge.inode(ino, &noted)?
                && self.sorted.add(changes).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Whether an inode has no name in the new state, and is held open.
fn is_orphan(pair: &Pair<'_>, ino: u64) -> FsResult<bool> {
    let Some(side) = &pair.sides[NEW] else { return Ok(false) };
    let key = key::orphan(side.half.subvolume, ino);
    Ok(pair.pin.get(VOLUME, &key).map_err(from_store)?.is_some())
}

/// Drops inodes that entries which differ point to: those that were seen are noted, so these are in
/// directories that were skipped.
fn drop_placed(pair: &Pair<'_>, unplaced: &mut Set<u64>) -> FsResult<()> {
    let [Some(old), Some(new)] = &pair.sides else { return Ok(()) };
    let trees = [old.half.tree, new.half.tree];
    let range = KeyRange::prefix(&key::DIRECTORIES_PREFIX);
    let mut read = 0_u64;
    let mut cursor = pair.pin.diff(trees[0], pair.pin, trees[1], range).map_err(from_store)?;
    while !unplaced.is_empty()
        && let Some(diff) = cursor.next().map_err(from_store)?
    {
        read += 1;
        if read.is_multiple_of(256) {
            pair.check_wanted()?;
        }
        let parsed = key::parse(diff.key).map_err(|error| malformed(trees[1], &error))?;
        if !matches!(parsed, Parsed::Entry { cookie: 1.., part: Part::Attributes, .. }) {
            continue;
        }
        for (tree, value) in trees.into_iter().zip([diff.old, diff.new]) {
            let Some(value) = value else { continue };
            let entry = EntryRecord::decode(value).map_err(|error| malformed(tree, &error))?;
            if matches!(entry.target, Target::Embedded(_)) {
                unplaced.remove(&entry.ino);
            }
        }
    }
    Ok(())
}

/// Finds the entries of files by their numbers, in the whole new tree. Bytes of these files changed
/// but their attributes did not, which takes a write within the same clock tick as the snapshot.
fn names_of(pair: &Pair<'_>, wanted: &Set<u64>) -> FsResult<Vec<(u64, (u64, u64))>> {
    let Some(side) = &pair.sides[NEW] else { return Ok(Vec::new()) };
    let tree = side.half.tree;
    let range = KeyRange::prefix(&key::DIRECTORIES_PREFIX);
    let mut cursor = pair.pin.scan(tree, range).map_err(from_store)?;
    let mut found = Vec::new();
    let mut read = 0_u64;
    while let Some(item) = cursor.next().map_err(from_store)? {
        read += 1;
        if read.is_multiple_of(1024) {
            pair.check_wanted()?;
        }
        let parsed = key::parse(item.key).map_err(|error| malformed(tree, &error))?;
        if let Parsed::Entry { directory, cookie: cookie @ 1.., part: Part::Attributes } = parsed {
            let entry = EntryRecord::decode(item.value).map_err(|error| malformed(tree, &error))?;
            if matches!(entry.target, Target::Embedded(_)) && wanted.contains(&entry.ino) {
                found.push((entry.ino, (directory, cookie)));
                if found.len() == wanted.len() {
                    break;
                }
            }
        }
    }
    Ok(found)
}

/// Sorts changes before they leave.
struct Sorted<'e> {
    emit: Changes<'e>,
    changes: Vec<Difference>,
    bytes: usize,
    bytes_max: usize,
    compared: Compared,
}

impl<'e> Sorted<'e> {
    fn new(emit: Changes<'e>, bytes_max: usize) -> Sorted<'e> {
        let (changes, compared) = (Vec::new(), Compared::default());
        Sorted { emit, changes, bytes: 0, bytes_max, compared }
    }

    fn add(&mut self, changes: Vec<Difference>) -> ControlFlow<()> {
        self.bytes += changes.iter().map(Difference::bytes).sum::<usize>();
        self.changes.extend(changes);
        if self.bytes < self.bytes_max { ControlFlow::Continue(()) } else { self.flush() }
    }

    fn finish(mut self) -> Compared {
        if self.flush().is_break() {
            self.compared.is_cut = true;
        }
        self.compared
    }

    fn flush(&mut self) -> ControlFlow<()> {
        self.bytes = 0;
        let mut changes = std::mem::take(&mut self.changes);
        changes.sort_by(|a, b| a.path().cmp(b.path()).then(a.kind.cmp(&b.kind)));
        for change in &changes {
            if self.compared.is_cut {
                break;
            }
            self.compared.changes += 1;
            self.compared.is_cut = (self.emit)(change).is_break();
        }
        if self.compared.is_cut { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
