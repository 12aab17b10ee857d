//! Listing directories, streamed in parts of bounded size.

use fs::{FileSystem, Follow, Fs, WalkControl};
use inode::{Caller, FsError, Kind, NodeId};
use wire::{Body, Bytes, Failure, ListEntry};

use super::calls::{Held, about};
use super::connection::Replies;

/// Entries that are read at once.
const ENTRIES_AT_ONCE: usize = 512;

/// Bytes of names and targets in one message.
const PART_BYTES: usize = 256 << 10;

/// Lists a directory, and those below when `recursive`; something else lists itself.
pub(super) fn list(
    fs: &Fs,
    caller: &Caller,
    path: &[u8],
    recursive: bool,
    replies: &mut Replies,
) -> Result<(), Failure> {
    let held = Held::resolve(fs, caller, path, Follow::Yes)?;
    if held.entry.attr.kind != Kind::Directory {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path).into();
        let entries = vec![ListEntry { name, attr: (&held.entry.attr).into(), target: None }];
        return replies.part(Body::Entries { directory: Bytes::default(), entries });
    }
    let mut walk = Walk { fs, caller, below: Vec::new(), recursive };
    walk.directory(held.entry.node, b"", replies).map_err(|failure| failure.at(path))?;
    while let Some((relative, node)) = walk.below.pop() {
        let listed = walk.directory(node, &relative, replies);
        fs.forget(node, 1);
        if let Err(failure) = listed {
            // The other directories are still of use.
            replies.part(Body::Skipped(failure.at(&relative)))?;
        }
    }
    Ok(())
}

/// Directories that are still to be listed, each with a look-up of ours.
struct Walk<'a> {
    fs: &'a Fs,
    caller: &'a Caller,
    below: Vec<(Vec<u8>, NodeId)>,
    recursive: bool,
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        for (_, node) in &self.below {
            self.fs.forget(*node, 1);
        }
    }
}

impl Walk<'_> {
    fn directory(
        &mut self,
        node: NodeId,
        relative: &[u8],
        replies: &mut Replies,
    ) -> Result<(), Failure> {
        let (fs, recursive) = (self.fs, self.recursive);
        let below = &mut self.below;
        let first_new = below.len();
        entries(self.fs, self.caller, node, relative, replies, &mut |name, child, kind| {
            if recursive && kind == Kind::Directory {
                let mut path = relative.to_vec();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
                below.push((path, child));
            } else {
                fs.forget(child, 1);
            }
        })?;
        // Taken from the end, so that directories come in order of their names.
        below[first_new..].sort_unstable_by(|one, other| other.0.cmp(&one.0));
        Ok(())
    }
}

/// Sends the entries of one directory. `found` gets each with a look-up that it must give back.
pub(super) fn entries(
    fs: &Fs,
    caller: &Caller,
    node: NodeId,
    relative: &[u8],
    replies: &mut Replies,
    found: &mut dyn FnMut(&[u8], NodeId, Kind),
) -> Result<(), Failure> {
    let mut cookie = 0;
    let mut sent_any = false;
    loop {
        let mut batch: Vec<(ListEntry, NodeId, Kind)> = Vec::new();
        let before = cookie;
        let mut unreadable = None;
        let read = fs.readdirplus(caller, node, cookie, &mut |entry| {
            if batch.len() >= ENTRIES_AT_ONCE {
                return WalkControl::Stop;
            }
            let Some(attr) = entry.attr else {
                unreadable = Some(entry.name.to_vec());
                return WalkControl::Stop;
            };
            let listed = ListEntry { name: entry.name.into(), attr: attr.into(), target: None };
            batch.push((listed, entry.node, entry.kind));
            cookie = entry.cookie;
            WalkControl::Continue
        });
        let end = cookie == before;
        let mut part = Vec::with_capacity(batch.len());
        let mut bytes = 0;
        for (mut listed, child, kind) in batch {
            if kind == Kind::Symlink {
                // One that went away meanwhile is listed without.
                listed.target = fs.readlink(caller, child).ok().map(Bytes);
            }
            found(&listed.name.0, child, kind);
            bytes += listed.name.0.len() + 64;
            bytes += listed.target.as_ref().map_or(0, |target| target.0.len());
            part.push(listed);
            if bytes > PART_BYTES {
                let entries = std::mem::take(&mut part);
                replies.part(Body::Entries { directory: relative.into(), entries })?;
                (bytes, sent_any) = (0, true);
            }
        }
        read.map_err(|error| about(error, b""))?;
        if let Some(name) = unreadable {
            // It says why. One that was removed meanwhile is not met again.
            match fs.lookup(caller, node, &name) {
                Ok(entry) => fs.forget(entry.node, 1),
                Err(FsError::NotFound) => {}
                Err(error) => return Err(about(error, &name)),
            }
            continue;
        }
        if !part.is_empty() || (end && !sent_any) {
            replies.part(Body::Entries { directory: relative.into(), entries: part })?;
            sent_any = true;
        }
        if end {
            return Ok(());
        }
    }
}
