//! Makes what an item describes: nodes, their attributes, directories that may exist.

use device::Timestamp;
use format::acl::{ACCESS, DEFAULT};
use fs::{BulkNode, FileSystem, FsResult, NewNode, Volume};
use inode::permissions::SET_GID;
use inode::{Caller, FsError, Kind, NodeId, SetAttr, SetTime};
use wire::ImportAttr;

use super::failed::{Failed, Withheld, is_refused, without_owner};
use super::{DIRECTORY_MODE_MEANWHILE, Import, MODE_MEANWHILE, Made, UNFINISHED_MODE, Xattrs};

impl Import<'_> {
    /// Makes what is neither a directory nor a symbolic link.
    pub(super) fn make_node(&mut self, name: &[u8], kind: Kind, rdev: u32) -> Result<Made, Failed> {
        let parent = self.parent();
        let new = NewNode { kind, mode: MODE_MEANWHILE, rdev };
        self.make(name, |import, name| import.builder.mknod(parent, name, &new))
    }

    /// Sets the attributes of a node: the mode last except for the times, because writing needs
    /// this process's mode. Removes inherited access lists that the source does not have. Returns
    /// what the caller may not set; the rest is set.
    pub(super) fn dress(
        &mut self,
        (node, kind): (BulkNode, Kind),
        attr: &ImportAttr,
        xattrs: &Xattrs<'_>,
        inherits: bool,
    ) -> FsResult<Withheld> {
        let mut withheld = Withheld::default();
        for list in [ACCESS, DEFAULT] {
            if inherits && xattrs.iter().all(|(name, _)| *name != list) {
                self.builder.remove_list(node, list)?;
            }
        }
        for (name, value) in xattrs {
            let set = self.builder.setxattr(node, name, value);
            withheld.take(set, || format!("the attribute {:?}", String::from_utf8_lossy(name)))?;
        }
        self.set_attributes((node, kind), &Import::changes(attr), &mut withheld)?;
        Ok(withheld)
    }

    /// Sets attributes of a node, without the owner or the group that the caller may not give.
    pub(super) fn set_attributes(
        &mut self,
        (node, kind): (BulkNode, Kind),
        changes: &SetAttr,
        withheld: &mut Withheld,
    ) -> FsResult<()> {
        let refused = match self.builder.setattr(node, changes) {
            Err(error) if is_refused(&error) => error,
            done => return done,
        };
        let Some((uid, gid)) = changes.uid.zip(changes.gid) else { return Err(refused) };
        match self.builder.setattr(node, &without_owner(kind, changes, true)) {
            Err(error) if is_refused(&error) => {
                self.builder.setattr(node, &without_owner(kind, changes, false))?;
            }
            done => done?,
        }
        withheld.take(Err(refused), || format!("the owner {uid}:{gid}"))
    }

    /// Marks a directory that was just made: until it has its attributes, it is unfinished.
    pub(super) fn mark(&mut self, directory: BulkNode) -> FsResult<()> {
        let made = self.builder.mode_and_group(directory)?;
        match unfinished(&self.caller, made) {
            Some(mark) => self.builder.setattr(directory, &mark),
            None => Ok(()),
        }
    }

    /// Creates a directory or finds it; either way with a lookup of the caller's own.
    pub(super) fn make_directory(
        fs: &Volume,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
    ) -> FsResult<(NodeId, bool)> {
        match fs.mkdir(caller, parent, name, DIRECTORY_MODE_MEANWHILE) {
            Ok(entry) => {
                let mark = unfinished(caller, (entry.attr.mode, entry.attr.gid));
                let marked = mark.map(|mark| fs.setattr(caller, entry.node, &mark));
                fs.invalidate_entry(parent, name);
                match marked {
                    None | Some(Ok(_)) => Ok((entry.node, false)),
                    Some(Err(error)) => {
                        fs.forget(entry.node, 1);
                        Err(error)
                    }
                }
            }
            Err(FsError::Exists) => {
                Import::find_directory(fs, caller, parent, name).map(|node| (node, true))
            }
            Err(error) => Err(error),
        }
    }

    /// Finds a directory that exists, with a lookup.
    pub(super) fn find_directory(
        fs: &Volume,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
    ) -> FsResult<NodeId> {
        let entry = fs.lookup(caller, parent, name)?;
        let refused = if Volume::is_virtual(entry.node) {
            FsError::NotPermitted("a virtual directory")
        } else if entry.attr.kind == Kind::Directory {
            return Ok(entry.node);
        } else {
            FsError::NotDirectory
        };
        fs.forget(entry.node, 1);
        Err(refused)
    }

    /// The changes that give a node its attributes.
    pub(super) fn changes(attr: &ImportAttr) -> SetAttr {
        SetAttr {
            mode: Some(attr.mode),
            uid: attr.owner.map(|(uid, _)| uid),
            gid: attr.owner.map(|(_, gid)| gid),
            size: None,
            atime: Some(SetTime::At(Timestamp(attr.atime))),
            mtime: Some(SetTime::At(Timestamp(attr.mtime))),
            ctime: None,
            btime: None,
        }
    }
}

