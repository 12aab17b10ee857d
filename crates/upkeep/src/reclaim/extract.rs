//! Extraction: makes a tree hold exactly what is reachable from a directory of another tree.
//!
//! The source must not change meanwhile (a snapshot's tree, or a clone taken for the purpose). The
//! target is empty, or holds an earlier or a similar state. Then only differences are written, so
//! that it keeps sharing nodes with whatever it was cloned from. The work is a walk from the root
//! in bounded steps. Nothing is remembered on disk, and after a crash it starts again with a new
//! target.

use device::Set;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::LinkedRecord;
use format::key::{self, Parsed, Part};
use ops::reach::Reach;
use store::{Batch, KeyRange, Store, TreeId};
use vfs::FsResult;
use volume::error::{from_store, inconsistent, malformed};

/// Bytes after which a batch is committed.
const BATCH_BYTES: usize = 256 << 10;

/// What a target holds when extraction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Nothing.
    Empty,
    /// Another state of the directory.
    Similar,
}

/// One extraction in progress.
pub(crate) struct Extraction {
    source: TreeId,
    target: TreeId,
    start: Start,
    reach: Reach,
    tasks: Vec<Task>,
    /// Inodes that were copied, by what their records start with.
    directories: Set<u64>,
    linked: Set<u64>,
    files: Set<u64>,
    batch: Batch,
}

enum Task {
    /// The records of a directory and its entries, from a key on.
    Directory { ino: u64, from: Vec<u8> },
    /// A linked inode.
    Linked(u64),
    /// The extents of a file, from a key on.
    Extents { ino: u64, from: Vec<u8> },
    /// Removes from a similar target what was not copied, from a key on.
    Sweep(Vec<u8>),
}

impl Extraction {
    /// An extraction of `root`, and of the inodes without a name that are still `held`.
    pub(super) fn new(
        (source, target): (TreeId, TreeId),
        start: Start,
        root: u64,
        held: &[u64],
    ) -> Extraction {
        let mut tasks = Vec::new();
        if start == Start::Similar {
            tasks.push(Task::Sweep(Vec::new()));
        }
        for &ino in held {
            tasks.push(Task::Linked(ino));
        }
        tasks.push(directory_task(root));
        Extraction {
            source,
            target,
            start,
            reach: Reach::new(source, root),
            tasks,
            directories: Set::default(),
            linked: Set::default(),
            files: Set::default(),
            batch: Batch::new(),
        }
    }

    /// Copies about `budget` records; `false` when all is done.
    pub(super) fn step(&mut self, store: &dyn Store, budget: usize) -> FsResult<bool> {
        let mut left = budget.max(1);
        while left > 0 {
            let Some(task) = self.tasks.pop() else { break };
            let spent = match task {
                Task::Directory { ino, from } => self.directory(store, ino, from, left)?,
                Task::Linked(ino) => self.linked(store, ino)?,
                Task::Extents { ino, from } => self.extents(store, ino, from, left)?,
                Task::Sweep(from) => self.sweep(store, from, left)?,
            };
            left = left.saturating_sub(spent.max(1));
            if self.batch.as_bytes().len() > BATCH_BYTES {
                self.flush(store)?;
            }
        }
        self.flush(store)?;
        Ok(!self.tasks.is_empty())
    }

    fn flush(&mut self, store: &dyn Store) -> FsResult<()> {
        if !self.batch.is_empty() {
            store.commit(&self.batch).map_err(from_store)?;
            self.batch.clear();
        }
        Ok(())
    }

