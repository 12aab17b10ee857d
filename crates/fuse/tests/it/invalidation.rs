//! Changes behind the kernel's back are seen at once, and reporting them never blocks.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use inode::NodeId;

use crate::rig::{PATIENCE, Rig, mounted, mounted_with};
use testing::memory_fs::{MemoryFs, ROOT_SHOWN};

fn settle(rig: &Rig) {
    assert!(rig.mount.settle(PATIENCE), "invalidations are stuck");
}

#[test]
fn a_reused_name_is_looked_up_again() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"old");
    assert_eq!(rig.read("f"), b"old");
    rig.fs.put_behind(NodeId::ROOT, b"f", b"renewed");
    assert_eq!(rig.read("f"), b"old", "the kernel's cache is what is tested");
    rig.fs.report().entry(NodeId::ROOT, b"f");
    settle(&rig);
    assert_eq!(rig.read("f"), b"renewed");
}

#[test]
fn the_root_is_known_by_its_shown_number_too() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"old");
    std::fs::metadata(rig.path("")).unwrap();
    std::fs::metadata(rig.path("f")).unwrap();
    rig.fs.put_behind(NodeId::ROOT, b"f", b"renewed");
    rig.fs.report().entry(NodeId::narrow(ROOT_SHOWN), b"f");
    settle(&rig);
    assert_eq!(rig.read("f"), b"renewed");
}

#[test]
fn a_name_that_was_missing_is_found_when_it_appears_and_gone_when_it_goes() {
    let Some(rig) = mounted("") else { return };
    assert!(!rig.path("f").exists());
    let asked = rig.fs.lookups.load(Ordering::Relaxed);
    assert!(!rig.path("f").exists());
    assert_eq!(rig.fs.lookups.load(Ordering::Relaxed), asked, "its absence is remembered");
    rig.fs.put_behind(NodeId::ROOT, b"f", b"here");
    rig.fs.report().entry(NodeId::ROOT, b"f");
    settle(&rig);
    assert_eq!(rig.read("f"), b"here");
    rig.fs.detach_behind(NodeId::ROOT, b"f");
    rig.fs.report().entry(NodeId::ROOT, b"f");
    settle(&rig);
    assert!(!rig.path("f").exists());
}

#[test]
fn a_listing_shows_names_that_nobody_ever_looked_up() {
    let Some(rig) = mounted("") else { return };
    let names = || std::fs::read_dir(rig.path("")).unwrap().count();
    rig.write("first", b"");
    assert_eq!((names(), names()), (1, 1));
    for (number, name) in ["second", "third"].into_iter().enumerate() {
        rig.fs.put_behind(NodeId::ROOT, name.as_bytes(), b"");
        rig.fs.report().entry(NodeId::ROOT, name.as_bytes());
        settle(&rig);
        assert_eq!(names(), number + 2);
    }
}

#[test]
fn contents_and_attributes_that_change_are_read_again() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"old contents");
    assert_eq!(rig.read("f"), b"old contents");
    let node = NodeId::narrow(std::fs::metadata(rig.path("f")).unwrap().ino());
    rig.fs.rewrite_behind(node, b"NEW CONTENTS");
    assert_eq!(rig.read("f"), b"old contents", "the kernel's cache is what is tested");
    rig.fs.report().node(node);
    settle(&rig);
    assert_eq!(rig.read("f"), b"NEW CONTENTS");
    rig.fs.rewrite_behind(node, b"longer than it was before");
    rig.fs.report().node(node);
    settle(&rig);
    assert_eq!(std::fs::metadata(rig.path("f")).unwrap().len(), 25);
    assert_eq!(rig.read("f"), b"longer than it was before");
}

/// A link count changes while a file is read: its pages need not be read again.
#[test]
fn changing_attributes_keeps_cached_contents() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"old contents");
    assert_eq!(rig.read("f"), b"old contents");
    let attr = || std::fs::metadata(rig.path("f")).unwrap();
    let node = NodeId::narrow(attr().ino());
    rig.fs.rewrite_behind(node, b"NEW CONTENTS");
    rig.fs.count_behind(node, 7);
    assert_eq!(attr().nlink(), 1, "the kernel's cache is what is tested");
    rig.fs.report().attributes(node);
    settle(&rig);
    assert_eq!(attr().nlink(), 7);
    assert_eq!(rig.read("f"), b"old contents");
    rig.fs.report().attributes(node);
    rig.fs.report().node(node);
    settle(&rig);
    assert_eq!(rig.read("f"), b"NEW CONTENTS");
}

#[test]
fn too_many_changed_names_become_a_full_invalidation() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"old");
    assert_eq!(rig.read("f"), b"old");
    rig.fs.put_behind(NodeId::ROOT, b"f", b"renewed");
    let report = rig.fs.report();
    for name in 0..100_000 {
        report.entry(NodeId::ROOT, format!("elsewhere-{name}").as_bytes());
    }
    report.entry(NodeId::ROOT, b"f");
    settle(&rig);
    assert_eq!(rig.read("f"), b"renewed");
}

#[test]
fn replacing_the_root_directory_invalidates_everything_below() {
    let Some(rig) = mounted("") else { return };
    std::fs::create_dir(rig.path("d")).unwrap();
    rig.write("d/f", b"old");
    assert_eq!(rig.read("d/f"), b"old");
    rig.fs.detach_behind(NodeId::ROOT, b"d");
    rig.fs.put_behind(NodeId::ROOT, b"d", b"a file now");
    rig.fs.report().node(NodeId::ROOT);
    settle(&rig);
    assert_eq!(rig.read("d/f"), b"old", "names are kept while the root is the same");
    rig.fs.move_root_behind();
    rig.fs.report().node(NodeId::ROOT);
    settle(&rig);
    assert_eq!(rig.read("d"), b"a file now");
}

#[test]
fn reports_from_within_requests_do_not_block_them() {
    let mut fs = MemoryFs::new();
    fs.report_own_names = true;
    let Some(rig) = mounted_with("threads=1", fs) else { return };
    device::scope(|scope| {
        for thread in 0..4 {
            let rig = &rig;
            scope.spawn(move || {
                for file in 0..500 {
                    rig.write(&format!("t{thread}-{file}"), b"x");
                }
            });
        }
    });
    settle(&rig);
    assert_eq!(std::fs::read_dir(rig.path("")).unwrap().count(), 2000);
}
