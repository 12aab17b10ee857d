//! Values of the file-system calls as a trace has them.

use device::Timestamp;
use format::trace::{Allocating, Call, Event, Renaming, Setting, Shown};
use inode::{Attr, Kind, NodeId, SetAttr, SetTime};
use vfs::{Allocate, Entry, FsResult, RenameMode, SetXattr};

/// The number of a kind in traces.
pub(crate) fn kind(kind: Kind) -> u8 {
    match kind {
        Kind::File => 0,
        Kind::Directory => 1,
        Kind::Symlink => 2,
        Kind::Fifo => 3,
        Kind::Socket => 4,
        Kind::CharDevice => 5,
        Kind::BlockDevice => 6,
    }
}

/// The attributes of a node that a trace has.
pub(crate) fn shown(node: NodeId, attr: &Attr) -> Shown {
    Shown {
        node: node.shown(),
        kind: kind(attr.kind),
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
    }
}

/// What a look-up or a creation returned.
pub(crate) fn entry(result: &FsResult<Entry>) -> Shown {
    result.as_ref().map_or_else(|_| Shown::default(), |entry| shown(entry.node, &entry.attr))
}

/// What a call that returns attributes returned.
pub(crate) fn attr(node: NodeId, result: &FsResult<Attr>) -> Shown {
    result.as_ref().map_or_else(|_| Shown::default(), |attr| shown(node, attr))
}

/// What `setattr` sets.
pub(crate) fn settings(changes: &SetAttr) -> Event<'static> {
    let mut event = Event::new(Call::Setattr);
    let mut how = 0;
    if let Some(mode) = changes.mode {
        (how, event.mode) = (how | Setting::MODE, mode);
    }
    if let Some(uid) = changes.uid {
        (how, event.new_uid) = (how | Setting::UID, uid);
    }
    if let Some(gid) = changes.gid {
        (how, event.new_gid) = (how | Setting::GID, gid);
    }
    if let Some(size) = changes.size {
        (how, event.length) = (how | Setting::SIZE, size);
    }
    match changes.atime {
        Some(SetTime::Now) => how |= Setting::ATIME | Setting::ATIME_NOW,
        Some(SetTime::At(Timestamp(at))) => (how, event.atime) = (how | Setting::ATIME, at),
        None => {}
    }
    match changes.mtime {
        Some(SetTime::Now) => how |= Setting::MTIME | Setting::MTIME_NOW,
        Some(SetTime::At(Timestamp(at))) => (how, event.mtime) = (how | Setting::MTIME, at),
        None => {}
    }
    event.how = how | if changes.ctime.is_some() { Setting::CTIME } else { 0 };
    event
}

/// The number of a kind of renames.
pub(crate) fn renaming(mode: RenameMode) -> u32 {
    match mode {
        RenameMode::Replace => Renaming::REPLACE,
        RenameMode::NoReplace => Renaming::NO_REPLACE,
        RenameMode::Exchange => Renaming::EXCHANGE,
        RenameMode::Whiteout => Renaming::WHITEOUT,
        RenameMode::NoReplaceWhiteout => Renaming::NO_REPLACE_WHITEOUT,
    }
}

/// The number of a kind of allocations.
pub(crate) fn allocating(mode: Allocate) -> u32 {
    match mode {
        Allocate::Grow => Allocating::GROW,
        Allocate::Keep => Allocating::KEEP,
        Allocate::Punch => Allocating::PUNCH,
        Allocate::Zero => Allocating::ZERO,
        Allocate::ZeroKeep => Allocating::ZERO_KEEP,
    }
}

/// The bits of setxattr(2).
pub(crate) fn setting_xattr(mode: SetXattr) -> u32 {
    match mode {
        SetXattr::Any => 0,
        SetXattr::Create => 1,
        SetXattr::Replace => 2,
    }
}
