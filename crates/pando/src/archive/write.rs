//! Writes members in the pax format. A member whose attributes fit into a ustar header has no pax
//! header. Times of nanoseconds, long names, extended attributes and large numbers are pax records.
//! A file with holes is stored as GNU tar's sparse format 1.0, which bsdtar reads too.

use std::borrow::Cow;
use std::fmt::Write as _;

use format::acl::{ACCESS, DEFAULT};
use wire::{Attr, Kind};

use super::{ACCESS_TEXT, BLOCK, DEFAULT_TEXT, XATTR, acl, padding};

/// Largest numbers of a ustar header.
const ID_MAX: u32 = 0o7_777_777;
const SIZE_MAX: u64 = 0o77_777_777_777;
/// Archives end with blocks of zeros up to a multiple of this, as other programs write them.
const RECORD: u64 = 10_240;

/// One member.
pub(crate) struct Member<'a> {
    /// Its name in the archive; a directory's ends with a slash.
    pub(crate) path: &'a [u8],
    pub(crate) attr: &'a Attr,
    pub(crate) xattrs: &'a [(&'a [u8], &'a [u8])],
    /// The target of a symbolic link, or the name of an earlier member for a hard link.
    pub(crate) link: &'a [u8],
    /// Whether it is a further name of an earlier member.
    pub(crate) hard: bool,
    /// Offsets and lengths of what is no hole, if the file has holes.
    pub(crate) ranges: Option<&'a [(u64, u64)]>,
}

/// Appends the headers of a member to `out`, and the map of a sparse file. Its contents follow,
/// and [`padding`]. Returns how many bytes of contents follow.
pub(crate) fn member(member: &Member<'_>, out: &mut Vec<u8>) -> u64 {
    let Member { path, attr, .. } = *member;
    let mut pax = Vec::new();
    let mut name = Cow::Borrowed(path);
    let mut map = Vec::new();
    let mut contents = 0;
    if attr.kind == Kind::File && !member.hard {
        contents = attr.size;
        if let Some(ranges) = member.ranges {
            map = sparse_map(ranges, attr.size);
            contents = ranges.iter().map(|(_, length)| length).sum();
            record(&mut pax, b"GNU.sparse.major", b"1");
            record(&mut pax, b"GNU.sparse.minor", b"0");
            record(&mut pax, b"GNU.sparse.name", path);
            record(&mut pax, b"GNU.sparse.realsize", attr.size.to_string().as_bytes());
            name = Cow::Owned(beside(b"GNUSparseFile.0/", path));
        }
    }
    let stored = contents + map.len() as u64;
    attributes(&mut pax, member, &name, stored);
    if !pax.is_empty() {
        let name = beside(b"PaxHeaders/", path);
        out.extend_from_slice(&sealed(block(b'x', &name, 0o644, pax.len() as u64)));
        out.extend_from_slice(&pax);
        out.resize(out.len() + padding(pax.len() as u64), 0);
    }
    out.extend_from_slice(&header(member, &name, stored));
    out.extend_from_slice(&map);
    contents
}

/// Appends the end of an archive that has `length` bytes so far.
pub(crate) fn end(length: u64, out: &mut Vec<u8>) {
    let with_end = length + 2 * BLOCK as u64;
    let all = with_end.next_multiple_of(RECORD);
    out.resize(out.len() + (all - length) as usize, 0);
}

fn header(member: &Member<'_>, name: &[u8], stored: u64) -> [u8; BLOCK] {
    let attr = member.attr;
    let kind = match attr.kind {
        _ if member.hard => b'1',
        Kind::File => b'0',
        Kind::Directory => b'5',
        Kind::Symlink => b'2',
        Kind::Fifo | Kind::Socket => b'6',
        Kind::CharDevice => b'3',
        Kind::BlockDevice => b'4',
    };
    let mut block = block(kind, name, attr.mode & 0o7777, stored.min(SIZE_MAX));
    octal(&mut block[108..116], attr.uid.min(ID_MAX).into());
    octal(&mut block[116..124], attr.gid.min(ID_MAX).into());
    let seconds = u64::try_from(attr.mtime / 1_000_000_000).unwrap_or(0);
    octal(&mut block[136..148], seconds.min(SIZE_MAX));
    put(&mut block[157..257], member.link);
    if matches!(attr.kind, Kind::CharDevice | Kind::BlockDevice) {
        let (major, minor) = device(attr.rdev);
        octal(&mut block[329..337], major.into());
        octal(&mut block[337..345], minor.into());
    }
    sealed(block)
}

/// A ustar header of root, without a checksum.
fn block(kind: u8, name: &[u8], mode: u32, size: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    put(&mut block[..100], name);
    octal(&mut block[100..108], mode.into());
    octal(&mut block[108..116], 0);
    octal(&mut block[116..124], 0);
    octal(&mut block[124..136], size);
    octal(&mut block[136..148], 0);
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block
}

