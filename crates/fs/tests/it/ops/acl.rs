//! Access control lists: what is stored of them, how they relate to the mode, who inherits them,
//! and which access they grant.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use format::acl::{ACCESS, Acl, BYTES_MAX, DEFAULT};
use format::directory_record::DirectoryRecord;
use format::key::{self, Part};
use fs::{FileSystem, Paths, SetXattr};
use inode::permissions::{HAS_ACL, READ};
use inode::{Attr, Caller, FsError, NodeId, SetAttr};
use search::Outcome;
use search::cluster::Fields;
use search::query::{Expr, Test};
use store::{Batch, Commit, Read, TreeId};
use testing::SetAtEnd;

use crate::search::Everybody;
use crate::support::{Volume, refused, user, volume};

fn list(users: &[(u32, u32)], groups: &[(u32, u32)], mask: Option<u32>, mode: u32) -> Vec<u8> {
    let (users, groups) = (users.to_vec(), groups.to_vec());
    Acl { users, groups, mask, ..Acl::of_mode(mode) }.encode()
}

fn set(v: &Volume, who: &Caller, node: NodeId, name: &[u8], value: &[u8]) -> Result<(), FsError> {
    v.fs.setxattr(who, node, name, value, SetXattr::Any)
}

fn get(v: &Volume, node: NodeId, name: &[u8]) -> Option<Acl> {
    match v.fs.getxattr(&Caller::root(), node, name) {
        Ok(bytes) => Acl::decode(&bytes).expect("a list"),
        Err(FsError::NoAttribute) => None,
        Err(error) => panic!("{error}"),
    }
}

fn attr(v: &Volume, node: NodeId) -> Attr {
    v.fs.getattr(&Caller::root(), node).expect("attributes")
}

fn chmod(v: &Volume, who: &Caller, node: NodeId, mode: u32) {
    let changes = SetAttr { mode: Some(mode), ..SetAttr::default() };
    v.fs.setattr(who, node, &changes).expect("the owner changes the mode");
}

/// Paths of a search, and how it went.
fn found(v: &Volume, who: &Caller, path: &str, expr: &Expr) -> (Vec<String>, Outcome) {
    let find = fs::Find {
        expr,
        prune: None,
        min_depth: 0,
        max_depth: None,
        contents_first: false,
        order: None,
        limit: None,
        fields: Fields::ATTRIBUTES,
        accounts: &Everybody,
        cancel: &AtomicBool::new(false),
    };
    let mut paths = Vec::new();
    let outcome =
        v.fs.find(who, path.as_bytes(), fs::Follow::No, path.as_bytes(), &find, &mut |found| {
            paths.push(String::from_utf8_lossy(found.path).into_owned());
            ControlFlow::Continue(())
        });
    paths.sort();
    (paths, outcome.expect("a search"))
}

#[test]
fn the_mode_and_the_access_list_agree() {
    let v = volume();
    let file = v.file_as(&user(10), NodeId::ROOT, "f", 0o2640).unwrap().node;
    set(&v, &user(10), file, ACCESS, &list(&[(11, 6)], &[], Some(7), 0o640)).unwrap();
    assert_eq!(attr(&v, file).mode, 0o2670, "the group class is the mask");
    chmod(&v, &user(10), file, 0o604);
    let acl = get(&v, file, ACCESS).unwrap();
    assert_eq!((acl.mask, acl.group, acl.other, acl.users[0]), (Some(0), 4, 4, (11, 6)));
    // A list with the rights of a mode is the mode.
    set(&v, &user(10), file, ACCESS, &Acl::of_mode(0o751).encode()).unwrap();
    assert_eq!((attr(&v, file).mode, get(&v, file, ACCESS)), (0o751, None));
    assert_eq!(v.fs.listxattr(&user(10), file).unwrap(), b"");
    // Without its list the mode stays as it is.
    set(&v, &user(10), file, ACCESS, &list(&[], &[(7, 1)], Some(1), 0o640)).unwrap();
    assert_eq!(v.fs.listxattr(&user(12), file).unwrap(), b"system.posix_acl_access\0");
    v.fs.removexattr(&user(10), file, ACCESS).unwrap();
    v.fs.removexattr(&user(10), file, ACCESS).unwrap();
    assert_eq!((attr(&v, file).mode, get(&v, file, ACCESS)), (0o610, None));
}