    fn directory(
        &mut self,
        store: &dyn Store,
        ino: u64,
        from: Vec<u8>,
        budget: usize,
    ) -> FsResult<usize> {
        if from.len() == key::directory_prefix(ino).len() && !self.directories.insert(ino) {
            return Err(inconsistent(self.source, "a directory has two names", ino));
        }
        let end = store::prefix_end(&key::directory_prefix(ino));
        let source = self.source;
        let mut below = Vec::new();
        let (spent, next) = self.reconcile(store, from, end, budget, &mut |key, value| {
            let Ok(Parsed::Entry { cookie, part: Part::Attributes, .. }) = key::parse(key) else {
                return Ok(());
            };
            if cookie != 0 {
                let entry =
                    EntryRecord::decode(value).map_err(|error| malformed(source, &error))?;
                below.push((entry.ino, entry.target));
            }
            Ok(())
        })?;
        if let Some(from) = next {
            self.tasks.push(Task::Directory { ino, from });
        }
        for (ino, target) in below {
            match target {
                Target::Directory => self.tasks.push(directory_task(ino)),
                Target::Linked(_) => self.tasks.push(Task::Linked(ino)),
                Target::Embedded(inode) => {
                    if inode.has_extents || self.start == Start::Similar {
                        self.tasks.push(extents_task(ino));
                    }
                }
                Target::Tombstone | Target::Subvolume(_) => {}
            }
        }
        Ok(spent)
    }

    fn extents(
        &mut self,
        store: &dyn Store,
        ino: u64,
        from: Vec<u8>,
        budget: usize,
    ) -> FsResult<usize> {
        self.files.insert(ino);
        let end = store::prefix_end(&key::extent_prefix(ino));
        let (spent, next) = self.reconcile(store, from, end, budget, &mut |_, _| Ok(()))?;
        if let Some(from) = next {
            self.tasks.push(Task::Extents { ino, from });
        }
        Ok(spent)
    }

    /// Copies a linked inode with the names that are reachable, and counts those.
    fn linked(&mut self, store: &dyn Store, ino: u64) -> FsResult<usize> {
        if !self.linked.insert(ino) {
            return Ok(1);
        }
        let records = linked_records(store, &mut self.reach, ino)?;
        let prefix = key::linked_prefix(ino);
        let has = scan_all(store, self.target, &prefix, self.start)?;
        write_difference(&mut self.batch, self.target, &has, &records);
        self.tasks.push(extents_task(ino));
        Ok(records.len() + has.len())
    }

    /// Removes what a similar target holds of inodes that were not met.
    fn sweep(&mut self, store: &dyn Store, from: Vec<u8>, budget: usize) -> FsResult<usize> {
        let mut cursor =
            store.scan(self.target, KeyRange { from, to: None }).map_err(from_store)?;
        for _ in 0..budget {
            let Some(item) = cursor.next().map_err(from_store)? else { return Ok(budget) };
            let parsed = key::parse(item.key).map_err(|error| malformed(self.target, &error))?;
            let (known, prefix) = match parsed {
                Parsed::Entry { directory, .. } => {
                    (self.directories.contains(&directory), key::directory_prefix(directory))
                }
                Parsed::Linked { ino, .. } | Parsed::BackReference { ino, .. } => {
                    (self.linked.contains(&ino), key::linked_prefix(ino))
                }
                Parsed::Extent { ino, .. } => (self.files.contains(&ino), key::extent_prefix(ino)),
            };
            let end = store::prefix_end(&prefix).expect("invariant: a tag is below 255");
            if !known {
                self.batch.delete_range(self.target, &prefix, &end);
            }
            cursor.seek(&end).map_err(from_store)?;
        }
        let next = cursor.next().map_err(from_store)?;
        if let Some(item) = next {
            self.tasks.push(Task::Sweep(item.key.to_vec()));
        }
        Ok(budget)
    }

    /// Makes a range of the target equal to the source. Returns how many records it read, and the
    /// key to continue from.
    fn reconcile(
        &mut self,
        store: &dyn Store,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
        budget: usize,
        found: volume::core::Visit<'_>,
    ) -> FsResult<(usize, Option<Vec<u8>>)> {
        let range = KeyRange { from: from.clone(), to: to.clone() };
        let (mut wanted, mut next) = scan_some(store, self.source, range, budget)?;
        let mut has = Vec::new();
        if self.start == Start::Similar {
            let range = KeyRange { from, to: next.clone().or(to) };
            let more;
            (has, more) = scan_some(store, self.target, range, budget)?;
            if let Some(more) = more {
                // The target has more there than one step takes: stop where it stopped.
                wanted.truncate(wanted.partition_point(|(key, _)| *key < more));
                next = Some(more);
            }
        }
        for (key, value) in &wanted {
            found(key, value)?;
        }
        write_difference(&mut self.batch, self.target, &has, &wanted);
        Ok((wanted.len() + has.len(), next))
    }
}

