//! What a client may do: its grant, and the permissions that the server checks.

use fs::Engine;
use inode::{Caller, FsError, NodeId, SetAttr};
use rpc::{Grant, Ids, Users};
use vfs::{FileLock, FileSystem, LockKind, Locked};

use crate::rig::{Rig, user};

const READ_ONLY: u32 = 0;
const WRITE_ONLY: u32 = 1;

#[test]
fn permissions_are_the_servers_whatever_the_client_checked() {
    let rig = Rig::new(Engine::Btree, 1);
    let (far, root) = (rig.far(), Caller::root());
    let closed = far.mkdir(&root, NodeId::ROOT, b"closed", 0o700).unwrap().node;
    let secret = far.create(&root, closed, b"secret", (0o600, 2)).unwrap().node;
    far.write(&root, secret, 0, b"secret").unwrap();
    far.released(&root, secret);
    // A kernel that checks nothing: each call is made for another user.
    let other = Caller { enforce: inode::Enforce::Kernel, ..user(1000) };
    let denied = |result: Result<(), FsError>| {
        assert!(matches!(result, Err(FsError::AccessDenied)), "{result:?}");
    };
    let mut bytes = [0; 6];
    denied(far.lookup(&other, closed, b"secret").map(drop));
    denied(far.read(&other, secret, 0, &mut bytes).map(drop));
    denied(far.write(&other, secret, 0, b"x"));
    denied(far.append(&other, secret, b"x"));
    denied(far.open(&other, secret, READ_ONLY).map(drop));
    denied(far.create(&other, closed, b"x", (0o600, 2)).map(drop));
    denied(far.mkdir(&other, closed, b"x", 0o700).map(drop));
    denied(far.unlink(&other, closed, b"secret"));
    denied(far.rename(&other, (closed, b"secret"), (closed, b"x"), vfs::RenameMode::Replace));
    denied(far.readdir(&other, closed, 0, &mut |_| vfs::WalkControl::Continue));
    denied(far.setattr(&other, secret, &SetAttr { size: Some(0), ..SetAttr::default() }).map(drop));
    let chmod = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    assert!(matches!(far.setattr(&other, secret, &chmod), Err(FsError::NotPermitted(_))));
}

#[test]
fn a_file_is_used_by_the_rights_it_was_opened_with() {
    let rig = Rig::new(Engine::Lsm, 2);
    let (far, owner) = (rig.far(), user(1000));
    let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    far.setattr(&Caller::root(), NodeId::ROOT, &open).unwrap();
    // What a program creates without permissions it writes all the same.
    let file = far.create(&owner, NodeId::ROOT, b"f", (0o000, WRITE_ONLY)).unwrap().node;
    far.write(&owner, file, 0, b"abc").unwrap();
    let mut bytes = [0; 3];
    assert!(matches!(far.read(&owner, file, 0, &mut bytes), Err(FsError::AccessDenied)));
    far.released(&owner, file);
    assert!(matches!(far.write(&owner, file, 0, b"x"), Err(FsError::AccessDenied)));
    let modes = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    far.setattr(&owner, file, &modes(0o400)).unwrap();
    far.open(&owner, file, READ_ONLY).unwrap();
    far.setattr(&owner, file, &modes(0)).unwrap();
    assert_eq!(far.read(&owner, file, 0, &mut bytes).unwrap(), 3);
    assert!(matches!(far.open(&owner, file, READ_ONLY), Err(FsError::AccessDenied)));
}

#[test]
fn names_without_permission_to_search_come_without_attributes() {
    let rig = Rig::new(Engine::Btree, 3);
    let (far, root) = (rig.far(), Caller::root());
    let listed = far.mkdir(&root, NodeId::ROOT, b"listed", 0o704).unwrap().node;
    far.mkdir(&root, listed, b"inner", 0o755).unwrap();
    let mut seen = Vec::new();
    let mut take = |entry: &vfs::DirEntry<'_>| {
        seen.push((entry.name.to_vec(), entry.attr.is_some(), entry.node));
        vfs::WalkControl::Continue
    };
    far.readdirplus(&user(1000), listed, 0, &mut take).unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!((&seen[0].0[..], seen[0].1), (&b"inner"[..], false));
}

/// A client that knows a number has nothing by that.
#[test]
fn numbers_of_nodes_that_were_not_returned_are_stale() {
    let rig = Rig::new(Engine::Btree, 4);
    let root = Caller::root();
    let node = rig.near().mkdir(&root, NodeId::ROOT, b"d", 0o755).unwrap().node;
    assert!(matches!(rig.far().getattr(&root, node), Err(FsError::Stale)));
    let found = rig.far().lookup(&root, NodeId::ROOT, b"d").unwrap().node;
    assert_eq!(found, node);
    rig.far().getattr(&root, node).unwrap();
    rig.far().forget(node, 5);
    rig.wait_for_held(0);
    assert!(matches!(rig.far().getattr(&root, node), Err(FsError::Stale)));
    rig.near().forget(node, 1);
}

