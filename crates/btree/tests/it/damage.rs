//! Damage on disk costs what it hits, and what only looks like damage is not reported.

use std::sync::Arc;

use btree::{BtreeStore, check};
use device::File;
use format::node::{HEADER_BYTES, Header, Kind, MAGIC, UNIT_BYTES, seal, verify};
use store::{Durable, Error, FindingKind, KeyRange, Maintain, Read, Snapshot, TreeId};
use testing::SimEnv;

use crate::util::{TREE, checked, commit, entries, options, reclaim_all, store};

const OTHER: TreeId = TreeId(TREE.0 + 1);
const CACHE_BYTES: usize = 64 << 20;

fn nodes_file(sim: &SimEnv) -> Arc<dyn File> {
    sim.env().device.open("btree/nodes").expect("open")
}

/// Flips a bit in the body of the first node that is `wanted`.
fn damage(sim: &SimEnv, wanted: impl Fn(&Header) -> bool) {
    let file = nodes_file(sim);
    let mut bytes = vec![0; usize::try_from(file.len().expect("length")).expect("it fits")];
    assert_eq!(file.read_at(&mut bytes, 0).expect("read"), bytes.len());
    let found = (0..bytes.len()).step_by(UNIT_BYTES).find(|&at| {
        let header = &bytes[at..at + HEADER_BYTES];
        if !header.starts_with(&MAGIC) {
            return false;
        }
        let address = u64::from_le_bytes(header[8..16].try_into().expect("eight"));
        let body = u32::from_le_bytes(header[28..32].try_into().expect("four")) as usize;
        let end = (at + HEADER_BYTES + body).min(bytes.len());
        let mut node = bytes[at..end].to_vec();
        let checksum = seal(&mut node, address);
        verify(&node, address, checksum).is_ok_and(|(header, _)| wanted(&header))
    });
    let at = found.expect("there is such a node") + HEADER_BYTES + 100;
    file.write_at(&[bytes[at] ^ 1], at as u64).expect("write");
}

fn is_interior(header: &Header) -> bool {
    header.kind == Kind::Interior && header.level == 1
}

/// A store with a tree of three levels and one of few entries, written and opened again.
fn reopened() -> (SimEnv, Arc<BtreeStore>) {
    let (sim, store) = store(1, CACHE_BYTES);
    commit(&store, |batch| batch.create_tree(OTHER));
    // Keys that differ at their ends only have long separators, so the tree grows high.
    for chunk in 0..12_u32 {
        commit(&store, |batch| {
            for n in chunk * 500..chunk * 500 + 500 {
                let key = [[b'k'; 460].as_slice(), &n.to_be_bytes()].concat();
                batch.put(TREE, &key, &[n as u8; 300]);
            }
        });
    }
    commit(&store, |batch| {
        for n in 0..20_u8 {
            batch.put(OTHER, &[n], &vec![n; if n % 2 == 0 { 5000 } else { 50 }]);
        }
    });
    let report = checked(&store);
    assert!(report.interiors > 3, "{report:?}");
    store.close().expect("close");
    drop(store);
    let store = BtreeStore::open(&sim.env(), &options(CACHE_BYTES)).expect("open");
    (sim, store)
}

/// Checkpoints and checks; all that may be found is space that nothing points to. Returns how many
/// bytes of it.
fn leaked(store: &BtreeStore) -> u64 {
    assert!(store.checkpoint().expect("checkpoint"));
    let report = check(store).expect("check");
    for finding in &report.findings {
        assert_eq!(finding.kind, FindingKind::Lost, "{finding:?}");
        assert_eq!(finding.file, "btree/nodes");
    }
    assert_eq!(report.lost_bytes > 0, report.findings_count > 0);
    report.lost_bytes
}

#[test]
fn a_damaged_dead_node_leaks_the_space_below_it_and_fails_no_checkpoint() {
    let (sim, store) = reopened();
    let before = entries(&*store, OTHER);
    damage(&sim, is_interior);
    commit(&store, |batch| batch.drop_tree(TREE));
    for round in 0..6_u8 {
        commit(&store, |batch| {
            for n in 0..100_u8 {
                batch.put(OTHER, &[100, round, n], &[n; 2000]);
            }
        });
    }
    let log_bytes = store.stats().log_bytes;
    let lost = leaked(&store);
    assert!(lost > 0, "what was below the node is lost, and is found");
    let trimmed = store.stats().log_bytes;
    assert!(trimmed < log_bytes, "{log_bytes} bytes of log became {trimmed}");
    reclaim_all(&store);
    assert_eq!(leaked(&store), lost, "nothing more is lost later");
    commit(&store, |batch| batch.delete_range(OTHER, &[100], &[101]));
    leaked(&store);
    store.close().expect("close");
    drop(store);
    let store = BtreeStore::open(&sim.env(), &options(CACHE_BYTES)).expect("open");
    assert!(!store.tree_exists(TREE).expect("look"));
    assert_eq!(entries(&*store, OTHER), before);
    assert_eq!(leaked(&store), lost);
}

