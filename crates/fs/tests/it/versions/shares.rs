//! Limits on the subvolumes that users create and have: which user is refused, and when more are
//! allowed.

use std::time::Duration;

use fs::{FileSystem, FsResult, OpenOptions, SubvolumeBounds};
use inode::{Caller, FsError, NameHash, NodeId};

use super::inherit_users::made_by;
use super::{forget, give, home, root, settle};
use crate::support::{Volume, shown, user, volume_with};

const BOUNDS: SubvolumeBounds =
    SubvolumeBounds { of_user: 3, of_all: 6, each_second: 1, at_once: 100 };

/// No rate bounds them.
const BOUNDS_LATER: SubvolumeBounds =
    SubvolumeBounds { of_user: 0, of_all: 0, each_second: 10_000, at_once: 10_000 };

fn bounded(subvolumes: SubvolumeBounds) -> Volume {
    volume_with(NameHash::BITS, &OpenOptions { subvolumes, ..OpenOptions::default() })
}

/// A directory of a user.
fn of_user(v: &Volume, uid: u32) -> NodeId {
    let dir = v.dir(home(), &format!("home{uid}")).node;
    give(v, dir, uid);
    dir
}

#[track_caller]
fn names_limit<T: std::fmt::Debug>(result: &FsResult<T>, limit: &str) {
    let Err(error @ FsError::LimitReached(_)) = result else { panic!("{result:?}") };
    assert!(error.to_string().contains(limit), "{error}");
}

#[test]
fn a_user_has_a_share_of_the_subvolumes_and_root_has_no_bound() {
    let v = bounded(BOUNDS);
    let (ada, bob) = (user(1000), user(1001));
    let (dir, other) = (of_user(&v, 1000), of_user(&v, 1001));
    for name in [&b"1"[..], b"2"] {
        v.fs.snapshot_create(&ada, dir, name).expect("below the bound");
    }
    // What root makes of a user's directory is root's.
    v.fs.snapshot_create(&root(), dir, b"daily").expect("root has no bound");
    let clone = v.fs.clone_dir(&ada, dir, dir, b"clone").expect("the last one").root;
    names_limit(&v.fs.snapshot_create(&ada, dir, b"more"), "this user");
    names_limit(&v.fs.clone_dir(&ada, dir, dir, b"more"), "this user");
    names_limit(&v.fs.subvolume_create(&ada, dir, b"more", 0o755), "this user");
    names_limit(&v.fs.rollback(&ada, dir, b"1"), "this user");
    assert_eq!(v.sorted(dir), ["clone"], "nothing was changed");
    // All users together have six with the root now.
    v.fs.snapshot_create(&bob, other, b"1").expect("the last of all");
    names_limit(&v.fs.snapshot_create(&bob, other, b"2"), "the volume");
    v.fs.snapshot_create(&root(), other, b"2").expect("root has no bound");
    v.fs.snapshot_delete(&root(), other, b"2").expect("it is there");
    // What is removed counts until it is reclaimed, and not from then on.
    forget(&v, clone);
    v.fs.rmr(&ada, dir, b"clone").expect("it is there");
    names_limit(&v.fs.snapshot_create(&ada, dir, b"3"), "this user");
    settle(&v);
    v.fs.snapshot_create(&ada, dir, b"3").expect("there is space");
    names_limit(&v.fs.snapshot_create(&ada, dir, b"4"), "this user");
}

#[test]
fn a_users_subvolumes_are_counted_after_reopening() {
    let v = bounded(BOUNDS);
    let dir = of_user(&v, 1000);
    for name in [&b"1"[..], b"2", b"3"] {
        v.fs.snapshot_create(&user(1000), dir, name).expect("below the bound");
    }
    let options = OpenOptions { subvolumes: BOUNDS, ..OpenOptions::default() };
    let store = std::sync::Arc::clone(&v.store);
    let again = fs::Fs::open_on(v.env.env(), store, v.header.clone(), &options).expect("a volume");
    let dir = again.lookup(&root(), NodeId::ROOT, b"home1000").expect("it is there").node;
    names_limit(&again.snapshot_create(&user(1000), dir, b"4"), "this user");
    again.snapshot_delete(&user(1000), dir, b"1").expect("it is there");
    while again.background_step(100).expect("it goes well").more {}
    again.snapshot_create(&user(1000), dir, b"4").expect("there is space");
}

