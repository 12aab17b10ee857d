//! Snapshots of directories that were removed: listed, reached by number, cloned, deleted.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use fs::{FileSystem, Follow, KeptSnapshot, SnapshotQuery, SnapshotsOf};
use inode::{Caller, FsError, NodeId, SetAttr, SubvolId};

use super::{contents, filled, forget, give, home, root, settle};
use crate::support::{Volume, refused, user, volume};

fn listed(v: &Volume, caller: &Caller, of: SnapshotsOf) -> Vec<KeptSnapshot> {
    all(&v.fs, caller, &SnapshotQuery::all(of, &AtomicBool::new(false))).expect("a list")
}

/// All that a query finds.
fn all(
    fs: &fs::Volume,
    caller: &Caller,
    query: &SnapshotQuery<'_>,
) -> fs::FsResult<Vec<KeptSnapshot>> {
    let mut found = Vec::new();
    fs.snapshot_list_volume(caller, query, &mut |kept| {
        found.push(kept);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Names of snapshots with paths of their directories.
fn paths(v: &Volume, of: SnapshotsOf) -> BTreeMap<String, Option<String>> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = listed(v, &root(), of);
    all.iter().map(|kept| (text(&kept.snapshot.name), kept.path.as_deref().map(text))).collect()
}

fn expected(all: &[(&str, Option<&str>)]) -> BTreeMap<String, Option<String>> {
    all.iter().map(|(name, path)| ((*name).to_owned(), path.map(str::to_owned))).collect()
}

fn by_number(v: &Volume, caller: &Caller, number: SubvolId) -> fs::FsResult<NodeId> {
    let path = [b"/.snapshots/", &fs::name_of_number(number)[..]].concat();
    v.fs.resolve(caller, &path, Follow::Yes).map(|entry| entry.node)
}

fn removed(v: &Volume, parent: NodeId, name: &str, held: NodeId) {
    forget(v, held);
    v.fs.rmr(&root(), parent, name.as_bytes()).expect("a directory");
    settle(v);
}

#[test]
fn a_snapshot_of_a_removed_directory_is_listed_cloned_and_deleted() {
    let v = volume();
    let above = v.dir(home(), "a").node;
    let dir = filled(&v, above, "d", 3);
    let before = contents(&v, dir);
    let taken = v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    let live = v.dir(home(), "live").node;
    let other = v.fs.snapshot_create(&root(), live, b"two").expect("a snapshot");
    assert!(listed(&v, &root(), SnapshotsOf::Removed).is_empty());
    forget(&v, dir);
    removed(&v, home(), "a", above);
    let gone = listed(&v, &root(), SnapshotsOf::Removed);
    assert_eq!(gone.len(), 1, "{gone:?}");
    assert_eq!(gone[0].snapshot, taken);
    assert!(gone[0].removed);
    assert_eq!(gone[0].path.as_deref(), Some(&b"/a/d"[..]));
    let all = expected(&[("one", Some("/a/d")), ("two", Some("/live"))]);
    assert_eq!(paths(&v, SnapshotsOf::All), all);
    assert!(listed(&v, &user(1000), SnapshotsOf::All).is_empty());

    let denied = FsError::NotPermitted("");
    refused(by_number(&v, &user(1000), taken.subvol), &denied);
    refused(by_number(&v, &root(), SubvolId(1)), &FsError::NotFound);
    let kept = by_number(&v, &root(), taken.subvol).expect("by its number");
    v.fs.clone_dir(&root(), kept, home(), b"back").expect("restored");
    let back = v.find(home(), "back").expect("the clone").node;
    assert_eq!(contents(&v, back), before);
    forget(&v, kept);

    refused(v.fs.snapshot_delete_number(&user(1000), taken.subvol), &denied);
    v.fs.snapshot_delete_number(&root(), taken.subvol).expect("it is there");
    for number in [taken.subvol, SubvolId(1), SubvolId(1 << 40)] {
        refused(v.fs.snapshot_delete_number(&root(), number), &FsError::NotFound);
    }
    settle(&v);
    let status = v.fs.status().expect("a status");
    assert_eq!((status.snapshots, status.detached), (1, 0));
    // By number, one of a directory that is there goes as by its name.
    v.fs.snapshot_delete_number(&root(), other.subvol).expect("it is there");
    assert!(v.fs.snapshot_list(&root(), live).expect("a list").is_empty());
    assert_eq!(contents(&v, back), before);
}

/// The kernel keeps names that anybody looked up, and would let others in who may not.
#[test]
fn the_kernel_cannot_look_up_snapshots_by_number() {
    let v = volume();
    let dir = filled(&v, home(), "d", 1);
    let taken = v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    removed(&v, home(), "d", dir);
    let snapshots = v.fs.lookup(&root(), NodeId::ROOT, b".snapshots").expect("it is there").node;
    let number = fs::name_of_number(taken.subvol);
    refused(v.fs.lookup(&root(), snapshots, &number), &FsError::NotFound);
    assert!(by_number(&v, &root(), taken.subvol).is_ok());
}

/// What such a look-up costs is decided by the path of a request: a link hid it.
#[test]
fn no_symbolic_link_points_to_a_snapshot_by_its_number() {
    let v = volume();
    let dir = filled(&v, NodeId::ROOT, "d", 1);
    let taken = v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    let number = fs::name_of_number(taken.subvol);
    let targets = [[b"/.snapshots/", &number[..]].concat(), [b".snapshots/", &number[..]].concat()];
    for (name, target) in [(b"l1", &targets[0]), (b"l2", &targets[1])] {
        v.fs.symlink(&root(), NodeId::ROOT, name, target).expect("a link");
        let path = [b"/", &name[..]].concat();
        refused(v.fs.resolve(&root(), &path, Follow::Yes), &FsError::NotFound);
        let below = [&path[..], b"/../#1"].concat();
        refused(v.fs.resolve(&root(), &below, Follow::Yes), &FsError::NotFound);
    }
    // A number that the caller gives is one, also behind a link.
    v.fs.symlink(&root(), NodeId::ROOT, b"all", b".snapshots").expect("a link");
    let path = [b"/all/", &number[..]].concat();
    assert!(v.fs.resolve(&root(), &path, Follow::Yes).is_ok());
}

#[test]
fn snapshots_orphaned_by_a_rollback_are_listed() {
    let v = volume();
    let dir = filled(&v, home(), "d", 2);
    v.fs.snapshot_create(&root(), dir, b"before").expect("a snapshot");
    let new = v.dir(dir, "new").node;
    v.fs.snapshot_create(&root(), new, b"of new").expect("a snapshot");
    forget(&v, new);
    v.fs.rollback(&root(), dir, b"before").expect("a snapshot");
    forget(&v, dir);
    settle(&v);
    let gone = expected(&[("of new", Some("/d/new"))]);
    assert_eq!(paths(&v, SnapshotsOf::Removed), gone);
    let all = expected(&[("before", Some("/d")), ("of new", Some("/d/new"))]);
    assert_eq!(paths(&v, SnapshotsOf::All), all);
    // And so it is when the whole is rolled back, and is a subvolume of another number.
    v.tick();
    v.fs.snapshot_create(&root(), NodeId::ROOT, b"whole").expect("a snapshot");
    let late = v.dir(home(), "late").node;
    v.fs.snapshot_create(&root(), late, b"of late").expect("a snapshot");
    forget(&v, late);
    v.fs.rollback(&root(), NodeId::ROOT, b"whole").expect("a snapshot");
    settle(&v);
    // No record has where they were: what has no source any more is pruned.
    let gone = expected(&[("of new", None), ("of late", None)]);
    assert_eq!(paths(&v, SnapshotsOf::Removed), gone);
    let all = paths(&v, SnapshotsOf::All);
    assert_eq!(all["before"].as_deref(), Some("/d"));
    assert_eq!(all["whole"].as_deref(), Some("/"));
}

#[test]
fn a_removed_directory_of_a_clone_has_its_path_there_and_a_moved_one_is_not_removed() {
    let v = volume();
    let above = v.dir(home(), "a").node;
    let dir = filled(&v, above, "d", 1);
    v.fs.clone_dir(&root(), above, home(), b"fork").expect("a clone");
    let fork = v.find(home(), "fork").expect("the clone").node;
    let inner = v.find(fork, "d").expect("its directory").node;
    v.fs.snapshot_create(&root(), inner, b"of the clone").expect("a snapshot");
    v.fs.snapshot_create(&root(), dir, b"of the source").expect("a snapshot");
    v.fs.rename(&root(), (above, b"d"), (home(), b"e"), fs::RenameMode::Replace).expect("it moves");
    removed(&v, fork, "d", inner);
    let gone = expected(&[("of the clone", Some("/fork/d"))]);
    assert_eq!(paths(&v, SnapshotsOf::Removed), gone);
    let all = expected(&[("of the clone", Some("/fork/d")), ("of the source", Some("/e"))]);
    assert_eq!(paths(&v, SnapshotsOf::All), all);
    // No record has where a clone was that is gone.
    removed(&v, home(), "fork", fork);
    assert_eq!(paths(&v, SnapshotsOf::Removed), expected(&[("of the clone", None)]));
}

#[test]
fn the_owner_of_its_contents_manages_a_removed_directorys_snapshot() {
    let v = volume();
    let public = v.fs.mkdir(&root(), home(), b"public", 0o711).expect("a directory").node;
    let dir = v.dir(public, "d").node;
    give(&v, dir, 1000);
    let taken = v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    give(&v, dir, 1001);
    // While the directory is there, its snapshots are those of its owner.
    let denied = FsError::NotPermitted("");
    refused(v.fs.snapshot_delete_number(&user(1000), taken.subvol), &denied);
    removed(&v, public, "d", dir);
    let seen = listed(&v, &user(1000), SnapshotsOf::Removed);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].path.as_deref(), Some(&b"/public/d"[..]));
    let shut = |mode| {
        let mode = SetAttr { mode: Some(mode), ..SetAttr::default() };
        v.fs.setattr(&root(), public, &mode).expect("it is there");
    };
    shut(0o700);
    assert_eq!(listed(&v, &user(1000), SnapshotsOf::Removed)[0].path, None, "a closed path");
    refused(by_number(&v, &user(1000), taken.subvol), &denied);
    shut(0o711);
    assert_eq!(paths(&v, SnapshotsOf::Removed), expected(&[("one", Some("/public/d"))]));
    assert!(listed(&v, &user(1001), SnapshotsOf::All).is_empty());
    refused(v.fs.snapshot_delete_number(&user(1001), taken.subvol), &denied);
    let kept = by_number(&v, &user(1000), taken.subvol).expect("it is the user's");
    forget(&v, kept);
    v.fs.snapshot_delete_number(&user(1000), taken.subvol).expect("it is the user's");
    assert!(listed(&v, &root(), SnapshotsOf::All).is_empty());
}