#[test]
fn a_damaged_dead_leaf_leaks_its_long_values_and_fails_no_checkpoint() {
    let (sim, store) = reopened();
    let before = entries(&*store, TREE);
    // The leaf of the other tree is the only one with so few entries, but for the catalog.
    damage(&sim, |header| header.kind == Kind::Leaf && header.entries == 20);
    commit(&store, |batch| batch.drop_tree(OTHER));
    // Ten values of five units.
    assert_eq!(leaked(&store), 10 * 5 * UNIT_BYTES as u64);
    reclaim_all(&store);
    assert_eq!(leaked(&store), 10 * 5 * UNIT_BYTES as u64);
    assert_eq!(entries(&*store, TREE), before);
}

/// Few entries, of which those with even keys have long values that are only on disk.
fn long_values() -> (SimEnv, Arc<BtreeStore>) {
    let (sim, store) = store(1, CACHE_BYTES);
    commit(&store, |batch| {
        for n in 0..6_u8 {
            batch.put(TREE, &[n], &vec![n; if n % 2 == 0 { 5000 } else { 50 }]);
        }
    });
    checked(&store);
    store.close().expect("close");
    drop(store);
    let store = BtreeStore::open(&sim.env(), &options(CACHE_BYTES)).expect("open");
    (sim, store)
}

/// Gives the entry of key 2 another long value and deletes that of key 4, and uses their old space
/// for something else.
fn rewrite(store: &BtreeStore) {
    commit(store, |batch| {
        batch.put(TREE, &[2], &[20; 6000]);
        batch.delete(TREE, &[4]);
    });
    checked(store);
    for round in 0..2_u8 {
        commit(store, |batch| {
            for n in 0..20_u8 {
                batch.put(TREE, &[9, n], &[100 + round; 5000]);
            }
        });
        checked(store);
    }
    // What the cursor has read is not on disk any more.
    reclaim_all(store);
}

#[test]
fn a_cursor_reads_again_where_a_long_value_was_rewritten() {
    let (_sim, store) = long_values();
    let mut cursor = store.scan(TREE, KeyRange::all()).expect("scan");
    for n in 0..2_u8 {
        assert_eq!(cursor.next().expect("read").expect("an entry").key, &[n]);
    }
    rewrite(&store);
    let item = cursor.next().expect("read").expect("an entry");
    assert_eq!((item.key, item.value), ([2].as_slice(), [20; 6000].as_slice()));
    for key in [[3].as_slice(), &[5], &[9, 0]] {
        assert_eq!(cursor.next().expect("read").expect("an entry").key, key);
    }
    for key in [[5].as_slice(), &[3], &[2], &[1], &[0]] {
        assert_eq!(cursor.prev().expect("read").expect("an entry").key, key);
    }
    assert!(cursor.prev().expect("read").is_none());
}

#[test]
fn a_reversed_cursor_reads_again() {
    let (_sim, store) = long_values();
    let range = KeyRange { from: vec![1], to: Some(vec![6]) };
    let mut cursor = store.scan(TREE, range).expect("scan");
    cursor.seek(&[6]).expect("seek");
    assert_eq!(cursor.prev().expect("read").expect("an entry").key, &[5]);
    rewrite(&store);
    // What was deleted is skipped.
    assert_eq!(cursor.prev().expect("read").expect("an entry").key, &[3]);
    let item = cursor.prev().expect("read").expect("an entry");
    assert_eq!((item.key, item.value), ([2].as_slice(), [20; 6000].as_slice()));
    assert_eq!(cursor.prev().expect("read").expect("an entry").key, &[1]);
    assert!(cursor.prev().expect("read").is_none());
    for key in [[1].as_slice(), &[2], &[3], &[5]] {
        assert_eq!(cursor.next().expect("read").expect("an entry").key, key);
    }
    assert!(cursor.next().expect("read").is_none());
}

#[test]
fn a_cursor_reports_a_damaged_long_value_and_continues() {
    let (sim, store) = long_values();
    damage(&sim, |header| header.kind == Kind::Overflow);
    let mut cursor = store.scan(TREE, KeyRange::all()).expect("scan");
    let (mut read, mut failed) = (0, 0);
    loop {
        match cursor.next() {
            Ok(Some(_)) => read += 1,
            Ok(None) => break,
            Err(Error::Corrupt(_)) => failed += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((read, failed), (5, 1));
    loop {
        match cursor.prev() {
            Ok(Some(_)) => read += 1,
            Ok(None) => break,
            Err(Error::Corrupt(_)) => failed += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((read, failed), (10, 2));
}