#[test]
fn a_user_creates_a_bounded_number_per_second_and_the_volumes_user_more() {
    let bounds = SubvolumeBounds { at_once: 2, ..SubvolumeBounds::default() };
    let v = bounded(SubvolumeBounds { each_second: 1, ..bounds });
    let dir = of_user(&v, 1000);
    let make =
        |caller: &Caller, name: &str| v.fs.snapshot_create(caller, dir, name.as_bytes()).map(drop);
    let ada = user(1000);
    make(&ada, "1").expect("at once");
    make(&ada, "2").expect("at once");
    let refused = make(&ada, "3");
    assert!(
        matches!(&refused, Err(FsError::Busy(what)) if what.contains("too fast")),
        "{refused:?}"
    );
    make(&root(), "root").expect("root has no bound");
    v.env.clock.advance(Duration::from_millis(1100));
    make(&ada, "3").expect("a second has passed");
    let refused = make(&ada, "4");
    assert!(
        matches!(&refused, Err(FsError::Busy(what)) if what.contains("too fast")),
        "{refused:?}"
    );
    // The volume is the user's own from now on.
    give(&v, home(), 1000);
    for number in 10..20 {
        make(&ada, &number.to_string()).expect("the owner of the volume has no bound");
    }
}

/// The copies that a copy inherits are its maker's, and count. Where the maker may have no more,
/// that maker's copies are made until 256 inherit, and those of others all the same. The refusal
/// names the limit, and what helps.
#[test]
fn the_limit_of_copies_that_inherit_is_named() {
    let v = bounded(SubvolumeBounds { of_user: 100_000, of_all: 200_000, ..BOUNDS_LATER });
    let (dir, ada) = (of_user(&v, 1000), user(1000));
    for at in 0..1000 {
        let nested = v.fs.subvolume_create(&root(), dir, format!("n{at}").as_bytes(), 0o755);
        forget(&v, nested.expect("space").node);
    }
    let mut made = 0;
    let refused = loop {
        let name = made.to_string();
        match v.fs.snapshot_create(&ada, dir, name.as_bytes()) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, FsError::Busy(what) if what.contains("256")), "{refused}");
    v.fs.snapshot_create(&root(), dir, b"of root").expect("heirs refuse root nothing");
    // The share is used up by what the oldest gets, before a copy can be made.
    let of_user = made_by(&v, 1000) + 8;
    let options = OpenOptions {
        subvolumes: SubvolumeBounds { of_user, of_all: 200_000, ..BOUNDS_LATER },
        ..OpenOptions::default()
    };
    let store = std::sync::Arc::clone(&v.store);
    let again = fs::Fs::open_on(v.env.env(), store, v.header.clone(), &options).expect("a volume");
    let v = Volume { fs: shown(&again), env: v.env, store: v.store, header: v.header };
    let dir = v.find(home(), "home1000").expect("it is there").node;
    let refused = v.fs.snapshot_create(&ada, dir, b"more");
    names_limit(&refused, "256 snapshots and clones of one subvolume still inherit");
    names_limit(&refused, "the maker of the oldest may have no more; remove some");
    names_limit(&v.fs.snapshot_create(&ada, dir, b"more"), "this user");
    for copy in 0..made {
        let name = copy.to_string();
        v.fs.snapshot_delete(&ada, dir, name.as_bytes()).expect("it is the user's");
    }
    let again = (0..2000).any(|_| {
        v.fs.background_step(100).expect("background work goes well");
        v.env.clock.advance(Duration::from_secs(1));
        v.fs.snapshot_create(&ada, dir, b"more").is_ok()
    });
    assert!(again, "some were removed");
}