/// While the directory exists, a user reaches no more by number than by the names. That is neither
/// the snapshot nor the present contents of the directory, and nothing is deleted.
#[test]
fn an_inode_number_bypasses_no_closed_directory() {
    let v = volume();
    let private = v.fs.mkdir(&root(), home(), b"private", 0o755).expect("a directory").node;
    let dir = v.dir(private, "d").node;
    give(&v, dir, 1000);
    let taken = v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    let number = fs::name_of_number(taken.subvol);
    let owner = user(1000);
    forget(&v, by_number(&v, &owner, taken.subvol).expect("the way is open"));
    let shut = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    v.fs.setattr(&root(), private, &shut).expect("it is there");
    v.file(dir, "new");
    let resolved = |rest: &str| {
        let path = [b"/.snapshots/", &number[..], rest.as_bytes()].concat();
        v.fs.resolve(&owner, &path, Follow::Yes).map(|entry| entry.node)
    };
    refused(v.fs.resolve(&owner, b"/private/d/new", Follow::Yes), &FsError::AccessDenied);
    // What is in the directory now, the directory, the snapshot.
    for rest in ["/../new", "/..", ""] {
        refused(resolved(rest), &FsError::NotPermitted(""));
    }
    refused(v.fs.snapshot_delete_number(&owner, taken.subvol), &FsError::NotPermitted(""));
    // What is removed is there until it is reclaimed, too.
    forget(&v, dir);
    forget(&v, private);
    v.fs.rmr(&root(), home(), b"private").expect("a directory");
    for reclaimed in [false, true] {
        refused(resolved(""), &FsError::NotPermitted(""));
        // What was in the directory.
        refused(resolved("/../new"), &FsError::NotPermitted(""));
        refused(v.fs.snapshot_delete_number(&owner, taken.subvol), &FsError::NotPermitted(""));
        if !reclaimed {
            settle(&v);
        }
    }
    assert!(by_number(&v, &root(), taken.subvol).is_ok());
    v.fs.snapshot_delete_number(&root(), taken.subvol).expect("root may");
}

