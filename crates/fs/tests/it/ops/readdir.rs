//! `readdir` and `readdirplus`.

use std::collections::BTreeSet;

use format::entry_record::EntryRecord;
use format::key::{self, Parsed, Part};
use fs::{FileSystem, WalkControl};
use inode::{Caller, FsError, Kind, NodeId};
use store::{Batch, Commit, TreeId};

use crate::support::{ROOT, Volume, refused, user, volume};

#[test]
fn a_listing_continues_from_any_cookie() {
    let v = volume();
    let names: BTreeSet<_> = (0..100).map(|n| format!("f{n}")).collect();
    for name in &names {
        v.file(ROOT, name);
    }
    let mut seen = BTreeSet::new();
    let mut cookie = 0;
    loop {
        let mut taken = 0;
        v.fs.readdir(&Caller::root(), ROOT, cookie, &mut |entry| {
            if taken == 7 {
                return WalkControl::Stop;
            }
            assert!(entry.cookie > 2 && entry.cookie < 1 << 63 && entry.cookie > cookie);
            taken += 1;
            cookie = entry.cookie;
            assert!(seen.insert(String::from_utf8_lossy(entry.name).into_owned()));
            WalkControl::Continue
        })
        .expect("the root");
        if taken == 0 {
            break;
        }
    }
    assert_eq!(seen, names);
}

#[test]
fn removing_listed_names_does_not_disturb_a_listing() {
    let v = volume();
    for n in 0..50 {
        v.file(ROOT, &format!("f{n}"));
    }
    let mut cookie = 0;
    let mut removed = 0;
    loop {
        let mut name = None;
        v.fs.readdir(&Caller::root(), ROOT, cookie, &mut |entry| {
            if name.is_some() {
                return WalkControl::Stop;
            }
            name = Some(entry.name.to_vec());
            cookie = entry.cookie;
            WalkControl::Continue
        })
        .expect("the root");
        let Some(name) = name else { break };
        v.fs.unlink(&Caller::root(), ROOT, &name).expect("a name");
        removed += 1;
    }
    assert_eq!(removed, 50);
    assert_eq!(v.names(ROOT).len(), 0);
}

#[test]
fn readdirplus_gives_attributes_and_counts_look_ups() {
    let v = volume();
    let file = v.file(ROOT, "f");
    let dir = v.dir(ROOT, "d");
    v.fs.forget(file.node, 1);
    v.fs.forget(dir.node, 1);
    assert_eq!(v.fs.status().expect("counters").nodes, 0);
    let mut seen = Vec::new();
    v.fs.readdirplus(&Caller::root(), ROOT, 0, &mut |entry| {
        if seen.len() == 1 {
            return WalkControl::Stop;
        }
        seen.push((entry.node, *entry.attr.expect("attributes")));
        WalkControl::Continue
    })
    .expect("the root");
    assert_eq!(v.fs.status().expect("counters").nodes, 1, "the one refused is not held");
    let (node, attr) = seen[0];
    assert_eq!(v.fs.getattr(&Caller::root(), node).expect("a held node"), attr);
}

/// One inode that cannot be read hides no other name, and nothing is held of it.
#[test]
fn readdirplus_lists_unreadable_inodes_without_attributes() {
    let v = volume();
    let linked = v.file(ROOT, "linked");
    v.fs.link(&Caller::root(), linked.node, ROOT, b"again").expect("a link");
    v.fs.forget(linked.node, 2);
    for name in ["f", "g", "h"] {
        let file = v.file(ROOT, name);
        v.fs.forget(file.node, 1);
    }
    let tree = TreeId(key::FIRST_TREE);
    let mut batch = Batch::new();
    for (at, _) in v.store.dump(tree).expect("the tree") {
        if let Ok(Parsed::Linked { part: Part::Attributes, .. }) = key::parse(&at) {
            batch.put(tree, &at, b"?");
        }
    }
    v.store.commit(&batch).expect("it is committed");
    let mut seen = Vec::new();
    v.fs.readdirplus(&Caller::root(), ROOT, 0, &mut |entry| {
        seen.push((String::from_utf8_lossy(entry.name).into_owned(), entry.attr.is_some()));
        assert!(entry.attr.is_some() || entry.node == linked.node);
        WalkControl::Continue
    })
    .expect("the root");
    seen.sort();
    let want = [("again", false), ("f", true), ("g", true), ("h", true), ("linked", false)];
    assert!(seen.iter().map(|(name, attr)| (name.as_str(), *attr)).eq(want), "{seen:?}");
    assert_eq!(v.fs.status().expect("counters").nodes, 3);
    let found = v.fs.lookup(&Caller::root(), ROOT, b"linked");
    assert!(matches!(found, Err(FsError::Io(_))), "{found:?}");
}