/// What marks a directory that was made with this mode and group as unfinished. It keeps the bit by
/// which what is made in it gets its group. `None`: the caller could not set that bit again. Then
/// the mode with which the directory was made marks it.
pub(super) fn unfinished(caller: &Caller, (mode, gid): (u32, u32)) -> Option<SetAttr> {
    let by_group = mode & SET_GID;
    let keeps = by_group == 0 || caller.is_root() || caller.may_be_in(gid);
    keeps.then(|| SetAttr { mode: Some(UNFINISHED_MODE | by_group), ..SetAttr::default() })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use fs::Follow;
    use wire::{Item, Items};

    use super::*;
    use crate::daemon::fresh;
    use crate::daemon::peer_wait::Outgoing;
    use crate::daemon::replies::Replies;

    const TEAM: u32 = 42;
    const ATTR: ImportAttr = ImportAttr { mode: 0o755, owner: None, atime: 0, mtime: 0 };

    /// Regression: the mark of an unfinished directory took the bit by which files get its group.
    #[test]
    fn what_is_imported_into_a_directory_of_a_group_has_that_group() {
        for (trusted, is_member) in [(true, true), (true, false), (false, true), (false, false)] {
            let (fs, root) = (fresh::volume(), Caller::root());
            let mut user = Caller { uid: 7, gid: 7, ..Caller::root() };
            user.groups = if is_member { vec![TEAM] } else { Vec::new() };
            let for_all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
            fs.setattr(&root, NodeId::ROOT, &for_all).unwrap();
            let team = fs.mkdir(&root, NodeId::ROOT, b"team", 0o777).unwrap().node;
            let group = SetAttr { gid: Some(TEAM), mode: Some(0o2777), ..SetAttr::default() };
            fs.setattr(&root, team, &group).unwrap();
            let of = |path: &str| {
                let found = fs.resolve(&root, path.as_bytes(), Follow::No).unwrap();
                fs.forget(found.node, 1);
                (found.attr.mode & 0o7777, found.attr.gid)
            };
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let mut replies = Replies::new(Outgoing::for_tests(ours));
            let (mut import, _) =
                Import::open(&fs, &user, b"/team/a", (true, None), trusted, &mut replies).unwrap();
            let mut items = Items::default();
            let file = || {
                let (name, xattrs, data) = (&b"f"[..], Vec::new(), &b"x"[..]);
                Item::File { name, attr: ATTR, xattrs, data, hold: 0 }
            };
            for item in [file(), Item::Enter { name: b"sub" }, file()] {
                items.push(&item);
            }
            import.items(items.as_bytes()).unwrap();
            import.show();
            // A user who is no member of the group could not set its bit again.
            let marked = if is_member { 0o6700 } else { 0o3700 };
            for path in ["/team/a", "/team/a/sub"] {
                assert_eq!(of(path), (marked, TEAM), "{path} {trusted} {is_member}");
            }
            for path in ["/team/a/f", "/team/a/sub/f"] {
                assert_eq!(of(path), (0o755, TEAM), "{path} {trusted} {is_member}");
            }
            drop(import);
            let (mut again, _) =
                Import::open(&fs, &user, b"/team/a", (true, None), trusted, &mut replies).unwrap();
            let top = fs.resolve(&user, b"/team/a", Follow::No).unwrap().node;
            assert!(again.is_unfinished(top), "{trusted} {is_member}");
            fs.forget(top, 1);
            // One that the user closed in the same way is the user's, not an import's.
            let private = SetAttr { mode: Some(0o1700), ..SetAttr::default() };
            let own = fs.mkdir(&user, NodeId::ROOT, b"own", 0o700).unwrap().node;
            fs.setattr(&user, own, &private).unwrap();
            assert!(!again.is_unfinished(own), "{trusted} {is_member}");
            fs.forget(own, 1);
            again.close().unwrap();
        }
    }

    /// Regression: a file whose owner the caller may not set was not imported.
    #[test]
    fn what_the_caller_may_not_set_is_reported_and_the_rest_is_imported() {
        let (fs, root) = (fresh::volume(), Caller::root());
        let user = Caller { uid: 7, gid: 7, groups: vec![TEAM], ..Caller::root() };
        let for_all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        fs.setattr(&root, NodeId::ROOT, &for_all).unwrap();
        let of = |path: &str| {
            let found = fs.resolve(&root, path.as_bytes(), Follow::No).unwrap();
            fs.forget(found.node, 1);
            (found.attr.mode & 0o7777, found.attr.uid, found.attr.gid, found.attr.mtime.0)
        };
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut replies = Replies::new(Outgoing::for_tests(ours));
        for round in ["new", "replaced"] {
            let (mut import, _) =
                Import::open(&fs, &user, b"/", (true, None), false, &mut replies).unwrap();
            let attr = |gid| ImportAttr { mode: 0o6755, owner: Some((5, gid)), atime: 3, mtime: 4 };
            let (xattrs, data) = (vec![(&b"trusted.x"[..], &b"value"[..])], round.as_bytes());
            let mut items = Items::default();
            for item in [
                Item::File { name: b"f", attr: attr(5), xattrs, data, hold: 0 },
                Item::File { name: b"g", attr: attr(TEAM), xattrs: Vec::new(), data, hold: 0 },
                Item::Symlink { name: b"l", target: data, attr: attr(5), hold: 0 },
                Item::Enter { name: b"d" },
                Item::Leave { attr: attr(5), xattrs: Vec::new() },
            ] {
                items.push(&item);
            }
            import.items(items.as_bytes()).unwrap();
            let wire::Answer::Imported { errors, more: 0 } = import.close().unwrap() else {
                panic!("{round}")
            };
            drop(import);
            let refused = "operation not permitted: only root";
            let expected = [
                ("f", format!("the attribute \"trusted.x\", the owner 5:5: {refused}")),
                ("g", format!("the owner 5:{TEAM}: {refused}")),
                ("l", format!("the owner 5:5: {refused}")),
                ("d", format!("the owner 5:5: {refused}")),
            ];
            assert_eq!(errors.len(), expected.len(), "{errors:?}");
            for (error, (name, without)) in errors.iter().zip(expected) {
                assert_eq!(error.path.0, name.as_bytes());
                let text = format!("imported without {without}");
                assert!(error.message.starts_with(&text), "{error:?}");
                assert_eq!((error.kind, &error.stop), (wire::FailureKind::Permission, &None));
            }
            // Nothing runs as the caller, whom the source does not name.
            assert_eq!(of("/f"), (0o755, 7, 7, 4), "{round}");
            assert_eq!(of("/g"), (0o755, 7, TEAM, 4), "{round}");
            assert_eq!(of("/l").1, 7, "{round}");
            assert_eq!(of("/d"), (0o755, 7, 7, 4), "{round}");
            let found = fs.resolve(&root, b"/f", Follow::No).unwrap();
            let mut bytes = [0; 20];
            let length = fs.read(&root, found.node, 0, &mut bytes).unwrap();
            fs.forget(found.node, 1);
            assert_eq!(&bytes[..length], round.as_bytes());
        }
        assert_eq!(fs.status().unwrap().nodes, 0);
    }
}
