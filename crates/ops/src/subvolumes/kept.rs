//! The directories that snapshots are of: whether each is there, and where.
//!
//! A snapshot is named under the lineage and number of its directory. The directory is there as
//! long as a live subvolume of the lineage points to it. No record has where a removed one was, but
//! the snapshot's own tree does. Until it is pruned, it is a copy of the source's tree with all
//! that was above the directory.

use format::entry_record::Target;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, FsError, NodeId, SubvolId};
use store::KeyRange;
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::subvol::{VOLUME, node_of, read_record};
use volume::view::View;

use super::named_state::NamedState;
use super::nested;
use super::reachable::{Reachable, There};
use super::way::StepBudget;
use crate::Ops;
use crate::reach::Reach;

/// How often a directory is sought that moves while it is.
const ATTEMPTS_MAX: usize = 100;

impl Ops {
    /// The node of the directory that a snapshot is of, where that was not removed. By number
    /// a caller reaches it only where the path is open to it. Of a directory that was removed,
    /// [`Reachable::was_open`] decides.
    pub(super) fn directory_of_snapshot(
        &self,
        caller: &Caller,
        (id, record): (SubvolId, &SubvolumeRecord),
    ) -> FsResult<Option<NodeId>> {
        match self.reachable_directory(record.lineage, record.root, caller)? {
            Some(There { open: false, .. }) if !caller.is_root() => {
                Err(FsError::NotPermitted("the path to its directory is not searchable"))
            }
            None if !caller.is_root()
                && !Reachable::read(self, &StepBudget::unbounded())?
                    .was_open(id, record, caller)? =>
            {
                Err(FsError::NotPermitted(
                    "directories of others above it were removed too, or are closed: only root \
                     reaches it by number",
                ))
            }
            there => Ok(there.map(|there| node_of(there.subvol, record.root))),
        }
    }

    /// The directory of a lineage and number, if it is reachable. It is not, only if no name
    /// points there in one state: what is renamed meanwhile may be nowhere where one looks.
    pub(super) fn reachable_directory(
        &self,
        lineage: u64,
        ino: u64,
        caller: &Caller,
    ) -> FsResult<Option<There>> {
        let walk = StepBudget::unbounded();
        for _ in 0..ATTEMPTS_MAX {
            match Reachable::read(self, &walk)?.directory(lineage, ino, caller) {
                Ok(None) if !NamedState::read(&*self.store)?.points_to(lineage, ino)? => {
                    return Ok(None);
                }
                Ok(None) | Err(FsError::Stale) => {}
                found => return found,
            }
        }
        Err(FsError::Busy("the directory is being renamed continuously; try again"))
    }

    /// The directory whose `.snapshots` shows a snapshot: a subvolume and an inode. `None`: it was
    /// removed. It is the directory that the snapshot was taken of, unless a rollback has replaced
    /// that by another of its lineage.
    pub fn shown_in(&self, record: &SubvolumeRecord) -> FsResult<Option<(u64, u64)>> {
        let (id, dir) = record.source;
        let source = read_record(&*self.store, SubvolId(id))?;
        if source.is_some_and(|source| !source.detached && source.lineage == record.lineage) {
            let found = self.subvol(SubvolId(id)).and_then(|source| {
                source.read(|tree| View::new(&*self.store, tree).directory(dir))
            });
            match found {
                Ok(Some(directory)) if !directory.detached => return Ok(Some((id, dir))),
                // It was removed since its record was read.
                Ok(_) | Err(FsError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        let there = self.reachable_directory(record.lineage, record.root, &Caller::root())?;
        Ok(there.map(|there| (there.subvol, record.root)))
    }

    /// How many snapshots there are of the directory that a name points to and of all below it:
    /// what a removal leaves.
    pub fn snapshots_of_tree(&self, parent: NodeId, name: &[u8]) -> FsResult<u64> {
        let (above, dir) = self.place(parent)?;
        let view = View::new(&*self.store, above.tree());
        let found = view.find_entry(dir, self.hash.hash(name), name)?;
        let found = found.ok_or(FsError::NotFound)?;
        let subvol = match found.target {
            Target::Directory => above,
            Target::Subvolume(child) => {
                let child = self.nested_at(&above, (dir, found.cookie), child)?;
                self.subvol(SubvolId(child))?
            }
            _ => return Err(FsError::NotDirectory),
        };
        let mut count = 0;
        self.inherit_some();
        let from = (&*subvol, found.ino);
        let below = nested::below(self, &mut self.admin.lock_known(self), from)?;
        let roots = below.iter().map(|member| (&*member.subvol, member.subvol.root));
        for (subvol, dir) in std::iter::once((&*subvol, found.ino)).chain(roots) {
            let mut reach = Reach::new(subvol.tree(), dir);
            let mut next = Some(0);
            while let Some(from) = next {
                next = self.next_with_snapshots(subvol.lineage, from)?;
                let Some(ino) = next else { break };
                if reach.contains(&*self.store, ino)? {
                    count += self.snapshot_names(subvol, ino, b"", usize::MAX)?.len() as u64;
                }
                next = ino.checked_add(1);
            }
        }
        Ok(count)
    }

    /// The first directory of a lineage, from a number on, that has snapshots.
    fn next_with_snapshots(&self, lineage: u64, from: u64) -> FsResult<Option<u64>> {
        let start = key::snapshot_names_prefix(lineage, from);
        let end = key::snapshot_names_prefix(lineage, u64::MAX);
        let range = KeyRange::between(&start, &end);
        let mut cursor = self.store.scan(VOLUME, range).map_err(from_store)?;
        let Some(item) = cursor.next().map_err(from_store)? else { return Ok(None) };
        let parsed = key::parse_snapshot_name(item.key);
        parsed.map(|(_, ino, _)| Some(ino)).map_err(|error| malformed(VOLUME, &error))
    }
}
