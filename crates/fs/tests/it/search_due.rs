//! A new base of the index is made in the background, before it is requested, after any large
//! change. That holds also if the change took few commits, or few bytes of the log. The tests count
//! the rows that the first query finds to differ from the base.

use std::ops::ControlFlow;
use std::time::Duration;

use device::{Clock, Device};
use fs::{
    Engine, FileSystem, Fs, Listed, Names, NewNode, OpenOptions, Outside, ScanOptions, WalkControl,
};
use inode::{Caller, Kind, NodeId, SetAttr};
use search::cluster::Fields;
use search::query::Expr;
use search::{Outcome, Request};
use store::Durability;
use testing::{CrashPolicy, SimDevice};

use crate::script;
use crate::search::everything_below;
use crate::subject::{Base, FsSubject};

on_each_engine!(
    what_is_changed_again_and_again_needs_no_base,
    names_that_are_gone_again_need_no_base,
    two_rows_of_three_that_are_changed_again_and_again_need_no_base,
);

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
/// So many rows must differ at least.
const ROWS_MIN: u64 = 500;

/// A base is due from some hundred rows on; a look is at all subvolumes after a hundred commits.
fn options() -> OpenOptions {
    let mut options = script::options(Durability::Async);
    options.checkpoint_bytes = 4 << 20;
    let index = options.index.as_mut().expect("an index");
    index.limits = search::index::ClusterLimits { directories: 50, rows: 500 };
    index.rows_without_base = 200;
    index.flush.rows_min = ROWS_MIN as usize;
    index.flush.share_percent = 10;
    index.flush.commits = 100;
    options
}

fn volume(engine: Engine) -> (SimDevice, FsSubject) {
    let device = SimDevice::new(1);
    let subject = FsSubject::format(&device, &options(), &Base::Engine(engine));
    (device, subject)
}

/// Lets a minute pass, in which the background does what it does.
fn settle(subject: &FsSubject) {
    for _ in 0..300 {
        subject.clock().sleep(Duration::from_millis(200));
        subject.fs().background_step(64).expect("background work goes well");
    }
}

/// Lets so many minutes pass in which nothing happens but what the background does.
fn rest(subject: &FsSubject, minutes: u64) {
    for _ in 0..minutes * 60 {
        subject.clock().sleep(Duration::from_secs(1));
        subject.fs().background_step(64).expect("background work goes well");
    }
}

/// A thousand rows, which are all in a base.
fn make_base(subject: &FsSubject) {
    make(subject.fs(), "a", 1000);
    settle(subject);
    subject.fs().index_flush(NodeId::ROOT).expect("a flush goes well");
}

/// Files of the index that describe bases.
fn manifests(device: &SimDevice) -> Vec<String> {
    let files = device.list(search::index::DIRECTORY).expect("it lists");
    files.into_iter().filter(|name| name.starts_with("manifest-")).collect()
}

fn make(fs: &Fs, directory: &str, files: u64) -> NodeId {
    let root = Caller::root();
    let made = fs.mkdir(&root, NodeId::ROOT, directory.as_bytes(), 0o755).expect("space").node;
    for number in 0..files {
        let name = format!("file{number}");
        let file = fs.mknod(&root, made, name.as_bytes(), &FILE).expect("space");
        fs.forget(file.node, 1);
    }
    made
}

/// What a first query reads: rows that differ from the base, and its outcome.
fn first_query(fs: &Fs) -> (u64, Outcome) {
    let (all, root) = (Expr::yes(), Caller::root());
    let below = everything_below(fs, NodeId::ROOT, &root, (&all, Fields::NONE));
    let request = Request { min_depth: 1, ..below };
    let found = fs.search(&request, &mut |_| ControlFlow::Continue(())).expect("a search");
    let stats = fs.index_stats().expect("it answers").expect("there is an index");
    (stats.delta_rows, found)
}

/// Fails unless a base is there that little differs from.
#[track_caller]
fn check(fs: &Fs, rows: u64, place: &str) {
    let (differing, found) = first_query(fs);
    assert_eq!(found.matched, rows, "{place}");
    assert!(found.clusters > 0, "{place}: walked");
    assert!(differing < ROWS_MIN, "{place}: {differing} rows differ");
}

