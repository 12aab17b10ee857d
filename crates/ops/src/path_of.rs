//! The path of a directory that is known by its number, by the present records.

use inode::{FsError, NodeId, SubvolId};
use vfs::FsResult;
use volume::subvol::{node_of, read_record};
use volume::view::{NameBuf, View};

use crate::Ops;
use crate::subvolumes::access::directory_of;

/// Most directories on the way.
const DEPTH_MAX: usize = 1 << 16;

/// A part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPart {
    /// A name in a directory, or of a snapshot.
    Name(Vec<u8>),
    /// What front ends show between a directory and the names of its snapshots.
    Snapshots,
}

impl Ops {
    /// The path of a directory in parts, the last first. `None` if nothing points to it, for
    /// example because it was removed or is being moved. The path may contain names that a user
    /// may not see. So a caller that answers a user must first resolve the path with that user's
    /// rights.
    pub fn parts_of_path(&self, node: NodeId) -> FsResult<Option<Vec<PathPart>>> {
        match self.names_of(node) {
            Err(FsError::Stale) => Ok(None),
            parts => parts,
        }
    }

    /// The directory that a node's subvolume is a copy of, if it is one. The source is that of a
    /// clone or a snapshot, or the snapshot that was rolled back to. It may be gone.
    pub fn source_of(&self, node: NodeId) -> FsResult<Option<NodeId>> {
        let (subvol, _) = self.place(node)?;
        let source = match read_record(&*self.store, subvol.id)? {
            Some(record) if record.snapshot => self.shown_in(&record)?,
            record => record.map(|record| record.source).filter(|source| source.0 != 0),
        };
        Ok(source.map(|(subvol, dir)| node_of(subvol, dir)))
    }

    /// How many names a directory has, as its record counts them.
    pub fn entries(&self, node: NodeId) -> FsResult<u64> {
        let (subvol, ino) = self.place(self.real(node))?;
        directory_of(self, &subvol, ino).map(|record| record.entries.max(0) as u64)
    }

    /// Names on the way to a directory, the last first.
    fn names_of(&self, node: NodeId) -> FsResult<Option<Vec<PathPart>>> {
        let (mut subvol, mut at) = self.place(node)?;
        let mut names: Vec<PathPart> = Vec::new();
        while names.len() < DEPTH_MAX {
            let (parent, cookie);
            if at != subvol.root {
                let view = View::new(&*self.store, subvol.tree());
                let record = view.directory(at)?.filter(|record| !record.detached);
                let Some(record) = record else { return Ok(None) };
                (parent, cookie) = (record.parent, record.parent_cookie);
            } else if subvol.node(at) == self.root() {
                return Ok(Some(names));
            } else {
                let record = read_record(&*self.store, subvol.id)?;
                let Some(record) = record.filter(|record| !record.detached) else {
                    return Ok(None);
                };
                if record.snapshot {
                    let Some((above, dir)) = self.shown_in(&record)? else { return Ok(None) };
                    names.push(PathPart::Name(record.name));
                    names.push(PathPart::Snapshots);
                    (subvol, at) = (self.subvol(SubvolId(above))?, dir);
                    continue;
                }
                if record.parent.0 == 0 {
                    return Ok(None);
                }
                subvol = self.subvol(SubvolId(record.parent.0))?;
                (parent, cookie) = (record.parent.1, record.parent.2);
            }
            let mut name = NameBuf::empty();
            let view = View::new(&*self.store, subvol.tree());
            let entry = view.entry_at(parent, cookie, &mut name)?;
            if entry.is_none_or(|entry| entry.ino != at) {
                return Ok(None);
            }
            names.push(PathPart::Name(name.as_bytes().to_vec()));
            at = parent;
        }
        Ok(None)
    }
}
