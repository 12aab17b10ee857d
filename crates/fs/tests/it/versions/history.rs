//! Histories of paths over snapshots.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use fs::{FileSystem, Paths};
use inode::{Caller, FsError, VersionChange};

use super::{forget, home, root, settle};
use crate::support::{Volume, user, volume};

fn history(v: &Volume, caller: &Caller, path: &[u8]) -> fs::FsResult<Vec<fs::Version>> {
    let (mut versions, proceed) = (Vec::new(), AtomicBool::new(false));
    v.fs.history(caller, path, &proceed, &mut |version| {
        versions.push(version.clone());
        ControlFlow::Continue(())
    })?;
    Ok(versions)
}

fn changes(v: &Volume, path: &[u8]) -> Vec<(String, VersionChange)> {
    let versions = history(v, &root(), path).expect("a history");
    let name = |version: &fs::Version| match &version.snapshot {
        Some((snapshot, _)) => String::from_utf8_lossy(&snapshot.name).into_owned(),
        None => "now".to_owned(),
    };
    versions.iter().map(|version| (name(version), version.change)).collect()
}

fn snapshot(v: &Volume, dir: inode::NodeId, name: &str) {
    v.tick();
    v.fs.snapshot_create(&root(), dir, name.as_bytes()).expect("a snapshot");
    v.tick();
}

#[test]
fn history_reports_creation_change_and_removal_of_a_file() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    snapshot(&v, dir, "before");
    let file = v.file(dir, "f").node;
    snapshot(&v, dir, "made");
    snapshot(&v, home(), "from above");
    v.write(file, 0, b"text");
    snapshot(&v, dir, "written");
    let mode = inode::SetAttr { mode: Some(0o600), ..Default::default() };
    v.fs.setattr(&root(), file, &mode).expect("a file");
    snapshot(&v, dir, "private");
    forget(&v, file);
    v.fs.unlink(&root(), dir, b"f").expect("a file");
    snapshot(&v, dir, "gone");
    v.dir(dir, "f");
    settle(&v);
    let want = [
        ("before", VersionChange::Absent),
        ("made", VersionChange::Appeared),
        ("from above", VersionChange::Same),
        ("written", VersionChange::Contents),
        ("private", VersionChange::Attributes),
        ("gone", VersionChange::Vanished),
        ("now", VersionChange::Appeared),
    ];
    assert_eq!(changes(&v, b"/d/f"), want.map(|(name, change)| (name.to_owned(), change)));
    assert_eq!(changes(&v, b"d//f/")[1].1, VersionChange::Appeared);
}

#[test]
fn history_covers_removed_files_and_directories() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    v.file(dir, "f");
    snapshot(&v, home(), "one");
    v.fs.rmr(&root(), home(), b"d").expect("a directory");
    settle(&v);
    let all = |name: &str, change| (name.to_owned(), change);
    let want = [all("one", VersionChange::Appeared), all("now", VersionChange::Vanished)];
    assert_eq!(changes(&v, b"/d/f"), want);
    assert_eq!(changes(&v, b"/d"), want);
    let root_itself = changes(&v, b"/");
    assert_eq!(root_itself[0], all("one", VersionChange::Appeared));
    assert_eq!(root_itself[1], all("now", VersionChange::Contents));
    let above = history(&v, &root(), b"/d/../d");
    assert!(matches!(above, Err(FsError::InvalidArgument(_))), "{above:?}");
    // What never existed is not found, whether snapshots are above it or not.
    for never in [&b"/never"[..], b"/d/never"] {
        let refused = history(&v, &root(), never);
        assert!(matches!(refused, Err(FsError::NotFound)), "{refused:?}");
    }
}

/// A user who kept snapshots of a directory and then removed it got the answer that it never
/// existed.
#[test]
fn history_covers_the_path_of_a_removed_directory_with_snapshots() {
    let v = volume();
    let above = v.dir(home(), "a").node;
    let dir = v.dir(above, "d").node;
    v.file(dir, "f");
    snapshot(&v, dir, "one");
    for held in [dir, above] {
        forget(&v, held);
    }
    v.fs.rmr(&root(), home(), b"a").expect("a directory");
    settle(&v);
    let all = |name: &str, change| (name.to_owned(), change);
    let want = [all("one", VersionChange::Appeared), all("now", VersionChange::Vanished)];
    assert_eq!(changes(&v, b"/a/d/f"), want);
    assert_eq!(changes(&v, b"/a/d"), want);
    let reported = history(&v, &root(), b"/a/d/f").expect("a history");
    assert_eq!(reported[0].snapshot.as_ref().map(|(_, path)| &path[..]), Some(&b"/a/d"[..]));
    for path in [&b"/a"[..], b"/a/e", b"/a/dd"] {
        let refused = history(&v, &root(), path);
        assert!(matches!(refused, Err(FsError::NotFound)), "{refused:?}");
    }
    let other = history(&v, &user(7), b"/a/d/f");
    assert!(matches!(other, Err(FsError::NotFound)), "{other:?}");
    // Another directory of that path is another one.
    let above = v.dir(home(), "a").node;
    v.dir(above, "d");
    let want = [all("one", VersionChange::Appeared), all("now", VersionChange::Replaced)];
    assert_eq!(changes(&v, b"/a/d"), want);
}