#[test]
fn only_owners_set_access_lists_and_only_where_allowed() {
    let v = volume();
    let file = v.file_as(&user(10), NodeId::ROOT, "f", 0o666).unwrap().node;
    let acl = list(&[(11, 6)], &[], Some(7), 0o640);
    let denied = set(&v, &user(11), file, ACCESS, &acl);
    assert!(matches!(denied, Err(FsError::NotPermitted(_))), "{denied:?}");
    assert!(matches!(set(&v, &user(10), file, DEFAULT, &acl), Err(FsError::AccessDenied)));
    set(&v, &user(10), file, DEFAULT, &acl[..4]).expect("no list is what it has");
    for bytes in [&acl[..11], &acl[..12], b"", &[9; 28][..]] {
        let invalid = set(&v, &user(10), file, ACCESS, bytes);
        assert!(matches!(invalid, Err(FsError::InvalidArgument(_))), "{bytes:?} {invalid:?}");
    }
    let link = v.fs.symlink(&user(10), NodeId::ROOT, b"l", b"f").unwrap().node;
    assert!(matches!(set(&v, &user(10), link, ACCESS, &acl), Err(FsError::NotSupported(_))));
    // A caller outside the group does not keep the bit that gives its rights.
    let dir = v.fs.mkdir(&Caller::root(), NodeId::ROOT, b"d", 0o777).unwrap().node;
    let changes = SetAttr { uid: Some(10), gid: Some(99), ..SetAttr::default() };
    v.fs.setattr(&Caller::root(), dir, &changes).unwrap();
    chmod(&v, &Caller::root(), dir, 0o2777);
    set(&v, &user(10), dir, ACCESS, &acl).unwrap();
    assert_eq!(attr(&v, dir).mode, 0o670);
}

#[test]
fn a_default_list_is_inherited_instead_of_the_umask() {
    let v = volume();
    let maker = Caller { umask: 0o077, ..user(10) };
    let dir = v.fs.mkdir(&maker, NodeId::ROOT, b"d", 0o777).unwrap();
    assert_eq!(dir.attr.mode, 0o700);
    let acl = list(&[(11, 7)], &[], Some(6), 0o750);
    set(&v, &maker, dir.node, DEFAULT, &acl).unwrap();
    assert_eq!(attr(&v, dir.node).mode, 0o700);
    let file = v.file_as(&maker, dir.node, "f", 0o666).unwrap();
    assert_eq!(file.attr.mode, 0o660, "requested 666; the list gives 7, 6 and 0");
    let got = get(&v, file.node, ACCESS).unwrap();
    assert_eq!((got.owner, got.mask, got.group, got.other), (6, Some(6), 5, 0));
    assert_eq!(get(&v, file.node, DEFAULT), None);
    let sub = v.fs.mkdir(&maker, dir.node, b"s", 0o755).unwrap();
    assert_eq!(sub.attr.mode, 0o740);
    assert_eq!(get(&v, sub.node, DEFAULT), Acl::decode(&acl).unwrap());
    let unnamed = v.fs.tmpfile(&maker, sub.node, 0o600).unwrap();
    assert_eq!(get(&v, unnamed.node, ACCESS).unwrap().mask, Some(0));
    v.fs.link(&maker, unnamed.node, sub.node, b"named").unwrap();
    assert_eq!(get(&v, unnamed.node, ACCESS).unwrap().mask, Some(0));
    let link = v.fs.symlink(&maker, dir.node, b"l", b"f").unwrap();
    assert_eq!(link.attr.mode, 0o777);
    // A default list with the rights of a mode gives no list.
    set(&v, &maker, sub.node, DEFAULT, &Acl::of_mode(0o751).encode()).unwrap();
    let plain = v.file_as(&maker, sub.node, "p", 0o777).unwrap();
    assert_eq!((plain.attr.mode, get(&v, plain.node, ACCESS)), (0o751, None));
}