/// The root's entries with attributes, by name, and which of them have some.
fn listed_with(v: &Volume, dir: NodeId) -> Vec<(String, bool)> {
    let mut seen = Vec::new();
    v.fs.readdirplus(&Caller::root(), dir, 0, &mut |entry| {
        seen.push((String::from_utf8_lossy(entry.name).into_owned(), entry.attr.is_some()));
        if entry.attr.is_some() {
            v.fs.forget(entry.node, 1);
        }
        WalkControl::Continue
    })
    .expect("a directory");
    seen.sort();
    seen
}

/// Changes the records of the first tree that `falsify` answers for: `None` removes one.
fn falsified(v: &Volume, falsify: impl Fn(&Parsed, &[u8]) -> Option<Option<Vec<u8>>>) {
    let tree = TreeId(key::FIRST_TREE);
    let mut batch = Batch::new();
    for (at, value) in v.store.dump(tree).expect("the tree") {
        let Ok(parsed) = key::parse(&at) else { continue };
        match falsify(&parsed, &value) {
            None => {}
            Some(None) => batch.delete(tree, &at),
            Some(Some(bytes)) => batch.put(tree, &at, &bytes),
        }
    }
    v.store.commit(&batch).expect("it is committed");
}

/// Attributes in an entry that do not decode hide no name, its own neither.
#[test]
fn an_entry_that_does_not_decode_hides_no_name() {
    let v = volume();
    for name in ["a", "b", "c", "d"] {
        let file = v.file(ROOT, name);
        v.fs.forget(file.node, 1);
    }
    falsified(&v, |parsed, value| match EntryRecord::decode(value) {
        Ok(EntryRecord { name: b"b", .. }) if is_entry(parsed) => {
            Some(Some([value, b"?"].concat()))
        }
        _ => None,
    });
    let want = [("a", true), ("b", false), ("c", true), ("d", true)];
    let listed = listed_with(&v, ROOT);
    assert!(listed.iter().map(|(name, attr)| (name.as_str(), *attr)).eq(want), "{listed:?}");
    assert_eq!(v.names(ROOT).len(), 4);
    let found = v.fs.lookup(&Caller::root(), ROOT, b"b");
    assert!(matches!(found, Err(FsError::Io(_))), "{found:?}");
}

fn is_entry(parsed: &Parsed) -> bool {
    matches!(parsed, Parsed::Entry { cookie: 1.., part: Part::Attributes, .. })
}

/// A name whose inode is lost is there, and so are the others.
#[test]
fn a_dangling_name_is_listed() {
    let v = volume();
    let linked = v.file(ROOT, "linked");
    v.fs.link(&Caller::root(), linked.node, ROOT, b"again").expect("a link");
    v.fs.forget(linked.node, 2);
    for node in [v.file(ROOT, "f").node, v.dir(ROOT, "d").node] {
        v.fs.forget(node, 1);
    }
    let dir = v.fs.lookup(&Caller::root(), ROOT, b"d").expect("a directory").node;
    v.fs.forget(dir, 1);
    falsified(&v, |parsed, _| match *parsed {
        Parsed::Linked { part: Part::Attributes, .. } => Some(None),
        Parsed::Entry { directory, cookie: 0, part: Part::Attributes }
            if directory == dir.ino().0 =>
        {
            Some(None)
        }
        _ => None,
    });
    let want = [("again", false), ("d", false), ("f", true), ("linked", false)];
    let listed = listed_with(&v, ROOT);
    assert!(listed.iter().map(|(name, attr)| (name.as_str(), *attr)).eq(want), "{listed:?}");
    assert_eq!(v.names(ROOT).len(), 4);
    assert_eq!(v.fs.status().expect("counters").nodes, 0);
}