/// Directories above that were removed as well, and subvolumes: what their owners closed stays
/// closed, and what was the caller's own stays open.
#[test]
fn removing_parent_directories_grants_no_access() {
    let owner = user(1000);
    for (above, open) in [(1000, true), (1001, false), (0, false)] {
        let v = volume();
        let top = v.dir(home(), "top").node;
        let middle = v.dir(top, "middle").node;
        let dir = v.dir(middle, "d").node;
        give(&v, dir, 1000);
        give(&v, middle, above);
        let taken = v.fs.snapshot_create(&owner, dir, b"one").expect("its own");
        for held in [dir, middle] {
            forget(&v, held);
        }
        v.fs.rmr(&root(), top, b"middle").expect("a directory");
        settle(&v);
        assert_eq!(by_number(&v, &owner, taken.subvol).is_ok(), open, "below one of {above}");
        let path = listed(&v, &owner, SnapshotsOf::Removed)[0].path.clone();
        assert_eq!(path.as_deref(), open.then_some(&b"/top/middle/d"[..]));
    }
    let v = volume();
    let top = v.dir(home(), "top").node;
    let sub = v.fs.subvolume_create(&root(), top, b"s", 0o755).expect("a subvolume").node;
    give(&v, sub, 1000);
    let taken = v.fs.snapshot_create(&owner, sub, b"one").expect("its own");
    forget(&v, sub);
    removed(&v, home(), "top", top);
    refused(by_number(&v, &owner, taken.subvol), &FsError::NotPermitted(""));
}

