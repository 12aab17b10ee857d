//! Replaces files. What has the name stays until what replaces it is complete. That is made under a
//! hidden name of the same directory, and renamed over it at its end. So a source that cannot be
//! read, a quota, a full disk or a killed daemon costs nobody the old file.
//!
//! A hidden name has the number of the daemon that made it, and a number of its own. One with the
//! number of another daemon is left of a daemon that was killed: a volume has one daemon at a time.
//! An import that lists the directory, or replaces a single file in it, removes it.
//!
//! Below a hidden directory, and in a directory that this import made, nobody else has seen what is
//! replaced. It is removed before, so that drafts replace drafts, and so that nothing of another
//! import stays.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Clock, SystemClock};
use fs::{BulkNode, FileSystem, FsResult, RenameMode};
use inode::{FsError, Kind, NodeId};

use wire::Failure;

use super::failed::{Failed, Withheld};
use super::{Begun, Import, Made};
use crate::daemon::list;
use crate::daemon::replies::Replies;

/// How hidden names begin; the numbers of the daemon and of the name follow.
const HIDDEN: &str = ".pando-import-new.";

/// How many hidden names are tried. Other users may have made some of them.
const NAMES_TRIED: usize = 1000;

impl<'a> Import<'a> {
    /// Makes something in the current directory. If the name is taken, it is made under another
    /// one, until [`settle`](Self::settle).
    pub(super) fn make(
        &mut self,
        name: &[u8],
        make: impl Fn(&mut Import<'a>, &[u8]) -> FsResult<BulkNode>,
    ) -> Result<Made, Failed> {
        let parent = self.parent();
        match make(self, name) {
            Err(FsError::Exists) => {}
            made => return Ok(Made { node: made?, parent, hidden: None }),
        }
        let at = self.builder.node(parent)?;
        let old = self.fs.lookup(&self.caller, at, name)?;
        self.fs.forget(old.node, 1);
        let is_own = self.levels.last().is_some_and(|level| level.closed);
        if is_own || self.above.is_some() {
            self.fs.unlink(&self.caller, at, name)?;
            // Its other names show the new link count.
            self.fs.invalidate_attributes(old.node);
            return Ok(Made { node: make(self, name)?, parent, hidden: None });
        }
        if old.attr.kind == Kind::Directory {
            return Err(FsError::IsDirectory.into());
        }
        for _ in 0..NAMES_TRIED {
            let hidden = hidden_name();
            match make(self, &hidden) {
                Err(FsError::Exists) => {}
                Ok(node) => return Ok(Made { node, parent, hidden: Some(hidden) }),
                Err(error) => return Err(Failed { error, replaces: true }),
            }
        }
        Err(FsError::Exists.into())
    }

    /// Gives what was made its name, or removes it if it is not complete. It is complete without
    /// what the caller may not set, which is reported.
    #[expect(clippy::needless_pass_by_value, reason = "what was made is settled once")]
    pub(super) fn settle(
        &mut self,
        made: Made,
        name: &[u8],
        done: FsResult<Withheld>,
    ) -> Result<BulkNode, Failed> {
        let shown = done.and_then(|withheld| self.shown(&made, name).map(|()| withheld));
        match shown {
            Ok(withheld) => {
                self.withheld(name, &withheld);
                Ok(made.node)
            }
            Err(error) => {
                self.discard(&made, name);
                Err(Failed { error, replaces: made.hidden.is_some() })
            }
        }
    }

    /// Gives what was made its name.
    fn shown(&mut self, made: &Made, name: &[u8]) -> FsResult<()> {
        let Some(hidden) = &made.hidden else { return Ok(()) };
        let parent = made.parent.id();
        let old = self.fs.lookup(&self.caller, parent, name).map(|old| {
            self.fs.forget(old.node, 1);
            old.node
        });
        let (from, to) = ((parent, &hidden[..]), (parent, name));
        self.fs.rename(&self.caller, from, to, RenameMode::Replace)?;
        self.fs.invalidate_entry(parent, hidden);
        if let Ok(old) = old {
            self.fs.invalidate_attributes(old);
        }
        Ok(())
    }

    /// Removes a file that got no end: it must not stay under its name as if it were complete.
    pub(super) fn drop_begun(&mut self) {
        if let Some(Begun { made, name, .. }) = self.begun.take() {
            self.discard(&made, &name);
        }
    }

    /// Removes what was made and is not complete.
    fn discard(&mut self, made: &Made, name: &[u8]) {
        let Made { node, parent, hidden } = made;
        let name = hidden.as_deref().unwrap_or(name);
        let visible = self.builder.node(*node).and_then(|_| self.builder.node(*parent));
        if let Ok(parent) = visible
            && let Ok(there) = self.fs.lookup(&self.caller, parent, name)
        {
            self.fs.forget(there.node, 1);
            if there.node == node.id() {
                self.remove(parent, name);
            }
        }
        self.builder.release(*node);
    }

    /// Sends the entries of a directory, and removes what a daemon left in it.
    pub(super) fn list(&self, node: NodeId, replies: &mut Replies) -> Result<(), Failure> {
        let mut left = Vec::new();
        list::entries(self.fs, &self.caller, node, b"", replies, &mut |name, child, _| {
            self.fs.forget(child, 1);
            if is_left(name) {
                left.push(name.to_vec());
            }
        })?;
        self.remove_left(node, &left);
        Ok(())
    }

    /// Removes what a daemon left in a directory that is not listed otherwise.
    pub(super) fn sweep(&self, directory: NodeId) {
        let mut left = Vec::new();
        let listed = self.fs.readdir(&self.caller, directory, 0, &mut |entry| {
            if is_left(entry.name) {
                left.push(entry.name.to_vec());
            }
            fs::WalkControl::Continue
        });
        if let Err(error) = listed {
            tracing::debug!(%error, "what a daemon left is not looked for");
        }
        self.remove_left(directory, &left);
    }

    /// Removes hidden names that a daemon left in a directory, as far as the caller may.
    fn remove_left(&self, directory: NodeId, names: &[Vec<u8>]) {
        for name in names {
            let Ok(there) = self.fs.lookup(&self.caller, directory, name) else { continue };
            self.fs.forget(there.node, 1);
            let is_own = self.caller.is_root() || there.attr.uid == self.caller.uid;
            if is_own && there.attr.kind != Kind::Directory {
                self.remove(directory, name);
            }
        }
    }

    fn remove(&self, parent: NodeId, name: &[u8]) {
        let removed = self.fs.unlink(&self.caller, parent, name);
        if let Err(error) = removed {
            tracing::debug!(%error, "a file that is not complete stays");
        }
        self.fs.invalidate_entry(parent, name);
    }
}

/// The number of this daemon in hidden names: no other daemon of a volume has it.
fn daemon() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| SystemClock::new().now().0.cast_unsigned())
}

