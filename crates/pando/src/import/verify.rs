//! Verification: what an import sent is compared with what an export of the destination reads back.
//!
//! A digest of each name is kept, 16 bytes by the hash of its path. It covers kind, length,
//! contents, mode, owner as far as the import sets it, time of last change, targets and device
//! numbers. It also covers extended attributes of files, except for access lists. Contents are
//! hashed in chunks by their offset, and chunks of zeros not at all. So a hole and zeros are equal,
//! and a huge hole costs nothing.

use std::hash::Hasher;

use device::Map;
use siphasher::sip::SipHasher13;
use wire::{Attr, Failure, FailureKind, ImportAttr, Item, Kind};

use crate::export::{Exported, Sink};
use crate::failure::Result;

/// Length of a chunk of contents.
const CHUNK: usize = 64 << 10;

/// What an import sent.
#[derive(Debug)]
pub(crate) struct Sent {
    is_root: bool,
    /// The current path, and the lengths of the paths above it.
    path: Vec<u8>,
    levels: Vec<usize>,
    /// Whether a single file is imported, whose name is the destination's.
    single: bool,
    digests: Map<u64, u64>,
    held: Map<u64, u64>,
    begun: Option<(Vec<u8>, Contents)>,
}

impl Sent {
    /// `single`: of an import of a single file.
    pub(super) fn new(single: bool) -> Sent {
        Sent {
            is_root: rustix::process::geteuid().is_root(),
            path: Vec::new(),
            levels: Vec::new(),
            single,
            digests: Map::default(),
            held: Map::default(),
            begun: None,
        }
    }

    /// Notes an item.
    pub(super) fn note(&mut self, item: &Item<'_>) {
        match item {
            Item::Enter { name } => self.enter(name),
            Item::Leave { attr, .. } => {
                let digest = Facts::of(Kind::Directory, attr, 0, 0).digest();
                self.digests.insert(hash(&self.path), digest);
                self.leave();
            }
            Item::Back => self.leave(),
            Item::File { name, attr, xattrs, data, hold } => {
                let mut contents = Contents::default();
                contents.add(0, data);
                let facts = Facts::of(Kind::File, attr, data.len() as u64, contents.end());
                let facts = Facts { xattrs: self.xattrs(xattrs), ..facts };
                self.insert(name, *hold, facts.digest());
            }
            Item::Begin { name } => self.begun = Some((name.to_vec(), Contents::default())),
            Item::Data { offset, bytes } => {
                if let Some((_, contents)) = &mut self.begun {
                    contents.add(*offset, bytes);
                }
            }
            Item::End { size, attr, xattrs, hold } => {
                if let Some((name, contents)) = self.begun.take() {
                    let facts = Facts::of(Kind::File, attr, *size, contents.end());
                    let facts = Facts { xattrs: self.xattrs(xattrs), ..facts };
                    self.insert(&name, *hold, facts.digest());
                }
            }
            Item::Symlink { name, target, attr, hold } => {
                let facts = Facts::of(Kind::Symlink, attr, 0, hash(target));
                self.insert(name, *hold, facts.digest());
            }
            Item::Special { name, kind, rdev, attr, hold } => {
                let facts = Facts::of(*kind, attr, 0, (*rdev).into());
                self.insert(name, *hold, facts.digest());
            }
            Item::Link { name, held } => {
                if let Some(&digest) = self.held.get(held) {
                    self.insert(name, 0, digest);
                }
            }
            Item::LinkTo { name, target } => {
                let digest = self.digests.get(&hash(&target.join(&b'/'))).copied();
                match digest {
                    Some(digest) => self.insert(name, 0, digest),
                    // It was there before, and is not verified.
                    None => drop(self.digests.remove(&self.key(name))),
                }
            }
            Item::Hold { .. } => {}
        }
    }

    /// Notes a directory that was entered by a request.
    pub(super) fn enter(&mut self, name: &[u8]) {
        self.levels.push(self.path.len());
        self.path = below(&self.path, name);
    }

    /// Forgets a name that the daemon could not make.
    pub(super) fn failed(&mut self, path: &[u8]) {
        self.digests.remove(&hash(path));
    }

