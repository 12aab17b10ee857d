//! Has front ends forget what they keep of trees that wait to be removed.
//!
//! A tree waits for as long as a front end holds an inode of it. When its name goes, the kernel
//! drops what nobody uses below that name. It keeps what a process uses then, as a working
//! directory or an open file, with all directories above. It does not drop them when the process
//! leaves: their names are in its cache as any others are. So the names of what is still held are
//! invalidated one by one. A name that was invalidated while it was in use is dropped with its last
//! use. A process that continues in the tree has names cached again, so this is repeated until
//! nothing is held.

use std::collections::BTreeMap;
use std::time::Duration;

use format::detached_record::DetachedRecord;
use format::key::{self, Parsed};
use inode::{FsError, NodeId, Slot, SubvolId};
use policy::Governed;
use store::KeyRange;
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::nodes::Location;
use volume::subvol::read_record;
use volume::view::{NameBuf, View};

/// Least rest between two rounds.
const REST: Duration = Duration::from_secs(1);
/// Rest after a round, as a multiple of the time that it took.
const REST_FACTOR: u32 = 50;
/// A round ends when it has this many names.
const NAMES_AT_ONCE: usize = 1024;
/// A round ends when it has read this many records.
const READS_AT_ONCE: usize = 1 << 14;
/// A round ends when it has looked at this many nodes: a few milliseconds.
const NODES_AT_ONCE: usize = 1 << 18;
/// Most names of one inode that are looked at in a round.
const LINKS_AT_ONCE: usize = 1024;

/// A directory of a subvolume.
type DirectoryId = (u64, u64);

/// Where a round begins: in a shard of the table of nodes, at a node. If that has several names,
/// also at the one that a directory has by a cookie.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    shard: usize,
    node: Option<NodeId>,
    link: Option<(u64, u64)>,
}

/// How far that is; nothing of it need survive a crash.
#[derive(Default)]
pub(super) struct Release {
    rests_until: Duration,
    from: Position,
}

impl Release {
    /// One round, of trees that wait and are held.
    pub(super) fn round(&mut self, fs: &Governed, held: &[DetachedRecord]) -> FsResult<()> {
        let begin = fs.env.clock.monotonic();
        if held.is_empty() || begin < self.rests_until || !fs.has_front_end() {
            return Ok(());
        }
        let mut round = Round::new(fs, held);
        let next = round.collect(std::mem::take(&mut self.from));
        for (directory, name) in &round.names {
            match name {
                Some(name) => fs.let_go(*directory, name),
                None => fs.let_go_below(*directory),
            }
        }
        let now = fs.env.clock.monotonic();
        self.rests_until = now + REST + now.saturating_sub(begin) * REST_FACTOR;
        self.from = next?;
        Ok(())
    }
}

/// A round: collects names that are in the trees that wait, and no others. A mount on what a name
/// points to goes with the name.
pub struct Round<'a> {
    fs: &'a Governed,
    /// By subvolume, whether a tree that waits is in it or in one that it is mounted in.
    near: BTreeMap<u64, bool>,
    /// By slot, the subvolume, if that is near.
    slots: BTreeMap<u64, Option<u64>>,
    /// By directory, whether it is in a tree that waits.
    inside: BTreeMap<DirectoryId, bool>,
    pub(crate) reads_left: usize,
    /// Nodes that it may yet look at.
    pub nodes_left: usize,
    /// Names in directories; `None`: everything below a directory.
    pub names: Vec<(NodeId, Option<Vec<u8>>)>,
}

