//! Tests of the daemon's side of an export.

use std::fmt::Write as _;

use format::key;

use super::*;
use crate::daemon::fresh;

#[test]
fn a_directory_that_is_too_deep_is_reported_and_the_rest_is_exported() {
    let (fs, root) = (fresh::volume(), Caller::root());
    let make = |parent, name: &[u8]| {
        let node = fs.mkdir(&root, parent, name, 0o755).unwrap().node;
        fs.forget(node, 1);
        node
    };
    let deep = make(make(NodeId::ROOT, b"a"), b"b");
    make(make(deep, b"c"), b"d");
    make(deep, b"e");
    make(NodeId::ROOT, b"f");
    let sent = |levels_max| {
        let (mut entered, mut unread) = (Vec::new(), Vec::new());
        let mut send = |body| {
            let Body::Exported(Bytes(items)) = body else { panic!("{body:?}") };
            let mut items = &items[..];
            while let Some(item) = ExportItem::next(&mut items) {
                match item.unwrap() {
                    ExportItem::Enter { name, .. } => entered.push(name.to_vec()),
                    ExportItem::Unread { name, message, .. } => {
                        assert!(message.contains(TOO_DEEP), "{message}");
                        unread.push(name.to_vec());
                    }
                    ExportItem::Leave => {}
                    other => panic!("{other:?}"),
                }
            }
            Ok(())
        };
        let bounds = (levels_max, Links::new(usize::MAX, None));
        export_within(&fs, (&root, b"/"), bounds, &mut send, || ()).unwrap();
        entered.sort();
        (entered.join(&b' '), unread.join(&b' '))
    };
    assert_eq!(sent(3), (b" a b f".to_vec(), b"c e".to_vec()));
    assert_eq!(sent(4), (b" a b c e f".to_vec(), b"d".to_vec()));
    assert_eq!(sent(5), (b" a b c d e f".to_vec(), Vec::new()));
    assert_eq!(fs.status().unwrap().nodes, 0);
}

/// Nothing is removed from a snapshot: a directory that is lost in one is reported.
#[test]
fn an_entry_of_a_snapshot_that_points_to_nothing_is_reported() {
    let (fs, root) = (fresh::volume(), Caller::root());
    let lost = fs.mkdir(&root, NodeId::ROOT, b"lost", 0o755).unwrap().node;
    let snapshot = fs.snapshot_create(&root, NodeId::ROOT, b"s").unwrap();
    let ino = fs.place(lost).unwrap().1;
    let mut batch = store::Batch::new();
    let tree = fs.subvol(snapshot.subvol).unwrap().tree();
    batch.delete(tree, &key::directory(ino, key::Part::Attributes));
    fs.store.commit(&batch).unwrap();
    let mut unread = Vec::new();
    let mut send = |body| {
        let Body::Exported(Bytes(items)) = body else { panic!("{body:?}") };
        let mut items = &items[..];
        while let Some(item) = ExportItem::next(&mut items) {
            if let ExportItem::Unread { name, .. } = item.unwrap() {
                unread.push(name.to_vec());
            }
        }
        Ok(())
    };
    let bounds = (LEVELS_MAX, Links::new(usize::MAX, None));
    export_within(&fs, (&root, b"/.snapshots/s"), bounds, &mut send, || ()).unwrap();
    assert_eq!(unread, [b"lost"]);
}