#[test]
fn a_base_is_built_after_a_large_directory_was_removed() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let (_, subject) = volume(engine);
        let fs = subject.fs();
        for name in ["a", "b", "c"] {
            make(fs, name, 1000);
        }
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        settle(&subject);
        for name in ["a", "b"] {
            fs.rmr(&Caller::root(), NodeId::ROOT, name.as_bytes()).expect("it goes");
        }
        settle(&subject);
        check(fs, 1001, &format!("{engine:?}"));
    }
}

#[test]
fn a_base_is_built_after_a_rollback_to_a_state_without_one() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let (_, subject) = volume(engine);
        let (fs, root) = (subject.fs(), Caller::root());
        make(fs, "a", 1000);
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        make(fs, "b", 2000);
        fs.snapshot_create(&root, NodeId::ROOT, b"s").expect("a snapshot");
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        settle(&subject);
        fs.rollback(&root, NodeId::ROOT, b"s").expect("it is put back");
        settle(&subject);
        check(fs, 3002, &format!("{engine:?}"));
    }
}

/// A scan of another file system, of directories with files of some size.
fn scan(fs: &Fs, directories: u64, files: u64, size: u64) {
    let source = b"/data".to_vec();
    let (crosses_mounts, keeps_xattrs, hidden) = (false, false, false);
    let options = ScanOptions { source, started: 5, crosses_mounts, keeps_xattrs, hidden };
    let attr = |kind, number| Outside {
        kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        size,
        allocated: 0,
        atime: 0,
        mtime: 0,
        ctime: 0,
        btime: 0,
        device: 7,
        number,
    };
    let mut scan = fs.scan_begin(&options).expect("an index of this source");
    let mut root = scan.root(&attr(Kind::Directory, 1), &[]).expect("a root");
    let names: Vec<String> = (0..directories.max(files)).map(|n| format!("n{n:06}")).collect();
    let row = |kind, name: usize, number| Listed {
        name: names[name].as_bytes(),
        attr: attr(kind, number),
        target: b"",
        xattrs: Vec::new(),
    };
    let rows: Vec<_> = (0..directories as usize)
        .map(|directory| row(Kind::Directory, directory, 2 + directory as u64))
        .collect();
    let mut below = Vec::new();
    scan.names(&mut root, &rows, &mut |index, child| below.push((index, child))).expect("space");
    scan.close(root, Names::All).expect("space");
    for (directory, mut child) in below {
        let first = 1000 + directory as u64 * files;
        let rows: Vec<_> =
            (0..files as usize).map(|file| row(Kind::File, file, first + file as u64)).collect();
        scan.names(&mut child, &rows, &mut |_, _| {}).expect("space");
        scan.close(child, Names::All).expect("space");
    }
    scan.finish(6, 0).expect("all directories were reported of");
}

#[test]
fn a_base_is_built_after_a_scan_of_few_commits() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let (_, subject) = volume(engine);
        let fs = subject.fs();
        settle(&subject);
        scan(fs, 3, 1000, 0);
        settle(&subject);
        check(fs, 3003, &format!("{engine:?}, the first"));
        // No query ran for a while.
        subject.clock().sleep(Duration::from_secs(120));
        settle(&subject);
        scan(fs, 3, 1000, 9);
        settle(&subject);
        check(fs, 3003, &format!("{engine:?}, all changed"));
        subject.clock().sleep(Duration::from_secs(120));
        settle(&subject);
        scan(fs, 1, 1000, 9);
        settle(&subject);
        check(fs, 1001, &format!("{engine:?}, most is gone"));
    }
}

