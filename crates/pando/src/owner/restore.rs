//! Restores one file or directory out of a snapshot, as the caller: a directory as a clone, a file
//! as a new file that shares its contents with the snapshot's. Nothing is overwritten, and the
//! name appears when what it names is complete.

use fs::{Entry, FileSystem, Follow, FsResult, SetXattr, Volume};
use inode::{Caller, FsError, Kind, NodeId, SetAttr, SetTime};
use wire::{Failure, FailureKind};

use super::about::{Answered, about};
use super::held::{Held, below};

const WHO: &str =
    "a directory is restored as a clone, by its owner or root; `pando export` copies it";

/// Restores what a path was in a snapshot of it, or of the nearest directory above it that has a
/// snapshot of this name.
pub(super) fn restore(
    fs: &Volume,
    caller: &Caller,
    snapshot: &[u8],
    (path, to): (&[u8], Option<&[u8]>),
) -> Answered<()> {
    if path.iter().all(|&byte| byte == b'/') && to.is_none() {
        return Err(about(FsError::IsDirectory, path).hint("`pando rollback` restores the root"));
    }
    let to = to.unwrap_or(path);
    let held = find(fs, caller, snapshot, path)?;
    let Entry { node, attr } = held.entry;
    below(fs, caller, to, |parent, name| {
        if attr.kind == Kind::Directory {
            return fs.clone_dir(caller, node, parent, name).map(drop);
        }
        if fs.lookup(caller, parent, name).map(|there| fs.forget(there.node, 1)).is_ok() {
            return Err(FsError::Exists);
        }
        let done = match attr.kind {
            Kind::File => file(fs, caller, (node, &attr), (parent, name)),
            Kind::Symlink => symlink(fs, caller, (node, &attr), (parent, name)),
            _ => Err(FsError::InvalidArgument("a special file is not restored: make it again")),
        };
        fs.invalidate_entry(parent, name);
        done
    })
    .map_err(|failure| match failure.kind {
        FailureKind::Exists => {
            failure.hint("nothing is overwritten: remove it, or restore it with --to another path")
        }
        FailureKind::Permission if attr.kind == Kind::Directory => failure.hint(WHO),
        _ => failure,
    })
}

/// What a path was in a snapshot.
fn find<'a>(fs: &'a Volume, caller: &Caller, snapshot: &[u8], path: &[u8]) -> Answered<Held<'a>> {
    let none = |message: String| Failure::new(FailureKind::NotFound, message).at(path);
    if snapshot.is_empty() || snapshot.contains(&b'/') {
        return Err(Failure::new(
            FailureKind::Invalid,
            "a snapshot is named without its directory",
        ));
    }
    let trimmed = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let path = &path[..trimmed];
    let mut had = None;
    let ends =
        std::iter::once(path.len()).chain((0..path.len()).rev().filter(|&at| path[at] == b'/'));
    for end in ends {
        let (above, rest) = path.split_at(end);
        let top = [above, b"/", fs.snapshot_dir(), b"/", snapshot].concat();
        if let Ok(found) = Held::exactly(fs, caller, &[&top[..], rest].concat(), Follow::No) {
            return Ok(found);
        }
        if had.is_none() && Held::exactly(fs, caller, &top, Follow::No).is_ok() {
            had = Some(above.to_vec());
        }
    }
    let name = snapshot.escape_ascii();
    Err(match had {
        Some(above) => {
            let above = if above.is_empty() { b"/".to_vec() } else { above };
            none(format!("snapshot {name} of {} does not have it", above.escape_ascii()))
        }
        None => none(format!("neither it nor a directory above it has a snapshot {name}"))
            .hint("`pando history PATH` shows in which snapshots a path is"),
    })
}

/// Makes a file like one of a snapshot.
fn file(
    fs: &Volume,
    caller: &Caller,
    (from, attr): (NodeId, &inode::Attr),
    (parent, name): (NodeId, &[u8]),
) -> FsResult<()> {
    let made = fs.tmpfile(caller, parent, 0o600)?;
    let filled = contents(fs, caller, (from, made.node), attr.size)
        .and_then(|()| xattrs(fs, caller, (from, made.node)))
        .and_then(|()| fs.setattr(caller, made.node, &changes(caller, attr)))
        .and_then(|_| fs.link(caller, made.node, parent, name));
    if let Ok(linked) = &filled {
        fs.forget(linked.node, 1);
    }
    fs.forget(made.node, 1);
    filled.map(drop)
}

fn contents(fs: &Volume, caller: &Caller, (from, to): (NodeId, NodeId), size: u64) -> FsResult<()> {
    let sized = SetAttr { size: Some(size), ..SetAttr::default() };
    fs.setattr(caller, to, &sized)?;
    let mut offset = 0;
    while offset < size {
        let copied = fs.copy_range(caller, (from, offset), (to, offset), size - offset)?;
        if copied == 0 {
            break;
        }
        offset += copied;
    }
    Ok(())
}

/// Extended attributes, as far as the caller may set them.
fn xattrs(fs: &Volume, caller: &Caller, (from, to): (NodeId, NodeId)) -> FsResult<()> {
    let names = fs.listxattr(caller, from)?;
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        if !caller.is_root() && !name.starts_with(b"user.") && !name.starts_with(b"system.") {
            continue;
        }
        let value = fs.getxattr(caller, from, name)?;
        fs.setxattr(caller, to, name, &value, SetXattr::Any)?;
    }
    Ok(())
}

fn symlink(
    fs: &Volume,
    caller: &Caller,
    (from, attr): (NodeId, &inode::Attr),
    (parent, name): (NodeId, &[u8]),
) -> FsResult<()> {
    let target = fs.readlink_untimed(caller, from)?;
    let made = fs.symlink(caller, parent, name, &target)?;
    let changes = SetAttr { mode: None, ..changes(caller, attr) };
    let set = fs.setattr(caller, made.node, &changes).map(drop);
    fs.forget(made.node, 1);
    set
}

/// What the new file keeps of the old one. Only root gives it to another user: what a user restores
/// is the user's own, and then it is not run as the former owner.
fn changes(caller: &Caller, attr: &inode::Attr) -> SetAttr {
    let own = caller.is_root() || attr.uid == caller.uid;
    let in_group = attr.gid == caller.gid || caller.groups.contains(&attr.gid);
    let keeps_group = caller.is_root() || in_group;
    let mode = if own && keeps_group { attr.mode } else { attr.mode & 0o1777 };
    SetAttr {
        mode: Some(mode & 0o7777),
        uid: caller.is_root().then_some(attr.uid),
        gid: keeps_group.then_some(attr.gid),
        size: None,
        atime: Some(SetTime::At(attr.atime)),
        mtime: Some(SetTime::At(attr.mtime)),
        ctime: None,
        btime: None,
    }
}
