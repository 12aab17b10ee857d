//! Turns events into jobs: which directory, name and open file each call has here.
//!
//! Events are taken in the order of the trace, by one thread, which alone knows names. A job has
//! what it needs, so that other threads make it while names change.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use format::trace::{Call, Ended, Event};
use trace::{Claims, Expected, NameIn, Names, is_entry};

use super::job::Job;
use super::place::{Dir, Handle, Opened, Target};

/// Longest way to a directory.
const DEPTH_MAX: usize = 1024;
/// How many directories and files stay open at most; then all are closed, and open again at their
/// next use.
const OPEN_MAX: usize = 2048;

/// What an event is for a replay.
pub(super) enum Planned {
    /// A call, and what it claims.
    Job(Box<Job>, Claims),
    /// It concerns an inode that no event before shows, because events were dropped.
    Unknown,
}

/// Names and open files at a place of the trace.
pub(super) struct Planner<'a> {
    expected: &'a Expected,
    names: Names,
    root: u64,
    dirs: BTreeMap<u64, Arc<Dir>>,
    handles: BTreeMap<u64, Arc<Handle>>,
    opened: Arc<Opened>,
    number: u64,
}

impl<'a> Planner<'a> {
    /// Begins at the start of a trace, in a directory that replaces inode `root`.
    pub(super) fn new(expected: &'a Expected, root: u64, fd: OwnedFd) -> Planner<'a> {
        let opened = Arc::new(Opened::default());
        let mut names = Names::default();
        for (node, placed) in expected.nodes() {
            for place in &placed.names {
                names.insert(place.clone(), node);
            }
        }
        let dirs = BTreeMap::from([(root, Dir::root(fd, &opened))]);
        Planner { expected, names, root, dirs, handles: BTreeMap::new(), opened, number: 0 }
    }

    /// The job of the next event. [`Planner::took`] must follow.
    pub(super) fn plan(&mut self, event: &Event<'_>) -> Planned {
        self.number += 1;
        let mut claims = Claims::of(event, &self.names);
        let job = self.job(event, &mut claims);
        job.map_or(Planned::Unknown, |job| Planned::Job(Box::new(job), claims))
    }

    fn job(&mut self, event: &Event<'_>, claims: &mut Claims) -> Option<Job> {
        let mut text: Box<[u8]> = Box::default();
        let (mut second, mut handle, mut second_handle) = (None, None, None);
        let target = match event.call {
            Call::Lookup | Call::Mknod | Call::Mkdir | Call::Symlink | Call::Link => {
                if event.call == Call::Lookup && !is_entry(event.name) {
                    self.target(event.node)?
                } else {
                    self.name(event.node, event.name)?
                }
            }
            Call::Unlink | Call::Rmdir | Call::Rename => self.name(event.node, event.name)?,
            Call::Sync | Call::Statfs => Target::Root(self.dirs.get(&self.root)?.clone()),
            _ => self.target(event.node)?,
        };
        match event.call {
            Call::Mknod | Call::Tmpfile if event.ended == Ended::Done => {
                handle = Some(self.handle(event.found.node));
            }
            Call::Symlink => text = event.other_name.into(),
            Call::Getxattr | Call::Setxattr | Call::Removexattr => text = event.name.into(),
            Call::Link => second = Some(self.target(event.other)?),
            Call::Unlink => {
                let node = self.names.touched(event).from;
                handle = node.and_then(|node| self.held(node));
            }
            Call::Rename => {
                second = Some(self.name(event.other, event.other_name)?);
                let touched = self.names.touched(event);
                second_handle = touched.to.and_then(|node| self.held(node));
                let is_dir = |node: Option<u64>| node.is_some_and(|n| self.dirs.contains_key(&n));
                claims.is_alone |= is_dir(touched.from) || is_dir(touched.to);
            }
            Call::CopyRange => {
                second = Some(self.target(event.other)?);
                handle = Some(self.handle(event.node));
                second_handle = Some(self.handle(event.other));
            }
            Call::Setattr
            | Call::Read
            | Call::Write
            | Call::Seek
            | Call::Fallocate
            | Call::Fsync
            | Call::Readdir
            | Call::Readdirplus
            | Call::Open
            | Call::Release => handle = Some(self.handle(event.node)),
            Call::Lookup
            | Call::Getattr
            | Call::Access
            | Call::Readlink
            | Call::Mknod
            | Call::Mkdir
            | Call::Rmdir
            | Call::Tmpfile
            | Call::Sync
            | Call::Statfs
            | Call::Listxattr => {}
        }
        // The job outlives the trace's buffer.
        let event = numbers(event);
        let number = self.number;
        Some(Job { number, event, target, second, handle, second_handle, text })
    }

    /// Applies an event that was planned. If its job runs alone, it has run.
    pub(super) fn took(&mut self, event: &Event<'_>) {
        let touched = self.names.touched(event);
        self.names.apply(event);
        if event.ended != Ended::Done {
            return;
        }
        for node in [touched.from, touched.to].into_iter().flatten() {
            if let Some(place) = self.names.places(node).first().cloned() {
                self.moved(node, &place);
                continue;
            }
            self.dirs.remove(&node);
            if !self.expected.is_held(node) {
                self.handles.remove(&node);
            }
        }
        if self.opened.count() > OPEN_MAX {
            self.dirs.values().for_each(|dir| dir.close());
            self.handles.values().for_each(|handle| handle.close());
        }
    }

    fn moved(&mut self, node: u64, place: &NameIn) {
        let Some(dir) = self.dirs.get(&node).cloned() else { return };
        if let Some(parent) = self.dir(place.parent, DEPTH_MAX) {
            dir.moved(&parent, &place.name);
        }
    }

    /// Where an inode is.
    fn target(&mut self, node: u64) -> Option<Target> {
        if node == self.root {
            return self.dirs.get(&node).cloned().map(Target::Root);
        }
        match self.names.places(node).first().cloned() {
            Some(place) => self.name(place.parent, &place.name),
            None => self.handles.get(&node).cloned().map(Target::Held),
        }
    }

    fn name(&mut self, parent: u64, name: &[u8]) -> Option<Target> {
        let parent = self.dir(parent, DEPTH_MAX)?;
        is_entry(name).then(|| Target::Name(parent, name.into()))
    }

    /// The directory of an inode.
    fn dir(&mut self, node: u64, depth: usize) -> Option<Arc<Dir>> {
        if let Some(dir) = self.dirs.get(&node) {
            return Some(Arc::clone(dir));
        }
        let place = self.names.places(node).first().cloned()?;
        let parent = self.dir(place.parent, depth.checked_sub(1)?)?;
        let dir = Dir::below(&parent, &place.name);
        self.dirs.insert(node, Arc::clone(&dir));
        Some(dir)
    }

    /// Where the file of an inode is kept open.
    fn handle(&mut self, node: u64) -> Arc<Handle> {
        let new = || Handle::new(self.expected.is_held(node), &self.opened);
        Arc::clone(self.handles.entry(node).or_insert_with(new))
    }

    /// The handle of an inode whose name is about to be removed.
    fn held(&mut self, node: u64) -> Option<Arc<Handle>> {
        if self.expected.is_held(node) {
            Some(self.handle(node))
        } else {
            self.handles.get(&node).cloned()
        }
    }
}

/// An event without its names.
fn numbers(event: &Event<'_>) -> Event<'static> {
    Event {
        at: event.at,
        took: event.took,
        uid: event.uid,
        gid: event.gid,
        pid: event.pid,
        ended: event.ended,
        node: event.node,
        other: event.other,
        offset: event.offset,
        other_offset: event.other_offset,
        length: event.length,
        mode: event.mode,
        device: event.device,
        how: event.how,
        new_uid: event.new_uid,
        new_gid: event.new_gid,
        atime: event.atime,
        mtime: event.mtime,
        returned: event.returned,
        found: event.found,
        ..Event::new(event.call)
    }
}