#[test]
fn the_access_list_decides_who_reads_writes_and_searches() {
    let v = volume();
    let dir = v.fs.mkdir(&user(10), NodeId::ROOT, b"d", 0o700).unwrap().node;
    let file = v.file_as(&user(10), dir, "f", 0o600).unwrap().node;
    v.write(file, 0, b"x");
    let read = |who: u32| v.fs.read(&user(who), file, 0, &mut [0; 4]);
    assert!(matches!(read(11), Err(FsError::AccessDenied)));
    set(&v, &user(10), file, ACCESS, &list(&[(11, 6)], &[(12, 4)], Some(4), 0o600)).unwrap();
    assert_eq!(read(11).unwrap(), 1);
    assert_eq!(read(12).unwrap(), 1);
    assert!(matches!(read(13), Err(FsError::AccessDenied)));
    refused(v.fs.write(&user(11), file, 0, b"y"), &FsError::AccessDenied);
    chmod(&v, &user(10), file, 0o660);
    v.fs.write(&user(11), file, 0, b"y").unwrap();
    refused(v.fs.access(&user(12), file, 2), &FsError::AccessDenied);
    // Names in a directory.
    let find = |who: u32| v.fs.lookup(&user(who), dir, b"f").map(|_| ());
    refused(find(11), &FsError::AccessDenied);
    set(&v, &user(10), dir, ACCESS, &list(&[(11, 1), (12, 7)], &[], Some(7), 0o700)).unwrap();
    find(11).unwrap();
    refused(v.file_as(&user(11), dir, "g", 0o600), &FsError::AccessDenied);
    v.file_as(&user(12), dir, "g", 0o600).unwrap();
    v.fs.rename(&user(12), (dir, b"g"), (dir, b"h"), fs::RenameMode::Replace).unwrap();
    refused(v.fs.unlink(&user(11), dir, b"h"), &FsError::AccessDenied);
    v.fs.unlink(&user(12), dir, b"h").unwrap();
    let path = |who: u32| v.fs.resolve(&user(who), b"/d/f", fs::Follow::Yes).map(|_| ());
    path(11).unwrap();
    refused(path(13), &FsError::AccessDenied);
}

#[test]
fn clones_and_snapshots_have_the_lists_of_their_source() {
    let v = volume();
    let dir = v.fs.mkdir(&user(10), NodeId::ROOT, b"d", 0o700).unwrap().node;
    let file = v.file_as(&user(10), dir, "f", 0o600).unwrap().node;
    set(&v, &user(10), dir, ACCESS, &list(&[(11, 5)], &[], Some(5), 0o700)).unwrap();
    set(&v, &user(10), file, ACCESS, &list(&[(11, 4)], &[], Some(4), 0o600)).unwrap();
    let clone = v.fs.clone_dir(&user(10), dir, NodeId::ROOT, b"c").unwrap();
    v.fs.removexattr(&user(10), dir, ACCESS).unwrap();
    let found = v.fs.lookup(&user(11), clone.root, b"f").unwrap();
    assert_eq!(v.fs.read(&user(11), found.node, 0, &mut [0; 4]).unwrap(), 0);
    refused(v.fs.lookup(&user(12), clone.root, b"f"), &FsError::AccessDenied);
    let again = v.reopened();
    let clone = again.resolve(&user(11), b"/c/f", fs::Follow::Yes).unwrap();
    assert_eq!(clone.attr.mode, 0o640);
}