#[test]
fn history_reveals_nothing_unreadable() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    let mode = inode::SetAttr { mode: Some(0o700), ..Default::default() };
    v.fs.setattr(&root(), dir, &mode).expect("a directory");
    v.file(dir, "f");
    snapshot(&v, home(), "one");
    let refused = history(&v, &user(7), b"/d/f");
    assert!(matches!(refused, Err(FsError::AccessDenied)), "{refused:?}");
    let open = inode::SetAttr { mode: Some(0o755), ..Default::default() };
    v.fs.setattr(&root(), dir, &open).expect("a directory");
    // The snapshot has the directory as it was.
    let versions = history(&v, &user(7), b"/d/f").expect("a history");
    assert_eq!(versions[0].attr, None);
    assert!(versions[1].attr.is_some());
}

/// A link to nowhere was reported as vanished, and one to a file as replaced by it.
#[test]
fn a_link_has_a_history_of_its_own() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    v.file(dir, "f");
    for (name, target) in [("dangling", "nowhere"), ("to", "d/f"), ("way", "d")] {
        let made = v.fs.symlink(&root(), home(), name.as_bytes(), target.as_bytes());
        forget(&v, made.expect("space").node);
    }
    snapshot(&v, home(), "one");
    let all = |name: &str, change| (name.to_owned(), change);
    for path in [&b"/dangling"[..], b"/to", b"/way"] {
        let want = [all("one", VersionChange::Appeared), all("now", VersionChange::Same)];
        assert_eq!(changes(&v, path), want, "{}", path.escape_ascii());
    }
    // A snapshot of the directory that has the link does not know what was at its end.
    assert_eq!(changes(&v, b"/way/f"), [all("now", VersionChange::Present)]);
    snapshot(&v, dir, "two");
    let want = [all("two", VersionChange::Appeared), all("now", VersionChange::Same)];
    assert_eq!(changes(&v, b"/way/f"), want);
}

/// The rest of the path was kept for each snapshot of each directory on it: one request took
/// gigabytes. Names have a bound, and the versions are reported one by one.
#[test]
fn a_history_is_of_a_bounded_path_and_ends_when_its_caller_ends_it() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    for number in 0..20 {
        snapshot(&v, dir, &number.to_string());
    }
    forget(&v, dir);
    let long = |names: usize| b"/d".repeat(names);
    assert!(matches!(history(&v, &root(), &long(1025)), Err(FsError::InvalidArgument(_))));
    assert!(matches!(history(&v, &root(), &long(1024)), Err(FsError::NotFound)));
    let (mut visited, proceed, gone) = (0, AtomicBool::new(false), AtomicBool::new(true));
    let ended = v.fs.history(&root(), b"/d", &proceed, &mut |_| {
        visited += 1;
        ControlFlow::Break(())
    });
    ended.expect("it ends");
    assert_eq!(visited, 1);
    let cancelled = v.fs.history(&root(), b"/d", &gone, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(cancelled, Err(FsError::Interrupted)));
    assert_eq!(history(&v, &root(), b"/d").expect("a history").len(), 21);
}

/// A directory that is on a path more than once, by links, has its snapshots once.
#[test]
fn a_directory_that_links_reach_again_is_asked_once() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    let link = v.fs.symlink(&root(), dir, b"again", b".").expect("a link").node;
    v.file(dir, "f");
    snapshot(&v, dir, "one");
    let reported = history(&v, &root(), b"/d/again/again/f").expect("a history");
    let seen: Vec<_> = reported.iter().map(|version| version.snapshot.is_some()).collect();
    assert_eq!(seen, [true, false]);
    assert_eq!(reported[0].change, VersionChange::Appeared);
    forget(&v, link);
    forget(&v, dir);
}