fn hidden_name() -> Vec<u8> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{HIDDEN}{:016x}.{number}", daemon()).into_bytes()
}

/// Whether a daemon that ended left a hidden name.
fn is_left(name: &[u8]) -> bool {
    let Some(numbers) = name.strip_prefix(HIDDEN.as_bytes()) else { return false };
    let Some((daemon_part, rest)) = numbers.split_at_checked(16) else { return false };
    let is_hex = daemon_part.iter().all(u8::is_ascii_hexdigit);
    let is_number = rest.len() > 1 && rest[0] == b'.' && rest[1..].iter().all(u8::is_ascii_digit);
    is_hex && is_number && daemon_part != format!("{:016x}", daemon()).as_bytes()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use fs::{Follow, NewNode, Volume};
    use inode::{Caller, SetAttr};
    use wire::{Answer, FailureKind, ImportAttr, Item, Items};

    use super::*;
    use crate::daemon::fresh;
    use crate::daemon::peer_wait::Outgoing;

    const ATTR: ImportAttr = ImportAttr { mode: 0o644, owner: None, atime: 0, mtime: 0 };

    fn done(import: &mut Import<'_>, items: &[Item<'_>]) -> usize {
        let mut encoded = Items::default();
        for item in items {
            encoded.push(item);
        }
        import.items(encoded.as_bytes()).unwrap();
        let Answer::Imported { errors, .. } = import.take_errors().unwrap() else { unreachable!() };
        errors.len()
    }

    fn file<'a>(name: &'a [u8], data: &'a [u8]) -> Item<'a> {
        Item::File { name, attr: ATTR, xattrs: Vec::new(), data, hold: 0 }
    }

    fn text(fs: &Volume, path: &str) -> Vec<u8> {
        let root = Caller::root();
        let found = fs.resolve(&root, path.as_bytes(), Follow::No).unwrap();
        let mut buffer = vec![0; 100];
        let length = fs.read(&root, found.node, 0, &mut buffer).unwrap();
        fs.forget(found.node, 1);
        buffer.truncate(length);
        buffer
    }

    fn names(fs: &Volume) -> Vec<String> {
        let (mut names, mut nodes) = (Vec::new(), Vec::new());
        let listed = fs.readdirplus(&Caller::root(), NodeId::ROOT, 0, &mut |entry| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            nodes.extend(entry.attr.map(|attr| attr.node));
            fs::WalkControl::Continue
        });
        listed.unwrap();
        for node in nodes {
            fs.forget(node, 1);
        }
        names.retain(|name| name != "." && name != "..");
        names.sort();
        names
    }

    /// An import into a directory, with its answers and who reads them.
    fn open<'a>(fs: &'a Volume, who: &Caller, path: &[u8]) -> (Import<'a>, Replies, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut replies = Replies::new(Outgoing::for_tests(ours));
        let opened = Import::open(fs, who, path, (true, None), who.is_root(), &mut replies);
        (opened.unwrap().0, replies, theirs)
    }

    /// Regression: the old file was removed before the new one was complete.
    #[test]
    fn a_file_stays_until_what_replaces_it_is_complete() {
        let (fs, root) = (fresh::volume(), Caller::root());
        let open = || open(&fs, &root, b"/").0;
        let mut import = open();
        assert_eq!(done(&mut import, &[file(b"f", b"old"), file(b"g", b"old")]), 0);
        let begun = [Item::Begin { name: b"f" }, Item::Data { offset: 0, bytes: b"new" }];
        let end = || Item::End { size: 3, attr: ATTR, xattrs: Vec::new(), hold: 0 };
        // Another item follows, the import ends, or its directory changes.
        assert_eq!(done(&mut import, &begun), 0);
        assert_eq!(text(&fs, "/f"), b"old");
        assert_eq!(done(&mut import, &[file(b"h", b"other")]), 0);
        assert_eq!(
            (text(&fs, "/f"), names(&fs)),
            (b"old".to_vec(), ["f", "g", "h"].map(String::from).to_vec())
        );
        assert_eq!(done(&mut import, &begun), 0);
        drop(import);
        assert_eq!((text(&fs, "/f"), names(&fs).len()), (b"old".to_vec(), 3));
        // What cannot be dressed is not complete.
        let mut import = open();
        let xattrs = vec![(&b"no name space"[..], &b"value"[..])];
        let refused = [
            Item::File { name: b"g", attr: ATTR, xattrs: xattrs.clone(), data: b"new", hold: 0 },
            Item::File { name: b"none", attr: ATTR, xattrs, data: b"new", hold: 0 },
        ];
        assert_eq!(done(&mut import, &refused), 2);
        assert_eq!((text(&fs, "/g"), names(&fs).len()), (b"old".to_vec(), 3));
        // Complete.
        assert_eq!(done(&mut import, &[&begun[..], &[end()]].concat()), 0);
        assert_eq!(done(&mut import, &[file(b"g", b"new")]), 0);
        assert_eq!((text(&fs, "/f"), text(&fs, "/g")), (b"new".to_vec(), b"new".to_vec()));
        // A directory is replaced by nothing.
        fs.mkdir(&root, NodeId::ROOT, b"d", 0o700).map(|made| fs.forget(made.node, 1)).unwrap();
        assert_eq!(done(&mut import, &[file(b"d", b"new")]), 1);
        import.close().unwrap();
        drop(import);
        assert_eq!(names(&fs), ["d", "f", "g", "h"]);
        assert_eq!(fs.status().unwrap().nodes, 0);
    }

    /// A daemon that is killed leaves a hidden name, and the next import removes it. Names of this
    /// daemon, of another user and other names stay.
    #[test]
    fn what_a_killed_daemon_left_is_removed() {
        let (fs, root) = (fresh::volume(), Caller::root());
        let mut user = Caller { uid: 7, gid: 7, ..Caller::root() };
        user.groups = Vec::new();
        let for_all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        fs.setattr(&root, NodeId::ROOT, &for_all).unwrap();
        let own = String::from_utf8(hidden_name()).unwrap();
        let others =
            [".pando-import-new.0123456789abcdef.5", ".pando-import-new.0123456789abcdef.6"];
        let kept = [own.as_str(), ".pando-import-new.0123456789abcdef", ".pando-import-new.x"];
        let new = NewNode { kind: Kind::File, mode: 0o600, rdev: 0 };
        for (name, caller) in
            kept.iter().map(|name| (*name, &user)).chain([(others[0], &user), (others[1], &root)])
        {
            let made = fs.mknod(caller, NodeId::ROOT, name.as_bytes(), &new).unwrap();
            fs.forget(made.node, 1);
        }
        drop(open(&fs, &user, b"/"));
        let left = names(&fs);
        assert!(left.len() == 4 && !left.contains(&others[0].to_owned()), "{left:?}");
        drop(open(&fs, &root, b"/"));
        assert_eq!(names(&fs).len(), 3);
        assert_eq!(fs.status().unwrap().nodes, 0);
    }

    /// Regression: what followed a directory that cannot be listed was made below it.
    #[test]
    fn a_directory_that_is_refused_does_not_stay_the_current_one() {
        let (fs, root) = (fresh::volume(), Caller::root());
        let mut user = Caller { uid: 7, gid: 7, ..Caller::root() };
        user.groups = Vec::new();
        let own = fs.mkdir(&root, NodeId::ROOT, b"a", 0o777).unwrap().node;
        let closed = fs.mkdir(&root, own, b"closed", 0o733).unwrap().node;
        for (node, mode) in [(own, 0o777), (closed, 0o733)] {
            let mode = SetAttr { mode: Some(mode), ..SetAttr::default() };
            fs.setattr(&root, node, &mode).unwrap();
            fs.forget(node, 1);
        }
        let (mut import, mut replies, _theirs) = open(&fs, &user, b"/a");
        let refused = import.enter_existing(b"closed", &mut replies).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Permission);
        assert_eq!(done(&mut import, &[file(b"f", b"text")]), 0);
        import.close().unwrap();
        drop(import);
        assert_eq!(text(&fs, "/a/f"), b"text");
        assert!(matches!(fs.resolve(&root, b"/a/closed/f", Follow::No), Err(FsError::NotFound)));
        assert_eq!(fs.status().unwrap().nodes, 0);
    }

    /// Regression: a hidden name that somebody else had made ended the import of the file.
    #[test]
    fn another_hidden_name_is_taken_where_one_is_in_use() {
        let (fs, root) = (fresh::volume(), Caller::root());
        let mut import = open(&fs, &root, b"/").0;
        assert_eq!(done(&mut import, &[file(b"f", b"old")]), 0);
        let own = String::from_utf8(hidden_name()).unwrap();
        let (stem, number) = own.rsplit_once('.').unwrap();
        let first: u64 = number.parse().unwrap();
        // Other tests may take some of them.
        let new = NewNode { kind: Kind::File, mode: 0o600, rdev: 0 };
        for number in first..first + 100 {
            let name = format!("{stem}.{number}");
            let made = fs.mknod(&root, NodeId::ROOT, name.as_bytes(), &new).unwrap();
            fs.forget(made.node, 1);
        }
        assert_eq!(done(&mut import, &[file(b"f", b"new")]), 0);
        assert_eq!(text(&fs, "/f"), b"new");
        import.close().unwrap();
        drop(import);
        assert_eq!(names(&fs).len(), 101);
        assert_eq!(fs.status().unwrap().nodes, 0);
    }

    /// An import of one file lists no directory. It removes what a killed daemon left beside it.
    #[test]
    fn an_import_of_one_file_removes_what_is_left_beside_it() {
        let (fs, root) = (fresh::volume(), Caller::root());
        let new = NewNode { kind: Kind::File, mode: 0o600, rdev: 0 };
        for name in [&b"f"[..], b".pando-import-new.0123456789abcdef.5"] {
            let made = fs.mknod(&root, NodeId::ROOT, name, &new).unwrap();
            fs.forget(made.node, 1);
        }
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut replies = Replies::new(Outgoing::for_tests(ours));
        let opened = Import::open(&fs, &root, b"/f", (false, None), true, &mut replies);
        let mut import = opened.unwrap().0;
        assert_eq!(names(&fs), ["f"]);
        assert_eq!(done(&mut import, &[file(b"any", b"new")]), 0);
        import.close().unwrap();
        drop(import);
        assert_eq!((text(&fs, "/f"), names(&fs).len()), (b"new".to_vec(), 1));
        assert_eq!(fs.status().unwrap().nodes, 0);
    }
}
