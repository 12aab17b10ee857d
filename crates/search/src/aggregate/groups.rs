//! Counts rows into groups.

use std::collections::BTreeMap;

use format::cluster_groups::{DAY, Groups, Sums};
use format::inode_record::FileKind;

use crate::Row;

/// Maximum length of an extension, in bytes: a longer one is part of the name.
pub(crate) const EXTENSION_BYTES_MAX: usize = 12;

/// An extension padded with zero bytes, which no extension contains.
pub(crate) type Extension = [u8; EXTENSION_BYTES_MAX];

/// The extension of a name, in ASCII lower case: the part after its last dot. The dot must not be
/// its first byte, and the part has at most twelve letters, digits, `_`, `-` and `+`. Empty: it has
/// none.
pub fn extension(name: &[u8]) -> Vec<u8> {
    unpadded(&padded_extension(name)).to_vec()
}

/// The same, padded to a fixed number of bytes.
pub(crate) fn padded_extension(name: &[u8]) -> Extension {
    let mut padded = Extension::default();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+".contains(byte);
    let dot = memchr::memrchr(b'.', name).filter(|dot| *dot > 0);
    let Some(rest) = dot.and_then(|dot| name.get(dot + 1..)) else { return padded };
    if rest.len() <= EXTENSION_BYTES_MAX && rest.iter().all(plain) {
        padded[..rest.len()].copy_from_slice(rest);
        padded.make_ascii_lowercase();
    }
    padded
}

fn unpadded(extension: &Extension) -> &[u8] {
    let length = extension.iter().position(|byte| *byte == 0);
    &extension[..length.unwrap_or(extension.len())]
}

/// What one inode adds to sums.
pub(crate) fn sums_of(row: &Row<'_>) -> Sums {
    Sums { files: 1, bytes: row.size.into(), allocated: row.allocated.into() }
}

/// Whether groups count a row: it is not a directory, and has one name.
pub(crate) fn is_plain(row: &Row<'_>) -> bool {
    row.kind != FileKind::Directory && row.nlink <= 1
}

/// Number of bit lengths of sizes, from 0 on.
const DIGITS: usize = u64::BITS as usize + 1;
/// Bytes of kinds are less than this.
const KINDS: usize = 8;

/// Groups that rows are counted into, one by one.
#[derive(Debug)]
pub(crate) struct GroupCounts {
    directories: u64,
    linked: u64,
    ctime: i64,
    kinds: [Sums; KINDS],
    owners: BTreeMap<u32, Sums>,
    groups: BTreeMap<u32, Sums>,
    sizes: [Sums; DIGITS],
    days: BTreeMap<i64, Sums>,
    extensions: BTreeMap<Extension, Sums>,
}

impl Default for GroupCounts {
    fn default() -> GroupCounts {
        GroupCounts {
            directories: 0,
            linked: 0,
            ctime: i64::MIN,
            kinds: [Sums::default(); KINDS],
            owners: BTreeMap::new(),
            groups: BTreeMap::new(),
            sizes: [Sums::default(); DIGITS],
            days: BTreeMap::new(),
            extensions: BTreeMap::new(),
        }
    }
}

impl GroupCounts {
    /// Counts a directory's own row: only its existence, and its last change.
    pub(crate) fn directory(&mut self, row: &Row<'_>) {
        self.directories += 1;
        self.ctime = self.ctime.max(row.ctime);
    }

    /// Counts an inode that is not a directory.
    pub(crate) fn file(&mut self, row: &Row<'_>) {
        let sums = sums_of(row);
        self.ctime = self.ctime.max(row.ctime);
        self.kinds[usize::from(row.kind.byte()) % KINDS].add(sums);
        self.owners.entry(row.uid).or_default().add(sums);
        self.groups.entry(row.gid).or_default().add(sums);
        self.sizes[(u64::BITS - row.size.leading_zeros()) as usize].add(sums);
        self.days.entry(row.mtime.div_euclid(DAY)).or_default().add(sums);
        self.extensions.entry(padded_extension(row.name)).or_default().add(sums);
    }

    /// Counts a row of a cluster, except files with several names: those are counted one by one.
    pub(crate) fn plain(&mut self, row: &Row<'_>) {
        if row.kind == FileKind::Directory {
            self.directory(row);
        } else if is_plain(row) {
            self.file(row);
        } else {
            self.linked += 1;
            self.ctime = self.ctime.max(row.ctime);
        }
    }

    /// How many groups there are of which there may be any number.
    pub(crate) fn len(&self) -> usize {
        self.owners.len() + self.groups.len() + self.days.len() + self.extensions.len()
    }

    /// What was counted.
    pub(crate) fn finish(self) -> Groups {
        let numbered = |sums: &[Sums]| {
            let there = (0..).zip(sums).filter(|(_, sums)| sums.files > 0);
            there.map(|(number, sums)| (number, *sums)).collect()
        };
        let wide = |sums: BTreeMap<u32, Sums>| {
            sums.into_iter().map(|(number, sums)| (u64::from(number), sums)).collect()
        };
        let named = |(extension, sums): (Extension, Sums)| (unpadded(&extension).to_vec(), sums);
        Groups {
            directories: self.directories,
            linked: self.linked,
            ctime: self.ctime,
            kinds: numbered(&self.kinds),
            owners: wide(self.owners),
            groups: wide(self.groups),
            sizes: numbered(&self.sizes),
            days: self.days,
            extensions: self.extensions.into_iter().map(named).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::extension;

    #[test]
    fn extensions_follow_convention() {
        for (name, want) in [
            (&b"a.h5"[..], &b"h5"[..]),
            (b"A.TXT", b"txt"),
            (b"a.tar.gz", b"gz"),
            (b".profile", b""),
            (b"..x", b"x"),
            (b"a.", b""),
            (b"a", b""),
            (b"a.b c", b""),
            (b"a.1234567890123", b""),
            (b"a.c++", b"c++"),
            (b"a.123456789012", b"123456789012"),
        ] {
            assert_eq!(extension(name), want, "{}", String::from_utf8_lossy(name));
        }
    }
}
