//! The daemon's side of an import: executes the items of a walk, one after the other, as the
//! caller. Where no other user can interfere, a [`Builder`] makes what is new visible many at once.
//! What that loses ends the import: it never gets its name.
//!
//! An item that fails is recorded and the rest continues. Items below a directory that could not
//! be created are left out. A file that gets no end is removed. It gets its times last: so a file
//! that a crash interrupted does not look complete to the next run. What replaces another file
//! is made under a hidden name until it is complete ([`replace`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use device::SystemClock;
use fs::{Builder, BulkNode, FileSystem, Follow, FsResult, Volume};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use wire::{
    Answer, Body, Bytes, DecodeError, Failure, FailureKind, ImportAttr, Item, ItemError, Items,
    ListEntry,
};

use super::about::about;
use super::held::{Held, split};
use super::replies::Replies;
use super::shares::Taken;
use super::staged::{Claim, Staged};

/// Permission bits until an item has its own.
const MODE_MEANWHILE: u32 = 0o600;
/// Of a directory. The sticky bit means nothing where only the owner has rights. After a crash, it
/// identifies a directory that got no other mark.
const DIRECTORY_MODE_MEANWHILE: u32 = 0o1700;
/// With the mark of a directory that an import made and has not finished. The bit means nothing on
/// a directory. After a crash, it identifies the directory without attributes of a source. In a
/// directory that gives its group to what is made in it, it has that bit, too.
const UNFINISHED_MODE: u32 = 0o4700;

mod bounds;
mod levels;
mod names;
mod make;
mod replace;
mod report;
mod failed;

use bounds::{BOUNDS, Bounds, TOO_DEEP, TOO_MANY_HELD, TOO_MANY_OF_USERS};
use failed::{Failed, Withheld};

type Xattrs<'a> = [(&'a [u8], &'a [u8])];
type OwnedXattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// An import under way on one connection.
pub(super) struct Import<'a> {
    fs: &'a Volume,
    caller: Caller,
    builder: Builder<'a>,
    bounds: Bounds,
    levels: Vec<Level>,
    /// Items below a directory that could not be created.
    left_out: u64,
    begun: Option<Begun>,
    held: BTreeMap<u64, BulkNode>,
    /// The share of the user in what all imports hold.
    share: Option<Taken<'a>>,
    /// The name of the only item, when the source is not a directory.
    single: Option<Vec<u8>>,
    /// The parent directory and the present name of a directory that will get another name.
    above: Option<(NodeId, Vec<u8>)>,
    /// No other import fills that directory.
    claim: Option<Claim>,
    /// The attributes that it gets once it has its name: until then it stays the caller's own, so
    /// that an interrupted import is continued.
    of_top: Option<(ImportAttr, OwnedXattrs)>,
    errors: Vec<ItemError>,
    error_paths_bytes: usize,
    more_errors: u64,
}

struct Level {
    node: BulkNode,
    name: Vec<u8>,
    /// Whether nobody but the caller reaches it yet, so that drafts can be made in it.
    closed: bool,
    /// Whether its parent directory has a default access list.
    inherits: bool,
    /// Whether it has a default access list itself.
    bequeaths: bool,
}

/// Something that was made, with a look-up.
struct Made {
    node: BulkNode,
    /// The directory that it is in.
    parent: BulkNode,
    /// The name that it has until it replaces another file.
    hidden: Option<Vec<u8>>,
}

struct Begun {
    made: Made,
    name: Vec<u8>,
    failed: bool,
}

