//! Resolves paths of requests with the rights of the caller, and keeps what was found.

use fs::{Entry, FileSystem, Follow, FsResult, Volume};
use inode::permissions::EXECUTE;
use inode::{Caller, FsError, Kind, NodeId};
use wire::{Bytes, Failure, FailureKind};

use super::about::{Answered, about};
use super::find_from;

/// A node found by its path. Dropping this releases the lookup.
pub(super) struct Held<'a> {
    fs: &'a Volume,
    pub(super) entry: Entry,
}

impl<'a> Held<'a> {
    /// Resolves a path to what the volume stores: not to a directory of snapshots. Where no name
    /// matches `DIR@SNAPSHOT` literally, it is resolved as a snapshot of DIR.
    pub(super) fn resolve(
        fs: &'a Volume,
        caller: &Caller,
        path: &[u8],
        follow: Follow,
    ) -> Answered<Held<'a>> {
        Held::shown(fs, caller, path, follow)?.stored(path)
    }

    /// Refuses what a mount shows and the volume does not store.
    pub(super) fn stored(self, path: &[u8]) -> Answered<Held<'a>> {
        if Volume::is_virtual(self.entry.node) {
            return Err(of_snapshots(path));
        }
        Ok(self)
    }

    /// Like [`Held::resolve`], but also finds what a mount shows and the volume does not store.
    pub(super) fn shown(
        fs: &'a Volume,
        caller: &Caller,
        path: &[u8],
        follow: Follow,
    ) -> Answered<Held<'a>> {
        let found = match fs.resolve(caller, path, follow) {
            Err(error @ (FsError::NotFound | FsError::NotDirectory)) => {
                let inside = find_from::in_snapshot(fs, caller, path, follow);
                let inside = inside.and_then(|inside| inside.ok_or(error));
                inside.and_then(|path| fs.resolve(caller, &path, follow))
            }
            found => found,
        };
        let entry = found.map_err(|error| {
            let failure = about(error, path);
            if failure.kind == FailureKind::NotFound && path.contains(&b'@') {
                return failure.hint("`pando snapshot list DIR` lists its snapshots");
            }
            failure
        })?;
        Ok(Held { fs, entry })
    }

    /// Resolves a path literally: `DIR@SNAPSHOT` is a name like any other.
    pub(super) fn exactly(
        fs: &'a Volume,
        caller: &Caller,
        path: &[u8],
        follow: Follow,
    ) -> Answered<Held<'a>> {
        let found = fs.resolve(caller, path, follow);
        let entry = found.map_err(|error| about(error, path))?;
        Ok(Held { fs, entry })
    }

    /// Whether the caller sees something at a path that the volume itself reported. An error other
    /// than that nothing is there, or nothing that this caller sees, is none of these answers.
    pub(super) fn is_seen(fs: &'a Volume, caller: &Caller, path: &[u8]) -> Answered<bool> {
        match Held::exactly(fs, caller, path, Follow::No) {
            Ok(_) => Ok(true),
            Err(failure) => match failure.kind {
                FailureKind::NotFound | FailureKind::NotDirectory | FailureKind::Permission => {
                    Ok(false)
                }
                _ => Err(failure),
            },
        }
    }

    /// What is at a path below this, with the rights of the caller. No symbolic link is followed:
    /// one on the way is [`FsError::Loop`], and the last one is what is found.
    pub(super) fn without_links(self, caller: &Caller, path: &[u8]) -> FsResult<Held<'a>> {
        let mut at = self;
        for name in names(path) {
            at = at.child(caller, name)?;
        }
        Ok(at)
    }

    /// An entry of this directory, with the rights of the caller; [`FsError::Loop`] if this is a
    /// symbolic link.
    pub(super) fn child(&self, caller: &Caller, name: &[u8]) -> FsResult<Held<'a>> {
        match self.entry.attr.kind {
            Kind::Directory => self.fs.access(caller, self.entry.node, EXECUTE)?,
            Kind::Symlink => return Err(FsError::Loop),
            _ => return Err(FsError::NotDirectory),
        }
        if name == b".." {
            return Err(FsError::InvalidArgument("a path with `..` in it"));
        }
        let entry = self.fs.lookup(caller, self.entry.node, name)?;
        Ok(Held { fs: self.fs, entry })
    }

    /// The target, if it is a symbolic link.
    pub(super) fn target(&self, caller: &Caller, path: &[u8]) -> Answered<Option<Bytes>> {
        if self.entry.attr.kind != Kind::Symlink {
            return Ok(None);
        }
        match self.fs.readlink(caller, self.entry.node) {
            Ok(target) => Ok(Some(Bytes(target))),
            Err(error) => Err(about(error, path)),
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.fs.forget(self.entry.node, 1);
    }
}

/// Names of a path that are looked up.
pub(super) fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."))
}

/// Why nothing can be done with a directory of snapshots itself.
pub(super) fn of_snapshots(path: &[u8]) -> Failure {
    about(FsError::NotPermitted("a directory of snapshots"), path).hint(
        "name the directory that it belongs to; `pando snapshot list DIR` lists its snapshots, \
         `pando snapshot delete DIR NAME` deletes one",
    )
}

/// Calls a function with the directory at a path.
pub(super) fn at<T>(
    fs: &Volume,
    caller: &Caller,
    path: &[u8],
    then: impl FnOnce(NodeId) -> FsResult<T>,
) -> Answered<T> {
    let held = Held::resolve(fs, caller, path, Follow::Yes)?;
    then(held.entry.node).map_err(|error| about(error, path))
}

/// Calls a function with the parent directory and the name in it.
pub(super) fn below<T>(
    fs: &Volume,
    caller: &Caller,
    path: &[u8],
    then: impl FnOnce(NodeId, &[u8]) -> FsResult<T>,
) -> Answered<T> {
    let (parent, name) = split(path)?;
    let held = Held::resolve(fs, caller, parent, Follow::Yes)?;
    then(held.entry.node, name).map_err(|error| {
        let failure = about(error, path);
        if failure.kind == FailureKind::NotFound
            && matches!(find_from::in_snapshot(fs, caller, path, Follow::No), Ok(Some(_)))
        {
            return failure.hint("that is a snapshot, which is read-only");
        }
        failure
    })
}

/// Divides a path into the directory and the name in it.
pub(super) fn split(path: &[u8]) -> Answered<(&[u8], &[u8])> {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let name = &path[start..end];
    if matches!(name, b"" | b"." | b"..") {
        let message = if end == 0 {
            "that is the root of the volume; expected a path in it"
        } else {
            "the path must end with a name"
        };
        let failure = Failure::new(FailureKind::Invalid, message).at(path);
        return Err(failure.hint("end the path with the name, as in /dir/name"));
    }
    Ok((if start == 0 { b"/" } else { &path[..start] }, name))
}

#[cfg(test)]
mod tests {
    use super::{FailureKind, split};

    #[test]
    fn paths_are_split_at_the_last_name() {
        assert_eq!(split(b"/a/b//").unwrap(), (&b"/a/"[..], &b"b"[..]));
        assert_eq!(split(b"/a").unwrap(), (&b"/"[..], &b"a"[..]));
        for path in [&b"/"[..], b"", b"///", b"/a/..", b"/."] {
            let failure = split(path).expect_err("it ends with no name");
            let (kind, is_root) = (failure.kind, failure.message.contains("the root of"));
            let is_only_slashes = path.iter().all(|byte| *byte == b'/');
            assert_eq!((kind, is_root), (FailureKind::Invalid, is_only_slashes), "{failure:?}");
        }
    }
}
