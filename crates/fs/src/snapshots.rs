//! `Fs` as a file system with snapshots, for the directories in which front ends show them.

use std::collections::BTreeMap;

use inode::permissions::READ;
use inode::{Attr, Caller, FsError, NodeId, SubvolId};
use ops::posix::lookup::check_search;
use vfs::{Entry, FsResult};
use vfs::{ListedSnapshot, Snapshots};
use volume::nodes::Location;
use volume::subvol::node_of;
use volume::view::View;
use volume::{attributes, permit};

use crate::Fs;

/// Names of snapshots that are read at a time.
const NAMES_AT_ONCE: usize = 256;

impl Snapshots for Fs {
    fn take_snapshot(&self, caller: &Caller, directory: NodeId, name: &[u8]) -> FsResult<()> {
        self.with_space(|| self.snapshot_create(caller, directory, name).map(drop))
    }

    fn delete_snapshot(&self, caller: &Caller, directory: NodeId, name: &[u8]) -> FsResult<()> {
        self.with_space(|| self.snapshot_delete(caller, directory, name))
    }

    fn rename_snapshot(
        &self,
        caller: &Caller,
        directory: NodeId,
        from: &[u8],
        to: &[u8],
    ) -> FsResult<()> {
        self.with_space(|| self.snapshot_rename(caller, directory, from, to))
    }

    fn find_snapshot(&self, caller: &Caller, directory: NodeId, name: &[u8]) -> FsResult<Entry> {
        let (subvol, dir) = self.place(directory)?;
        check_search(self, &subvol, View::new(&*self.store, subvol.tree()), caller, dir)?;
        if subvol.read_only {
            return Err(FsError::NotFound);
        }
        let key = format::key::snapshot_name(subvol.lineage, dir, name);
        let id = self.snapshot_id(&key)?.ok_or(FsError::NotFound)?;
        let attr = root_attr(self, id)?;
        self.nodes.look_up(attr.node, Location::Directory);
        Ok(self.entry(attr))
    }

    fn find_numbered_snapshot(&self, caller: &Caller, number: SubvolId) -> FsResult<Entry> {
        self.snapshot_entry(caller, number)
    }

    fn list_snapshots(
        &self,
        caller: &Caller,
        directory: NodeId,
        above: u64,
        max: usize,
    ) -> FsResult<Vec<ListedSnapshot>> {
        let (subvol, dir) = self.place(directory)?;
        let view = View::new(&*self.store, subvol.tree());
        let record = view.directory(dir)?.ok_or(FsError::NotFound)?;
        permit::unlocked_directory(view, dir, record, caller, READ)?.ok_or(FsError::NotFound)?;
        // Names are sorted, and not numbers: the least ones are kept.
        let (mut least, mut from) = (BTreeMap::new(), Vec::new());
        if max == 0 {
            return Ok(Vec::new());
        }
        loop {
            let page = self.snapshot_names(&subvol, dir, &from, NAMES_AT_ONCE)?;
            let Some((last, _)) = page.last() else { break };
            from = [&last[..], b"\0"].concat();
            for (name, number) in page.into_iter().filter(|(_, number)| *number > above) {
                least.insert(number, name);
                if least.len() > max {
                    least.pop_last();
                }
            }
        }
        // The copy of a directory has its number.
        let listed = |(id, name)| {
            let (number, root) = (SubvolId(id), node_of(id, dir));
            ListedSnapshot { name, number, root }
        };
        Ok(least.into_iter().map(listed).collect())
    }

    fn holds_snapshot(&self, directory: NodeId, name: &[u8]) -> bool {
        let root = || -> FsResult<Option<NodeId>> {
            let (subvol, dir) = self.place(directory)?;
            let id = self.snapshot_id(&format::key::snapshot_name(subvol.lineage, dir, name))?;
            Ok(id.map(|id| node_of(id, dir)))
        };
        root().is_ok_and(|root| root.is_some_and(|root| self.nodes.is_held(root)))
    }
}

fn root_attr(fs: &Fs, id: u64) -> FsResult<Attr> {
    let snapshot = match fs.subvol(SubvolId(id)) {
        Err(FsError::Stale) => return Err(FsError::NotFound),
        snapshot => snapshot?,
    };
    snapshot.read(|tree| {
        let record = View::new(&*fs.store, tree).directory(snapshot.root)?;
        let record = record.ok_or(FsError::Stale)?;
        Ok(attributes::of_directory(snapshot.root_node(), &record))
    })
}