#[test]
fn a_list_that_the_kernel_could_not_read_is_refused() {
    let v = volume();
    let dir = v.fs.mkdir(&user(10), NodeId::ROOT, b"d", 0o700).unwrap().node;
    let of = |users: u32| {
        let users: Vec<(u32, u32)> = (1..=users).map(|user| (user, 4)).collect();
        list(&users, &[], Some(7), 0o700)
    };
    let most = (BYTES_MAX as u32 - 4) / 8 - 4;
    for name in [ACCESS, DEFAULT] {
        set(&v, &user(10), dir, name, &of(most)).unwrap();
        let long = set(&v, &user(10), dir, name, &of(most + 1));
        assert!(matches!(long, Err(FsError::InvalidArgument(_))), "{long:?}");
        assert_eq!(get(&v, dir, name).unwrap().users.len(), most as usize);
    }
}

#[test]
fn look_ups_during_access_list_changes_succeed_or_are_refused() {
    let v = volume();
    let dir = v.fs.mkdir(&user(10), NodeId::ROOT, b"d", 0o700).unwrap().node;
    v.file_as(&user(10), dir, "f", 0o600).unwrap();
    let acl = list(&[(11, 7)], &[], Some(7), 0o700);
    let done = AtomicBool::new(false);
    device::scope(|scope| {
        scope.spawn(|| {
            let _end = SetAtEnd(&done);
            for _ in 0..20_000 {
                set(&v, &user(10), dir, ACCESS, &acl).unwrap();
                v.fs.removexattr(&user(10), dir, ACCESS).unwrap();
            }
        });
        while !done.load(Ordering::Relaxed) {
            let looked = v.fs.stat_at(&user(11), dir, b"f");
            assert!(matches!(looked, Ok(_) | Err(FsError::AccessDenied)), "{looked:?}");
            let listed = v.fs.readdir(&user(11), dir, 0, &mut |_| fs::WalkControl::Continue);
            assert!(matches!(listed, Ok(()) | Err(FsError::AccessDenied)), "{listed:?}");
        }
    });
}

#[test]
fn the_directory_of_snapshots_has_the_list_of_its_directory() {
    let v = volume();
    let dir = v.fs.mkdir(&user(10), NodeId::ROOT, b"d", 0o700).unwrap().node;
    let snapshots = v.fs.lookup(&user(10), dir, b".snapshots").unwrap().node;
    assert_eq!(get(&v, snapshots, ACCESS), None);
    set(&v, &user(10), dir, ACCESS, &list(&[(11, 7)], &[], Some(7), 0o310)).unwrap();
    set(&v, &user(10), dir, b"user.x", b"y").unwrap();
    let acl = get(&v, snapshots, ACCESS).unwrap();
    assert_eq!((acl.owner, &acl.users[..], acl.group), (7, &[(11, 7)][..], 1));
    assert_eq!((acl.mask, acl.other), (Some(5), 0), "only the owner writes");
    assert_eq!(attr(&v, snapshots).mode, 0o750);
    assert_eq!(v.fs.listxattr(&user(11), snapshots).unwrap(), b"system.posix_acl_access\0");
    // A search decides as a mount does.
    let test = |mask| Expr::Test(Test::Access(mask));
    set(&v, &user(10), dir, ACCESS, &list(&[(11, 7)], &[], Some(7), 0o700)).unwrap();
    for (who, mask, there) in [(11, 5, true), (11, 2, false), (12, 1, false), (10, 7, true)] {
        let (paths, _) = found(&v, &Caller::root(), "/d/.snapshots", &Expr::yes());
        assert_eq!(paths, ["/d/.snapshots"]);
        let entry = v.fs.lookup(&user(who), dir, b".snapshots");
        assert_eq!(entry.is_ok(), who != 12, "{who}");
        if entry.is_ok() {
            let (paths, _) = found(&v, &user(who), "/d/.snapshots", &test(mask));
            assert_eq!(!paths.is_empty(), there, "{who} {mask}");
        }
    }
}