impl<'a> Round<'a> {
    /// A round over what waits.
    pub fn new(fs: &'a Governed, held: &[DetachedRecord]) -> Round<'a> {
        let mut round = Round {
            fs,
            near: BTreeMap::new(),
            slots: BTreeMap::new(),
            inside: BTreeMap::new(),
            reads_left: READS_AT_ONCE,
            nodes_left: NODES_AT_ONCE,
            names: Vec::new(),
        };
        for record in held {
            let top = match *record {
                DetachedRecord::Directory { subvolume, directory, .. } => (subvolume, directory),
                DetachedRecord::Subvolume { subvolume } => {
                    let Ok(subvol) = fs.subvol(SubvolId(subvolume)) else { continue };
                    (subvolume, subvol.root)
                }
                DetachedRecord::Tree { .. } | DetachedRecord::Inodes { .. } => continue,
            };
            round.near.insert(top.0, true);
            round.inside.insert(top, true);
        }
        round
    }

    /// Collects names from a position on; returns where the next round begins. A shard is copied at
    /// a time, so that other threads do not wait for the table.
    pub fn collect(&mut self, from: Position) -> FsResult<Position> {
        for shard in from.shard.. {
            let Some(held) = self.fs.nodes.held_in_shard(shard) else { break };
            let from = if shard == from.shard { from } else { Position::default() };
            let start = held.partition_point(|node| Some(*node) < from.node);
            for &node in held.iter().skip(start) {
                let here = Position { shard, node: Some(node), link: None };
                if self.reads_left == 0 || self.nodes_left == 0 || self.names.len() >= NAMES_AT_ONCE
                {
                    return Ok(here);
                }
                self.nodes_left -= 1;
                let Some(subvol) = self.near_subvol(node.slot())? else { continue };
                let link = from.link.filter(|_| Some(node) == from.node);
                match self.add(subvol, node, link) {
                    Ok(None) | Err(FsError::Stale | FsError::Io(_)) => {}
                    Ok(link) => return Ok(Position { link, ..here }),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Position::default())
    }

    /// The subvolume of a slot, if a tree that waits is in it or in one that it is mounted in.
    fn near_subvol(&mut self, slot: Slot) -> FsResult<Option<u64>> {
        if let Some(known) = self.slots.get(&slot.0) {
            return Ok(*known);
        }
        self.reads_left = self.reads_left.saturating_sub(1);
        let near = match self.fs.subvols.of_slot(&*self.fs.store, slot) {
            Err(FsError::Stale) => None,
            subvol => Some(subvol?.id.0),
        };
        let near = match near {
            Some(subvol) if self.is_near(subvol)? => Some(subvol),
            _ => None,
        };
        self.slots.insert(slot.0, near);
        Ok(near)
    }

    /// Adds the names under which front ends keep a node, of those in the trees; returns the first
    /// that was not looked at.
    fn add(
        &mut self,
        subvol: u64,
        node: NodeId,
        link: Option<(u64, u64)>,
    ) -> FsResult<Option<(u64, u64)>> {
        match self.fs.nodes.location(node) {
            Some(Location::Directory) => self.add_directory(subvol, node)?,
            Some(Location::Entry { dir, cookie }) => self.add_name((subvol, dir), cookie)?,
            Some(Location::Linked) => return self.add_links(subvol, node.ino().0, link),
            Some(Location::Orphan) | None => {}
        }
        Ok(None)
    }

    fn add_directory(&mut self, id: u64, node: NodeId) -> FsResult<()> {
        let ino = node.ino().0;
        if !self.is_inside((id, ino))? {
            return Ok(());
        }
        self.names.push((node, None));
        let subvol = self.fs.subvol(SubvolId(id))?;
        if ino == subvol.root {
            let record = read_record(&*self.fs.store, subvol.id)?;
            return match record.map(|record| record.parent) {
                Some((above @ 1.., dir, cookie)) => self.add_name((above, dir), cookie),
                _ => Ok(()),
            };
        }
        let record = View::new(&*self.fs.store, subvol.tree()).directory(ino)?;
        match record.filter(|record| !record.detached) {
            Some(record) => self.add_name((id, record.parent), record.parent_cookie),
            None => Ok(()),
        }
    }

    /// Adds the names of an inode that has several, from one of them on.
    fn add_links(
        &mut self,
        id: u64,
        ino: u64,
        from: Option<(u64, u64)>,
    ) -> FsResult<Option<(u64, u64)>> {
        let tree = self.fs.subvol(SubvolId(id))?.tree();
        let mut range = KeyRange::prefix(&key::back_reference_prefix(ino));
        if let Some((directory, cookie)) = from {
            range.from = key::back_reference(ino, directory, cookie).to_vec();
        }
        let (mut links, mut next) = (Vec::new(), None);
        let mut cursor = self.fs.store.scan(tree, range).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            let parsed = key::parse(item.key).map_err(|error| malformed(tree, &error))?;
            let Parsed::BackReference { directory, cookie, .. } = parsed else { continue };
            if links.len() == LINKS_AT_ONCE {
                next = Some((directory, cookie));
                break;
            }
            links.push((directory, cookie));
        }
        drop(cursor);
        for (directory, cookie) in links {
            if self.reads_left == 0 {
                return Ok(Some((directory, cookie)));
            }
            self.reads_left -= 1;
            self.add_name((id, directory), cookie)?;
        }
        Ok(next)
    }

    /// Adds a name, if the directory that has it is in a tree that waits.
    fn add_name(&mut self, (id, dir): DirectoryId, cookie: u64) -> FsResult<()> {
        if !self.is_inside((id, dir))? {
            return Ok(());
        }
        let subvol = self.fs.subvol(SubvolId(id))?;
        let mut name = NameBuf::empty();
        let view = View::new(&*self.fs.store, subvol.tree());
        if view.entry_at(dir, cookie, &mut name)?.is_some() {
            self.names.push((subvol.node(dir), Some(name.as_bytes().to_vec())));
        }
        Ok(())
    }

    fn is_near(&mut self, subvol: u64) -> FsResult<bool> {
        let left = &mut self.reads_left;
        climb(&mut self.near, subvol, |subvol| {
            *left = left.saturating_sub(1);
            let record = read_record(&*self.fs.store, SubvolId(subvol))?;
            Ok(record.map(|record| record.parent.0).filter(|above| *above != 0))
        })
    }

    fn is_inside(&mut self, place: DirectoryId) -> FsResult<bool> {
        let (fs, left) = (self.fs, &mut self.reads_left);
        climb(&mut self.inside, place, |place| {
            *left = left.saturating_sub(1);
            match fs.directory_above(place) {
                // Where a record cannot be read, nothing is invalidated.
                Err(FsError::Stale | FsError::Io(_)) => Ok(None),
                above => above,
            }
        })
    }
}

/// What is known of the first one above about which something is known, and of the start where that
/// is known itself. It is known of all on the way then, so that each is read once. Nothing known:
/// `false`, also where damaged records go in a circle.
pub fn climb<K: Ord + Copy>(
    known: &mut BTreeMap<K, bool>,
    start: K,
    mut above: impl FnMut(K) -> FsResult<Option<K>>,
) -> FsResult<bool> {
    let (mut at, mut way) = (start, Vec::new());
    let answer = loop {
        if let Some(answer) = known.get(&at) {
            break *answer;
        }
        known.insert(at, false);
        way.push(at);
        match above(at)? {
            Some(next) => at = next,
            None => break false,
        }
    };
    for at in way {
        known.insert(at, answer);
    }
    Ok(answer)
}
