//! Lists the snapshots of a volume, those of removed directories too, one after the other. Until
//! its turn comes, only its time, its number and those of its directory are kept of each. Its path
//! is built then.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use format::key;
use inode::permissions::READ;
use inode::{Caller, FsError, NodeId, SubvolId};
use vfs::FsResult;
use volume::error::malformed;
use volume::subvol::{VOLUME, read_record};
use volume::view::View;
use volume::{KeptSnapshot, SnapshotInfo, SnapshotQuery, SnapshotsOf, permit};

use super::access::directory_of;
use super::named_state::NamedState;
use super::reachable::{Reachable, There, UNREADABLE};
use super::snapshot::{info, number};
use super::way::StepBudget;
use crate::Ops;

/// Most directories, and bytes of their paths, that are kept for further snapshots of them.
const KNOWN_MAX: usize = 4096;
const KNOWN_BYTES_MAX: usize = 4 << 20;

/// Most snapshots, and bytes of their paths, that are found before they are passed on. While the
/// call waits for a receiver, it keeps no state of the volume.
const FOUND_MAX: usize = 16_384;
const FOUND_BYTES_MAX: usize = 4 << 20;

/// Names of snapshots of a directory that are read at a time.
const PAGE_MAX: usize = 256;

/// A snapshot that is listed; they are sorted by time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    created: i64,
    id: u64,
    lineage: u64,
    ino: u64,
}

/// Directories that were sought: where each is, or `None` for a removed one.
#[derive(Default)]
struct Known {
    directories: BTreeMap<(u64, u64), Option<There>>,
    bytes: usize,
    /// One state for many: what is renamed meanwhile is in it once.
    named: Option<NamedState>,
}

impl Ops {
    /// Calls a function with the snapshots of a directory, by name, until it breaks.
    pub fn snapshot_each(
        &self,
        caller: &Caller,
        dir: NodeId,
        visit: &mut dyn FnMut(SnapshotInfo) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let (subvol, ino) = self.place(dir)?;
        let record = directory_of(self, &subvol, ino)?;
        let view = View::new(&*self.store, subvol.tree());
        permit::directory(view, ino, &record, caller, READ)?;
        let mut from = Vec::new();
        loop {
            let page = self.snapshot_names(&subvol, ino, &from, PAGE_MAX)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            // The least name that follows.
            from = [&last[..], b"\0"].concat();
            for (_, id) in page {
                if let Some(record) = read_record(&*self.store, SubvolId(id))?
                    && visit(info(id, &record)).is_break()
                {
                    return Ok(());
                }
            }
        }
    }

