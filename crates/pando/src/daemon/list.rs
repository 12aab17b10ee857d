//! Listing directories, streamed in parts of bounded size.

use fs::{FileSystem, Follow, FsResult, Volume, WalkControl};
use inode::{Attr, Caller, FsError, Kind, NodeId};
use wire::{Body, Bytes, Failure, FailureKind, ListEntry};

use super::about::about;
use super::find::{PATH_BYTES_MAX, last_bytes};
use super::held::Held;
use super::replies::Replies;

/// Entries read per call.
const ENTRIES_AT_ONCE: usize = 512;

/// Subdirectories of one directory read at once, to be listed in order of their names.
const DIRECTORIES_AT_ONCE: usize = 1024;

/// Bytes of names of directories that wait to be listed; beyond this, they are read one by one.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// Bytes of names and targets in one message.
const PART_BYTES: usize = 256 << 10;

/// Lists a directory, and those below it when `recursive`; anything else is listed as itself.
pub(super) fn list(
    fs: &Volume,
    caller: &Caller,
    path: &[u8],
    recursive: bool,
    replies: &mut Replies,
) -> Result<(), Failure> {
    let held = Held::shown(fs, caller, path, Follow::Yes)?;
    if held.entry.attr.kind != Kind::Directory {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path).into();
        let entries = vec![ListEntry { name, attr: (&held.entry.attr).into(), target: None }];
        return replies.part(Body::Entries { directory: Bytes::default(), entries });
    }
    let mut walk = ListWalk::new(fs, caller, recursive);
    walk.directory(held.entry.node, replies).map_err(|failure| failure.at(path))?;
    walk.rest(replies)
}

/// A recursive listing of a directory, depth first. Its memory is bounded, however wide and deep
/// the tree is: it holds one path, and for each directory on it the next few names.
struct ListWalk<'a> {
    fs: &'a Volume,
    caller: &'a Caller,
    recursive: bool,
    /// The current path, relative to where the listing began.
    path: Vec<u8>,
    /// The directories on that path.
    levels: Vec<Level>,
    /// Bytes of the names that wait.
    waiting_bytes: usize,
}

/// A directory that has subdirectories.
struct Level {
    /// Held by a lookup of this listing, unless the caller of the listing holds it.
    node: NodeId,
    ours: bool,
    path_bytes: usize,
    /// Its next subdirectories, the first one last.
    names: Vec<Vec<u8>>,
    /// Where to read more of them, if there may be more.
    next: Option<u64>,
}

impl Drop for ListWalk<'_> {
    fn drop(&mut self) {
        for level in self.levels.iter().filter(|level| level.ours) {
            self.fs.forget(level.node, 1);
        }
    }
}

