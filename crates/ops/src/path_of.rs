//! The path of a directory that is known by its number, by the present records.

use inode::{FsError, NodeId, SubvolId};
use vfs::FsResult;
use volume::subvol::{node_of, read_record};
use volume::view::{NameBuf, View};

use crate::Ops;
use crate::subvolumes::access::directory_of;

/// Most directories on the way.
const DEPTH_MAX: usize = 1 << 16;

impl Ops {
    /// The path of a directory from the volume's root; `None` if none points to it, for example if
    /// it was removed or is being moved. The path may contain names that a user may not see. So a
    /// caller that answers a user must first resolve the path with that user's rights.
    pub fn path_of(&self, node: NodeId) -> FsResult<Option<Vec<u8>>> {
        match self.names_of(node) {
            Ok(Some(names)) => {
                let mut path: Vec<u8> = Vec::new();
                for name in names.iter().rev() {
                    path.push(b'/');
                    path.extend_from_slice(name);
                }
                Ok(Some(if path.is_empty() { b"/".to_vec() } else { path }))
            }
            Ok(None) | Err(FsError::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The path of the source of a node's subvolume, if that is a copy and the source still exists.
    /// The source is that of a clone or a snapshot, or the snapshot that was rolled back to. The
    /// same caution applies.
    pub fn copied_from(&self, node: NodeId) -> FsResult<Option<Vec<u8>>> {
        let (subvol, _) = self.place(node)?;
        let source = match read_record(&*self.store, subvol.id)? {
            Some(record) if record.snapshot => self.shown_in(&record)?,
            record => record.map(|record| record.source).filter(|source| source.0 != 0),
        };
        match source {
            Some((subvol, dir)) => self.path_of(node_of(subvol, dir)),
            None => Ok(None),
        }
    }

    /// How many names a directory has, as its record counts them.
    pub fn entries(&self, node: NodeId) -> FsResult<u64> {
        let (subvol, ino) = self.place(self.real(node))?;
        directory_of(self, &subvol, ino).map(|record| record.entries.max(0) as u64)
    }

    /// Names on the way to a directory, the last first.
    fn names_of(&self, node: NodeId) -> FsResult<Option<Vec<Vec<u8>>>> {
        let (mut subvol, mut at) = self.place(node)?;
        let mut names: Vec<Vec<u8>> = Vec::new();
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
                    names.push(record.name);
                    names.push(self.header.snapshot_dir.clone());
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
            names.push(name.as_bytes().to_vec());
            at = parent;
        }
        Ok(None)
    }
}
