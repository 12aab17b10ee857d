//! Rows that a base had at places that differ from it, packed.

use format::inode_record::FileKind;
use inode::permissions::{HAS_ACL, MODE_BITS};

use crate::Row;
use crate::aggregate::is_plain;

/// What is kept of a row that a cluster holds and that is no longer valid, except its name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    /// The directory that held the name.
    pub(crate) directory: u64,
    /// The last change of attributes (ctime).
    pub(crate) ctime: i64,
    atime: i64,
    mtime: i64,
    btime: i64,
    size: u64,
    allocated: u64,
    /// Offset of its name in the name buffer of its list.
    name_at: u32,
    /// The cluster.
    pub(crate) cluster: u32,
    uid: u32,
    gid: u32,
    nlink: u32,
    /// Permission bits, and `HOLDS`.
    mode: u16,
    name_bytes: u8,
    kind: FileKind,
}

// One is kept for each place that differs.
const _: () = assert!(size_of::<Before>() <= 80);

/// It is a directory with entries.
const HOLDS: u16 = 1 << 15;
const MODE: u16 = (MODE_BITS | HAS_ACL) as u16;
const _: () = assert!(MODE & HOLDS == 0 && MODE as u32 == MODE_BITS | HAS_ACL);

/// Rows that the base had at a set of places, in any order.
#[derive(Debug, Clone, Default)]
pub(crate) struct BeforeList {
    pub(super) rows: Vec<Before>,
    pub(super) names: Vec<u8>,
}

impl BeforeList {
    /// Both lists in one.
    pub(crate) fn joined(one: &BeforeList, other: &BeforeList) -> BeforeList {
        let mut both = BeforeList::default();
        both.rows.reserve_exact(one.rows.len() + other.rows.len());
        both.names.reserve_exact(one.names.len() + other.names.len());
        both.append(one);
        both.append(other);
        both
    }

    /// Whether one list can hold both: name offsets have 32 bits.
    pub(crate) fn fit_together(one: &BeforeList, other: &BeforeList) -> bool {
        u32::try_from(one.names.len() + other.names.len()).is_ok()
    }

    /// Memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Before>() + self.names.capacity()
    }

    pub(super) fn push(&mut self, row: &Row<'_>, cluster: u32) {
        let holds = if row.entries > 0 { HOLDS } else { 0 };
        self.rows.push(Before {
            directory: row.directory,
            ctime: row.ctime,
            atime: row.atime,
            mtime: row.mtime,
            btime: row.btime,
            size: row.size,
            allocated: row.allocated,
            name_at: self.names.len() as u32,
            cluster,
            uid: row.uid,
            gid: row.gid,
            nlink: row.nlink,
            mode: row.mode as u16 & MODE | holds,
            name_bytes: row.name.len() as u8,
            kind: row.kind,
        });
        self.names.extend_from_slice(row.name);
    }

    pub(super) fn append(&mut self, other: &BeforeList) {
        let names = self.names.len() as u32;
        let moved = |row: &Before| Before { name_at: names + row.name_at, ..*row };
        self.rows.extend(other.rows.iter().map(moved));
        self.names.extend_from_slice(&other.names);
    }

    /// Memory of what is in it.
    pub(super) fn used_bytes(&self) -> usize {
        self.rows.len() * size_of::<Before>() + self.names.len()
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.names.clear();
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Had<'_>> {
        self.rows.iter().map(|row| {
            let name_at = row.name_at as usize;
            Had { row, name: &self.names[name_at..name_at + usize::from(row.name_bytes)] }
        })
    }
}

/// One of these rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Had<'a> {
    pub(crate) row: &'a Before,
    name: &'a [u8],
}

impl<'a> Had<'a> {
    /// The row as totals count it; `None` if the sums leave it out.
    pub(crate) fn counted(self) -> Option<Row<'a>> {
        let row = self.row();
        (row.kind == FileKind::Directory || is_plain(&row)).then_some(row)
    }

    /// The row with every field that column tests use. For a directory's entries it has only
    /// whether there are any; it lacks the cookie, number, device and extended attributes.
    pub(crate) fn row(self) -> Row<'a> {
        let Before { directory, kind, uid, gid, nlink, size, allocated, .. } = *self.row;
        let Before { atime, mtime, ctime, btime, .. } = *self.row;
        let (mode, entries) = (self.row.mode & MODE, u64::from(self.row.mode & HOLDS != 0));
        let (name, mode) = (self.name, mode.into());
        let (cookie, ino, rdev, subvolume, xattrs) = (0, 0, 0, 0, &b""[..]);
        Row {
            directory,
            cookie,
            ino,
            name,
            kind,
            mode,
            uid,
            gid,
            nlink,
            rdev,
            size,
            allocated,
            entries,
            atime,
            mtime,
            ctime,
            btime,
            subvolume,
            xattrs,
        }
    }
}
