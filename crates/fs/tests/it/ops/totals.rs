//! Totals of directories as virtual extended attributes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fs::{FileSystem, SetXattr};
use inode::{Caller, FsError, NodeId};

use crate::support::{Volume, user, volume};

fn total(v: &Volume, caller: &Caller, node: NodeId, name: &str) -> String {
    let name = format!("user.pando.{name}");
    let value = v.fs.getxattr(caller, node, name.as_bytes()).expect("a directory has totals");
    String::from_utf8(value).expect("text")
}

#[test]
fn totals_follow_every_operation_and_count_links_once() {
    let v = volume();
    let root = Caller::root();
    let top = v.dir(NodeId::ROOT, "top").node;
    let below = v.dir(top, "below").node;
    let of = |name: &str| total(&v, &root, top, name);
    assert_eq!([of("rfiles"), of("rbytes"), of("rsubdirs")], ["0", "0", "1"]);
    let file = v.file(below, "f").node;
    v.write(file, 0, b"12345");
    assert_eq!([of("rfiles"), of("rbytes")], ["1", "5"]);
    v.fs.link(&root, file, top, b"g").expect("a link");
    assert_eq!([of("rfiles"), of("rbytes")], ["1", "5"]);
    let nanos = v.tick();
    v.file(below, "late");
    let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    assert_eq!(of("rctime"), format!("{seconds}.{nanos:09}"));
    v.fs.clone_dir(&root, below, top, b"copy").expect("a clone");
    assert_eq!([of("rfiles"), of("rbytes"), of("rsubdirs")], ["4", "10", "2"]);
    v.fs.rmr(&root, top, b"below").expect("a directory");
    assert_eq!([of("rfiles"), of("rbytes"), of("rsubdirs")], ["3", "10", "1"]);
}

#[test]
fn totals_count_only_what_the_caller_may_see() {
    let v = volume();
    let top = v.dir(NodeId::ROOT, "top").node;
    let closed = v.dir(top, "closed").node;
    v.file(closed, "f");
    v.file(top, "g");
    let mode = inode::SetAttr { mode: Some(0o700), ..Default::default() };
    v.fs.setattr(&Caller::root(), closed, &mode).expect("a directory");
    assert_eq!(total(&v, &Caller::root(), top, "rfiles"), "2");
    assert_eq!(total(&v, &user(7), top, "rfiles"), "1");
    assert_eq!(total(&v, &user(7), top, "rsubdirs"), "1");
}

#[test]
fn totals_are_neither_set_nor_listed_and_only_directories_have_them() {
    let v = volume();
    let root = Caller::root();
    let file = v.file(NodeId::ROOT, "f").node;
    let name = b"user.pando.rbytes";
    let got = v.fs.getxattr(&root, file, name);
    assert!(matches!(got, Err(FsError::NoAttribute)), "{got:?}");
    let set = v.fs.setxattr(&root, NodeId::ROOT, name, b"1", SetXattr::Any);
    assert!(matches!(set, Err(FsError::NotPermitted(_))), "{set:?}");
    let removed = v.fs.removexattr(&root, NodeId::ROOT, name);
    assert!(matches!(removed, Err(FsError::NotPermitted(_))), "{removed:?}");
    assert_eq!(v.fs.listxattr(&root, NodeId::ROOT).expect("a directory"), b"");
}

#[test]
fn totals_without_a_waiting_caller_are_cancelled() {
    let v = volume();
    v.file(NodeId::ROOT, "f");
    let cancel = Arc::new(AtomicBool::new(true));
    let get = || v.fs.getxattr(&Caller::root(), NodeId::ROOT, b"user.pando.rfiles");
    let got = fs::with_cancellation(&cancel, get);
    assert!(matches!(got, Err(FsError::Interrupted)), "{got:?}");
    cancel.store(false, Ordering::Relaxed);
    assert_eq!(fs::with_cancellation(&cancel, get).expect("it is waited for"), b"1");
    cancel.store(true, Ordering::Relaxed);
    assert_eq!(get().expect("this thread has nothing to do with it any more"), b"1");
}