    /// Calls a function with the snapshots of the volume, the oldest first, until it breaks. Root
    /// sees all, others those of directories that they own.
    pub fn snapshot_list_volume(
        &self,
        caller: &Caller,
        query: &SnapshotQuery<'_>,
        visit: &mut dyn FnMut(KeptSnapshot) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let walk = StepBudget::new(query.steps_max, query.cancel);
        let found = self.listed(caller, query, &walk)?;
        if found.is_empty() {
            return Ok(());
        }
        let reachable = Reachable::read(self, &walk)?;
        let (mut known, mut roots) = (Known::default(), BTreeMap::new());
        let (mut pending, mut bytes) = (Vec::new(), 0);
        // Those on a way are few, and mostly one of them is wanted.
        let most = if query.on_the_way_to.is_some() { 1 } else { FOUND_MAX };
        for Listed { id, lineage, ino, .. } in found {
            walk.proceeds()?;
            // It was deleted meanwhile.
            let Some(record) = read_record(&*self.store, SubvolId(id))? else { continue };
            let mut path_then = |names_max| {
                let roots = match roots.entry(lineage) {
                    std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                    std::collections::btree_map::Entry::Vacant(free) => {
                        free.insert(reachable.roots(lineage)?)
                    }
                };
                let path = reachable.path_then((id, &record), roots, names_max, caller)?;
                Ok::<_, FsError>(match path {
                    Some(path) if reachable.shows(id, &record, caller)? => Some(path),
                    _ => None,
                })
            };
            let mut then = None;
            if let Some(way) = query.on_the_way_to {
                // The way is short, and what is not on it is not looked for.
                then = path_then(way.len())?.filter(|path| is_on(path, way));
                if then.is_none() {
                    continue;
                }
            }
            let there = known.directory(self, &reachable, (lineage, ino), caller)?;
            let removed = there.is_none();
            if !removed && query.of == SnapshotsOf::Removed {
                continue;
            }
            let path = match there {
                Some(there) => there.open_path(),
                None if then.is_some() => then,
                None => path_then(usize::MAX)?,
            };
            bytes += path.as_ref().map_or(0, Vec::len);
            pending.push(KeptSnapshot { snapshot: info(id, &record), removed, path });
            if pending.len() >= most || bytes >= FOUND_BYTES_MAX {
                known.named = None;
                bytes = 0;
                if pending.drain(..).try_for_each(&mut *visit).is_break() {
                    return Ok(());
                }
            }
        }
        drop(known);
        for kept in pending {
            if visit(kept).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The snapshots that a query is about and the caller sees.
    fn listed(
        &self,
        caller: &Caller,
        query: &SnapshotQuery<'_>,
        walk: &StepBudget<'_>,
    ) -> FsResult<Vec<Listed>> {
        let mut found = Vec::new();
        self.visit_volume(&key::SNAPSHOT_NAMES_PREFIX, &mut |key, value| {
            // Other users' snapshots of other names must not end it.
            walk.proceeds()?;
            let parsed = key::parse_snapshot_name(key);
            let (lineage, ino, name) = parsed.map_err(|error| malformed(VOLUME, &error))?;
            if query.name.is_none_or(|wanted| wanted == name) {
                let id = number(value)?;
                if let Some(created) = self.created(caller, id)? {
                    found.push(Listed { created, id, lineage, ino });
                }
            }
            Ok(())
        })?;
        found.sort_unstable();
        Ok(found)
    }

    /// When a snapshot that the caller sees was taken; `None`: the caller sees none.
    fn created(&self, caller: &Caller, id: u64) -> FsResult<Option<i64>> {
        let Some(record) = read_record(&*self.store, SubvolId(id))? else { return Ok(None) };
        // Root deletes what cannot be read, too.
        let seen = caller.is_root() || self.snapshot_entry_of(caller, SubvolId(id)).is_ok();
        Ok(seen.then_some(record.created))
    }
}

impl Known {
    /// The directory of a lineage and number, if it is there. What cannot be read is not taken for
    /// removed, and hides no others.
    fn directory(
        &mut self,
        fs: &Ops,
        reachable: &Reachable<'_>,
        (lineage, ino): (u64, u64),
        caller: &Caller,
    ) -> FsResult<Option<There>> {
        if let Some(known) = self.directories.get(&(lineage, ino)) {
            return Ok(known.clone());
        }
        let there = match reachable.directory(lineage, ino, caller) {
            Ok(None) => match self.names_point_to(fs, lineage, ino) {
                Ok(false) => Ok(None),
                Ok(true) => fs.reachable_directory(lineage, ino, caller),
                Err(error) => Err(error),
            },
            Err(FsError::Stale) => fs.reachable_directory(lineage, ino, caller),
            there => there,
        };
        let there = match there {
            Err(FsError::Io(_)) => Some(UNREADABLE),
            there => there?,
        };
        self.bytes += there.as_ref().map_or(0, There::path_bytes);
        if self.directories.len() >= KNOWN_MAX || self.bytes > KNOWN_BYTES_MAX {
            self.directories.clear();
            self.bytes = there.as_ref().map_or(0, There::path_bytes);
        }
        self.directories.insert((lineage, ino), there.clone());
        Ok(there)
    }

    /// Whether names point to a directory, in a state that is read once.
    fn names_point_to(&mut self, fs: &Ops, lineage: u64, ino: u64) -> FsResult<bool> {
        let named = match &self.named {
            Some(named) => named,
            None => self.named.insert(NamedState::read(&*fs.store)?),
        };
        named.points_to(lineage, ino)
    }
}

/// Whether a path is that of a directory on a way, or at its end.
fn is_on(path: &[u8], way: &[&[u8]]) -> bool {
    let mut way = way.iter();
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty())
        .all(|name| way.next() == Some(&name))
}
