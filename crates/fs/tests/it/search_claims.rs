//! The index of a tree whose records are damaged with every checksum right. A directory's claims
//! about its names do not decide how much is written, and impossible claims are reported.

use format::directory_record::DirectoryRecord;
use format::entry_record::EntryRecord;
use format::key::{self, Part};
use fs::OpenOptions;
use inode::{FsError, NameHash};
use search::index::{ClusterLimits, IndexOptions};
use search::query::{Expr, Glob, Letters, Test};
use store::{Batch, Commit, Read, TreeId};

use crate::search_declared::ask;
use crate::support::{ROOT, Volume, volume_with};

const LIMITS: ClusterLimits = ClusterLimits { directories: 4, rows: 10 };

/// A volume with some files and directories at its root, whose record claims so many names.
fn claiming(files: u32, entries: i64) -> Volume {
    let index = IndexOptions { limits: LIMITS, ..IndexOptions::default() };
    let options = OpenOptions { index: Some(index), ..OpenOptions::default() };
    let v = volume_with(NameHash::BITS, &options);
    for number in 0..files {
        v.file(ROOT, &format!("f{number}"));
    }
    for number in 0..5 {
        v.dir(ROOT, &format!("d{number}"));
    }
    let tree = TreeId(key::FIRST_TREE);
    let at = key::directory(v.fs.search_place(ROOT).expect("the root").1, Part::Attributes);
    let value = v.store.get(tree, &at).expect("it reads").expect("the root has a record");
    let record = DirectoryRecord::decode(&value).expect("a record");
    let mut batch = Batch::new();
    batch.put(tree, &at, &DirectoryRecord { entries, ..record }.encode());
    v.store.commit(&batch).expect("it is committed");
    v
}

fn named(pattern: &[u8]) -> Expr {
    Expr::Test(Test::Name(Glob::new(pattern, false, Letters::Bytes).expect("a pattern")))
}

/// Flushes, and returns of how many clusters and rows the base consists.
fn flushed(v: &Volume) -> (u64, u64) {
    v.fs.index_flush(ROOT).expect("a flush goes well");
    assert_eq!(ask(&v.fs, &named(b"f*7")).matched, 10);
    assert_eq!(ask(&v.fs, &named(b"d*")).matched, 5);
    let stats = v.fs.index_stats().expect("it answers").expect("there is an index");
    (stats.clusters, stats.rows)
}

#[test]
fn a_directory_with_an_impossible_name_count_gets_clusters_for_its_real_names() {
    for entries in [i64::MAX - 1000, 1 << 40, 10_000_000] {
        let v = claiming(100, entries);
        let (clusters, rows) = flushed(&v);
        assert_eq!(rows, 105);
        assert!((11..=22).contains(&clusters), "{clusters} clusters of {entries} claimed names");
        // Again, from a base that has them, with a change in each cluster.
        for number in 100..200 {
            v.file(ROOT, &format!("g{number}"));
        }
        let (clusters, rows) = flushed(&v);
        assert_eq!(rows, 205);
        assert!((20..=45).contains(&clusters), "{clusters} clusters of {entries} claimed names");
    }
}

#[test]
fn a_directory_with_too_low_a_name_count_is_divided() {
    let v = claiming(100, 5);
    let (clusters, rows) = flushed(&v);
    assert_eq!(rows, 105);
    assert!((6..=11).contains(&clusters), "{clusters} clusters");
}

#[test]
fn an_impossible_name_is_damage_that_the_index_reports() {
    let v = claiming(30, 35);
    let tree = TreeId(key::FIRST_TREE);
    let mut batch = Batch::new();
    for (at, value) in v.store.dump(tree).expect("the tree") {
        let Ok(entry) = EntryRecord::decode(&value) else { continue };
        if entry.name == b"f17" {
            let mut bad = Vec::new();
            EntryRecord { name: b"f\0x", ..entry }.encode(&mut bad);
            batch.put(tree, &at, &bad);
        }
    }
    v.store.commit(&batch).expect("it is committed");
    assert!(matches!(v.fs.index_flush(ROOT), Err(FsError::Io(_))));
    // What is there is found by walking.
    assert_eq!(ask(&v.fs, &named(b"f*")).matched, 30);
}