#[test]
fn a_client_is_who_its_grant_names() {
    let (uids, gids) = (Ids::Listed(vec![0, 1000]), Ids::Listed(vec![1000]));
    let users = Users::Asserted { uids, gids };
    let rig = Rig::with(Engine::Btree, 5, Grant { users, keeps_root: false, ..Grant::all() });
    let near = rig.near();
    let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    near.setattr(&Caller::root(), NodeId::ROOT, &open).unwrap();
    let far = rig.far();
    let refused = far.mkdir(&user(1001), NodeId::ROOT, b"x", 0o755);
    assert!(matches!(refused, Err(FsError::AccessDenied)));
    assert_eq!(far.mkdir(&user(1000), NodeId::ROOT, b"a", 0o755).unwrap().attr.uid, 1000);
    let squashed = far.mkdir(&Caller::root(), NodeId::ROOT, b"b", 0o755).unwrap().attr;
    assert_eq!((squashed.uid, squashed.gid), (rpc::NOBODY, rpc::NOBODY));
    let chown = SetAttr { uid: Some(1000), ..SetAttr::default() };
    let node = far.lookup(&Caller::root(), NodeId::ROOT, b"a").unwrap().node;
    assert!(matches!(far.setattr(&Caller::root(), node, &chown), Err(FsError::NotPermitted(_))));
}

#[test]
fn a_client_that_may_only_read_changes_nothing() {
    let rig = Rig::with(Engine::Btree, 6, Grant { read_only: true, ..Grant::all() });
    let (far, root) = (rig.far(), Caller::root());
    let file = rig.near().create(&root, NodeId::ROOT, b"f", (0o666, 2)).unwrap().node;
    let found = far.lookup(&root, NodeId::ROOT, b"f").unwrap().node;
    assert_eq!(found, file);
    let read_only = |result: Result<(), FsError>| {
        assert!(matches!(result, Err(FsError::ReadOnly(_))), "{result:?}");
    };
    read_only(far.write(&root, found, 0, b"x"));
    read_only(far.open(&root, found, WRITE_ONLY).map(drop));
    read_only(far.mkdir(&root, NodeId::ROOT, b"x", 0o755).map(drop));
    read_only(far.setattr(&root, found, &SetAttr::default()).map(drop));
    read_only(far.unlink(&root, NodeId::ROOT, b"f"));
    far.open(&root, found, READ_ONLY).unwrap();
    rig.near().forget(file, 1);
}

#[test]
fn locks_hold_across_clients_and_end_with_them() {
    let rig = Rig::new(Engine::Btree, 7);
    let other = crate::rig::connect(&rig.server, std::time::Duration::from_secs(60));
    let (one, two) = (rig.far(), remote::RemoteFs::new(std::sync::Arc::clone(&other)));
    let root = Caller::root();
    let node = one.create(&root, NodeId::ROOT, b"f", (0o666, 2)).unwrap().node;
    let same = two.lookup(&root, NodeId::ROOT, b"f").unwrap().node;
    assert_eq!(node, same);
    let kind = LockKind::Exclusive;
    let lock = FileLock { owner: 7, pid: 1, kind, start: 0, end: 9, whole: false };
    let denied = two.lock(&root, node, &lock, false);
    assert!(matches!(denied, Err(FsError::AccessDenied)), "it is not open there");
    two.open(&root, node, 2).unwrap();
    assert_eq!(two.lock(&root, node, &lock, false).unwrap(), Locked::Done);
    assert_eq!(one.lock(&root, node, &lock, false).unwrap(), Locked::Busy, "the same number");
    assert_eq!(one.test_lock(&root, node, &lock).unwrap().unwrap().end, 9);
    let apart = FileLock { start: 10, end: u64::MAX, ..lock };
    assert_eq!(one.lock(&root, node, &apart, false).unwrap(), Locked::Done);
    let waited = device::scope(|scope| {
        let waits = scope.spawn(|| one.lock(&root, node, &lock, true));
        device::Clock::sleep(&device::SystemClock::new(), std::time::Duration::from_millis(200));
        assert!(!waits.is_finished());
        // The connection is cut meanwhile.
        rig.server.hang_up();
        device::Clock::sleep(&device::SystemClock::new(), std::time::Duration::from_millis(200));
        other.end();
        waits.join().unwrap()
    });
    assert_eq!(waited.unwrap(), Locked::Done);
    one.unlock(&root, node, 7, false).unwrap();
    assert!(one.test_lock(&root, node, &FileLock { owner: 8, ..lock }).unwrap().is_none());
}
