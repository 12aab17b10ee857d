//! Answers as bytes.

use std::time::Duration;

use device::Timestamp;
use inode::{Attr, Kind};

use super::numbers::{REPLY_HEADER_BYTES, STATX_ANSWERED};
use crate::adapter::{Listed, Named, Timeouts};

/// Unit of I/O that `stat` recommends; the kernel's page.
const BLOCK_BYTES: u32 = 4096;
/// Bytes of an entry of a listing before its name, without and with attributes.
const DIRENT_BYTES: usize = 24;
const ENTRY_BYTES: usize = 128;

/// An answer that is being built; begins with space for its header.
#[derive(Default)]
pub(super) struct Reply {
    bytes: Vec<u8>,
}

#[expect(clippy::host_endian_bytes, reason = "the kernel's structures are in its own order")]
impl Reply {
    /// Begins again.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(REPLY_HEADER_BYTES, 0);
    }

    /// The header: `error` is 0 or an error number; the message has `more` bytes beside these.
    pub(super) fn finish(&mut self, unique: u64, error: i32, more: usize) -> &[u8] {
        if error != 0 {
            self.bytes.truncate(REPLY_HEADER_BYTES);
        }
        let length = (self.bytes.len() + more) as u32;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&(-error).to_ne_bytes());
        self.bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
        &self.bytes
    }

    /// The header of a notification, which answers no request.
    pub(super) fn finish_notice(&mut self, code: i32) -> &[u8] {
        let length = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&code.to_ne_bytes());
        &self.bytes
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Reply {
        self.raw(&value.to_ne_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Reply {
        self.raw(&value.to_ne_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Reply {
        self.raw(&value.to_ne_bytes())
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Reply {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(super) fn zeros(&mut self, count: usize) -> &mut Reply {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }

    /// `fuse_attr`.
    fn attr(&mut self, node: u64, attr: &Attr) {
        let times = [attr.atime, attr.mtime, attr.ctime].map(parts);
        self.u64(node).u64(attr.size).u64(attr.blocks);
        for (seconds, _) in times {
            self.u64(seconds as u64);
        }
        for (_, nanos) in times {
            self.u32(nanos);
        }
        self.u32(mode(attr)).u32(attr.nlink).u32(attr.uid).u32(attr.gid);
        self.u32(attr.rdev).u32(BLOCK_BYTES).u32(0);
    }

    /// `fuse_entry_out`: a name that points to a node.
    pub(super) fn entry(&mut self, named: &Named, times: &Timeouts) {
        self.entry_head((named.node, named.generation), times.entry, times.attr);
        self.attr(named.shown, &named.attr);
    }

    fn entry_head(&mut self, node: (u64, u64), entry: Duration, attr: Duration) {
        let (node, generation) = node;
        self.u64(node).u64(generation).u64(entry.as_secs()).u64(attr.as_secs());
        self.u32(entry.subsec_nanos()).u32(attr.subsec_nanos());
    }

    /// `fuse_entry_out` for an absent name; the kernel may cache this.
    pub(super) fn no_entry(&mut self, kept: Duration) {
        self.entry_head((0, 0), kept, kept);
        self.zeros(88);
    }

    /// `fuse_attr_out`.
    pub(super) fn attributes(&mut self, named: &Named, kept: Duration) {
        self.u64(kept.as_secs()).u32(kept.subsec_nanos()).u32(0);
        self.attr(named.shown, &named.attr);
    }

    /// `fuse_statx_out`.
    pub(super) fn statx(&mut self, named: &Named, kept: Duration) {
        let attr = &named.attr;
        self.u64(kept.as_secs()).u32(kept.subsec_nanos()).u32(0).zeros(16);
        self.u32(STATX_ANSWERED).u32(BLOCK_BYTES).u64(0);
        self.u32(attr.nlink).u32(attr.uid).u32(attr.gid).u16(mode(attr) as u16).u16(0);
        self.u64(named.shown).u64(attr.size).u64(attr.blocks).u64(0);
        for time in [attr.atime, attr.btime, attr.ctime, attr.mtime] {
            let (seconds, nanos) = parts(time);
            self.u64(seconds as u64).u32(nanos).u32(0);
        }
        let rdev = libc::dev_t::from(attr.rdev);
        self.u32(libc::major(rdev)).u32(libc::minor(rdev)).u32(0).u32(0).zeros(14 * 8);
    }

    /// An entry of a listing, if it fits in `size` bytes of body: with attributes for
    /// `readdirplus`; the kernel caches them for `times`.
    pub(super) fn listed(
        &mut self,
        entry: &Listed<'_>,
        times: Option<&Timeouts>,
        size: usize,
    ) -> bool {
        let head = if times.is_some() { ENTRY_BYTES } else { 0 };
        let length = (head + DIRENT_BYTES + entry.name.len()).next_multiple_of(8);
        if self.bytes.len() - REPLY_HEADER_BYTES + length > size {
            return false;
        }
        match (times, entry.attr) {
            (Some(times), Some(attr)) => {
                let (node, generation, shown) = (entry.node, entry.generation, entry.shown);
                self.entry(&Named { node, generation, shown, attr: *attr }, times);
            }
            // Without them the kernel uses only the number and the kind.
            (Some(_), None) => {
                self.zeros(ENTRY_BYTES);
            }
            (None, _) => {}
        }
        self.u64(entry.shown).u64(entry.offset);
        self.u32(entry.name.len() as u32).u32(file_type(entry.kind) >> 12);
        self.raw(entry.name);
        let padded = (self.bytes.len() - REPLY_HEADER_BYTES).next_multiple_of(8);
        self.bytes.resize(REPLY_HEADER_BYTES + padded, 0);
        true
    }
}

fn mode(attr: &Attr) -> u32 {
    file_type(attr.kind) | attr.mode & 0o7777
}

fn file_type(kind: Kind) -> u32 {
    match kind {
        Kind::File => libc::S_IFREG,
        Kind::Directory => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::Socket => libc::S_IFSOCK,
        Kind::CharDevice => libc::S_IFCHR,
        Kind::BlockDevice => libc::S_IFBLK,
    }
}

/// Seconds, and nanoseconds that count forward also before 1970.
fn parts(time: Timestamp) -> (i64, u32) {
    const SECOND: i64 = 1_000_000_000;
    (time.0.div_euclid(SECOND), time.0.rem_euclid(SECOND) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use inode::NodeId;

    #[test]
    fn structures_have_the_sizes_of_the_protocol() {
        let attr = Attr {
            node: NodeId::narrow(7),
            kind: Kind::File,
            mode: 0o644,
            nlink: 1,
            uid: 1,
            gid: 2,
            rdev: 0,
            size: 3,
            blocks: 8,
            atime: Timestamp(0),
            mtime: Timestamp(-1),
            ctime: Timestamp(1),
            btime: Timestamp(2),
        };
        let named = Named { node: 7, generation: 0, shown: 7, attr };
        let kept = Duration::from_millis(1500);
        let times = Timeouts { attr: kept, entry: kept, negative: kept };
        let length = |build: &dyn Fn(&mut Reply)| {
            let mut reply = Reply::default();
            reply.clear();
            build(&mut reply);
            reply.bytes.len() - REPLY_HEADER_BYTES
        };
        assert_eq!(length(&|reply| reply.entry(&named, &times)), 128);
        assert_eq!(length(&|reply| reply.no_entry(kept)), 128);
        assert_eq!(length(&|reply| reply.attributes(&named, kept)), 104);
        assert_eq!(length(&|reply| reply.statx(&named, kept)), 288);
        let entry = Listed {
            name: b"abc",
            node: 7,
            generation: 0,
            shown: 7,
            kind: Kind::File,
            offset: 3,
            attr: Some(&attr),
        };
        assert_eq!(length(&|reply| assert!(reply.listed(&entry, None, 32))), 32);
        assert_eq!(length(&|reply| assert!(reply.listed(&entry, Some(&times), 160))), 160);
        assert_eq!(length(&|reply| assert!(!reply.listed(&entry, None, 31))), 0);
    }

    #[test]
    fn nanoseconds_count_forward_before_1970() {
        assert_eq!(parts(Timestamp(-1_200_000_000)), (-2, 800_000_000));
        assert_eq!(parts(Timestamp(1_500_000_000)), (1, 500_000_000));
        assert_eq!(parts(Timestamp(i64::MIN)).0, -9_223_372_037);
    }
}
