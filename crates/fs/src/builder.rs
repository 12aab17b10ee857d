//! Builds a tree with the rights of a caller. Where possible it makes drafts, many of which become
//! visible at once; elsewhere it uses ordinary calls. The result is the same.
//!
//! Drafts are made visible when they take much memory, when an ordinary call may depend on them,
//! and when [`Builder::flush`] is called. If that fails, the drafts of that time are lost, each use
//! of one is an error, and [`Builder::lost`] counts them from then on.

use std::collections::BTreeSet;
use std::time::Duration;

use inode::{Caller, FsError, NodeId, SetAttr};
use ops::bulk::{DirId, Draft, FileId, Refusal};
use vfs::{FileSystem, FsResult, NewNode, SetXattr};

use crate::{Bulk, Volume};

/// How long drafts stay invisible at most, while the builder is used.
const SHOW_AFTER: Duration = Duration::from_secs(2);

/// A node, or a draft that becomes one.
#[derive(Debug, Clone, Copy)]
pub struct BulkNode {
    node: NodeId,
    /// The draft, and the flush that makes it a node.
    draft: Option<(Draft, u64)>,
}

impl BulkNode {
    /// A node.
    pub fn of(node: NodeId) -> BulkNode {
        BulkNode { node, draft: None }
    }

    /// The node that it is, or becomes.
    pub fn id(self) -> NodeId {
        self.node
    }
}

/// Builds a tree.
pub struct Builder<'a> {
    volume: &'a Volume,
    caller: Caller,
    bulk: Option<Bulk<'a>>,
    /// The number of the next flush.
    flush: u64,
    /// Flushes that failed.
    lost: BTreeSet<u64>,
    /// How many drafts they lost, and why the first one failed.
    lost_drafts: Option<(u64, FsError)>,
    /// When the first draft was made that was not flushed.
    since: Option<Duration>,
    /// Whether new drafts are made now.
    drafting: bool,
}