/// A clone, and a snapshot, whose own records are lost or damaged: their names are listed, alone
/// too, and so are those behind them.
#[test]
fn an_unreadable_subvolume_hides_no_name() {
    let v = volume();
    let root = Caller::root();
    let dir = v.dir(ROOT, "d");
    v.file(ROOT, "f");
    for name in [&b"s1"[..], b"s2", b"s3", b"s4"] {
        v.fs.snapshot_create(&root, dir.node, name).expect("a snapshot");
    }
    for name in [&b"c1"[..], b"c2", b"c3"] {
        v.fs.clone_dir(&root, dir.node, ROOT, name).expect("a clone");
    }
    let fresh = v.reopened();
    let snapshots = fresh.lookup(&root, dir.node, b".snapshots").expect("it is there").node;
    let subvolume = |parent, name: &[u8]| {
        let found = v.fs.lookup(&root, parent, name).expect("it is there");
        found.attr.node.slot().0
    };
    let ids = [
        subvolume(snapshots, b"s2"),
        subvolume(snapshots, b"s3"),
        subvolume(ROOT, b"c1"),
        subvolume(ROOT, b"c2"),
    ];
    let volume_tree = TreeId(key::VOLUME_TREE);
    let mut batch = Batch::new();
    for (nth, id) in ids.into_iter().enumerate() {
        let at = key::subvolume(id);
        match nth % 2 {
            0 => batch.put(volume_tree, &at, b"?"),
            _ => batch.delete(volume_tree, &at),
        }
    }
    v.store.commit(&batch).expect("it is committed");
    let v = Volume { fs: fresh, ..v };
    for (dir, want) in [
        (ROOT, vec![("c1", false), ("c2", false), ("c3", true), ("d", true), ("f", true)]),
        (snapshots, vec![("s1", true), ("s2", false), ("s3", false), ("s4", true)]),
    ] {
        let listed = listed_with(&v, dir);
        let listed: Vec<_> = listed.iter().map(|(name, attr)| (name.as_str(), *attr)).collect();
        assert_eq!(listed, want);
        assert_eq!(v.names(dir).len(), want.len());
    }
}

#[test]
fn a_cookie_after_the_last_name_lists_nothing() {
    let v = volume();
    v.file(ROOT, "f");
    for place in [(1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX] {
        let mut seen = 0;
        v.fs.readdir(&Caller::root(), ROOT, place, &mut |_| {
            seen += 1;
            WalkControl::Continue
        })
        .expect("the root");
        assert_eq!(seen, 0, "{place:#x}");
    }
}

#[test]
fn only_directories_are_listed_by_permitted_callers() {
    let v = volume();
    let file = v.file(ROOT, "f");
    let take = &mut |_: &fs::DirEntry<'_>| WalkControl::Continue;
    refused(v.fs.readdir(&Caller::root(), file.node, 0, take), &FsError::NotDirectory);
    let dir = v.fs.mkdir(&user(5), ROOT, b"d", 0o300).expect("a directory");
    refused(v.fs.readdir(&user(5), dir.node, 0, take), &FsError::AccessDenied);
}

#[test]
fn kinds_are_listed() {
    let v = volume();
    v.dir(ROOT, "d");
    v.fs.symlink(&Caller::root(), ROOT, b"l", b"d").expect("a link");
    let mut kinds = Vec::new();
    v.fs.readdir(&Caller::root(), ROOT, 0, &mut |entry| {
        kinds.push((entry.name.to_vec(), entry.kind));
        WalkControl::Continue
    })
    .expect("the root");
    kinds.sort();
    assert_eq!(kinds, [(b"d".to_vec(), Kind::Directory), (b"l".to_vec(), Kind::Symlink)]);
}
