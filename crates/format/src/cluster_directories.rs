//! The directories whose names a cluster holds, with the data from which paths, scope, permissions
//! and totals are computed (`docs/format/cluster-directories.md`).

use crate::layout::Field;
use crate::{Malformed, Reader, Writer};

/// Layout: these fields once for each directory, in the order of inodes.
pub const LAYOUT: &[Field] = &[
    Field::fixed("flags", "u8", 1),
    Field::variable("ino_step", "varint"),
    Field::variable("from", "u64 LE"),
    Field::variable("parent", "varint"),
    Field::fixed("parent_cookie", "u64 LE", 8),
    Field::variable("mode", "varint"),
    Field::variable("uid", "varint"),
    Field::variable("gid", "varint"),
    Field::variable("name_length", "u8"),
    Field::variable("name", "bytes"),
    Field::variable("files", "varint"),
    Field::variable("subdirectories", "varint"),
    Field::variable("bytes", "varint"),
    Field::variable("allocated", "varint"),
    Field::fixed("ctime", "i64 LE", 8),
];

// DO NOT CHANGE THESE VALUES: they are on disk.
const PART: u8 = 1;

/// One directory, or a part of a large one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDirectory {
    /// Its inode.
    pub ino: u64,
    /// The first cookie of its names in this cluster; 0: from the first name on.
    pub from: u64,
    /// The directory it is in.
    pub parent: u64,
    /// The cookie of its entry there.
    pub parent_cookie: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Its name; empty at the root of a subvolume.
    pub name: Vec<u8>,
    /// Names in this part whose inode has no other name and is not a directory.
    pub files: u64,
    /// Names in this part that are directories of the subvolume.
    pub subdirectories: u64,
    /// Bytes of the contents of those files, or the greatest number if that is exceeded.
    pub bytes: u64,
    /// Space of those files, likewise.
    pub allocated: u64,
    /// The last change of attributes of any inode that a name in this part refers to.
    pub ctime: i64,
}

/// Appends directories; they are in the order of inodes.
pub fn encode(directories: &[ClusterDirectory], out: &mut Vec<u8>) {
    let mut before = 0_u64;
    for directory in directories {
        out.put_u8(if directory.from > 0 { PART } else { 0 });
        out.put_varint(directory.ino.wrapping_sub(before));
        before = directory.ino;
        if directory.from > 0 {
            out.put_u64(directory.from);
        }
        out.put_varint(directory.parent);
        out.put_u64(directory.parent_cookie);
        out.put_varint(u64::from(directory.mode));
        out.put_varint(u64::from(directory.uid));
        out.put_varint(u64::from(directory.gid));
        let length = u8::try_from(directory.name.len()).unwrap_or(u8::MAX);
        out.put_u8(length);
        out.raw(directory.name.get(..usize::from(length)).unwrap_or_default());
        out.put_varint(directory.files);
        out.put_varint(directory.subdirectories);
        out.put_varint(directory.bytes);
        out.put_varint(directory.allocated);
        out.put_i64(directory.ctime);
    }
}

/// Reads directories, one after the other.
#[derive(Debug, Clone)]
pub struct Directories<'a> {
    reader: Reader<'a>,
    before: u64,
}

impl<'a> Directories<'a> {
    /// All directories of a cluster. The bytes were compared with their checksum.
    pub fn new(bytes: &'a [u8]) -> Directories<'a> {
        Directories { reader: Reader::new("cluster directories", bytes), before: 0 }
    }

    /// Reads the next directory.
    pub fn read_next(&mut self) -> Result<Option<ClusterDirectory>, Malformed> {
        let reader = &mut self.reader;
        if reader.remaining() == 0 {
            return Ok(None);
        }
        let flags = reader.u8()?;
        if flags & !PART != 0 {
            return Err(reader.malformed("known flags", format!("{flags:#x}")));
        }
        let step = reader.varint()?;
        let ino = self
            .before
            .checked_add(step)
            .ok_or_else(|| reader.malformed("an inode", step.to_string()))?;
        self.before = ino;
        let from = if flags & PART == 0 { 0 } else { reader.u64()? };
        let parent = reader.varint()?;
        let parent_cookie = reader.u64()?;
        let mut narrow = || {
            let value = reader.varint()?;
            u32::try_from(value).map_err(|_| reader.malformed("32 bits", value.to_string()))
        };
        let (mode, uid, gid) = (narrow()?, narrow()?, narrow()?);
        let length = reader.u8()?;
        let name = reader.take(usize::from(length))?.to_vec();
        Ok(Some(ClusterDirectory {
            ino,
            from,
            parent,
            parent_cookie,
            mode,
            uid,
            gid,
            name,
            files: reader.varint()?,
            subdirectories: reader.varint()?,
            bytes: reader.varint()?,
            allocated: reader.varint()?,
            ctime: reader.i64()?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{ClusterDirectory, Directories, encode};

    fn sample(ino: u64, from: u64) -> ClusterDirectory {
        ClusterDirectory {
            ino,
            from,
            parent: 2,
            parent_cookie: 1 << 62,
            mode: 0o1755,
            uid: u32::MAX,
            gid: 5,
            name: b"projects".to_vec(),
            files: 20_000,
            subdirectories: 3,
            bytes: u64::MAX,
            allocated: 1 << 40,
            ctime: -1,
        }
    }

    #[test]
    fn directories_round_trip() {
        let all = [sample(2, 0), sample(7, 1 << 60), sample(7, 1 << 61), sample(u64::MAX, 0)];
        let mut bytes = Vec::new();
        encode(&all, &mut bytes);
        let mut directories = Directories::new(&bytes);
        for directory in all {
            assert_eq!(directories.read_next(), Ok(Some(directory)));
        }
        assert_eq!(directories.read_next(), Ok(None));
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.usize(..80)).map(|_| random.u8(..)).collect();
            let mut directories = Directories::new(&bytes);
            while let Ok(Some(_)) = directories.read_next() {}
        }
    }
}
