//! `--like FILE`: the file to which others must be similar, wherever it is stored.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use format::inode_record::FileKind;
use search::Row;
use search::cluster::Like;
use wire::{Answer, Attr, Call, Kind};

use crate::failure::{self, Result};
use crate::place::{Last, VolumePath};
use crate::session;

/// Number of rows when no limit is given.
pub(crate) const LIMIT: u64 = 10;

/// The file to compare with, and its inode number if it is in the volume that is searched.
pub(crate) struct Model {
    pub(crate) like: Like,
    pub(crate) node: Option<u64>,
}

/// A row from the known attributes of a file.
pub(crate) fn row<'a>(attr: &Attr, name: &'a [u8]) -> Row<'a> {
    Row {
        directory: 0,
        cookie: 0,
        ino: attr.node,
        name,
        kind: match attr.kind {
            Kind::File => FileKind::File,
            Kind::Directory => FileKind::Directory,
            Kind::Symlink => FileKind::Symlink,
            Kind::Fifo => FileKind::Fifo,
            Kind::Socket => FileKind::Socket,
            Kind::CharDevice => FileKind::CharDevice,
            Kind::BlockDevice => FileKind::BlockDevice,
        },
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink,
        rdev: attr.rdev,
        size: attr.size,
        allocated: attr.blocks.saturating_mul(512),
        entries: 0,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
        btime: attr.btime,
        subvolume: 0,
        xattrs: b"",
    }
}

/// Attributes of a file on any file system.
fn outside(path: &Path) -> Result<Attr> {
    let found = path.symlink_metadata().map_err(|error| failure::io("look at", path, &error))?;
    let nanos =
        |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    let of = found.file_type();
    let kinds = [
        (of.is_dir(), Kind::Directory),
        (of.is_symlink(), Kind::Symlink),
        (of.is_fifo(), Kind::Fifo),
        (of.is_socket(), Kind::Socket),
        (of.is_char_device(), Kind::CharDevice),
        (of.is_block_device(), Kind::BlockDevice),
    ];
    let kind = kinds.into_iter().find_map(|(is, kind)| is.then_some(kind));
    Ok(Attr {
        node: found.ino(),
        kind: kind.unwrap_or(Kind::File),
        mode: found.mode() & 0o7777,
        nlink: u32::try_from(found.nlink()).unwrap_or(u32::MAX),
        uid: found.uid(),
        gid: found.gid(),
        rdev: 0,
        size: found.size(),
        blocks: found.blocks(),
        atime: nanos(found.atime(), found.atime_nsec()),
        mtime: nanos(found.mtime(), found.mtime_nsec()),
        ctime: nanos(found.ctime(), found.ctime_nsec()),
        btime: 0,
    })
}

/// Reads a file: below a mount or elsewhere, or `VOLDIR:/path`. `volume` is the one that is
/// searched.
pub(crate) fn model(path: &Path, volume: Option<&Path>) -> Result<Model> {
    let signed = path.as_os_str().as_bytes().contains(&b'@') && path.symlink_metadata().is_err();
    let place =
        VolumePath::split(path).or_else(|| signed.then(|| VolumePath::reading(path, Last::Link)));
    let (attr, ours) = match place {
        Some(place) => {
            let place = place?;
            let answer = session::ask(&place, &Call::Stat { path: &place.inner })?;
            let Answer::Stat(stat) = answer else { return Err(session::unexpected(&answer)) };
            (stat.attr, Some(place.volume))
        }
        None => {
            (outside(path)?, VolumePath::locate(path, Last::Link).ok().map(|place| place.volume))
        }
    };
    let name = path.file_name().map_or(&b""[..], OsStrExt::as_bytes);
    let ours = ours.is_some() && ours.as_deref() == volume;
    Ok(Model { like: Like::new(&row(&attr, name)), node: ours.then_some(attr.node) })
}
