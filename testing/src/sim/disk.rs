//! Files and directories: for each, the visible state, the durable state, and the pending changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::content::{BLOCK, Change, Content};

/// Number of a file or directory.
pub(super) type NodeNo = u64;

/// The volume directory.
pub(super) const ROOT: NodeNo = 0;

/// One change of a directory's names.
#[derive(Debug, Clone)]
pub(super) enum NameChange {
    /// A name was given to a node.
    Add { name: String, node: NodeNo },
    /// A name was taken away.
    Remove { name: String },
    /// A node was renamed within the directory.
    Move { from: String, to: String, node: NodeNo },
    /// A node moved in from another directory, by this rename.
    MoveIn { name: String, node: NodeNo, rename: u64 },
    /// A node moved out to another directory, by this rename.
    MoveOut { name: String, rename: u64 },
}

/// A regular file. Invariant: `current` is `durable` with `pending` applied, unless a sync failed.
#[derive(Debug, Clone, Default)]
pub(super) struct FileNode {
    pub(super) current: Content,
    pub(super) durable: Content,
    pub(super) pending: Vec<Change>,
    /// Open handles.
    pub(super) handles: usize,
    /// Number of its current names in directories.
    pub(super) names: usize,
}

/// A directory. Invariant: `current` is `durable` with `pending` applied.
#[derive(Debug, Clone, Default)]
pub(super) struct DirNode {
    pub(super) current: BTreeMap<String, NodeNo>,
    pub(super) durable: BTreeMap<String, NodeNo>,
    pub(super) pending: Vec<NameChange>,
}

/// Applies one change of names.
pub(super) fn apply_name(names: &mut BTreeMap<String, NodeNo>, change: &NameChange) {
    match change {
        NameChange::Add { name, node } | NameChange::MoveIn { name, node, .. } => {
            names.insert(name.clone(), *node);
        }
        NameChange::Remove { name } | NameChange::MoveOut { name, .. } => {
            names.remove(name);
        }
        NameChange::Move { from, to, node } => {
            names.remove(from);
            names.insert(to.clone(), *node);
        }
    }
}

/// All files and directories. Invariant: `blocks_used` is the sum of the blocks in the current
/// contents of all files with a name or a handle.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) files: BTreeMap<NodeNo, FileNode>,
    pub(super) dirs: BTreeMap<NodeNo, DirNode>,
    pub(super) next: u64,
    pub(super) blocks_used: u64,
    pub(super) blocks_max: Option<u64>,
    /// The size that the disk reports, all of it free, however much is on it.
    pub(super) stated: Option<u64>,
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const ENOSPC: i32 = 28;

impl Disk {
    /// An empty disk.
    pub(super) fn new() -> Disk {
        let mut disk = Disk { next: ROOT + 1, ..Disk::default() };
        disk.dirs.insert(ROOT, DirNode::default());
        disk
    }

