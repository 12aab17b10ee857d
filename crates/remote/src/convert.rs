//! Types of the wire, and those of a file system.

use device::Timestamp;
use inode::{Attr, FsError, Ino, NodeId, SetAttr, SetTime, Slot};
use vfs::{Allocate, RenameMode, SetXattr, StatFs};
use wire::remote::{Changes, FsFailure, NewTime, Node, RemoteAttr, Renaming, Space};

/// The text here for a refusal of the server: the reason is in the server's log.
const THERE: &str = "the server refuses it";

pub(crate) fn failure(error: &FsError) -> FsFailure {
    match error {
        FsError::NotFound => FsFailure::NotFound,
        FsError::Exists => FsFailure::Exists,
        FsError::NotDirectory => FsFailure::NotDirectory,
        FsError::IsDirectory => FsFailure::IsDirectory,
        FsError::NotEmpty => FsFailure::NotEmpty,
        FsError::AccessDenied => FsFailure::AccessDenied,
        FsError::NotPermitted(_) | FsError::RootOnly(_) => FsFailure::NotPermitted,
        FsError::InvalidArgument(_) => FsFailure::Invalid,
        FsError::NameTooLong => FsFailure::NameTooLong,
        FsError::CrossSubvolume(_) => FsFailure::CrossSubvolume,
        FsError::TooManyLinks => FsFailure::TooManyLinks,
        FsError::Loop => FsFailure::Loop,
        FsError::ReadOnly(why) => FsFailure::ReadOnly(why.clone()),
        FsError::FileTooLarge => FsFailure::FileTooLarge,
        FsError::NoSpace => FsFailure::NoSpace,
        FsError::LimitReached(_) | FsError::MemoryExceeded(_) => FsFailure::LimitReached,
        FsError::QuotaExceeded => FsFailure::QuotaExceeded,
        FsError::Range => FsFailure::Range,
        FsError::NoAttribute => FsFailure::NoAttribute,
        FsError::Elsewhere => FsFailure::Elsewhere,
        FsError::NotSupported(_) => FsFailure::NotSupported,
        FsError::Busy(_) => FsFailure::Busy,
        FsError::Stale => FsFailure::Stale,
        FsError::PastEnd => FsFailure::PastEnd,
        FsError::Interrupted => FsFailure::Interrupted,
        FsError::Io(failure) => FsFailure::Io(failure.what.clone()),
    }
}

pub(crate) fn error(failure: FsFailure) -> FsError {
    match failure {
        FsFailure::NotFound => FsError::NotFound,
        FsFailure::Exists => FsError::Exists,
        FsFailure::NotDirectory => FsError::NotDirectory,
        FsFailure::IsDirectory => FsError::IsDirectory,
        FsFailure::NotEmpty => FsError::NotEmpty,
        FsFailure::AccessDenied => FsError::AccessDenied,
        FsFailure::NotPermitted => FsError::NotPermitted(THERE),
        FsFailure::Invalid => FsError::InvalidArgument(THERE),
        FsFailure::NameTooLong => FsError::NameTooLong,
        FsFailure::CrossSubvolume => FsError::CrossSubvolume(THERE),
        FsFailure::TooManyLinks => FsError::TooManyLinks,
        FsFailure::Loop => FsError::Loop,
        FsFailure::ReadOnly(why) => FsError::ReadOnly(why),
        FsFailure::FileTooLarge => FsError::FileTooLarge,
        FsFailure::NoSpace => FsError::NoSpace,
        FsFailure::LimitReached => FsError::LimitReached(THERE),
        FsFailure::QuotaExceeded => FsError::QuotaExceeded,
        FsFailure::Range => FsError::Range,
        FsFailure::NoAttribute => FsError::NoAttribute,
        FsFailure::Elsewhere => FsError::Elsewhere,
        FsFailure::NotSupported => FsError::NotSupported(THERE),
        FsFailure::Busy => FsError::Busy(THERE),
        FsFailure::Stale => FsError::Stale,
        FsFailure::PastEnd => FsError::PastEnd,
        FsFailure::Interrupted => FsError::Interrupted,
        FsFailure::Io(what) => FsError::Io(format!("the server reports: {what}").into()),
    }
}

/// Bits of a slot.
const SLOT_BITS: u32 = 24;

pub(crate) fn node_to_wire(node: NodeId) -> Node {
    Node { slot: node.slot().0 as u32, ino: node.ino().0 }
}

/// `None`: there is no such node.
pub(crate) fn node(node: Node) -> Option<NodeId> {
    let fits = node.slot >> SLOT_BITS == 0;
    fits.then(|| NodeId::of(Slot(u64::from(node.slot)), Ino(node.ino)))
}

