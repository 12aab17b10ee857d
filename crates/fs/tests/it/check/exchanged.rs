//! Files of segments whose names were exchanged, or that were duplicated, when a volume was
//! restored from copies. All of it is reported, and nothing is freed or overwritten. Once the names
//! are corrected everything can be read.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use device::Device;
use format::segment::MARK_BYTES;
use fs::{Engine, Fs, Gc, OpenOptions};
use inode::{Caller, NodeId};
use store::Durability;
use testing::SimDevice;

use super::garbage::lose;
use super::volume::{Looked, ask, made, open, opened_with};
use super::{assert_clean, check, env_of, repair, reported};

on_each_engine!(
    a_repair_leaves_files_whose_names_were_exchanged_and_names_the_next_step,
    a_collection_of_files_whose_names_were_exchanged_ends_and_names_one,
    background_work_gives_nothing_back_of_files_whose_names_were_exchanged,
    a_second_file_of_a_segment_is_reported_and_both_are_kept,
    a_mark_is_rewritten_only_where_the_owner_of_the_file_is_proven,
);

/// The two largest sealed segments.
fn two(device: &SimDevice) -> [String; 2] {
    let mut files = device.files();
    files.retain(|(path, _)| path.starts_with("data/sealed/"));
    files.sort_by_key(|(_, length)| std::cmp::Reverse(*length));
    let mut files = files.into_iter().map(|(path, _)| path);
    [files.next().expect("one"), files.next().expect("two")]
}

/// The sealed segments by twos, but the last if there is no other.
fn twos(device: &SimDevice) -> Vec<[String; 2]> {
    let paths = device.files().into_iter().map(|(path, _)| path);
    let all: Vec<String> = paths.filter(|path| path.starts_with("data/sealed/")).collect();
    all.chunks_exact(2).map(|pair| [pair[0].clone(), pair[1].clone()]).collect()
}

fn contents(device: &SimDevice, pairs: &[[String; 2]]) -> Vec<Vec<u8>> {
    pairs.iter().flatten().map(|path| device.read_file(path)).collect()
}

fn exchange(device: &SimDevice, [one, other]: &[String; 2]) {
    for (from, to) in [(one.as_str(), "data/moved"), (other, one), ("data/moved", other)] {
        device.rename(from, to).expect("it is there");
    }
    device.sync_dir("data/sealed").expect("it is there");
    device.sync_dir("data").expect("it is there");
}

fn exchange_all(device: &SimDevice, pairs: &[[String; 2]]) {
    for pair in pairs {
        exchange(device, pair);
    }
}

fn mounted(device: &SimDevice) -> Arc<Fs> {
    let mut options = OpenOptions { index: None, ..opened_with(Durability::Async) };
    // What is dead goes at once.
    options.data.punch_after = Duration::ZERO;
    options.data.punch_bytes_min = 4096;
    Fs::open(env_of(device), &options).expect("it opens")
}

fn work(fs: &Fs) {
    for _ in 0..400 {
        // What fails is tried again.
        fs.background_step(64).ok();
    }
    fs.sync().expect("there is space");
}

/// That all of a volume answers.
fn assert_answers(device: &SimDevice, right: &testing::model::Dump, what: &str) {
    let mut looked = Looked::default();
    let mut subject = open(&device.copy()).expect("it opens");
    ask(&mut subject, right, &mut looked, &mut |_, _, _| {});
    assert!(looked.is_same(), "{what}: {looked:?}");
}

fn a_repair_leaves_files_whose_names_were_exchanged_and_names_the_next_step(engine: Engine) {
    let made = made(engine, 61);
    let device = made.device.copy();
    let pair = two(&device);
    exchange(&device, &pair);
    let before = pair.clone().map(|path| device.read_file(&path));
    let report = check(&device);
    for path in &pair {
        let reported =
            |found: &&fs::Problem| found.file == *path && found.what.contains("Header of");
        let found = report.problems.iter().find(reported).expect("it is reported");
        assert!(found.what.contains("give the files the names"), "{}", found.what);
        assert_eq!(found.remedy(), None);
    }
    repair(&device);
    assert!(pair.clone().map(|path| device.read_file(&path)) == before);
    exchange(&device, &pair);
    assert_clean(&device, "exchanged back");
    assert_answers(&device, &made.right, "exchanged back");
}

fn a_collection_of_files_whose_names_were_exchanged_ends_and_names_one(engine: Engine) {
    let made = made(engine, 62);
    let device = made.device.copy();
    lose(&device);
    let right = testing::model::Dump::collect(
        &mut open(&device.copy()).expect("it opens"),
        crate::script::SNAPSHOTS,
    );
    let pairs = twos(&device);
    exchange_all(&device, &pairs);
    let before = contents(&device, &pairs);
    let fs = mounted(&device);
    let mut proceed = |_, _| ControlFlow::Continue(());
    let error = fs.gc(Gc::Delete { grace: Duration::ZERO }, &mut proceed).expect_err("it ends");
    let message = error.to_string();
    assert!(pairs.iter().flatten().any(|path| message.contains(path.as_str())), "{message}");
    fs.close().expect("there is space");
    assert!(contents(&device, &pairs) == before);
    exchange_all(&device, &pairs);
    assert_answers(&device, &right, "exchanged back");
    let report = mounted(&device).gc(Gc::Delete { grace: Duration::ZERO }, &mut proceed);
    assert!(report.expect("all files are identified").freed_bytes > 0);
    assert_answers(&device, &right, "collected");
}