    fn leave(&mut self) {
        let length = self.levels.pop().unwrap_or_default();
        self.path.truncate(length);
    }

    fn key(&self, name: &[u8]) -> u64 {
        if self.single { hash(b"") } else { hash(&below(&self.path, name)) }
    }

    fn insert(&mut self, name: &[u8], hold: u64, digest: u64) {
        let key = self.key(name);
        self.digests.insert(key, digest);
        if hold != 0 {
            self.held.insert(hold, digest);
        }
    }

    fn xattrs(&self, xattrs: &[(&[u8], &[u8])]) -> u64 {
        of_xattrs(self.is_root, xattrs)
    }
}

/// What is hashed of a name.
struct Facts {
    kind: Kind,
    mode: u32,
    owner: Option<(u32, u32)>,
    mtime: i64,
    size: u64,
    /// The digest of the contents or target, or the device number.
    what: u64,
    xattrs: u64,
}

impl Facts {
    fn of(kind: Kind, attr: &ImportAttr, size: u64, what: u64) -> Facts {
        let ImportAttr { mode, owner, mtime, .. } = *attr;
        let mode = if kind == Kind::Symlink { 0 } else { mode };
        Facts { kind, mode, owner, mtime, size, what, xattrs: 0 }
    }

    fn digest(&self) -> u64 {
        let mut hasher = SipHasher13::new();
        hasher.write(self.kind.name().as_bytes());
        hasher.write_u32(self.mode);
        // An owner that was not set is not the owner 0:0.
        hasher.write_u8(self.owner.is_some().into());
        let (uid, gid) = self.owner.unwrap_or_default();
        hasher.write_u32(uid);
        hasher.write_u32(gid);
        hasher.write_i64(self.mtime);
        hasher.write_u64(self.size);
        hasher.write_u64(self.what);
        hasher.write_u64(self.xattrs);
        hasher.finish()
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// The digest of attributes, in any order.
fn of_xattrs(is_root: bool, xattrs: &[(&[u8], &[u8])]) -> u64 {
    let counts =
        |name: &[u8]| !name.starts_with(b"system.") && (is_root || name.starts_with(b"user."));
    let counted = xattrs.iter().filter(|(name, _)| counts(name));
    counted.map(|(name, value)| hash(&[name, &b"="[..], value].concat())).fold(0, u64::wrapping_add)
}

/// Contents that are hashed as they come, by ascending offset.
#[derive(Debug, Default)]
struct Contents {
    sum: u64,
    /// The present chunk, with zeros where nothing came.
    chunk: Vec<u8>,
    number: u64,
}

impl Contents {
    fn add(&mut self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (number, at) = (offset / CHUNK as u64, (offset % CHUNK as u64) as usize);
            if number != self.number {
                self.flush();
                self.number = number;
            }
            let length = bytes.len().min(CHUNK - at);
            if self.chunk.len() < at + length {
                self.chunk.resize(at + length, 0);
            }
            self.chunk[at..at + length].copy_from_slice(&bytes[..length]);
            bytes = &bytes[length..];
            offset += length as u64;
        }
    }

    fn flush(&mut self) {
        // Zeros at the end are like those that are not there.
        let end = self.chunk.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        if end > 0 {
            let mut hasher = SipHasher13::new();
            hasher.write_u64(self.number);
            hasher.write(&self.chunk[..end]);
            self.sum = self.sum.wrapping_add(hasher.finish());
        }
        self.chunk.clear();
    }

    fn end(mut self) -> u64 {
        self.flush();
        self.sum
    }
}

/// Compares what an export reads with what was sent.
pub(crate) struct Comparison {
    sent: Sent,
    /// Names that are as they were sent.
    pub(crate) verified: u64,
    begun: Contents,
    ranges: std::vec::IntoIter<(u64, u64)>,
    current: (u64, u64),
    /// The digests of contents and attributes of files with several names.
    links: Map<u64, (u64, u64)>,
    problems: Vec<Failure>,
}

impl Comparison {
    pub(crate) fn new(sent: Sent) -> Comparison {
        Comparison {
            sent,
            verified: 0,
            begun: Contents::default(),
            ranges: Vec::new().into_iter(),
            current: (0, 0),
            links: Map::default(),
            problems: Vec::new(),
        }
    }