impl<'a> ListWalk<'a> {
    fn new(fs: &'a Volume, caller: &'a Caller, recursive: bool) -> ListWalk<'a> {
        ListWalk { fs, caller, recursive, path: Vec::new(), levels: Vec::new(), waiting_bytes: 0 }
    }

    /// Lists all directories found below. A directory that cannot be listed, or that was removed
    /// meanwhile, is reported as skipped: the rest is still useful.
    fn rest(&mut self, replies: &mut Replies) -> Result<(), Failure> {
        while !self.levels.is_empty() {
            self.step(replies)?;
        }
        Ok(())
    }

    /// Lists the next directory, or reads which one is next.
    fn step(&mut self, replies: &mut Replies) -> Result<(), Failure> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        self.path.truncate(level.path_bytes);
        let Some(name) = level.names.pop() else {
            if let Some(cookie) = level.next.take() {
                if let Err(error) = self.more(cookie) {
                    let failure = about(by_name(error), last_bytes(&self.path));
                    replies.part(Body::Skipped(failure))?;
                }
            } else if let Some(level) = self.levels.pop().filter(|level| level.ours) {
                self.fs.forget(level.node, 1);
            }
            return Ok(());
        };
        let node = level.node;
        self.waiting_bytes -= name.len();
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(&name);
        let listed = if self.path.len() > PATH_BYTES_MAX {
            let message = format!("a path of {} bytes is too long to list", self.path.len());
            let failure = Failure::new(FailureKind::Invalid, message);
            Err(failure.hint("list the directory itself, from a directory above it"))
        } else {
            self.enter(node, &name, replies)
        };
        if let Err(failure) = listed {
            replies.part(Body::Skipped(failure.at(last_bytes(&self.path))))?;
        }
        Ok(())
    }

    /// Lists a directory by its name in its parent.
    fn enter(&mut self, parent: NodeId, name: &[u8], replies: &mut Replies) -> Result<(), Failure> {
        let found = self.fs.lookup(self.caller, parent, name);
        let entry = found.map_err(|error| about(by_name(error), b""))?;
        // Another file may have taken its name.
        let listed = match entry.attr.kind {
            Kind::Directory => self.directory(entry.node, replies),
            _ => Ok(()),
        };
        match self.levels.last_mut().filter(|level| level.node == entry.node && !level.ours) {
            Some(level) => level.ours = true,
            None => self.fs.forget(entry.node, 1),
        }
        listed
    }

    /// Lists the directory at the current path, and records whether it has subdirectories.
    fn directory(&mut self, node: NodeId, replies: &mut Replies) -> Result<(), Failure> {
        let (fs, mut any) = (self.fs, false);
        entries(fs, self.caller, node, &self.path, replies, &mut |_, child, kind| {
            any |= kind == Kind::Directory;
            fs.forget(child, 1);
        })?;
        if self.recursive && any {
            let (path_bytes, names, next) = (self.path.len(), Vec::new(), Some(0));
            self.levels.push(Level { node, ours: false, path_bytes, names, next });
        }
        Ok(())
    }

    /// Reads the next subdirectories, in order of their names as far as they are read at once.
    fn more(&mut self, cookie: u64) -> FsResult<()> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let most = if self.waiting_bytes < WAITING_BYTES_MAX { DIRECTORIES_AT_ONCE } else { 1 };
        let (mut last, mut full) = (cookie, false);
        let names = &mut level.names;
        self.fs.readdir(self.caller, level.node, cookie, &mut |entry| {
            if entry.kind == Kind::Directory {
                if names.len() == most {
                    full = true;
                    return WalkControl::Stop;
                }
                names.push(entry.name.to_vec());
            }
            last = entry.cookie;
            WalkControl::Continue
        })?;
        level.next = full.then_some(last);
        level.names.sort_unstable_by(|one, other| other.cmp(one));
        self.waiting_bytes += level.names.iter().map(Vec::len).sum::<usize>();
        Ok(())
    }
}

/// Sends the entries of one directory. `found` gets each entry with a lookup that it must release.
/// An entry that cannot be read is reported as skipped, and those behind it are sent.
pub(super) fn entries(
    fs: &Volume,
    caller: &Caller,
    node: NodeId,
    relative: &[u8],
    replies: &mut Replies,
    found: &mut dyn FnMut(&[u8], NodeId, Kind),
) -> Result<(), Failure> {
    let mut cookie = 0;
    let mut sent_any = false;
    loop {
        let mut batch: Vec<(Bytes, Option<Attr>)> = Vec::new();
        let before = cookie;
        let read = fs.readdirplus(caller, node, cookie, &mut |entry| {
            if batch.len() >= ENTRIES_AT_ONCE {
                return WalkControl::Stop;
            }
            batch.push((entry.name.into(), entry.attr.copied()));
            cookie = entry.cookie;
            WalkControl::Continue
        });
        let end = cookie == before;
        let mut part = Vec::with_capacity(batch.len());
        let mut bytes = 0;
        for (name, attr) in batch {
            let attr = match attr.map_or_else(|| look(fs, caller, node, &name.0), Ok) {
                Ok(attr) => attr,
                // Removed meanwhile.
                Err(FsError::NotFound | FsError::Stale) => continue,
                Err(error) => {
                    let failure = about(error, &path_below(relative, &name.0));
                    replies.part(Body::Skipped(failure))?;
                    continue;
                }
            };
            // A target that went away meanwhile is left out.
            let target = Some(attr.node).filter(|_| attr.kind == Kind::Symlink);
            let target = target.and_then(|node| fs.readlink(caller, node).ok()).map(Bytes);
            found(&name.0, attr.node, attr.kind);
            bytes += name.0.len() + 64 + target.as_ref().map_or(0, |target| target.0.len());
            part.push(ListEntry { name, attr: (&attr).into(), target });
            if bytes > PART_BYTES {
                let entries = std::mem::take(&mut part);
                replies.part(Body::Entries { directory: relative.into(), entries })?;
                (bytes, sent_any) = (0, true);
            }
        }
        if !part.is_empty() || (end && !sent_any && read.is_ok()) {
            replies.part(Body::Entries { directory: relative.into(), entries: part })?;
            sent_any = true;
        }
        read.map_err(|error| about(by_name(error), b""))?;
        if end {
            return Ok(());
        }
    }
}

