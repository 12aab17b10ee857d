//! Writes members in the pax format. A member whose attributes fit into a ustar header has no pax
//! header; times of nanoseconds, long names, extended attributes and large numbers are pax records.
//! A file with holes is stored as GNU tar's sparse format 1.0, which bsdtar reads too.

use std::borrow::Cow;

use format::acl::{ACCESS, DEFAULT};
use tar::{EntryType, Header};
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
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.set_mode(0o644);
        header.set_size(pax.len() as u64);
        put_name(&mut header, &beside(b"PaxHeaders/", path));
        header.set_cksum();
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(&pax);
        out.resize(out.len() + padding(pax.len() as u64), 0);
    }
    out.extend_from_slice(header(member, &name, stored).as_bytes());
    out.extend_from_slice(&map);
    contents
}

/// Appends the end of an archive that has `length` bytes so far.
pub(crate) fn end(length: u64, out: &mut Vec<u8>) {
    let with_end = length + 2 * BLOCK as u64;
    let all = with_end.next_multiple_of(RECORD);
    out.resize(out.len() + (all - length) as usize, 0);
}

fn header(member: &Member<'_>, name: &[u8], stored: u64) -> Header {
    let attr = member.attr;
    let mut header = Header::new_ustar();
    let kind = match attr.kind {
        _ if member.hard => EntryType::Link,
        Kind::File => EntryType::Regular,
        Kind::Directory => EntryType::Directory,
        Kind::Symlink => EntryType::Symlink,
        Kind::Fifo | Kind::Socket => EntryType::Fifo,
        Kind::CharDevice => EntryType::Char,
        Kind::BlockDevice => EntryType::Block,
    };
    header.set_entry_type(kind);
    header.set_mode(attr.mode & 0o7777);
    header.set_uid(attr.uid.min(ID_MAX).into());
    header.set_gid(attr.gid.min(ID_MAX).into());
    header.set_size(stored.min(SIZE_MAX));
    header.set_mtime(u64::try_from(attr.mtime / 1_000_000_000).unwrap_or(0).min(SIZE_MAX));
    put_name(&mut header, name);
    if let Some(ustar) = header.as_ustar_mut() {
        put(&mut ustar.linkname, member.link);
        if matches!(attr.kind, Kind::CharDevice | Kind::BlockDevice) {
            let (major, minor) = device(attr.rdev);
            ustar.set_device_major(major);
            ustar.set_device_minor(minor);
        }
    }
    header.set_cksum();
    header
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
    // An empty range stands for a hole at the end.
    let end = ranges.last().map_or(0, |(start, length)| start + length);
    let last = (end < size).then_some((size, 0));
    let mut text = format!("{}\n", ranges.len() + usize::from(last.is_some()));
    for (start, length) in ranges.iter().copied().chain(last) {
        text.push_str(&format!("{start}\n{length}\n"));
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

/// Sets the name, as much of it as there is space for.
fn put_name(header: &mut Header, name: &[u8]) {
    if let Some(ustar) = header.as_ustar_mut() {
        put(&mut ustar.name, name);
    }
}

fn put(field: &mut [u8; 100], bytes: &[u8]) {
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
        let told = [0, 1, 1_500_000_000, -1_500_000_000, -1, i64::MIN, i64::MAX].map(time);
        let want = [
            "0",
            "0.000000001",
            "1.5",
            "-1.5",
            "-0.000000001",
            "-9223372036.854775808",
            "9223372036.854775807",
        ];
        assert_eq!(told, want);
    }
}