    /// Compares one name.
    fn compare(&mut self, path: &[u8], attr: &Attr, what: u64, xattrs: u64) {
        let key = if self.sent.single { hash(b"") } else { hash(path) };
        let Some(digest) = self.sent.digests.remove(&key) else { return };
        let size = if attr.kind == Kind::File { attr.size } else { 0 };
        let mode = if attr.kind == Kind::Symlink { 0 } else { attr.mode & 0o7777 };
        let facts = |owner| {
            let (kind, mtime) = (attr.kind, attr.mtime);
            Facts { kind, mode, owner, mtime, size, what, xattrs }.digest()
        };
        // An import sets the owner or does not.
        if digest == facts(Some((attr.uid, attr.gid))) || digest == facts(None) {
            self.verified += 1;
            return;
        }
        let message = "it is not what was imported: it differs, or was changed meanwhile";
        let failure = Failure::new(FailureKind::Other, message).at(path);
        self.problems.push(failure.hint("import it again when nothing changes it"));
    }

    fn node(&mut self, one: &Exported<'_>, what: u64, xattrs: u64) {
        if one.attr.nlink > 1 {
            self.links.insert(one.attr.node, (what, xattrs));
        }
        self.compare(one.path, one.attr, what, xattrs);
    }
}

impl Sink for Comparison {
    fn enter(&mut self, _one: &Exported<'_>) -> Result<()> {
        Ok(())
    }

    fn leave(&mut self, one: &Exported<'_>) -> Result<()> {
        self.compare(one.path, one.attr, 0, 0);
        Ok(())
    }

    fn file(&mut self, one: &Exported<'_>, data: &[u8]) -> Result<()> {
        let mut contents = Contents::default();
        contents.add(0, data);
        let xattrs = of_xattrs(self.sent.is_root, one.xattrs);
        self.node(one, contents.end(), xattrs);
        Ok(())
    }

    fn begin(&mut self, _one: &Exported<'_>, ranges: &[(u64, u64)]) -> Result<()> {
        self.begun = Contents::default();
        let ranges: Vec<_> = ranges.into();
        self.ranges = ranges.into_iter();
        self.current = (0, 0);
        Ok(())
    }

    fn data(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.current.1 == 0 {
                let Some(next) = self.ranges.next() else { break };
                self.current = next;
                continue;
            }
            let (offset, left) = self.current;
            let take = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.begun.add(offset, &bytes[..take]);
            self.current = (offset + take as u64, left - take as u64);
            bytes = &bytes[take..];
        }
        Ok(())
    }

    fn end(&mut self, one: &Exported<'_>) -> Result<()> {
        let xattrs = of_xattrs(self.sent.is_root, one.xattrs);
        let contents = std::mem::take(&mut self.begun).end();
        self.node(one, contents, xattrs);
        Ok(())
    }

    fn other(&mut self, one: &Exported<'_>, target: &[u8]) -> Result<bool> {
        let what = match one.attr.kind {
            Kind::Symlink => hash(target),
            _ => one.attr.rdev.into(),
        };
        self.node(one, what, 0);
        Ok(true)
    }