/// A listing knows a directory by its name: a removed directory has none.
fn by_name(error: FsError) -> FsError {
    if matches!(error, FsError::Stale) { FsError::NotFound } else { error }
}

/// The target of a name that the listing could not read, with a lookup: the error gives the
/// reason.
fn look(fs: &Volume, caller: &Caller, directory: NodeId, name: &[u8]) -> FsResult<Attr> {
    fs.lookup(caller, directory, name).map(|entry| entry.attr)
}

/// The path of a name in a directory that has a relative path.
fn path_below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use format::entry_record::EntryRecord;
    use format::key;
    use fs::{FormatOptions, Fs, NewNode, OpenOptions};
    use store::{Batch, Commit, TreeId};
    use testing::{MemStore, sim_env};
    use wire::{FailureKind, Reply, decode, read_frame};

    use super::*;
    use crate::daemon::peer_wait::Outgoing;

    /// What a listing sends: the paths, and the skipped ones.
    fn sent(list: impl FnOnce(&mut Replies)) -> (Vec<Vec<u8>>, Vec<Failure>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let read = move || {
            let (mut reader, mut frame) = (BufReader::new(theirs), Vec::new());
            let (mut seen, mut skipped) = (Vec::new(), Vec::new());
            while read_frame(&mut reader, &mut frame).is_ok() {
                match decode::<Reply>(&frame).unwrap().body {
                    Body::Entries { directory, entries } => {
                        let path = |entry: ListEntry| path_below(&directory.0, &entry.name.0);
                        seen.extend(entries.into_iter().map(path));
                    }
                    Body::Skipped(failure) => skipped.push(failure),
                    other => panic!("{other:?}"),
                }
            }
            (seen, skipped)
        };
        device::scope(|scope| {
            let reader = scope.spawn(read);
            let mut replies = Replies::new(Outgoing::for_tests(ours));
            list(&mut replies);
            replies.flush().unwrap();
            drop(replies);
            reader.join().unwrap()
        })
    }

    /// A directory that is removed while it is listed is reported as a name that does not exist,
    /// and the others are listed.
    #[test]
    fn a_directory_removed_meanwhile_is_not_found() {
        let (env, store) = (sim_env(3), Arc::new(MemStore::new()));
        let header = Fs::format_on(&env.env(), &*store, &FormatOptions::default()).unwrap();
        let fs = Fs::open_on(env.env(), store, header, &OpenOptions::default())
            .unwrap()
            .with_virtual_dirs();
        let root = Caller::root();
        for name in [&b"a"[..], b"b", b"c"] {
            let node = fs.mkdir(&root, NodeId::ROOT, name, 0o755).unwrap().node;
            fs.forget(node, 1);
            if name != b"b" {
                let below = fs.mkdir(&root, node, b"below", 0o755).unwrap().node;
                fs.forget(below, 1);
            }
        }
        let mut walk = ListWalk::new(&fs, &root, true);
        let (seen, skipped) = sent(|replies| {
            walk.directory(NodeId::ROOT, replies).unwrap();
            walk.more(0).unwrap();
            walk.levels[0].next = None;
            fs.rmdir(&root, NodeId::ROOT, b"b").unwrap();
            walk.rest(replies).unwrap();
        });
        drop(walk);
        let names = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
        let mut seen: Vec<_> = seen.iter().map(|path| names(path)).collect();
        seen.sort();
        assert_eq!(seen, ["a", "a/below", "b", "c", "c/below"]);
        let reported: Vec<_> =
            skipped.iter().map(|reported| (reported.kind, names(&reported.path.0))).collect();
        assert_eq!(reported, [(FailureKind::NotFound, "b".to_owned())]);
        assert_eq!(skipped[0].message, "no such file or directory");
        assert_eq!(fs.status().unwrap().nodes, 0);
    }

    /// The path in a deep tree is in memory once, and only some names of a wide tree are.
    #[test]
    fn pending_directories_of_a_listing_are_bounded() {
        const DEEP: usize = 100;
        let (env, store) = (sim_env(3), Arc::new(MemStore::new()));
        let header = Fs::format_on(&env.env(), &*store, &FormatOptions::default()).unwrap();
        let fs = Fs::open_on(env.env(), store, header, &OpenOptions::default())
            .unwrap()
            .with_virtual_dirs();
        let root = Caller::root();
        let make = |parent, name: &[u8]| {
            let node = fs.mkdir(&root, parent, name, 0o755).unwrap().node;
            fs.forget(node, 1);
            node
        };
        let mut deep = NodeId::ROOT;
        for _ in 0..DEEP {
            deep = make(deep, &[b'd'; 50]);
        }
        for number in 0..2 * DIRECTORIES_AT_ONCE + 10 {
            make(deep, format!("{number}").as_bytes());
        }
        let mut walk = ListWalk::new(&fs, &root, true);
        let mut most = 0;
        let (seen, skipped) = sent(|replies| {
            walk.directory(NodeId::ROOT, replies).unwrap();
            while !walk.levels.is_empty() {
                let waiting: usize = walk.levels.iter().map(|level| level.names.len()).sum();
                most = most.max(waiting);
                let before = walk.levels.len();
                walk.step(replies).unwrap();
                assert!(walk.levels.len() <= before + 1);
            }
        });
        drop(walk);
        assert_eq!((seen.len(), skipped.len()), (DEEP + 2 * DIRECTORIES_AT_ONCE + 10, 0));
        assert!(most <= DIRECTORIES_AT_ONCE + DEEP, "{most}");
        assert_eq!(fs.status().unwrap().nodes, 0);
    }

    /// A name whose inode cannot be read is reported once, and hides no other name: neither those
    /// before it nor those behind it.
    #[test]
    fn an_unreadable_inode_hides_no_other_name() {
        let (env, store) = (sim_env(3), Arc::new(MemStore::new()));
        let header = Fs::format_on(&env.env(), &*store, &FormatOptions::default()).unwrap();
        let again = Arc::<MemStore>::clone(&store);
        let fs = Fs::open_on(env.env(), again, header, &OpenOptions::default())
            .unwrap()
            .with_virtual_dirs();
        let (root, new) = (Caller::root(), NewNode { kind: Kind::File, mode: 0o644, rdev: 0 });
        let names: Vec<_> = (0..1500).map(|n| format!("f{n}").into_bytes()).collect();
        for name in &names {
            let node = fs.mknod(&root, NodeId::ROOT, name, &new).unwrap().node;
            fs.forget(node, 1);
        }
        let (tree, mut batch) = (TreeId(key::FIRST_TREE), Batch::new());
        for (at, value) in store.dump(tree).unwrap() {
            if let Ok(EntryRecord { name: b"f7" | b"f700", .. }) = EntryRecord::decode(&value) {
                batch.put(tree, &at, &[&value[..], b"?"].concat());
            }
        }
        store.commit(&batch).unwrap();
        let (mut seen, mut skipped) = sent(|replies| {
            let mut found = |_: &[u8], node, _| fs.forget(node, 1);
            entries(&fs, &root, NodeId::ROOT, b"d", replies, &mut found).unwrap();
        });
        seen.sort();
        skipped.sort_by(|one, other| one.path.cmp(&other.path));
        let skipped: Vec<_> =
            skipped.into_iter().map(|reported| (reported.kind, reported.path.0)).collect();
        let mut want: Vec<_> = names.iter().map(|name| path_below(b"d", name)).collect();
        want.retain(|path| path != b"d/f7" && path != b"d/f700");
        want.sort();
        assert_eq!(seen, want);
        let damaged = |path: &[u8]| (FailureKind::Damaged, path.to_vec());
        assert_eq!(skipped, [damaged(b"d/f7"), damaged(b"d/f700")]);
        assert_eq!(fs.status().unwrap().nodes, 0);
    }
}