/// Sets the checksum: the sum of all bytes, its own taken as spaces.
fn sealed(mut block: [u8; BLOCK]) -> [u8; BLOCK] {
    block[148..156].fill(b' ');
    let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
    octal(&mut block[148..155], sum);
    block
}

/// Octal digits that fill a field up to a NUL.
fn octal(field: &mut [u8], mut number: u64) {
    let digits = field.len() - 1;
    for digit in field[..digits].iter_mut().rev() {
        *digit = b'0' + (number & 7) as u8;
        number >>= 3;
    }
    field[digits] = 0;
}

/// The pax records of what a ustar header cannot hold.
fn attributes(pax: &mut Vec<u8>, member: &Member<'_>, name: &[u8], stored: u64) {
    let Member { path, attr, link, .. } = *member;
    let sparse = member.ranges.is_some();
    let long = |bytes: &[u8]| bytes.len() > 100;
    if (long(name) && !sparse) || long(link) {
        let texts = [path, link].into_iter().filter(|bytes| long(bytes));
        if texts.clone().any(|bytes| std::str::from_utf8(bytes).is_err()) {
            record(pax, b"hdrcharset", b"BINARY");
        }
    }
    if long(name) && !sparse {
        record(pax, b"path", path);
    }
    if long(link) {
        record(pax, b"linkpath", link);
    }
    if stored > SIZE_MAX {
        record(pax, b"size", stored.to_string().as_bytes());
    }
    for (key, id) in [(&b"uid"[..], attr.uid), (b"gid", attr.gid)] {
        if id > ID_MAX {
            record(pax, key, id.to_string().as_bytes());
        }
    }
    if attr.mtime < 0 || attr.mtime % 1_000_000_000 != 0 {
        record(pax, b"mtime", time(attr.mtime).as_bytes());
    }
    if member.hard {
        return;
    }
    for (xattr, value) in member.xattrs {
        let key = match *xattr {
            ACCESS => ACCESS_TEXT,
            DEFAULT => DEFAULT_TEXT,
            name => {
                record(pax, &[XATTR, &escaped(name)].concat(), value);
                continue;
            }
        };
        if let Some(text) = acl::text(value) {
            record(pax, key, text.as_bytes());
        }
    }
    if !pax.is_empty() {
        record(pax, b"atime", time(attr.atime).as_bytes());
    }
}

/// The name of an attribute as GNU tar writes it: a record ends its key with `=`, so that and `%`
/// are escaped.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for &byte in name {
        match byte {
            b'=' => out.extend(b"%3D"),
            b'%' => out.extend(b"%25"),
            byte => out.push(byte),
        }
    }
    out
}

/// A record: its own length, a space, key, `=`, value, newline.
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    // The length counts its own digits.
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend_from_slice(format!("{length} ").as_bytes());
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Seconds with a fraction, such as `-1.5`.
pub(super) fn time(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, rest) =
        (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    let text = format!("{sign}{seconds}.{rest:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn sparse_map(ranges: &[(u64, u64)], size: u64) -> Vec<u8> {
    // An empty range means a hole at the end.
    let end = ranges.last().map_or(0, |(start, length)| start + length);
    let last = (end < size).then_some((size, 0));
    let mut text = format!("{}\n", ranges.len() + usize::from(last.is_some()));
    for (start, length) in ranges.iter().copied().chain(last) {
        writeln!(text, "{start}\n{length}").unwrap_or_default();
    }
    let mut map = text.into_bytes();
    map.resize(map.len() + padding(map.len() as u64), 0);
    map
}

/// A name for a header that is not the member's own: programs that do not know pax extract it.
fn beside(folder: &[u8], path: &[u8]) -> Vec<u8> {
    let name = path.rsplit(|&byte| byte == b'/').find(|name| !name.is_empty());
    [b"./", folder, name.unwrap_or(b".")].concat()
}

/// Sets a text, as much of it as there is space for.
fn put(field: &mut [u8], bytes: &[u8]) {
    let length = bytes.len().min(field.len());
    field[..length].copy_from_slice(&bytes[..length]);
}

/// Major and minor number, as Linux packs them into 32 bits.
fn device(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & !0xff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        for value in 0..2000 {
            let mut out = Vec::new();
            record(&mut out, b"path", &vec![b'x'; value]);
            let text = String::from_utf8(out.clone()).unwrap();
            let length: usize = text.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(length, out.len());
        }
    }

    #[test]
    fn times_are_decimal_fractions() {
        let encoded = [0, 1, 1_500_000_000, -1_500_000_000, -1, i64::MIN, i64::MAX].map(time);
        let want = [
            "0",
            "0.000000001",
            "1.5",
            "-1.5",
            "-0.000000001",
            "-9223372036.854775808",
            "9223372036.854775807",
        ];
        assert_eq!(encoded, want);
    }
}