fn what_is_changed_again_and_again_needs_no_base(engine: Engine) {
    let (device, subject) = volume(engine);
    let fs = subject.fs();
    let directory = make(fs, "a", 1000);
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    settle(&subject);
    let before = manifests(&device);
    let file = fs.lookup(&Caller::root(), directory, b"file7").expect("it is there").node;
    for number in 0..5000_u32 {
        let change = SetAttr { mode: Some(number % 0o1000), ..SetAttr::default() };
        fs.setattr(&Caller::root(), file, &change).expect("a file");
        if number % 20 == 0 {
            subject.clock().sleep(Duration::from_millis(200));
            fs.background_step(64).expect("background work goes well");
        }
    }
    settle(&subject);
    assert_eq!(manifests(&device), before);
    check(fs, 1001, "after all");
}

/// The log counts as many changes as make a base due, also at the first look after opening. To
/// compare trees takes time for each leaf in which something differs.
#[test]
fn the_difference_is_counted_without_comparing_trees() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let (device, subject) = volume(engine);
        let fs = subject.fs();
        make(fs, "a", 1000);
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        let before = manifests(&device);
        make(fs, "b", ROWS_MIN * 2);
        fs.sync_all().expect("it syncs");
        let (base, crashed) = (subject.base(), device.after_crash(CrashPolicy::LoseAll, 1));
        let again = FsSubject::open(&crashed, &options(), base).expect("it opens");
        for (device, subject) in [(&device, &subject), (&crashed, &again)] {
            settle(subject);
            let stats = subject.fs().index_stats().expect("it answers").expect("an index");
            assert_ne!(manifests(device), before, "{engine:?}");
            assert_eq!((stats.compared, stats.logged), (0, 1), "{engine:?}");
            check(subject.fs(), 2002, &format!("{engine:?}"));
        }
    }
}

/// Names that are made and removed again counted as rows that differ, though none did.
fn names_that_are_gone_again_need_no_base(engine: Engine) {
    let (device, mut subject) = volume(engine);
    make(subject.fs(), "a", 1000);
    subject.fs().index_flush(NodeId::ROOT).expect("a flush goes well");
    settle(&subject);
    // Nothing of the index is in memory, so that what differs is counted otherwise.
    subject.cycle().expect("it closes, and opens");
    let fs = subject.fs();
    let root = Caller::root();
    let directory = fs.lookup(&root, NodeId::ROOT, b"a").expect("a name").node;
    let before = manifests(&device);
    for number in 0..4000_u32 {
        let name = format!("temporary {number}");
        let file = fs.mknod(&root, directory, name.as_bytes(), &FILE).expect("space");
        fs.unlink(&root, directory, name.as_bytes()).expect("it is there");
        fs.forget(file.node, 1);
        if number % 20 == 0 {
            subject.clock().sleep(Duration::from_millis(200));
            fs.background_step(64).expect("background work goes well");
        }
    }
    settle(&subject);
    assert_eq!(manifests(&device), before);
    make(fs, "b", 600);
    settle(&subject);
    assert_ne!(manifests(&device), before);
    check(fs, 1602, "after all");
}

/// Three quarters of a limit of three rows were none: what was counted twice was never compared.
fn two_rows_of_three_that_are_changed_again_and_again_need_no_base(engine: Engine) {
    let mut options = options();
    let flush = &mut options.index.as_mut().expect("an index").flush;
    (flush.rows_min, flush.share_percent) = (3, 0);
    let device = SimDevice::new(1);
    let mut subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    make(subject.fs(), "a", 50);
    subject.fs().index_flush(NodeId::ROOT).expect("a flush goes well");
    settle(&subject);
    // Nothing of the index is in memory, so that what differs is counted otherwise.
    subject.cycle().expect("it closes, and opens");
    let fs = subject.fs();
    let directory = fs.lookup(&Caller::root(), NodeId::ROOT, b"a").expect("a name").node;
    let before = manifests(&device);
    for files in [&["file7"][..], &["file7", "file8"]] {
        for number in 0..300_u32 {
            let name = files[number as usize % files.len()];
            let file = fs.lookup(&Caller::root(), directory, name.as_bytes()).expect("a name").node;
            let change = SetAttr { mode: Some(number % 0o1000), ..SetAttr::default() };
            fs.setattr(&Caller::root(), file, &change).expect("a file");
        }
        settle(&subject);
        assert_eq!(manifests(&device), before, "{files:?}");
    }
    let (differing, found) = first_query(fs);
    assert_eq!((found.matched, differing), (51, 2));
}

