//! Restores one file or directory out of a snapshot, as the caller. A directory becomes a clone, a
//! file a new file that shares its contents with the snapshot's. Nothing is overwritten, and the
//! name appears when what it names is complete.

use fs::{Entry, FileSystem, Follow, FsResult, SetXattr, Volume};
use inode::{Caller, FsError, Kind, NodeId, SetAttr, SetTime};
use wire::{Failure, FailureKind};

use super::about::{Answered, about};
use super::held::{Held, below, names, split};

/// Names that are looked up in snapshots of the directories above a path. Each may have one of the
/// name, so their number grows with the square of the path's length.
const LOOKED_UP_MAX: usize = 1 << 20;

/// As of access(2).
const MAY_READ: u32 = 4;

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
    let held = find(fs, caller, snapshot, path)?;
    let Entry { node, attr } = held.entry;
    // What cannot be read is named, and not the destination.
    let mut unread = None;
    let mut make = |parent, name: &[u8]| {
        if attr.kind == Kind::Directory {
            return fs.clone_dir(caller, node, parent, name).map(drop);
        }
        if fs.lookup(caller, parent, name).map(|there| fs.forget(there.node, 1)).is_ok() {
            return Err(FsError::Exists);
        }
        let done = match attr.kind {
            Kind::File => {
                let readable = fs.access(caller, node, MAY_READ);
                readable
                    .inspect_err(|_| unread = Some(path))
                    .and_then(|()| file(fs, caller, (node, &attr), (parent, name)))
            }
            Kind::Symlink => symlink(fs, caller, (node, &attr), (parent, name)),
            _ => Err(FsError::InvalidArgument("a special file is not restored: make it again")),
        };
        fs.invalidate_entry(parent, name);
        done
    };
    let made = match to {
        Some(to) => below(fs, caller, to, make),
        None => split(path).and_then(|(above, name)| {
            let parent = live(fs, caller, above).map_err(|error| linked(error, path))?;
            make(parent.stored(path)?.entry.node, name).map_err(|error| about(error, path))
        }),
    };
    made.map_err(|failure| match failure.kind {
        FailureKind::Permission if unread.is_some() => about(FsError::AccessDenied, path),
        FailureKind::Exists => {
            failure.hint("nothing is overwritten: remove it, or restore it with --to another path")
        }
        FailureKind::Permission if attr.kind == Kind::Directory => failure.hint(WHO),
        _ => failure,
    })
}

/// What is at a path now; another user's symbolic link on the way must not lead elsewhere.
fn live<'a>(fs: &'a Volume, caller: &Caller, path: &[u8]) -> FsResult<Held<'a>> {
    let root = Held::exactly(fs, caller, b"/", Follow::No).map_err(|_| FsError::NotFound)?;
    let found = root.without_links(caller, path)?;
    if found.entry.attr.kind == Kind::Symlink { Err(FsError::Loop) } else { Ok(found) }
}

/// The root of a snapshot of a directory.
fn top<'a>(fs: &'a Volume, caller: &Caller, of: &Held<'a>, snapshot: &[u8]) -> FsResult<Held<'a>> {
    let virtual_directory = of.child(caller, fs.snapshot_dir())?;
    if !Volume::is_virtual(virtual_directory.entry.node) {
        return Err(FsError::NotFound);
    }
    virtual_directory.child(caller, snapshot)
}

/// The root of the snapshot with a number: only a whole path reaches it. There is no link in this
/// one.
fn numbered<'a>(fs: &'a Volume, caller: &Caller, snapshot: &[u8]) -> FsResult<Held<'a>> {
    let path = [b"/", fs.snapshot_dir(), b"/", snapshot].concat();
    Held::exactly(fs, caller, &path, Follow::No).map_err(|_| FsError::NotFound)
}

/// The directories on a path as far as they exist, from the root on, and why there are no more.
fn way<'a>(
    fs: &'a Volume,
    caller: &Caller,
    names: &[&[u8]],
) -> FsResult<(Vec<Held<'a>>, Option<FsError>)> {
    let root = Held::exactly(fs, caller, b"/", Follow::No).map_err(|_| FsError::NotFound)?;
    let mut on_it = vec![root];
    for name in names {
        let last = on_it.last().map(|last| last.child(caller, name));
        match last {
            Some(Ok(next)) => on_it.push(next),
            Some(Err(error)) => return Ok((on_it, Some(error))),
            None => break,
        }
    }
    Ok((on_it, None))
}

fn linked(error: FsError, path: &[u8]) -> Failure {
    if !matches!(error, FsError::Loop) {
        return about(error, path);
    }
    let message = "a symbolic link is on the way, and a restore follows none";
    Failure::new(FailureKind::Invalid, message)
        .at(path)
        .hint("name the directory that it points to; --to restores to another path")
}

fn too_many(path: &[u8]) -> Failure {
    let message = "too many directories above it have a snapshot of this name";
    Failure::new(FailureKind::Invalid, message)
        .at(path)
        .hint("copy it out of the snapshot: `pando export DIR/.snapshots/NAME/PATH`")
}

/// What a path was in a snapshot. It follows no symbolic link, neither to the directory that has
/// the snapshot nor in the snapshot. So every entry that it finds is in the snapshot.
fn find<'a>(fs: &'a Volume, caller: &Caller, snapshot: &[u8], path: &[u8]) -> Answered<Held<'a>> {
    let none = |message: String| {
        let failure = Failure::new(FailureKind::NotFound, message).at(path);
        failure.hint("`pando snapshot list DIR` lists the snapshots of a directory")
    };
    if snapshot.is_empty() || snapshot.contains(&b'/') {
        return Err(Failure::new(
            FailureKind::Invalid,
            "a snapshot is named without its directory",
        )
        .hint("as in `pando restore --from monday PATH`"));
    }
    let trimmed = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let path = &path[..trimmed];
    let names: Vec<&[u8]> = names(path).collect();
    let (on_it, ended) = way(fs, caller, &names).map_err(|error| about(error, path))?;
    let (mut had, mut by_link) = (None, matches!(ended, Some(FsError::Loop)));
    let mut left = LOOKED_UP_MAX;
    for (above, of) in on_it.iter().enumerate().rev() {
        let top = match top(fs, caller, of, snapshot) {
            Err(_) if above == 0 && snapshot.starts_with(b"#") => numbered(fs, caller, snapshot),
            top => top,
        };
        let mut at = match top {
            Ok(top) => top,
            Err(error) => {
                by_link |= matches!(error, FsError::Loop);
                continue;
            }
        };
        let mut failed = None;
        for name in &names[above..] {
            left -= 1;
            if left == 0 {
                return Err(too_many(path));
            }
            match at.child(caller, name) {
                Ok(next) => at = next,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        match failed {
            // A mount shows directories in a snapshot that are not of it.
            None if !Volume::is_virtual(at.entry.node) => return Ok(at),
            Some(error @ (FsError::Loop | FsError::InvalidArgument(_))) => {
                return Err(linked(error, path));
            }
            _ => {}
        }
        had.get_or_insert_with(|| names[..above].join(&b'/'));
    }
    let name = snapshot.escape_ascii();
    Err(match had {
        Some(above) => {
            none(format!("snapshot {name} of /{} does not have it", above.escape_ascii()))
        }
        None if by_link => linked(FsError::Loop, path),
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