fn background_work_gives_nothing_back_of_files_whose_names_were_exchanged(engine: Engine) {
    let made = made(engine, 63);
    let device = made.device.copy();
    let pairs = twos(&device);
    exchange_all(&device, &pairs);
    let before = contents(&device, &pairs);
    let fs = mounted(&device);
    let (root, top) = (Caller::root(), NodeId::ROOT);
    fs.clone_dir(&root, top, top, b"again").expect("there is space");
    for name in [&b"again"[..], b"clone", b"one"] {
        fs.rmr(&root, top, name).expect("it is there");
        work(&fs);
    }
    let reported = fs.status().expect("it answers").damaged.expect("the damage is reported");
    assert!(pairs.iter().flatten().any(|path| reported.contains(path.as_str())), "{reported}");
    fs.close().expect("there is space");
    assert!(contents(&device, &pairs) == before);
    exchange_all(&device, &pairs);
    assert_clean(&device, "exchanged back");
    let fs = mounted(&device);
    work(&fs);
    assert_eq!(fs.status().expect("it answers").damaged, None);
    fs.close().expect("there is space");
    assert_clean(&device, "given back");
}

fn a_second_file_of_a_segment_is_reported_and_both_are_kept(engine: Engine) {
    let made = made(engine, 64);
    // An open segment gets a file that does not belong in its place. A sealed one gets a copy of
    // another under the name of its next generation.
    let crashed = made.crashed.copy();
    let files = crashed.files();
    let (path, _) = files.iter().find(|(path, _)| path.starts_with("data/open/")).expect("one");
    let twin = path.replace("open", "sealed");
    let put = |device: &SimDevice, path: &str, bytes: &[u8]| {
        let file = device.create(path).expect("there is space");
        file.write_at(bytes, 0).expect("there is space");
        file.sync_data().expect("there is space");
        device.sync_dir("data/sealed").expect("there is space");
    };
    put(&crashed, &twin, b"");
    let closed = made.device.copy();
    let [one, other] = two(&closed);
    let later = format!("{one}.1");
    put(&closed, &later, &made.device.read_file(&other));
    for (device, twin) in [(crashed, twin), (closed, later)] {
        let bytes = device.read_file(&twin);
        let report = check(&device);
        let reported = report.problems.iter().find(|found| found.file == twin);
        let reported = reported.unwrap_or_else(|| panic!("{twin} is not reported"));
        assert!(reported.what.contains("remove the one"), "{}", reported.what);
        assert_answers(&device, &made.right, &twin);
        let repaired = repair(&device);
        assert_eq!(repaired.after.problems_count, 1, "{:?}", repaired.after.problems);
        assert!(device.read_file(&twin) == bytes);
        assert_answers(&device, &made.right, &twin);
        device.delete(&twin);
        assert_clean(&device, &twin);
        assert_answers(&device, &made.right, &twin);
    }
}

fn a_mark_is_rewritten_only_where_the_owner_of_the_file_is_proven(engine: Engine) {
    let made = made(engine, 65);
    let [path, _] = two(&made.device);
    let bytes = made.device.read_file(&path);
    let lose_marks = |device: &SimDevice| {
        device.overwrite(&path, 0, &[0; MARK_BYTES]);
        let end = device.read_file(&path).len() - MARK_BYTES;
        device.overwrite(&path, end as u64, &[0; MARK_BYTES]);
    };
    // Its contents prove it.
    let device = made.device.copy();
    lose_marks(&device);
    let repaired = repair(&device);
    assert!(repaired.failed.is_empty() && repaired.after.is_clean(), "{:?}", repaired.failed);
    assert!(device.read_file(&path) == bytes);
    // They do not, where it may be that of another.
    let device = made.device.copy();
    exchange(&device, &two(&device));
    lose_marks(&device);
    let lost = device.read_file(&path);
    let repaired = repair(&device);
    assert!(repaired.failed.is_empty(), "{:?}", repaired.failed);
    let is_reported = |found: &fs::Problem| {
        found.file == path && found.remedy().is_none() && found.what.contains("not rewritten")
    };
    assert!(repaired.after.problems.iter().any(is_reported), "{}", reported(&repaired.after));
    assert!(device.read_file(&path) == lost);
    exchange(&device, &two(&device));
    repair(&device);
    assert_clean(&device, "exchanged back");
    assert_answers(&device, &made.right, "exchanged back");
}