/// A listing of a directory changes its record by a merge, and nothing else: its row differs.
#[test]
fn a_base_is_built_after_many_directories_were_listed() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let (_, subject) = volume(engine);
        let (fs, root) = (subject.fs(), Caller::root());
        let make = |number: u32| {
            let name = format!("d{number}");
            fs.mkdir(&root, NodeId::ROOT, name.as_bytes(), 0o755).expect("space").node
        };
        let made: Vec<NodeId> = (0..2000).map(make).collect();
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        subject.clock().sleep(Duration::from_secs(1));
        for directory in made {
            fs.readdir(&root, directory, 0, &mut |_| WalkControl::Continue).expect("it lists");
        }
        settle(&subject);
        check(fs, 2000, &format!("{engine:?}"));
    }
}

/// A log that is long for what happened in one subvolume is not read for each other.
#[test]
fn the_log_is_not_read_for_each_of_many_subvolumes() {
    let mut options = options();
    options.index.as_mut().expect("an index").logged_row_bytes = 192;
    options.log_segment_bytes = 256 << 10;
    for engine in [Engine::Btree, Engine::Lsm] {
        let device = SimDevice::new(1);
        let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
        let (fs, root) = (subject.fs(), Caller::root());
        for number in 0..32 {
            let name = format!("home{number}");
            let home = fs.subvolume_create(&root, NodeId::ROOT, name.as_bytes(), 0o755);
            let home = home.expect("space").node;
            for number in 0..300 {
                let name = format!("f{number}");
                let file = fs.mknod(&root, home, name.as_bytes(), &FILE).expect("space");
                fs.forget(file.node, 1);
            }
            fs.index_flush(home).expect("a flush goes well");
        }
        make(fs, "a", 20_000);
        fs.sync_all().expect("it syncs");
        let (base, crashed) = (subject.base(), device.after_crash(CrashPolicy::LoseAll, 1));
        let again = FsSubject::open(&crashed, &options, base).expect("it opens");
        settle(&again);
        let stats = again.fs().index_stats().expect("it answers").expect("an index");
        assert!(stats.compared >= 32, "{engine:?}: {stats:?}");
    }
}

/// Looks were made when something happened, or a quarter of an hour after the last if something had
/// happened by then. If a base was younger at that look, an idle volume never made it again.
#[test]
fn a_base_is_built_by_age_without_further_changes() {
    for engine in [Engine::Btree, Engine::Lsm] {
        for opened_again in [false, true] {
            let place = format!("{engine:?}, opened again: {opened_again}");
            let (device, mut subject) = volume(engine);
            make_base(&subject);
            // More than a sixteenth of what a young base lets differ, in fewer commits than make
            // for a look.
            make(subject.fs(), "b", 60);
            if opened_again {
                subject.cycle().expect("it closes, and opens");
            }
            let before = manifests(&device);
            rest(&subject, 14);
            assert_eq!(manifests(&device), before, "{place}: too early");
            rest(&subject, 3);
            assert_ne!(manifests(&device), before, "{place}: never");
            let (differing, found) = first_query(subject.fs());
            assert_eq!((found.matched, differing), (1062, 0), "{place}");
        }
    }
}

/// The age of a base is measured by the time of day. A base made while the clock was ahead had no
/// age until that day came, and was not rebuilt before.
#[test]
fn a_base_of_a_clock_that_was_ahead_is_made_again() {
    const TEN_YEARS: i64 = 315_360_000;
    for engine in [Engine::Btree, Engine::Lsm] {
        for opened_again in [false, true] {
            let place = format!("{engine:?}, opened again: {opened_again}");
            let (device, mut subject) = volume(engine);
            subject.clock().be_ahead(TEN_YEARS);
            make_base(&subject);
            make(subject.fs(), "b", 60);
            if opened_again {
                subject.cycle().expect("it closes, and opens");
            }
            let before = manifests(&device);
            subject.clock().be_ahead(0);
            let mut minutes = 0;
            while manifests(&device) == before {
                assert!(minutes < 17, "{place}: never");
                rest(&subject, 1);
                minutes += 1;
            }
            let (differing, found) = first_query(subject.fs());
            assert_eq!((found.matched, differing), (1062, 0), "{place}");
            // The new one has the right time, and is young.
            make(subject.fs(), "c", 60);
            let before = manifests(&device);
            rest(&subject, 10);
            assert_eq!(manifests(&device), before, "{place}: again and again");
        }
    }
}