/// A user who deletes what is listed as removed would have lost snapshots of what exists.
#[test]
fn renamed_directories_are_not_listed_as_removed() {
    const TURNS: usize = 3000;
    let v = volume();
    let (a, b) = (v.dir(home(), "a").node, v.dir(home(), "b").node);
    let sub = v.fs.subvolume_create(&root(), a, b"x", 0o755).expect("a subvolume").node;
    let dir = v.dir(sub, "d").node;
    give(&v, dir, 1000);
    v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    let volume = &v.fs;
    let turn = move |from: (NodeId, &[u8]), to: (NodeId, &[u8])| {
        for (from, to) in [(from, to), (to, from)] {
            volume.rename(&root(), from, to, fs::RenameMode::Replace).expect("it moves");
        }
    };
    device::scope(|scope| {
        let mover = scope.spawn(move || {
            for _ in 0..TURNS {
                turn((sub, b"d"), (sub, b"e"));
                turn((a, b"x"), (b, b"x"));
            }
        });
        let mut reported = Vec::new();
        while !mover.is_finished() {
            let proceed = AtomicBool::new(false);
            let query = SnapshotQuery::all(SnapshotsOf::Removed, &proceed);
            let list = all(volume, &root(), &query);
            reported.extend(list.expect("a list"));
        }
        assert!(reported.is_empty(), "{} of them, {:?}", reported.len(), reported[0]);
    });
}

#[test]
fn a_removal_can_report_how_many_snapshots_remain() {
    let v = volume();
    let above = v.dir(home(), "a").node;
    let dir = filled(&v, above, "d", 1);
    let beside = v.dir(home(), "beside").node;
    let count = |name: &[u8]| v.fs.snapshots_of_tree(NodeId::ROOT, name).expect("a directory");
    assert_eq!(count(b"a"), 0);
    for (at, name) in [(dir, "1"), (dir, "2"), (above, "1"), (beside, "1"), (NodeId::ROOT, "1")] {
        v.fs.snapshot_create(&root(), at, name.as_bytes()).expect("a snapshot");
    }
    v.fs.clone_dir(&root(), beside, above, b"fork").expect("a clone");
    let fork = v.find(above, "fork").expect("the clone").node;
    v.fs.snapshot_create(&root(), fork, b"1").expect("a snapshot");
    assert_eq!((count(b"a"), count(b"beside")), (4, 1));
    refused(v.fs.snapshots_of_tree(NodeId::ROOT, b"none"), &FsError::NotFound);
    for held in [fork, dir] {
        forget(&v, held);
    }
    removed(&v, home(), "a", above);
    assert_eq!(listed(&v, &root(), SnapshotsOf::Removed).len(), 4);
    assert_eq!(listed(&v, &root(), SnapshotsOf::All).len(), 6);
}

/// Directories in one another below the root, with names of 250 bytes; the last one.
fn chain(v: &Volume, levels: usize) -> NodeId {
    let name = "n".repeat(250);
    let mut at = home();
    for _ in 0..levels {
        let next = v.dir(at, &name).node;
        if at != home() {
            forget(v, at);
        }
        at = next;
    }
    at
}

