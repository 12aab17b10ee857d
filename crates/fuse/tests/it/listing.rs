//! Listings: large ones, changing ones, `.` and `..`.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use inode::NodeId;

use crate::rig::{mounted, mounted_with};
use testing::memory_fs::{MemoryFs, ROOT_SHOWN};

#[test]
fn many_entries_are_listed_once_each() {
    let entries = testing::run::rounds(30_000, 100_000) as usize;
    let Some(rig) = mounted("") else { return };
    for file in 0..entries {
        rig.fs.put_behind(NodeId::ROOT, format!("file-{file:06}").as_bytes(), b"");
    }
    rig.fs.report().node(NodeId::ROOT);
    for round in ["from the file system", "from the kernel's cache"] {
        let mut seen = BTreeSet::new();
        for entry in std::fs::read_dir(rig.path("")).unwrap() {
            assert!(seen.insert(entry.unwrap().file_name()), "listed twice, {round}");
        }
        assert_eq!(seen.len(), entries, "{round}");
    }
    let attributes = std::fs::read_dir(rig.path("")).unwrap();
    let files = attributes.filter(|entry| entry.as_ref().unwrap().metadata().unwrap().is_file());
    assert_eq!(files.count(), entries);
}

#[test]
fn a_listing_before_the_first_look_at_a_file_leaves_nothing_to_look_up() {
    let Some(rig) = mounted("") else { return };
    for file in 0..5000 {
        rig.fs.put_behind(NodeId::ROOT, format!("file-{file:04}").as_bytes(), b"");
    }
    rig.fs.report().node(NodeId::ROOT);
    let names: Vec<_> =
        std::fs::read_dir(rig.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let asked = rig.fs.lookups.load(Ordering::Relaxed);
    for name in &names {
        assert!(std::fs::symlink_metadata(name).unwrap().is_file());
    }
    assert_eq!((names.len(), rig.fs.lookups.load(Ordering::Relaxed)), (5000, asked));
}

/// An unreadable node is listed like the others; only accessing it fails.
#[test]
fn nodes_without_attributes_are_listed() {
    let mut fs = MemoryFs::new();
    fs.unreadable = Some(b"file-17");
    let Some(rig) = mounted_with("", fs) else { return };
    for file in 10..30 {
        rig.fs.put_behind(NodeId::ROOT, format!("file-{file}").as_bytes(), b"");
    }
    rig.fs.report().node(NodeId::ROOT);
    let held = rig.fs.held();
    assert_eq!(std::fs::read_dir(rig.path("")).unwrap().count(), 20);
    assert_eq!(rig.fs.held(), held + 19);
}

/// The kernel receives the entries listed before an error, and then forgets them.
#[test]
fn an_error_in_the_middle_of_a_listing_comes_after_what_was_taken() {
    let mut fs = MemoryFs::new();
    fs.unlistable = Some(b"file-17");
    let Some(rig) = mounted_with("", fs) else { return };
    for file in 10..30 {
        rig.fs.put_behind(NodeId::ROOT, format!("file-{file}").as_bytes(), b"");
    }
    rig.fs.report().node(NodeId::ROOT);
    let (mut names, mut failed) = (0, 0);
    for entry in std::fs::read_dir(rig.path("")).unwrap() {
        match entry {
            Ok(_) => names += 1,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EIO));
                failed += 1;
                break;
            }
        }
    }
    assert_eq!((names, failed), (7, 1));
}

#[test]
fn names_of_a_large_directory_are_listed_without_attributes_until_looked_up() {
    let mut fs = MemoryFs::new();
    fs.root_entries_shown = Some(1 << 20);
    let Some(rig) = mounted_with("", fs) else { return };
    for file in 0..5000 {
        rig.fs.put_behind(NodeId::ROOT, format!("file-{file:04}").as_bytes(), b"");
    }
    rig.fs.report().node(NodeId::ROOT);
    let nodes = rig.fs.held();
    assert_eq!(std::fs::read_dir(rig.path("")).unwrap().count(), 5000);
    assert_eq!(rig.fs.held(), nodes, "the kernel holds what nobody looked at");
    // A change, so that the kernel caches no listing.
    rig.write("another", b"");
    let asked = rig.fs.lookups.load(Ordering::Relaxed);
    let listing = std::fs::read_dir(rig.path("")).unwrap();
    let files = listing.filter(|entry| entry.as_ref().unwrap().metadata().unwrap().is_file());
    assert_eq!(files.count(), 5001);
    let asked = rig.fs.lookups.load(Ordering::Relaxed) - asked;
    assert!((1..2000).contains(&asked), "{asked} look-ups");
}

#[test]
fn unchanged_entries_are_listed_while_others_change() {
    let Some(rig) = mounted("") else { return };
    for file in 0..5000 {
        rig.fs.put_behind(NodeId::ROOT, format!("stay-{file}").as_bytes(), b"");
        rig.fs.put_behind(NodeId::ROOT, format!("go-{file}").as_bytes(), b"");
    }
    let listing = std::fs::read_dir(rig.path("")).unwrap();
    let mut stay = 0;
    let mut turn = 0;
    for entry in listing {
        let name = entry.unwrap().file_name().into_string().unwrap();
        stay += u32::from(name.starts_with("stay-"));
        if turn < 5000 {
            std::fs::remove_file(rig.path(&format!("go-{turn}"))).unwrap();
            rig.write(&format!("new-{turn}"), b"");
            turn += 1;
        }
    }
    assert_eq!(stay, 5000);
}

#[test]
fn dot_entries_show_the_numbers_of_their_directories() {
    let Some(rig) = mounted("") else { return };
    std::fs::create_dir_all(rig.path("d/e")).unwrap();
    let outer = std::fs::metadata(rig.path("d")).unwrap().ino();
    let inner = std::fs::metadata(rig.path("d/e")).unwrap().ino();
    let numbers = |path: &str| {
        let file = std::fs::File::open(rig.path(path)).unwrap();
        let mut numbers = [0; 2];
        for entry in rustix::fs::Dir::read_from(&file).unwrap() {
            let entry = entry.unwrap();
            match entry.file_name().to_bytes() {
                b"." => numbers[0] = entry.ino(),
                b".." => numbers[1] = entry.ino(),
                _ => {}
            }
        }
        numbers
    };
    assert_eq!(numbers("d/e"), [inner, outer]);
    assert_eq!(numbers("d"), [outer, ROOT_SHOWN]);
    assert_eq!(numbers("")[0], ROOT_SHOWN);
    // Every look-up made on the way was returned.
    std::fs::remove_dir(rig.path("d/e")).unwrap();
    std::fs::remove_dir(rig.path("d")).unwrap();
    rig.eventually("only the root is left", |fs| fs.nodes() == 1);
}

#[test]
fn a_callers_own_change_shows_in_its_next_listing() {
    let Some(rig) = mounted("") else { return };
    let names = || std::fs::read_dir(rig.path("")).unwrap().count();
    assert_eq!(names(), 0);
    assert_eq!(names(), 0, "the kernel keeps it");
    rig.write("one", b"");
    assert_eq!(names(), 1);
    std::fs::rename(rig.path("one"), rig.path("two")).unwrap();
    let only = std::fs::read_dir(rig.path("")).unwrap().next().unwrap().unwrap();
    assert_eq!(only.file_name(), "two");
}