/// The clock is set back a little, as time synchronization does. That makes no base old at once,
/// and keeps none from becoming old.
#[test]
fn a_clock_set_back_a_little_rebuilds_no_base() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let (device, subject) = volume(engine);
        subject.clock().be_ahead(300);
        make_base(&subject);
        let before = manifests(&device);
        subject.clock().be_ahead(0);
        // Enough for a look.
        make(subject.fs(), "b", 120);
        rest(&subject, 14);
        assert_eq!(manifests(&device), before, "{engine:?}: early");
        rest(&subject, 7);
        assert_ne!(manifests(&device), before, "{engine:?}: never");
        assert_eq!(first_query(subject.fs()).0, 0, "{engine:?}");
    }
}

/// What differs by less than is worth a base stays as it is, however old the base becomes.
#[test]
fn a_long_lasting_small_difference_needs_no_base() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let (device, subject) = volume(engine);
        make_base(&subject);
        make(subject.fs(), "b", 10);
        let before = manifests(&device);
        rest(&subject, 60);
        assert_eq!(manifests(&device), before, "{engine:?}");
    }
}

/// Between any two steps files lose their last names: there is always one to be removed.
#[test]
fn a_base_is_built_while_files_are_removed_continuously() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let (_, subject) = volume(engine);
        let (fs, root) = (subject.fs(), Caller::root());
        make(fs, "kept", 1000);
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        settle(&subject);
        make(fs, "more", 1000);
        let passing = fs.mkdir(&root, NodeId::ROOT, b"passing", 0o755).expect("space").node;
        for number in 0..400 {
            for turn in 0..2 {
                let name = format!("file{number}.{turn}");
                let file = fs.mknod(&root, passing, name.as_bytes(), &FILE).expect("space");
                // It has extents, which are removed in the background.
                fs.write(&root, file.node, 0, &vec![7; 20_000]).expect("there is space");
                fs.unlink(&root, passing, name.as_bytes()).expect("it is there");
                fs.forget(file.node, 1);
            }
            subject.clock().sleep(Duration::from_millis(200));
            let progress = fs.background_step(1).expect("background work goes well");
            assert!(progress.more, "{engine:?}: nothing left to do after {number} steps");
        }
        // The directories, and what is in two of them.
        check(fs, 2003, "beside removals");
    }
}

/// More differs from the base than is worth one after a quarter of an hour, and less than is at
/// once. A clone of that is young, however old the base is that it inherits.
#[test]
fn a_clone_is_no_older_than_itself() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let (device, subject) = volume(engine);
        let (fs, root) = (subject.fs(), Caller::root());
        let kept = make(fs, "kept", 3000);
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        settle(&subject);
        let mut seen = manifests(&device);
        assert_eq!(seen.len(), 1, "{engine:?}");
        for number in 0..200 {
            let name = format!("more{number}");
            let file = fs.mknod(&root, kept, name.as_bytes(), &FILE).expect("space");
            fs.forget(file.node, 1);
        }
        fs.clone_dir(&root, kept, NodeId::ROOT, b"clone").expect("a clone");
        let mut rest_and_see = |minutes: u64| {
            for _ in 0..minutes {
                rest(&subject, 1);
                seen.extend(manifests(&device));
            }
            seen.sort_unstable();
            seen.dedup();
            seen.len()
        };
        assert_eq!(rest_and_see(14), 1, "{engine:?}: nothing is old yet");
        fs.clone_dir(&root, kept, NodeId::ROOT, b"later").expect("a clone");
        // The volume, and the first clone.
        assert_eq!(rest_and_see(5), 3, "{engine:?}: a quarter of an hour after the base");
    }
}