#[test]
fn names_of_files_beyond_the_bound_are_files_of_their_own() {
    let (fs, root) = (fresh::volume(), Caller::root());
    let [a, b, c] = [b"a", b"b", b"c"].map(|name| {
        let node = fs.mkdir(&root, NodeId::ROOT, name, 0o755).unwrap().node;
        fs.forget(node, 1);
        node
    });
    for name in [b"x", b"y"] {
        let new = fs::NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let node = fs.mknod(&root, a, name, &new).unwrap().node;
        for dir in [b, c] {
            fs.link(&root, node, dir, name).unwrap();
            fs.forget(node, 1);
        }
        fs.forget(node, 1);
    }
    let sent = |memory| {
        let mut sent = String::new();
        let mut send = |body| {
            let Body::Exported(Bytes(items)) = body else { panic!("{body:?}") };
            let mut items = &items[..];
            while let Some(item) = ExportItem::next(&mut items) {
                match item.unwrap() {
                    ExportItem::File { name, attr, .. } => {
                        let name = name.escape_ascii();
                        write!(sent, "{name}{} ", attr.nlink).unwrap();
                    }
                    ExportItem::Link { name, .. } => {
                        write!(sent, "={} ", name.escape_ascii()).unwrap();
                    }
                    _ => {}
                }
            }
            Ok(())
        };
        let bounds = (LEVELS_MAX, Links::new(memory, None));
        export_within(&fs, (&root, b"/"), bounds, &mut send, || ()).unwrap();
        sent
    };
    assert_eq!(sent(usize::MAX), "x3 y3 =x =y =x =y ");
    // Once all names of the first were sent, there is space for another one.
    let one = wire::remembered_bytes("a/x".len());
    assert_eq!(sent(one), "x3 y0 =x y0 =x y3 ");
    assert_eq!(sent(2 * one), "x3 y3 =x =y =x =y ");
    assert_eq!(sent(one - 1), "x0 y0 x0 y0 x0 y0 ");
}

/// Regression: what a rollback, or the deletion of a snapshot, took away was left out in silence.
#[test]
fn a_directory_that_goes_while_it_is_exported_is_reported() {
    for of_snapshot in [true, false] {
        let (fs, root) = (fresh::volume(), Caller::root());
        let dir = fs.mkdir(&root, NodeId::ROOT, b"d", 0o755).unwrap().node;
        fs.snapshot_create(&root, dir, b"empty").unwrap();
        for name in [b"x", b"y"] {
            let below = fs.mkdir(&root, dir, name, 0o755).unwrap().node;
            fs.forget(below, 1);
        }
        // Long enough that it is sent before the rest is read.
        let new = fs::NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let long = fs.mknod(&root, dir, b"long", &new).unwrap().node;
        fs.write(&root, long, 0, &vec![7; 2 * PART_BYTES]).unwrap();
        fs.forget(long, 1);
        fs.snapshot_create(&root, dir, b"s").unwrap();
        let (mut entered, mut unread, mut is_gone) = (Vec::new(), Vec::new(), false);
        let mut send = |body| {
            if !std::mem::replace(&mut is_gone, true) {
                if of_snapshot {
                    fs.snapshot_delete(&root, dir, b"s").unwrap();
                } else {
                    fs.rollback(&root, dir, b"empty").unwrap();
                }
            }
            let Body::Exported(Bytes(items)) = body else { panic!("{body:?}") };
            let mut items = &items[..];
            while let Some(item) = ExportItem::next(&mut items) {
                match item.unwrap() {
                    ExportItem::Enter { name, .. } => entered.push(name.to_vec()),
                    ExportItem::Unread { name, message, .. } => {
                        unread.push((name.to_vec(), message.to_owned()));
                    }
                    _ => {}
                }
            }
            Ok(())
        };
        let path = if of_snapshot { &b"/d/.snapshots/s"[..] } else { b"/d" };
        let bounds = (LEVELS_MAX, Links::new(usize::MAX, None));
        export_within(&fs, (&root, path), bounds, &mut send, || ()).unwrap();
        let place = format!("{of_snapshot}: {entered:?} {unread:?}");
        let is_whole = entered.contains(&b"x".to_vec()) && entered.contains(&b"y".to_vec());
        let is_reported = unread.iter().any(|(name, message)| name.is_empty() && message == CUT);
        assert!(is_whole || is_reported, "{place}");
        fs.forget(dir, 1);
    }
}