/// Records of a range, about `budget` of them and no more bytes than a commit should have, and the
/// key to continue from.
fn scan_some(
    store: &dyn Store,
    tree: TreeId,
    range: KeyRange,
    budget: usize,
) -> FsResult<(Records, Option<Vec<u8>>)> {
    let mut records = Records::new();
    let mut bytes = 0;
    let mut cursor = store.scan(tree, range).map_err(from_store)?;
    while let Some(item) = cursor.next().map_err(from_store)? {
        if records.len() >= budget || bytes >= BATCH_BYTES {
            return Ok((records, Some(item.key.to_vec())));
        }
        bytes += item.key.len() + item.value.len();
        records.push((item.key.to_vec(), item.value.to_vec()));
    }
    Ok((records, None))
}

fn directory_task(ino: u64) -> Task {
    Task::Directory { ino, from: key::directory_prefix(ino).to_vec() }
}

fn extents_task(ino: u64) -> Task {
    Task::Extents { ino, from: key::extent_prefix(ino).to_vec() }
}

/// Records, sorted by key.
pub(super) type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// The records of a linked inode with only its reachable names. None when no name is reachable,
/// unless it has no names at all: such an inode is held.
pub(crate) fn linked_records(store: &dyn Store, reach: &mut Reach, ino: u64) -> FsResult<Records> {
    let tree = reach.tree();
    let mut records = scan_all(store, tree, &key::linked_prefix(ino), Start::Similar)?;
    let mut names = 0_u32;
    let mut failure = None;
    records.retain(|(key, _)| match key::parse(key) {
        Ok(Parsed::BackReference { directory, .. }) => {
            let reachable = reach.contains(store, directory).unwrap_or_else(|error| {
                failure = Some(error);
                false
            });
            names += u32::from(reachable);
            reachable
        }
        _ => true,
    });
    if let Some(error) = failure {
        return Err(error);
    }
    let attributes = key::linked(ino, Part::Attributes);
    for (key, value) in &mut records {
        if key.as_slice() == attributes {
            let record = LinkedRecord::decode(value).map_err(|error| malformed(tree, &error))?;
            if record.nlink > 0 && names == 0 {
                return Ok(Vec::new());
            }
            value.clear();
            // What is charged stays: only changes of the inode change it.
            LinkedRecord { nlink: names, ..record }.encode(value);
        }
    }
    Ok(records)
}

/// Everything under a prefix; nothing of a tree that is known to be empty.
pub(crate) fn scan_all(
    store: &dyn Store,
    tree: TreeId,
    prefix: &[u8],
    start: Start,
) -> FsResult<Records> {
    let mut found = Vec::new();
    if start == Start::Similar {
        let mut cursor = store.scan(tree, KeyRange::prefix(prefix)).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            found.push((item.key.to_vec(), item.value.to_vec()));
        }
    }
    Ok(found)
}

/// Adds to a batch the changes that turn the records of a tree into those it should have.
pub(crate) fn write_difference(batch: &mut Batch, tree: TreeId, has: &Records, wanted: &Records) {
    let (mut has, mut wanted) = (has.iter().peekable(), wanted.iter().peekable());
    loop {
        match (has.peek(), wanted.peek()) {
            (None, None) => break,
            (Some((old, _)), None) => {
                batch.delete(tree, old);
                has.next();
            }
            (Some((old, _)), Some((new, _))) if old < new => {
                batch.delete(tree, old);
                has.next();
            }
            (Some((old, old_value)), Some((new, value))) if old == new => {
                if old_value != value {
                    batch.put(tree, new, value);
                }
                has.next();
                wanted.next();
            }
            (_, Some((new, value))) => {
                batch.put(tree, new, value);
                wanted.next();
            }
        }
    }
}