    fn link(&mut self, one: &Exported<'_>, _first: &[u8]) -> Result<()> {
        if let Some(&(what, xattrs)) = self.links.get(&one.attr.node) {
            self.compare(one.path, one.attr, what, xattrs);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let missing = self.sent.digests.len() as u64;
        if missing > 0 {
            let were = crate::output::count(missing, "name is", "names are");
            let message = format!("{were} missing that were imported");
            let failure = Failure::new(FailureKind::Other, message);
            self.problems.push(failure.hint("import again when nothing removes them"));
        }
        Ok(())
    }

    fn problems(&mut self) -> Vec<Failure> {
        std::mem::take(&mut self.problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_parts_do_not_matter_and_bytes_do() {
        let digest = |parts: &[(u64, &[u8])]| {
            let mut contents = Contents::default();
            for (offset, bytes) in parts {
                contents.add(*offset, bytes);
            }
            contents.end()
        };
        let zeros = vec![0; 3 * CHUNK];
        let whole = [&zeros[..], b"data", &zeros[..100]].concat();
        let at = zeros.len() as u64;
        assert_eq!(digest(&[(0, &whole)]), digest(&[(at, b"da"), (at + 2, b"ta")]));
        assert_ne!(digest(&[(0, &whole)]), digest(&[(at + 1, b"data")]));
        assert_ne!(digest(&[(0, b"ab")]), digest(&[(0, b"ba")]));
        assert_eq!(digest(&[]), digest(&[(7, &zeros)]));
        let long: Vec<u8> = (0..200_000_u32).map(|n| (n * 7) as u8).collect();
        let parts: Vec<_> =
            long.chunks(999).enumerate().map(|(n, part)| (n as u64 * 999, part)).collect();
        assert_eq!(digest(&[(0, &long)]), digest(&parts));
    }

    #[test]
    fn each_difference_is_found() {
        let attr = ImportAttr { mode: 0o644, owner: Some((1, 2)), atime: 0, mtime: 7 };
        let stat = |kind, size| Attr {
            node: 5,
            kind,
            mode: 0o644,
            nlink: 1,
            uid: 1,
            gid: 2,
            rdev: 0,
            size,
            blocks: 0,
            atime: 1,
            mtime: 7,
            ctime: 1,
            btime: 1,
        };
        let xattrs: [(&[u8], &[u8]); 1] = [(b"user.k", b"v")];
        let compare =
            |attr, attr_read: &Attr, data: &[u8], read: &[(&[u8], &[u8])], path: &[u8]| {
                let mut sent = Sent::new(false);
                sent.enter(b"d");
                let (name, data_sent, hold) = (&b"f"[..], &b"data"[..], 0);
                let xattrs = xattrs.to_vec();
                sent.note(&Item::File { name, attr, xattrs, data: data_sent, hold });
                let mut comparison = Comparison::new(sent);
                let one = Exported { path, attr: attr_read, xattrs: read };
                comparison.file(&one, data).unwrap();
                comparison.finish().unwrap();
                (comparison.verified, comparison.problems().len())
            };
        let compared = |attr_read: &Attr, data: &[u8], read: &[(&[u8], &[u8])], path: &[u8]| {
            compare(attr, attr_read, data, read, path)
        };
        let same = stat(Kind::File, 4);
        assert_eq!(compared(&same, b"data", &xattrs, b"d/f"), (1, 0));
        assert_eq!(compared(&same, b"dat.", &xattrs, b"d/f"), (0, 1));
        assert_eq!(compared(&same, b"data", &[(b"user.k", b"w")], b"d/f"), (0, 1));
        assert_eq!(compared(&same, b"data", &[], b"d/f"), (0, 1));
        // A name that is missing; one that was not imported is none of its.
        assert_eq!(compared(&same, b"data", &xattrs, b"d/g"), (0, 1));
        for differs in [
            Attr { mode: 0o600, ..same },
            Attr { mtime: 8, ..same },
            Attr { uid: 3, ..same },
            Attr { gid: 3, ..same },
            Attr { size: 5, ..same },
        ] {
            assert_eq!(compared(&differs, b"data", &xattrs, b"d/f"), (0, 1), "{differs:?}");
        }
        // Regression: any owner was taken for root.
        let of_root = ImportAttr { owner: Some((0, 0)), ..attr };
        for (uid, gid, found) in [(3, 0, (0, 1)), (0, 3, (0, 1)), (0, 0, (1, 0))] {
            let owned = Attr { uid, gid, ..same };
            assert_eq!(compare(of_root, &owned, b"data", &xattrs, b"d/f"), found, "{uid}:{gid}");
        }
        let read = Attr { atime: 9, ctime: 9, btime: 9, node: 9, ..same };
        assert_eq!(compared(&read, b"data", &xattrs, b"d/f"), (1, 0));
    }
}