impl<'a> Import<'a> {
    /// Begins an import; the second value is the answer, about the destination.
    pub(super) fn open(
        fs: &'a Volume,
        caller: &Caller,
        path: &[u8],
        (directory, staged): (bool, Option<&Arc<Staged>>),
        trusted: bool,
        replies: &mut Replies,
    ) -> Result<(Import<'a>, Answer), Failure> {
        if path.iter().all(|&byte| byte == b'/') {
            if !directory {
                return Err(about(FsError::IsDirectory, b"/"));
            }
            let root = fs.resolve(caller, b"/", Follow::Yes).map_err(|e| about(e, path))?;
            let mut import = Import::new(fs, caller, root.node, trusted)?;
            import.descend(BulkNode::of(root.node), b"", (false, false));
            import.list(root.node, replies)?;
            return Ok((import, Answer::Entered { existed: true, unfinished: false }));
        }
        let (parent, name) = split(path)?;
        let held = Held::resolve(fs, caller, parent, Follow::Yes)?;
        if directory {
            let (node, existed) = Import::make_directory(fs, caller, held.entry.node, name)
                .map_err(|error| about(error, path))?;
            let mut import = Import::new(fs, caller, node, trusted)?;
            let inherits = import.bequeaths(BulkNode::of(held.entry.node));
            let closed = import.is_closed(node, !existed);
            import.descend(BulkNode::of(node), b"", (inherits, closed));
            if let Some(staged) = staged {
                let claim = staged.claim_for(("import", path), (node, b""), &SystemClock::new())?;
                import.claim = Some(claim);
                import.above = Some((
                    fs.resolve(caller, parent, Follow::Yes).map_err(|e| about(e, path))?.node,
                    name.to_vec(),
                ));
                import.check_own(node, path)?;
            }
            let entered = import.entered(node, existed, replies)?;
            Ok((import, entered))
        } else {
            let mut import = Import::new(fs, caller, held.entry.node, false)?;
            let existed = import.report_existing(held.entry.node, (name, path), replies)?;
            // The level gets a lookup of its own; the one of `held` ends with it.
            let parent = fs.resolve(caller, parent, Follow::Yes).map_err(|e| about(e, path))?;
            import.descend(BulkNode::of(parent.node), b"", (false, false));
            import.single = Some(name.to_vec());
            if existed {
                import.sweep(parent.node);
            }
            Ok((import, Answer::Entered { existed, unfinished: false }))
        }
    }

