//! Rows of a cluster by number, without extended attributes.

use std::sync::Arc;

use format::cluster::{COLUMNS, ColumnId};
use format::inode_record::FileKind;
use inode::NameHash;

use super::column::{Column, Shape};
use super::values::code_time;
use super::{Cluster, Fields};
use crate::{Result, Row};

/// The columns of some fields, held for the lifetime of this value.
pub struct Rows {
    columns: [Option<Arc<Column>>; COLUMNS],
    shape: Shape,
    hash: NameHash,
    cookies: bool,
}

impl Rows {
    pub(super) fn load(cluster: &Cluster, fields: Fields) -> Result<Rows> {
        let mut columns = [const { None }; COLUMNS];
        for id in ColumnId::ALL {
            if fields.has(id) {
                columns[id as usize] = Some(cluster.column(id)?);
            }
        }
        let cookies = fields.contains(Fields::COOKIE);
        Ok(Rows { columns, shape: cluster.shape(), hash: cluster.hash(), cookies })
    }

    /// Number of rows.
    pub fn len(&self) -> u32 {
        self.shape.rows
    }

    /// Never: a cluster has rows.
    pub fn is_empty(&self) -> bool {
        self.shape.rows == 0
    }

    /// The row of a number below `len`. Fields that were not requested are 0, empty, or a file.
    pub fn get(&self, row: u32) -> Row<'_> {
        assert!(row < self.shape.rows, "row {row} of {}", self.shape.rows);
        let at = row as usize;
        let number = |id: ColumnId| self.column(id).map_or(0, |column| column.get(at));
        let time = |id: ColumnId| self.column(id).map_or(0, |column| code_time(column.get(at)));
        let name =
            self.column(ColumnId::Names).map_or(&[][..], |names| names.get_bytes(at, self.shape));
        let cookie =
            if self.cookies { number(ColumnId::Cookie) ^ self.hash.hash(name) << 8 } else { 0 };
        Row {
            directory: number(ColumnId::Directory),
            cookie,
            ino: number(ColumnId::Ino),
            name,
            kind: FileKind::decode(number(ColumnId::Kind) as u8).unwrap_or(FileKind::File),
            mode: number(ColumnId::Mode) as u32,
            uid: number(ColumnId::Uid) as u32,
            gid: number(ColumnId::Gid) as u32,
            nlink: number(ColumnId::Links) as u32,
            rdev: number(ColumnId::Rdev) as u32,
            size: number(ColumnId::Size),
            allocated: number(ColumnId::Allocated),
            entries: number(ColumnId::Entries),
            atime: time(ColumnId::Atime),
            mtime: time(ColumnId::Mtime),
            ctime: time(ColumnId::Ctime),
            btime: time(ColumnId::Btime),
            subvolume: number(ColumnId::Subvolume),
            xattrs: b"",
        }
    }

    /// The directory of a row, if it was requested.
    #[inline]
    pub(crate) fn directory(&self, row: u32) -> u64 {
        self.column(ColumnId::Directory).map_or(0, |column| column.get(row as usize))
    }

    fn column(&self, id: ColumnId) -> Option<&Column> {
        self.columns[id as usize].as_deref()
    }
}