pub(crate) fn attr_to_wire(attr: &Attr) -> RemoteAttr {
    let [atime, mtime, ctime, btime] =
        [attr.atime, attr.mtime, attr.ctime, attr.btime].map(|Timestamp(time)| time);
    RemoteAttr {
        node: node_to_wire(attr.node),
        kind: attr.kind,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        size: attr.size,
        blocks: attr.blocks,
        atime,
        mtime,
        ctime,
        btime,
    }
}

/// `None`: of no node that can be.
pub(crate) fn attr(attr: &RemoteAttr) -> Option<Attr> {
    Some(Attr {
        node: node(attr.node)?,
        kind: attr.kind,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        size: attr.size,
        blocks: attr.blocks,
        atime: Timestamp(attr.atime),
        mtime: Timestamp(attr.mtime),
        ctime: Timestamp(attr.ctime),
        btime: Timestamp(attr.btime),
    })
}

pub(crate) fn changes_to_wire(changes: &SetAttr) -> Changes {
    let time = |time: Option<SetTime>| {
        time.map(|time| match time {
            SetTime::Now => NewTime::Now,
            SetTime::At(Timestamp(at)) => NewTime::At(at),
        })
    };
    Changes {
        mode: changes.mode,
        uid: changes.uid,
        gid: changes.gid,
        size: changes.size,
        atime: time(changes.atime),
        mtime: time(changes.mtime),
        ctime: time(changes.ctime),
    }
}

pub(crate) fn changes(changes: &Changes) -> SetAttr {
    let time = |time: Option<NewTime>| {
        time.map(|time| match time {
            NewTime::Now => SetTime::Now,
            NewTime::At(at) => SetTime::At(Timestamp(at)),
        })
    };
    SetAttr {
        mode: changes.mode,
        uid: changes.uid,
        gid: changes.gid,
        size: changes.size,
        atime: time(changes.atime),
        mtime: time(changes.mtime),
        ctime: time(changes.ctime),
        btime: None,
    }
}

pub(crate) fn renaming_to_wire(mode: RenameMode) -> Renaming {
    match mode {
        RenameMode::Replace => Renaming::Replace,
        RenameMode::NoReplace => Renaming::NoReplace,
        RenameMode::Exchange => Renaming::Exchange,
        RenameMode::Whiteout => Renaming::Whiteout,
        RenameMode::NoReplaceWhiteout => Renaming::NoReplaceWhiteout,
    }
}

pub(crate) fn renaming(mode: Renaming) -> RenameMode {
    match mode {
        Renaming::Replace => RenameMode::Replace,
        Renaming::NoReplace => RenameMode::NoReplace,
        Renaming::Exchange => RenameMode::Exchange,
        Renaming::Whiteout => RenameMode::Whiteout,
        Renaming::NoReplaceWhiteout => RenameMode::NoReplaceWhiteout,
    }
}

pub(crate) fn allocate_to_wire(mode: Allocate) -> u8 {
    match mode {
        Allocate::Grow => 0,
        Allocate::Keep => 1,
        Allocate::Punch => 2,
        Allocate::Zero => 3,
        Allocate::ZeroKeep => 4,
    }
}

pub(crate) fn allocate(mode: u8) -> Option<Allocate> {
    let modes =
        [Allocate::Grow, Allocate::Keep, Allocate::Punch, Allocate::Zero, Allocate::ZeroKeep];
    modes.get(usize::from(mode)).copied()
}

pub(crate) fn set_xattr_to_wire(mode: SetXattr) -> u8 {
    match mode {
        SetXattr::Any => 0,
        SetXattr::Create => 1,
        SetXattr::Replace => 2,
    }
}

pub(crate) fn set_xattr(mode: u8) -> Option<SetXattr> {
    [SetXattr::Any, SetXattr::Create, SetXattr::Replace].get(usize::from(mode)).copied()
}

pub(crate) fn space_to_wire(space: &StatFs) -> Space {
    Space {
        block_bytes: space.block_bytes,
        blocks: space.blocks,
        blocks_free: space.blocks_free,
        blocks_available: space.blocks_available,
        inodes: space.inodes,
        inodes_free: space.inodes_free,
        name_bytes_max: space.name_bytes_max,
    }
}

pub(crate) fn space(space: &Space) -> StatFs {
    StatFs {
        block_bytes: space.block_bytes,
        blocks: space.blocks,
        blocks_free: space.blocks_free,
        blocks_available: space.blocks_available,
        inodes: space.inodes,
        inodes_free: space.inodes_free,
        name_bytes_max: space.name_bytes_max,
    }
}
