//! Operations as data: the generator creates them, the model judges them and a file system runs
//! them.

use inode::{Kind, SetAttr};

/// Names from the root of the volume. Empty is the root. A component equal to the name of the
/// snapshot directory refers to it.
pub type OpPath = Vec<Vec<u8>>;

/// The object of an operation on contents or attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The inode at a path.
    Path(OpPath),
    /// An open file in a slot, whatever happened to its names.
    Slot(usize),
}

/// How a rename treats its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameStyle {
    /// Replaces it.
    Replace,
    /// Fails.
    NoReplace,
    /// Swaps.
    Exchange,
    /// Replaces it, and leaves a whiteout.
    Whiteout,
}

/// The effect of `fallocate` on a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocateStyle {
    /// Grows the file to its end.
    Grow,
    /// Changes nothing visible.
    Keep,
    /// Punches a hole.
    Punch,
    /// Writes zeros, and grows.
    Zero,
    /// Writes zeros within the file.
    ZeroKeep,
}

/// How `setxattr` treats an existing attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrStyle {
    /// Creates or replaces.
    Any,
    /// Only creates.
    Create,
    /// Only replaces.
    Replace,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the arguments of the call of the same name")]
pub enum Op {
    Mknod {
        path: OpPath,
        kind: Kind,
        mode: u32,
    },
    Mkdir {
        path: OpPath,
        mode: u32,
    },
    Symlink {
        path: OpPath,
        target: Vec<u8>,
    },
    Readlink {
        path: OpPath,
    },
    Link {
        from: OpPath,
        to: OpPath,
    },
    Unlink {
        path: OpPath,
    },
    Rmdir {
        path: OpPath,
    },
    Rename {
        from: OpPath,
        to: OpPath,
        style: RenameStyle,
    },
    Stat {
        target: Target,
    },
    SetAttr {
        target: Target,
        changes: SetAttr,
    },
    Access {
        path: OpPath,
        mask: u32,
    },
    List {
        path: OpPath,
    },
    /// Holds a file in a slot, which is freed first.
    Open {
        slot: usize,
        path: OpPath,
    },
    Close {
        slot: usize,
    },
    Read {
        target: Target,
        offset: u64,
        length: usize,
    },
    /// Writes `length` bytes generated from `seed`.
    Write {
        target: Target,
        offset: u64,
        length: usize,
        seed: u64,
    },
    /// Punches a range, zeroes it, or grows a file over it.
    Allocate {
        target: Target,
        offset: u64,
        length: u64,
        style: AllocateStyle,
    },
    /// Copies a whole range, in as many calls as necessary; a long one as a reflink.
    CopyRange {
        from: Target,
        from_offset: u64,
        to: Target,
        to_offset: u64,
        length: u64,
    },
    Fsync {
        target: Target,
    },
    GetXattr {
        path: OpPath,
        name: Vec<u8>,
    },
    ListXattr {
        path: OpPath,
    },
    SetXattr {
        path: OpPath,
        name: Vec<u8>,
        value: Vec<u8>,
        style: XattrStyle,
    },
    RemoveXattr {
        path: OpPath,
        name: Vec<u8>,
    },
    SnapshotCreate {
        directory: OpPath,
        name: Vec<u8>,
    },
    SnapshotDelete {
        directory: OpPath,
        name: Vec<u8>,
    },
    SnapshotRename {
        directory: OpPath,
        from: Vec<u8>,
        to: Vec<u8>,
    },
    SnapshotList {
        directory: OpPath,
    },
    Clone {
        from: OpPath,
        to: OpPath,
    },
    SubvolumeCreate {
        path: OpPath,
        mode: u32,
    },
    Rollback {
        directory: OpPath,
        name: Vec<u8>,
    },
    Rmr {
        path: OpPath,
    },
    /// The subject does some background work (checkpoint, reclaim, prune, garbage collection);
    /// nothing may change.
    Background {
        seed: u64,
    },
    /// The subject closes and opens again; slots are freed.
    Reopen,
}

impl Op {
    /// The bytes that [`Op::Write`] writes.
    pub fn write_bytes(length: usize, seed: u64) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        if seed.is_multiple_of(5) {
            vec![random.u8(..); length]
        } else {
            (0..length).map(|_| random.u8(..)).collect()
        }
    }
}

impl std::fmt::Display for Op {
    /// As `Debug`, with names as text and long bytes cut.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{self:?}");
        let mut rest = text.as_str();
        while let Some(start) = rest.find('[') {
            let (before, list) = rest.split_at(start);
            f.write_str(before)?;
            let end = list.find(']').unwrap_or(list.len());
            let numbers: Option<Vec<u8>> =
                list[1..end].split(", ").map(|number| number.parse().ok()).collect();
            if let Some(bytes) = numbers {
                let shown = &bytes[..bytes.len().min(12)];
                write!(f, "'{}'", String::from_utf8_lossy(shown))?;
                if shown.len() < bytes.len() {
                    write!(f, "..({})", bytes.len())?;
                }
                rest = &list[end + 1..];
            } else {
                f.write_str("[")?;
                rest = &list[1..];
            }
        }
        f.write_str(rest)
    }
}

/// A path for messages.
pub fn show_path(path: &OpPath) -> String {
    let names: Vec<_> = path.iter().map(|name| String::from_utf8_lossy(name)).collect();
    format!("/{}", names.join("/"))
}