    /// The node at a path.
    pub(super) fn find(&self, path: &str) -> io::Result<NodeNo> {
        let mut node = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let directory = self.dirs.get(&node).ok_or_else(|| errno(ENOTDIR))?;
            node = *directory.current.get(name).ok_or_else(|| errno(ENOENT))?;
        }
        Ok(node)
    }

    /// The file at a path.
    pub(super) fn find_file(&self, path: &str) -> io::Result<NodeNo> {
        let node = self.find(path)?;
        if self.files.contains_key(&node) { Ok(node) } else { Err(errno(EISDIR)) }
    }

    /// The directory at a path.
    pub(super) fn find_dir(&self, path: &str) -> io::Result<NodeNo> {
        let node = self.find(path)?;
        if self.dirs.contains_key(&node) { Ok(node) } else { Err(errno(ENOTDIR)) }
    }

    /// The parent directory of a path's last component, and that component.
    fn parent<'a>(&self, path: &'a str) -> io::Result<(NodeNo, &'a str)> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find_dir(directory)?, name))
    }

    /// A file's node.
    pub(super) fn file(&mut self, node: NodeNo) -> &mut FileNode {
        self.files.get_mut(&node).expect("invariant: a named or open file is kept")
    }

    fn dir(&mut self, node: NodeNo) -> &mut DirNode {
        self.dirs.get_mut(&node).expect("invariant: a named directory is kept")
    }

    fn record(&mut self, directory: NodeNo, change: NameChange) {
        let directory = self.dir(directory);
        apply_name(&mut directory.current, &change);
        directory.pending.push(change);
    }

    /// Creates an empty file with an unused name.
    pub(super) fn create(&mut self, path: &str) -> io::Result<NodeNo> {
        let (directory, name) = self.parent(path)?;
        if self.dir(directory).current.contains_key(name) {
            return Err(errno(EEXIST));
        }
        let node = self.next;
        self.next += 1;
        self.files.insert(node, FileNode { names: 1, ..FileNode::default() });
        self.record(directory, NameChange::Add { name: name.to_owned(), node });
        Ok(node)
    }

    /// Creates a directory, unless it exists.
    pub(super) fn create_dir(&mut self, path: &str) -> io::Result<()> {
        if path.is_empty() {
            return Ok(());
        }
        let (directory, name) = self.parent(path)?;
        if let Some(node) = self.dir(directory).current.get(name).copied() {
            return if self.dirs.contains_key(&node) { Ok(()) } else { Err(errno(EEXIST)) };
        }
        let node = self.next;
        self.next += 1;
        self.dirs.insert(node, DirNode::default());
        self.record(directory, NameChange::Add { name: name.to_owned(), node });
        Ok(())
    }

    /// Renames a file, and replaces the target if it exists.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let node = self.find_file(from)?;
        let (old_dir, old_name) = self.parent(from)?;
        let (new_dir, new_name) = self.parent(to)?;
        let replaced = self.dir(new_dir).current.get(new_name).copied();
        match replaced {
            Some(same) if same == node => return Ok(()),
            Some(other) if self.dirs.contains_key(&other) => return Err(errno(EISDIR)),
            _ => {}
        }
        let (from, to) = (old_name.to_owned(), new_name.to_owned());
        if old_dir == new_dir {
            self.record(old_dir, NameChange::Move { from, to, node });
        } else {
            let rename = self.next;
            self.next += 1;
            self.record(new_dir, NameChange::MoveIn { name: to, node, rename });
            self.record(old_dir, NameChange::MoveOut { name: from, rename });
        }
        if let Some(replaced) = replaced {
            self.file(replaced).names -= 1;
            self.release(replaced);
        }
        Ok(())
    }

    /// Removes a file's name.
    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        let node = self.find_file(path)?;
        let (directory, name) = self.parent(path)?;
        self.record(directory, NameChange::Remove { name: name.to_owned() });
        self.file(node).names -= 1;
        self.release(node);
        Ok(())
    }

    /// Creates a file of these bytes that is durable at once, with its name and directory, or
    /// returns that the name exists. Without space for all of it, creates no file.
    pub(super) fn make_whole(&mut self, path: &str, bytes: &[u8]) -> io::Result<bool> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let directory = self.whole_dir(above)?;
        if self.dir(directory).current.contains_key(name) {
            return Ok(false);
        }
        let mut content = Content::default();
        content.write(bytes, 0);
        let blocks = content.blocks_reserved();
        if self.blocks_max.is_some_and(|most| most.saturating_sub(self.blocks_used) < blocks) {
            return Err(errno(ENOSPC));
        }
        self.blocks_used += blocks;
        let durable = content.clone();
        let node = self.next;
        self.next += 1;
        let file = FileNode { current: content, durable, names: 1, ..FileNode::default() };
        self.files.insert(node, file);
        self.name_whole(directory, name, node);
        Ok(true)
    }

    /// A directory; a missing one is created, durable at once.
    fn whole_dir(&mut self, path: &str) -> io::Result<NodeNo> {
        match self.find_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let above = self.whole_dir(above)?;
        let node = self.next;
        self.next += 1;
        self.dirs.insert(node, DirNode::default());
        self.name_whole(above, name, node);
        Ok(node)
    }

    fn name_whole(&mut self, directory: NodeNo, name: &str, node: NodeNo) {
        let directory = self.dir(directory);
        directory.current.insert(name.to_owned(), node);
        directory.durable.insert(name.to_owned(), node);
    }

    /// Durably deletes the file of [`Disk::make_whole`], if it exists.
    pub(super) fn remove_whole(&mut self, path: &str) -> io::Result<()> {
        let node = match self.find_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let (directory, name) = self.parent(path)?;
        let directory = self.dir(directory);
        directory.current.remove(name);
        directory.durable.remove(name);
        self.file(node).names -= 1;
        self.release(node);
        self.forget_unreachable();
        Ok(())
    }

    /// Frees the space of a file that has neither name nor handle.
    pub(super) fn release(&mut self, node: NodeNo) {
        let file = self.file(node);
        if file.names == 0 && file.handles == 0 {
            let blocks = file.current.blocks_reserved();
            file.current = Content::default();
            self.blocks_used -= blocks;
        }
    }

    /// Makes the names of a directory durable.
    pub(super) fn sync_dir(&mut self, path: &str) -> io::Result<()> {
        let node = self.find_dir(path)?;
        let pending = std::mem::take(&mut self.dir(node).pending);
        for change in &pending {
            apply_name(&mut self.dir(node).durable, change);
            if let NameChange::MoveOut { rename, .. } = change {
                // A rename is one step of the file system's journal: once the removal of the old
                // name is durable, the new name is durable too.
                self.settle_move_in(*rename);
            }
        }
        self.forget_unreachable();
        Ok(())
    }

    fn settle_move_in(&mut self, wanted: u64) {
        for directory in self.dirs.values_mut() {
            let is_it = |change: &NameChange| match change {
                NameChange::MoveIn { rename, .. } => *rename == wanted,
                _ => false,
            };
            if let Some(at) = directory.pending.iter().position(is_it) {
                // Earlier changes in that directory become durable too, to keep their order.
                let settled: Vec<NameChange> = directory.pending.drain(..=at).collect();
                for change in &settled {
                    apply_name(&mut directory.durable, change);
                }
            }
        }
    }

    /// Drops files that no power cut can restore.
    fn forget_unreachable(&mut self) {
        let mut reachable = BTreeSet::new();
        for directory in self.dirs.values() {
            reachable.extend(directory.current.values().chain(directory.durable.values()));
            for change in &directory.pending {
                if let NameChange::Add { node, .. }
                | NameChange::Move { node, .. }
                | NameChange::MoveIn { node, .. } = change
                {
                    reachable.insert(*node);
                }
            }
        }
        self.files.retain(|node, file| file.handles > 0 || reachable.contains(node));
    }

    /// Applies a change to a file; if it does not fit, applies the part that does.
    pub(super) fn change(&mut self, node: NodeNo, change: Change) -> io::Result<()> {
        let free = self.blocks_max.map(|most| most.saturating_sub(self.blocks_used));
        let file = self.file(node);
        let before = file.current.blocks_reserved();
        let (change, result) = match free {
            Some(free) => fitting(&file.current, change, free),
            None => (Some(change), Ok(())),
        };
        if let Some(change) = change {
            file.current.apply(&change);
            file.pending.push(change);
        }
        let after = file.current.blocks_reserved();
        self.blocks_used = self.blocks_used - before + after;
        result
    }

    /// Makes the bytes and length of a file durable.
    pub(super) fn sync_file(&mut self, node: NodeNo) {
        let file = self.file(node);
        for change in std::mem::take(&mut file.pending) {
            file.durable.apply(&change);
        }
    }

    /// A failed sync: each pending change became durable, or no later sync makes it so.
    pub(super) fn sync_file_failed(&mut self, node: NodeNo, random: &mut fastrand::Rng) {
        let file = self.file(node);
        for change in std::mem::take(&mut file.pending) {
            if random.bool() {
                file.durable.apply(&change);
            }
        }
    }
}

/// The part of a change that fits in the free space, and the error if that is not all of it.
fn fitting(content: &Content, change: Change, free: u64) -> (Option<Change>, io::Result<()>) {
    let lacking = match &change {
        Change::Write { offset, bytes } => content.lacking(*offset, bytes.len() as u64),
        Change::Allocate(range) => content.lacking(range.start, range.end - range.start),
        Change::SetLen(_) | Change::Punch(_) => Vec::new(),
    };
    let mut left = free;
    let mut first_without = None;
    for run in lacking {
        let blocks = run.end - run.start;
        if blocks > left {
            first_without = Some(run.start + left);
            break;
        }
        left -= blocks;
    }
    let Some(first_without) = first_without else {
        return (Some(change), Ok(()));
    };
    let part = match change {
        Change::Write { offset, bytes } => {
            let fits = (first_without * BLOCK).saturating_sub(offset) as usize;
            (fits > 0).then(|| Change::Write { offset, bytes: bytes[..fits].into() })
        }
        // A reservation that fails reserves nothing.
        _ => None,
    };
    (part, Err(errno(ENOSPC)))
}