#[test]
fn a_search_that_begins_at_a_file_asks_its_list() {
    let v = volume();
    let file = v.file_as(&user(10), NodeId::ROOT, "f", 0o600).unwrap().node;
    let linked = v.file_as(&user(10), NodeId::ROOT, "g", 0o600).unwrap().node;
    v.fs.link(&user(10), linked, NodeId::ROOT, b"h").unwrap();
    // The mask reads, the owning group does not.
    let acl = list(&[(11, 4)], &[], Some(4), 0o600);
    for node in [file, linked] {
        set(&v, &user(10), node, ACCESS, &acl).unwrap();
        set(&v, &user(10), node, b"user.x", b"y").unwrap();
    }
    let group = Caller { gid: 10, ..user(12) };
    for path in ["/f", "/g"] {
        let tests = [Test::Access(READ), Test::Xattr(b"user.x".to_vec(), None)];
        for test in tests {
            for (who, sees) in [(&user(11), true), (&group, false), (&user(13), false)] {
                let (paths, _) = found(&v, who, path, &Expr::Test(test.clone()));
                assert_eq!(!paths.is_empty(), sees, "{path} {test:?} {who:?}");
            }
        }
    }
}

#[test]
fn a_malformed_list_closes_its_directory_and_fails_no_search() {
    let v = volume();
    let top = v.fs.mkdir(&user(10), NodeId::ROOT, b"top", 0o755).unwrap().node;
    let tree = TreeId(key::FIRST_TREE);
    for (name, list) in [("missing", None), ("short", Some(&b"\x02\0\0\0\x01"[..]))] {
        let dir = v.fs.mkdir(&user(10), top, name.as_bytes(), 0o755).unwrap().node;
        v.file_as(&user(10), dir, "inside", 0o644).unwrap();
        set(&v, &user(10), dir, b"user.x", b"y").unwrap();
        let ino = dir.ino().0;
        let record = key::directory(ino, Part::Attributes);
        let bytes = v.store.get(tree, &record).unwrap().unwrap();
        let mut bad = DirectoryRecord::decode(&bytes).unwrap();
        bad.mode |= HAS_ACL;
        let mut batch = Batch::new();
        batch.put(tree, &record, &bad.encode());
        if let Some(list) = list {
            let mut xattrs = format::xattr_record::XattrRecord::default();
            xattrs.set(ACCESS, list);
            batch.put(tree, &key::directory(ino, Part::Xattrs), &xattrs.encode());
        }
        v.store.commit(&batch).unwrap();
    }
    let (paths, outcome) = found(&v, &user(11), "/top", &Expr::yes());
    assert_eq!(paths, ["/top", "/top/missing", "/top/short"]);
    assert_eq!(outcome.unreadable, 2);
    let (paths, _) = found(&v, &user(11), "/top", &Expr::Test(Test::Access(READ)));
    assert_eq!(paths, ["/top"]);
    assert_eq!(found(&v, &user(10), "/top", &Expr::yes()).0.len(), 5, "the owner needs no list");
}

#[test]
fn a_held_directory_is_without_its_list_when_its_tree_is_gone() {
    for whole in [false, true] {
        let v = volume();
        let top = v.fs.mkdir(&user(10), NodeId::ROOT, b"top", 0o755).unwrap().node;
        let held = v.fs.mkdir(&user(10), top, b"held", 0o750).unwrap().node;
        set(&v, &user(10), held, ACCESS, &list(&[(11, 7)], &[], Some(7), 0o750)).unwrap();
        v.fs.access(&user(11), held, READ).expect("it is on the list");
        if whole {
            v.fs.rmr(&user(10), NodeId::ROOT, b"top").unwrap();
            v.tick();
            assert!((0..100).any(|_| !v.fs.background_step(100).unwrap().more));
            assert_eq!(v.fs.status().unwrap().detached, 0);
        } else {
            v.fs.rmdir(&user(10), top, b"held").unwrap();
        }
        refused(v.fs.access(&user(11), held, READ), &FsError::AccessDenied);
        v.fs.access(&user(10), held, READ).expect("the owner needs no list");
        assert_eq!(get(&v, held, ACCESS), None);
    }
}
