//! Data that rows do not contain, looked up in the tree that they came from.

use format::inode_record::FileKind;
use format::key::{self, Part};
use format::xattr_record::XattrRecord;

use crate::assemble::Records;
use crate::error::Result;
use crate::matches::Details;
use crate::row::Row;

/// Records of the tree of a match's subvolume.
#[derive(Clone, Copy)]
pub struct Stored<'a> {
    /// The records.
    pub records: Records<'a>,
}

impl Details for Stored<'_> {
    fn target(&self, row: &Row<'_>) -> Result<Vec<u8>> {
        let read = |key: &[u8]| self.records.read.get(self.records.tree, key);
        let beside = read(&key::entry(row.directory, row.cookie, Part::Bulk))?;
        let target = match beside {
            Some(target) => Some(target),
            None => read(&key::linked(row.ino, Part::Bulk))?,
        };
        target.ok_or_else(|| self.records.inconsistent("a symbolic link has no target", row.ino))
    }

    fn xattr(&self, row: &Row<'_>, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let read = |key: &[u8]| self.records.decode(key, XattrRecord::decode);
        let record = if row.kind == FileKind::Directory {
            read(&key::directory(row.ino, Part::Xattrs))?
        } else {
            match read(&key::entry(row.directory, row.cookie, Part::Xattrs))? {
                Some(record) => Some(record),
                None => read(&key::linked(row.ino, Part::Xattrs))?,
            }
        };
        Ok(record.and_then(|record| record.get(name).map(<[u8]>::to_vec)))
    }
}