#[test]
fn a_list_is_narrowed_to_a_name_and_a_way_and_ended() {
    let v = volume();
    let above = v.dir(home(), "a").node;
    let dirs = ["d", "e"].map(|name| v.dir(above, name).node);
    for (dir, name) in [(dirs[0], "one"), (dirs[0], "two"), (dirs[1], "one"), (home(), "one")] {
        v.fs.snapshot_create(&root(), dir, name.as_bytes()).expect("a snapshot");
        v.tick();
    }
    for dir in dirs {
        forget(&v, dir);
    }
    removed(&v, home(), "a", above);
    let proceed = AtomicBool::new(false);
    let query = SnapshotQuery::all(SnapshotsOf::Removed, &proceed);
    let found = |query: &SnapshotQuery<'_>| {
        let all = all(&v.fs, &root(), query).expect("a list");
        let text = |kept: KeptSnapshot| {
            let path = String::from_utf8(kept.path.expect("it is known")).unwrap();
            format!("{path}@{}", String::from_utf8(kept.snapshot.name).unwrap())
        };
        all.into_iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(found(&query), ["/a/d@one", "/a/d@two", "/a/e@one"]);
    assert_eq!(found(&SnapshotQuery { name: Some(b"one"), ..query }), ["/a/d@one", "/a/e@one"]);
    let way: [&[u8]; 3] = [b"a", b"d", b"below"];
    let narrowed = SnapshotQuery { on_the_way_to: Some(&way), ..query };
    assert_eq!(found(&narrowed), ["/a/d@one", "/a/d@two"]);
    assert!(found(&SnapshotQuery { on_the_way_to: Some(&way[..1]), ..query }).is_empty());
    let one = SnapshotQuery { name: Some(b"one"), ..narrowed };
    assert_eq!(found(&one), ["/a/d@one"]);
    let everything = SnapshotQuery { of: SnapshotsOf::All, on_the_way_to: Some(&[]), ..query };
    assert_eq!(found(&everything), ["/@one"]);

    let few = SnapshotQuery { steps_max: 2, ..query };
    refused(all(&v.fs, &root(), &few), &FsError::Busy(""));
    let gone = AtomicBool::new(true);
    let cancelled = SnapshotQuery { cancel: &gone, ..query };
    refused(all(&v.fs, &root(), &cancelled), &FsError::Interrupted);
    let mut visited = 0;
    let ended = v.fs.snapshot_list_volume(&root(), &query, &mut |_| {
        visited += 1;
        ControlFlow::Break(())
    });
    ended.expect("it ends");
    assert_eq!(visited, 1);
}

/// To find the paths of removed directories, the search climbs from directories that were rolled
/// back, each way once. When it climbed all of each way, one user's rollbacks took the steps of
/// everybody's searches.
#[test]
fn rollbacks_in_a_deep_directory_cost_few_steps() {
    const DEEP: usize = 300;
    const ROLLED_BACK: usize = 20;
    let v = volume();
    let gone = v.dir(home(), "gone").node;
    v.fs.snapshot_create(&root(), gone, b"one").expect("a snapshot");
    removed(&v, home(), "gone", gone);
    let deep = chain(&v, DEEP);
    for number in 0..ROLLED_BACK {
        let dir = v.dir(deep, &number.to_string()).node;
        v.fs.snapshot_create(&root(), dir, b"old").expect("a snapshot");
        v.fs.rollback(&root(), dir, b"old").expect("rolled back");
        forget(&v, dir);
    }
    let proceed = AtomicBool::new(false);
    let way: [&[u8]; 1] = [b"gone"];
    let query = SnapshotQuery {
        name: Some(b"one"),
        on_the_way_to: Some(&way),
        steps_max: 2 * DEEP + 40 * ROLLED_BACK,
        ..SnapshotQuery::all(SnapshotsOf::Removed, &proceed)
    };
    let found = all(&v.fs, &root(), &query).expect("a list");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path.as_deref(), Some(&b"/gone"[..]));
}

/// Each snapshot was listed with its whole path: a thousand of a deep directory took gigabytes.
#[test]
fn paths_beyond_a_bound_are_not_built() {
    let v = volume();
    let fits = chain(&v, 1000);
    v.fs.snapshot_create(&root(), fits, b"fits").expect("a snapshot");
    v.tick();
    let mut at = fits;
    for number in 0..100 {
        let next = v.dir(at, &format!("{number:0>250}")).node;
        forget(&v, at);
        at = next;
    }
    v.fs.snapshot_create(&root(), at, b"long").expect("a snapshot");
    forget(&v, at);
    let found: Vec<_> = listed(&v, &root(), SnapshotsOf::All);
    let lengths: Vec<_> = found.iter().map(|kept| kept.path.as_ref().map(Vec::len)).collect();
    assert_eq!(lengths, [Some(1000 * 251), None]);
    assert!(found.iter().all(|kept| !kept.removed));
    let name = "n".repeat(250);
    v.fs.rmr(&root(), home(), name.as_bytes()).expect("a directory");
    settle(&v);
    let found: Vec<_> = listed(&v, &root(), SnapshotsOf::Removed);
    let lengths: Vec<_> = found.iter().map(|kept| kept.path.as_ref().map(Vec::len)).collect();
    assert_eq!(lengths, [Some(1000 * 251), None]);
}