    fn new(
        fs: &'a Volume,
        caller: &Caller,
        top: NodeId,
        many: bool,
    ) -> Result<Import<'a>, Failure> {
        let memory = many.then_some(fs::BULK_MEMORY);
        let builder = Builder::new(fs, caller, top, memory).map_err(|error| about(error, b""))?;
        Ok(Import {
            fs,
            caller: caller.clone(),
            builder,
            bounds: BOUNDS,
            levels: Vec::new(),
            left_out: 0,
            begun: None,
            held: BTreeMap::new(),
            share: None,
            single: None,
            above: None,
            claim: None,
            of_top: None,
            errors: Vec::new(),
            error_paths_bytes: 0,
            more_errors: 0,
        })
    }

    /// Counts the files that it holds in the share of a user.
    pub(super) fn count_in(&mut self, share: Taken<'a>) {
        self.share = Some(share);
    }

    /// Whether a message has an item to execute.
    pub(super) fn begins_with_an_item(mut bytes: &[u8]) -> bool {
        Items::next(&mut bytes).is_some_and(|item| item.is_ok())
    }

    /// Executes items in order, up to one that is not known.
    pub(super) fn items(&mut self, mut bytes: &[u8]) -> Result<(), DecodeError> {
        let shown = self.builder.flush_old();
        noted(shown);
        while self.builder.lost().is_none()
            && let Some(item) = Items::next(&mut bytes)
        {
            self.item(&item?);
            let shown = self.builder.flush_full();
            noted(shown);
        }
        Ok(())
    }

    /// Enters a directory that may exist, and sends its entries.
    pub(super) fn enter_existing(
        &mut self,
        name: &[u8],
        replies: &mut Replies,
    ) -> Result<Answer, Failure> {
        self.drop_begun();
        let parent = self.levels.last().filter(|_| self.left_out == 0).map(|level| level.node);
        let shown = self.builder.flush();
        noted(shown);
        self.is_whole()?;
        let Some(parent) = parent else {
            return Err(Failure::new(FailureKind::Protocol, "no directory to restore into"));
        };
        if self.levels.len() >= self.bounds.levels {
            return Err(about(FsError::InvalidArgument(TOO_DEEP), name));
        }
        let parent = self.builder.node(parent).map_err(|error| about(error, name))?;
        let (node, existed) = Import::make_directory(self.fs, &self.caller, parent, name)
            .map_err(|error| about(error, name))?;
        let closed = self.is_closed(node, !existed);
        self.descend(BulkNode::of(node), name, (self.inherits(), closed));
        let entered = self.entered(node, existed, replies);
        if entered.is_err() {
            // The command stays above it.
            self.ascend();
        }
        entered
    }

    /// The answer about a directory that was entered, after its entries.
    fn entered(
        &self,
        node: NodeId,
        existed: bool,
        replies: &mut Replies,
    ) -> Result<Answer, Failure> {
        if existed {
            self.list(node, replies)?;
        }
        Ok(Answer::Entered { existed, unfinished: existed && self.is_unfinished(node) })
    }

    /// Whether something that was made is not visible yet.
    pub(super) fn has_hidden(&self) -> bool {
        self.builder.has_drafts()
    }

    /// Makes it visible.
    pub(super) fn show(&mut self) {
        let shown = self.builder.flush();
        noted(shown);
    }

    /// The failures since the last call.
    pub(super) fn take_errors(&mut self) -> Result<Answer, Failure> {
        let shown = self.builder.flush_old();
        noted(shown);
        self.is_whole()?;
        let errors = std::mem::take(&mut self.errors);
        self.error_paths_bytes = 0;
        Ok(Answer::Imported { errors, more: std::mem::take(&mut self.more_errors) })
    }

    /// Ends the import, and makes it durable.
    pub(super) fn close(&mut self) -> Result<Answer, Failure> {
        self.drop_begun();
        let shown = self.builder.flush();
        noted(shown);
        self.fs.sync().map_err(Failure::from)?;
        self.take_errors()
    }

    /// Sends the entry that has the name of the only item.
    fn report_existing(
        &self,
        parent: NodeId,
        (name, path): (&[u8], &[u8]),
        replies: &mut Replies,
    ) -> Result<bool, Failure> {
        match self.fs.lookup(&self.caller, parent, name) {
            Ok(entry) => {
                let is_link = entry.attr.kind == Kind::Symlink;
                let target = is_link.then(|| self.fs.readlink(&self.caller, entry.node));
                self.fs.forget(entry.node, 1);
                if entry.attr.kind == Kind::Directory {
                    return Err(about(FsError::IsDirectory, path)
                        .hint("end the destination with the name of the copy"));
                }
                let target = target.and_then(Result::ok).map(Bytes);
                let listed = ListEntry { name: name.into(), attr: (&entry.attr).into(), target };
                let part = Body::Entries { directory: Bytes::default(), entries: vec![listed] };
                replies.part(part)?;
                Ok(true)
            }
            Err(FsError::NotFound) => Ok(false),
            Err(error) => Err(about(error, path)),
        }
    }

    fn item(&mut self, item: &Item<'_>) {
        if !matches!(item, Item::Data { .. } | Item::End { .. }) {
            self.drop_begun();
        }
        match item {
            Item::Enter { name } => self.enter(name),
            Item::Leave { attr, xattrs } => self.leave(Some((attr, xattrs))),
            Item::Back => self.leave(None),
            _ if self.left_out > 0 => {}
            Item::Data { offset, bytes } => self.data(*offset, bytes),
            Item::End { size, attr, xattrs, hold } => self.end(*size, attr, xattrs, *hold),
            Item::Begin { name } => {
                let name = self.own_name(name);
                let made = self.make_node(&name, Kind::File, 0);
                match made {
                    Ok(made) => self.begun = Some(Begun { made, name, failed: false }),
                    Err(failed) => self.failed(&name, failed),
                }
            }
            Item::File { name, attr, xattrs, data, hold } => {
                self.finish(name, *hold, |import, name| {
                    let made = import.make_node(name, Kind::File, 0)?;
                    let node = made.node;
                    let filled =
                        if data.is_empty() { Ok(()) } else { import.builder.write(node, 0, data) };
                    let inherits = import.inherits();
                    let done = filled
                        .and_then(|()| import.dress((node, Kind::File), attr, xattrs, inherits));
                    import.settle(made, name, done)
                });
            }
            Item::Symlink { name, target, attr, hold } => {
                self.finish(name, *hold, |import, name| {
                    let parent = import.parent();
                    let made = import
                        .make(name, |import, name| import.builder.symlink(parent, name, target))?;
                    let changes = SetAttr { mode: None, ..Import::changes(attr) };
                    let mut withheld = Withheld::default();
                    let set =
                        import.set_attributes((made.node, Kind::Symlink), &changes, &mut withheld);
                    import.settle(made, name, set.map(|()| withheld))
                });
            }
            Item::Special { name, kind, rdev, attr, hold } => {
                self.finish(name, *hold, |import, name| {
                    let made = import.make_node(name, *kind, *rdev)?;
                    let done = import.dress((made.node, *kind), attr, &[], import.inherits());
                    import.settle(made, name, done)
                });
            }
            Item::Link { name, held } => {
                self.finish(name, 0, |import, name| {
                    let Some(&target) = import.held.get(held) else {
                        let why = "the import of its first link failed";
                        return Err(FsError::InvalidArgument(why).into());
                    };
                    import.link(target, name)
                });
            }
            Item::LinkTo { name, target } => {
                self.finish(name, 0, |import, name| {
                    let target = import.below(target)?;
                    let linked = import.link(BulkNode::of(target), name);
                    import.fs.forget(target, 1);
                    linked
                });
            }
            Item::Hold { name, hold } => {
                self.finish(name, *hold, |import, name| {
                    import.builder.flush()?;
                    let parent = import.builder.node(import.parent())?;
                    Ok(BulkNode::of(import.fs.lookup(&import.caller, parent, name)?.node))
                });
            }
        }
    }

    fn enter(&mut self, name: &[u8]) {
        if self.left_out > 0 {
            self.left_out += 1;
            return;
        }
        if self.levels.len() >= self.bounds.levels {
            self.failed(name, FsError::InvalidArgument(TOO_DEEP));
            self.left_out = 1;
            return;
        }
        match self.directory(name) {
            Ok((node, made)) => {
                let closed = self.is_closed(node.id(), made);
                self.descend(node, name, (self.inherits(), closed));
            }
            Err(error) => {
                self.failed(name, error);
                self.left_out = 1;
            }
        }
    }

    /// Makes a directory or finds it; either way with a look-up. Also returns whether this import
    /// made it just now.
    fn directory(&mut self, name: &[u8]) -> FsResult<(BulkNode, bool)> {
        let parent = self.parent();
        if let Some(drafted) = self.builder.drafted_directory(parent, name)? {
            return Ok((drafted, true));
        }
        match self.builder.mkdir(parent, name, DIRECTORY_MODE_MEANWHILE) {
            Err(FsError::Exists) => {
                let parent = self.builder.node(parent)?;
                let found = Import::find_directory(self.fs, &self.caller, parent, name)?;
                Ok((BulkNode::of(found), false))
            }
            made => {
                let made = made?;
                let marked = self.mark(made);
                let made = self.kept(made, marked)?;
                self.made(parent, name, made);
                Ok((made, true))
            }
        }
    }

    /// Notifies front ends of a name that an ordinary call made; others are notified when they
    /// become visible.
    fn made(&self, parent: BulkNode, name: &[u8], made: BulkNode) {
        if !self.builder.is_draft(made) {
            self.fs.invalidate_entry(parent.id(), name);
        }
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) {
        let Some(begun) = &mut self.begun else { return };
        if begun.failed {
            return;
        }
        if let Err(error) = self.builder.write(begun.made.node, offset, bytes) {
            begun.failed = true;
            let (name, replaces) = (begun.name.clone(), begun.made.hidden.is_some());
            self.failed(&name, Failed { error, replaces });
        }
    }

    fn end(&mut self, size: u64, attr: &ImportAttr, xattrs: &Xattrs<'_>, hold: u64) {
        if self.begun.as_ref().is_some_and(|begun| begun.failed) {
            self.drop_begun();
        }
        let Some(Begun { made, name, .. }) = self.begun.take() else { return };
        let node = made.node;
        let sized = SetAttr { size: Some(size), ..SetAttr::default() };
        let inherits = self.inherits();
        let done = self.builder.setattr(node, &sized);
        let done = done.and_then(|()| self.dress((node, Kind::File), attr, xattrs, inherits));
        if !self.builder.is_draft(node) {
            self.fs.invalidate_node(node.id());
        }
        match self.settle(made, &name, done) {
            Ok(node) => {
                self.made(self.parent(), &name, node);
                self.hold(&name, node, hold);
            }
            Err(failed) => self.failed(&name, failed),
        }
    }

    /// Executes an item that returns a node with a lookup, and holds or releases that lookup.
    fn finish(
        &mut self,
        name: &[u8],
        hold: u64,
        make: impl FnOnce(&mut Import<'a>, &[u8]) -> Result<BulkNode, Failed>,
    ) {
        let name = self.own_name(name);
        let made = make(self, &name);
        if let Ok(made) = &made {
            self.made(self.parent(), &name, *made);
        }
        match made {
            Ok(node) => self.hold(&name, node, hold),
            Err(failed) => self.failed(&name, failed),
        }
    }

    fn hold(&mut self, name: &[u8], node: BulkNode, hold: u64) {
        let full = if hold == 0 || self.held.contains_key(&hold) {
            None
        } else if self.held.len() >= self.bounds.held {
            Some(TOO_MANY_HELD)
        } else if self.share.as_mut().is_some_and(|share| !share.take(1)) {
            Some(TOO_MANY_OF_USERS)
        } else {
            None
        };
        if let Some(full) = full {
            // The file exists; other names of it will not.
            self.failed(name, FsError::InvalidArgument(full));
        }
        let gone =
            if hold == 0 || full.is_some() { Some(node) } else { self.held.insert(hold, node) };
        if let Some(node) = gone {
            self.builder.release(node);
        }
    }

    fn kept(&mut self, node: BulkNode, done: FsResult<()>) -> FsResult<BulkNode> {
        if done.is_err() {
            self.builder.release(node);
        }
        done.map(|()| node)
    }

    fn own_name(&self, name: &[u8]) -> Vec<u8> {
        self.single.clone().unwrap_or_else(|| name.to_vec())
    }
}

/// Notes that what was made did not become visible; [`Import::is_whole`] reports it.
fn noted(shown: FsResult<()>) {
    if let Err(error) = shown {
        tracing::warn!(%error, "part of an import is lost");
    }
}

impl Drop for Import<'_> {
    fn drop(&mut self) {
        self.drop_begun();
        // Complete entries are there when the same import is run again.
        if let Err(error) = self.builder.flush() {
            tracing::warn!(%error, "the last part of an interrupted import is missing");
        }
        let levels = std::mem::take(&mut self.levels).into_iter().map(|level| level.node);
        for spot in levels.chain(std::mem::take(&mut self.held).into_values()) {
            self.builder.release(spot);
        }
        if let Some((above, _)) = self.above.take() {
            self.fs.forget(above, 1);
        }
    }
}
