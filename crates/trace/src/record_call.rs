//! The file system whose calls are recorded, and how one call is.
//!
//! Invariants: a call that is recorded is recorded once, after it ended. Contents are not recorded:
//! only their lengths are.

use std::cell::RefCell;
use std::sync::Arc;

use format::trace::{Call, Event, Listed, Shown, UNKNOWN_CALLER};
use inode::{Caller, NodeId};
use vfs::{DirEntry, FileSystem, FsResult, WalkControl};

use crate::fields::{kind, shown};
use crate::{Recorder, ended_by};

thread_local! {
    /// The fields of an event, before they are copied into the block: one buffer for each thread.
    static FIELDS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A file system whose calls a [`Recorder`] writes down.
pub struct Traced {
    pub(crate) inner: Arc<dyn FileSystem>,
    pub(crate) recorder: Arc<Recorder>,
}

impl Traced {
    /// Records the calls of `inner`.
    pub fn new(inner: Arc<dyn FileSystem>, recorder: Arc<Recorder>) -> Traced {
        Traced { inner, recorder }
    }

    /// Makes a call, and records it with the event that `describe` makes of its result.
    #[inline]
    pub(crate) fn call<'a, T>(
        &self,
        caller: Option<&Caller>,
        call: impl FnOnce(&dyn FileSystem) -> FsResult<T>,
        describe: impl FnOnce(&FsResult<T>) -> Event<'a>,
    ) -> FsResult<T> {
        let at = self.recorder.now();
        let result = call(&*self.inner);
        let took = self.recorder.now().saturating_sub(at);
        let mut event = describe(&result);
        (event.at, event.took, event.ended) = (at, took, ended_by(&result));
        (event.uid, event.gid, event.pid) = match caller {
            Some(caller) => (caller.uid, caller.gid, caller.pid),
            None => (UNKNOWN_CALLER, UNKNOWN_CALLER, 0),
        };
        FIELDS.with_borrow_mut(|fields| self.recorder.push(&event, fields));
        result
    }

    pub(crate) fn readlink_by(
        &self,
        caller: &Caller,
        node: NodeId,
        call: impl FnOnce(&dyn FileSystem) -> FsResult<Vec<u8>>,
    ) -> FsResult<Vec<u8>> {
        let at = self.recorder.now();
        let result = call(&*self.inner);
        let took = self.recorder.now().saturating_sub(at);
        let mut event = Event { at, took, node: node.shown(), ..Event::new(Call::Readlink) };
        event.ended = ended_by(&result);
        event.other_name = result.as_deref().unwrap_or_default();
        (event.uid, event.gid, event.pid) = (caller.uid, caller.gid, caller.pid);
        FIELDS.with_borrow_mut(|fields| self.recorder.push(&event, fields));
        result
    }

    pub(crate) fn list(
        &self,
        call: Call,
        (caller, directory, cookie): (&Caller, NodeId, u64),
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        // Entries are copied while the caller has them, into one buffer.
        let mut names = Vec::new();
        let mut taken: Vec<(usize, Shown, bool)> = Vec::new();
        let mut keep = |entry: &DirEntry<'_>| {
            let control = take(entry);
            if control == WalkControl::Continue {
                names.extend_from_slice(entry.name);
                let node = entry.node.shown();
                let bare = Shown { node, kind: kind(entry.kind), ..Shown::default() };
                let shown = entry.attr.map_or(bare, |attr| shown(entry.node, attr));
                taken.push((names.len(), shown, entry.attr.is_some()));
            }
            control
        };
        let at = self.recorder.now();
        let result = match call {
            Call::Readdirplus => self.inner.readdirplus(caller, directory, cookie, &mut keep),
            _ => self.inner.readdir(caller, directory, cookie, &mut keep),
        };
        let took = self.recorder.now().saturating_sub(at);
        let mut event = Event {
            at,
            took,
            ended: ended_by(&result),
            node: directory.shown(),
            offset: cookie,
            ..Event::new(call)
        };
        (event.uid, event.gid, event.pid) = (caller.uid, caller.gid, caller.pid);
        let mut from = 0;
        for &(to, shown, with_attributes) in &taken {
            let name = names.get(from..to).unwrap_or_default();
            event.entries.push(Listed { name, shown, with_attributes });
            from = to;
        }
        FIELDS.with_borrow_mut(|fields| self.recorder.push(&event, fields));
        result
    }
}