impl<'a> Builder<'a> {
    /// A builder of what is in the subvolume of a directory; without `memory`, by ordinary calls.
    pub fn new(
        volume: &'a Volume,
        caller: &Caller,
        top: NodeId,
        memory: Option<usize>,
    ) -> FsResult<Builder<'a>> {
        let bulk = match memory {
            Some(memory) if !Volume::is_virtual(top) => {
                Some(volume.inner().bulk(caller, top, memory)?)
            }
            _ => None,
        };
        Ok(Builder {
            volume,
            caller: caller.clone(),
            bulk,
            flush: 0,
            lost: BTreeSet::new(),
            lost_drafts: None,
            since: None,
            drafting: true,
        })
    }

    /// Whether drafts are made from now on in what is no draft itself. Those that were made stay.
    pub fn make_drafts(&mut self, make: bool) {
        self.drafting = make;
    }

    /// Makes what is neither a directory nor a symbolic link. Takes one look-up, as everything that
    /// is made: [`Builder::release`].
    pub fn mknod(&mut self, parent: BulkNode, name: &[u8], new: &NewNode) -> FsResult<BulkNode> {
        let made =
            self.drafted(parent, name, |bulk, dir| bulk.make(dir, name, new).map(Draft::File))?;
        if let Some(spot) = made {
            return Ok(spot);
        }
        let parent = self.resolved(parent)?;
        self.volume.mknod(&self.caller, parent, name, new).map(|made| BulkNode::of(made.node))
    }

    /// Makes a symbolic link.
    pub fn symlink(&mut self, parent: BulkNode, name: &[u8], target: &[u8]) -> FsResult<BulkNode> {
        let made = self
            .drafted(parent, name, |bulk, dir| bulk.symlink(dir, name, target).map(Draft::File))?;
        if let Some(spot) = made {
            return Ok(spot);
        }
        let parent = self.resolved(parent)?;
        let made = self.volume.symlink(&self.caller, parent, name, target)?;
        Ok(BulkNode::of(made.node))
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, parent: BulkNode, name: &[u8], mode: u32) -> FsResult<BulkNode> {
        let made = self
            .drafted(parent, name, |bulk, dir| bulk.mkdir(dir, name, mode).map(Draft::Directory))?;
        if let Some(spot) = made {
            return Ok(spot);
        }
        let parent = self.resolved(parent)?;
        self.volume.mkdir(&self.caller, parent, name, mode).map(|made| BulkNode::of(made.node))
    }

    /// The directory among the drafts that has a name, with a look-up.
    pub fn drafted_directory(
        &mut self,
        parent: BulkNode,
        name: &[u8],
    ) -> FsResult<Option<BulkNode>> {
        let Some(dir) = self.drafted_in(parent)? else { return Ok(None) };
        let bulk = self.bulk.as_ref();
        let found = bulk.and_then(|bulk| bulk.find(dir, name).map(|draft| (bulk, draft)));
        Ok(match found {
            Some((bulk, draft @ Draft::Directory(_))) => {
                // What had it before has released it, or shares the look-up.
                bulk.keep(draft, true);
                Some(BulkNode { node: bulk.node(draft), draft: Some((draft, self.flush)) })
            }
            _ => None,
        })
    }

    /// Writes to a file.
    pub fn write(&mut self, spot: BulkNode, offset: u64, bytes: &[u8]) -> FsResult<()> {
        let done = self.changed(spot, |bulk, draft| bulk.write(file(draft)?, offset, bytes))?;
        if done {
            return Ok(());
        }
        let node = self.resolved(spot)?;
        self.volume.write(&self.caller, node, offset, bytes)
    }

    /// Changes attributes.
    pub fn setattr(&mut self, spot: BulkNode, changes: &SetAttr) -> FsResult<()> {
        let done = self.changed(spot, |bulk, draft| match changes.size {
            None => bulk.setattr(draft, changes),
            Some(size) if *changes == (SetAttr { size: Some(size), ..SetAttr::default() }) => {
                bulk.set_size(file(draft)?, size)
            }
            Some(_) => Err(Refusal::Flush),
        })?;
        if done {
            return Ok(());
        }
        let node = self.node(spot)?;
        self.volume.setattr(&self.caller, node, changes).map(drop)
    }

    /// Sets an extended attribute.
    pub fn setxattr(&mut self, spot: BulkNode, name: &[u8], value: &[u8]) -> FsResult<()> {
        let done = self.changed(spot, |bulk, draft| bulk.setxattr(draft, name, value))?;
        if done {
            return Ok(());
        }
        let node = self.node(spot)?;
        self.volume.setxattr(&self.caller, node, name, value, SetXattr::Any)
    }

    /// Removes an access list, if there is one.
    pub fn remove_list(&mut self, spot: BulkNode, name: &[u8]) -> FsResult<()> {
        if let Some(draft) = self.draft(spot)? {
            if self.bulk.as_ref().is_some_and(|bulk| !bulk.has_xattr(draft, name)) {
                return Ok(());
            }
            let done = self.changed(spot, |bulk, draft| bulk.remove_list(draft, name))?;
            if done {
                return Ok(());
            }
        }
        let node = self.node(spot)?;
        match self.volume.getxattr(&self.caller, node, name) {
            Ok(_) => self.volume.removexattr(&self.caller, node, name),
            Err(_) => Ok(()),
        }
    }

    /// Whether a directory has a default access list. If that cannot be read, it may have one.
    pub fn has_xattr(&mut self, spot: BulkNode, name: &[u8]) -> bool {
        match (self.draft(spot), &self.bulk) {
            (Ok(Some(draft)), Some(bulk)) => bulk.has_xattr(draft, name),
            _ => !matches!(
                self.volume.getxattr(&self.caller, spot.node, name),
                Err(FsError::NoAttribute)
            ),
        }
    }

    /// The mode and the group.
    pub fn mode_and_group(&mut self, spot: BulkNode) -> FsResult<(u32, u32)> {
        if let (Some(draft), Some(bulk)) = (self.draft(spot)?, &self.bulk) {
            return Ok(bulk.mode_and_group(draft));
        }
        let attr = self.volume.getattr(&self.caller, spot.node)?;
        Ok((attr.mode, attr.gid))
    }

    /// Gives up a look-up.
    pub fn release(&mut self, spot: BulkNode) {
        match (spot.draft, &self.bulk) {
            (Some((_, flush)), _) if self.lost.contains(&flush) => {}
            (Some((draft, flush)), Some(bulk)) if flush == self.flush => bulk.keep(draft, false),
            _ => self.volume.forget(spot.node, 1),
        }
    }

    /// The node of a spot. It, and what was made in it, is visible then.
    pub fn node(&mut self, spot: BulkNode) -> FsResult<NodeId> {
        let node = self.resolved(spot)?;
        if self.bulk.as_ref().is_some_and(|bulk| bulk.is_base(node)) {
            self.flush()?;
        }
        Ok(node)
    }

    /// The node of a spot, which is visible then; drafts in it stay.
    fn resolved(&mut self, spot: BulkNode) -> FsResult<NodeId> {
        if self.draft(spot)?.is_some() {
            self.flush()?;
        }
        Ok(spot.node)
    }

    /// Whether something is a draft still.
    pub fn is_draft(&self, spot: BulkNode) -> bool {
        spot.draft.is_some_and(|(_, flush)| flush == self.flush)
    }

    /// Whether there are drafts.
    pub fn has_drafts(&self) -> bool {
        self.bulk.as_ref().is_some_and(|bulk| !bulk.is_empty())
    }

    /// Makes all drafts visible, in one commit.
    pub fn flush(&mut self) -> FsResult<()> {
        let Some(bulk) = &self.bulk else { return Ok(()) };
        let number = self.flush;
        self.flush += 1;
        self.since = None;
        let drafts = bulk.count() as u64;
        let Err(error) = bulk.flush() else { return Ok(()) };
        self.lost.insert(number);
        let (lost, first) = self.lost_drafts.take().unwrap_or((0, error.clone()));
        self.lost_drafts = Some((lost + drafts, first));
        // For the caller these would speak of the name that it makes now.
        let of_others = matches!(error, FsError::Exists | FsError::NotFound);
        Err(if of_others { FsError::Stale } else { error })
    }

    /// How many drafts are lost, and why: none of their names exists.
    pub fn lost(&self) -> Option<(u64, &FsError)> {
        self.lost_drafts.as_ref().map(|(lost, error)| (*lost, error))
    }

    /// Makes drafts visible that have waited long.
    pub fn flush_old(&mut self) -> FsResult<()> {
        let now = self.volume.env.clock.monotonic();
        match self.since {
            Some(since) if now.saturating_sub(since) >= SHOW_AFTER => self.flush(),
            _ => Ok(()),
        }
    }

    /// The draft of a spot; `None`: it is a node.
    fn draft(&self, spot: BulkNode) -> FsResult<Option<Draft>> {
        match spot.draft {
            Some((_, flush)) if self.lost.contains(&flush) => Err(FsError::Stale),
            Some((draft, flush)) if flush == self.flush => Ok(Some(draft)),
            _ => Ok(None),
        }
    }

    /// The directory in which drafts are made for a spot; `None`: none can be.
    fn drafted_in(&mut self, spot: BulkNode) -> FsResult<Option<DirId>> {
        match self.draft(spot)? {
            Some(Draft::Directory(dir)) => return Ok(Some(dir)),
            // The ordinary call has the error to report.
            Some(Draft::File(_)) => return self.flush().map(|()| None),
            None => {}
        }
        let Some(bulk) = &self.bulk else { return Ok(None) };
        if !self.drafting || Volume::is_virtual(spot.node) || !bulk.reaches(spot.node) {
            return Ok(None);
        }
        let base = match bulk.base(spot.node) {
            Err(Refusal::Flush) => {
                self.flush()?;
                let Some(bulk) = &self.bulk else { return Ok(None) };
                bulk.base(spot.node)
            }
            base => base,
        };
        match base {
            Ok(dir) => Ok(Some(dir)),
            // The ordinary call has the error to report.
            Err(_) => Ok(None),
        }
    }

    /// Makes a draft; `None`: to be made by the ordinary call.
    fn drafted(
        &mut self,
        parent: BulkNode,
        name: &[u8],
        make: impl Fn(&Bulk<'a>, DirId) -> Result<Draft, Refusal>,
    ) -> FsResult<Option<BulkNode>> {
        if self.volume.header.reserves(name) {
            // The ordinary call has the error to report.
            return Ok(None);
        }
        for _ in 0..2 {
            let Some(dir) = self.drafted_in(parent)? else { return Ok(None) };
            let Some(bulk) = &self.bulk else { return Ok(None) };
            match make(bulk, dir) {
                Ok(draft) => {
                    bulk.keep(draft, true);
                    let spot =
                        BulkNode { node: bulk.node(draft), draft: Some((draft, self.flush)) };
                    if self.since.is_none() {
                        self.since = Some(self.volume.env.clock.monotonic());
                    }
                    return Ok(Some(spot));
                }
                // Perhaps the numbers are used up; then the next attempt has new ones.
                Err(Refusal::Flush) => self.flush()?,
                Err(Refusal::Stored) => return Ok(None),
                Err(Refusal::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Changes a draft; `false`: it is a node, to be changed by the ordinary call.
    fn changed(
        &mut self,
        spot: BulkNode,
        change: impl Fn(&Bulk<'a>, Draft) -> Result<(), Refusal>,
    ) -> FsResult<bool> {
        let (Some(draft), Some(bulk)) = (self.draft(spot)?, &self.bulk) else { return Ok(false) };
        match change(bulk, draft) {
            Ok(()) => Ok(true),
            Err(Refusal::Error(error)) => Err(error),
            Err(Refusal::Flush | Refusal::Stored) => self.flush().map(|()| false),
        }
    }

    /// Makes drafts visible if they take too much. Called when no draft is half made.
    pub fn flush_full(&mut self) -> FsResult<()> {
        if self.bulk.as_ref().is_some_and(Bulk::is_full) { self.flush() } else { Ok(()) }
    }
}

fn file(draft: Draft) -> Result<FileId, Refusal> {
    match draft {
        Draft::File(file) => Ok(file),
        Draft::Directory(_) => Err(Refusal::Error(FsError::IsDirectory)),
    }
}
