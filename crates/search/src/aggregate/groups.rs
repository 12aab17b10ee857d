//! Counting a row into groups.

use format::cluster_groups::{DAY, Groups, Sums};
use format::inode_record::FileKind;

use crate::Row;

/// Longest extension, in bytes: longer ones are parts of names.
pub(crate) const EXTENSION_BYTES_MAX: usize = 12;

/// The extension of a name, in ASCII lower case: what stands after its last dot, if that is not its
/// first byte, and is of letters, digits, `_`, `-` and `+`, at most twelve. Empty: it has none.
pub fn extension(name: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+".contains(byte);
    let dot = name.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0);
    let Some(rest) = dot.and_then(|dot| name.get(dot + 1..)) else { return Vec::new() };
    if rest.len() > EXTENSION_BYTES_MAX || !rest.iter().all(plain) {
        return Vec::new();
    }
    rest.to_ascii_lowercase()
}

/// What one inode adds to sums.
pub(crate) fn sums_of(row: &Row<'_>) -> Sums {
    Sums { files: 1, bytes: row.size.into(), allocated: row.allocated.into() }
}

/// Whether a row is counted by groups: it is no directory, and has one name.
pub(crate) fn is_plain(row: &Row<'_>) -> bool {
    row.kind != FileKind::Directory && row.nlink <= 1
}

/// Counts a directory's own row: only that it is there, and when it changed.
pub(crate) fn add_directory(groups: &mut Groups, row: &Row<'_>) {
    groups.directories += 1;
    groups.ctime = groups.ctime.max(row.ctime);
}

/// Counts an inode that is no directory.
pub(crate) fn add_file(groups: &mut Groups, row: &Row<'_>) {
    let sums = sums_of(row);
    groups.ctime = groups.ctime.max(row.ctime);
    groups.kinds.entry(u64::from(row.kind.byte())).or_default().add(sums);
    groups.owners.entry(u64::from(row.uid)).or_default().add(sums);
    groups.groups.entry(u64::from(row.gid)).or_default().add(sums);
    let digits = u64::from(u64::BITS - row.size.leading_zeros());
    groups.sizes.entry(digits).or_default().add(sums);
    groups.days.entry(row.mtime.div_euclid(DAY)).or_default().add(sums);
    groups.extensions.entry(extension(row.name)).or_default().add(sums);
}

/// Counts a row of a cluster: files of several names are left to be counted one by one.
pub(crate) fn add_plain(groups: &mut Groups, row: &Row<'_>) {
    if row.kind == FileKind::Directory {
        add_directory(groups, row);
    } else if is_plain(row) {
        add_file(groups, row);
    } else {
        groups.linked += 1;
        groups.ctime = groups.ctime.max(row.ctime);
    }
}

#[cfg(test)]
mod tests {
    use super::extension;

    #[test]
    fn extensions_are_what_people_mean() {
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
        ] {
            assert_eq!(extension(name), want, "{}", String::from_utf8_lossy(name));
        }
    }
}
