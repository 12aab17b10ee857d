//! Collections on a volume with an index. A failed read, at each possible place, deletes nothing
//! that is named. Once the disk reads again everything is found and reads back. Files of the index
//! that no base names are deleted, the others stay, whichever of them are damaged.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use device::Device;
use fs::{Engine, Fs, FsResult, GarbageKind, Gc, GcReport, OpenOptions};
use store::Durability;
use testing::model::Dump;
use testing::{Fault, FaultOn, Op, SimDevice};

use super::campaign::asked::answers;
use super::garbage::lose;
use super::volume::{Looked, ask, made_on, open, opened_with};
use super::{check, env_of};
use crate::script::{SNAPSHOTS, scale};
use crate::subject::Base;

/// What a collection deletes at once.
const AT_ONCE: Gc = Gc::Delete { grace: Duration::ZERO };

/// A volume with garbage of all sorts, and what is in it.
struct Littered {
    device: SimDevice,
    right: Dump,
    answers: Vec<(&'static str, Result<String, String>)>,
    /// The findings of a check, without the garbage.
    problems: BTreeSet<String>,
}

/// Two files of the index that no base names: a cluster and a manifest.
const UNNAMED: [&str; 2] =
    ["index/cluster-00000000000fffff-00000001", "index/manifest-00000000000fffff"];

fn volume(device: &SimDevice) -> Arc<Fs> {
    Fs::open(env_of(device), &options()).expect("it opens")
}

fn options() -> OpenOptions {
    let mut options = opened_with(Durability::Async);
    assert!(options.index.is_some(), "with an index");
    // Little stays in memory, so that a collection reads.
    options.cache_bytes = 64 << 10;
    options
}

fn littered(seed: u64, base: &Base) -> Littered {
    let made = made_on(seed, base);
    let device = made.device;
    lose(&device);
    let files = device.files();
    for (kind, path) in ["index/cluster-", "index/manifest-"].iter().zip(UNNAMED) {
        let (other, _) = files.iter().find(|(path, _)| path.starts_with(kind)).expect("one");
        let file = device.create(path).expect("there is space");
        file.write_at(&device.read_file(other), 0).expect("there is space");
        file.sync_data().expect("there is space");
    }
    device.sync_dir("index").expect("there is space");
    let mut subject = open(&device.copy()).expect("it opens");
    let right = Dump::collect(&mut subject, SNAPSHOTS);
    let answers = answers(subject.fs());
    drop(subject);
    let collected = device.copy();
    let fs = volume(&collected);
    gc(&fs).expect("all can be read");
    fs.close().expect("there is space");
    Littered { problems: problems(&collected), device, right, answers }
}

fn gc(fs: &Fs) -> FsResult<GcReport> {
    let mut proceed = |_, _| ControlFlow::Continue(());
    fs.gc(AT_ONCE, &mut proceed)
}

fn problems(device: &SimDevice) -> BTreeSet<String> {
    let message = |found: &fs::Problem| format!("{:?} {:?} {}", found.kind, found.path, found.what);
    check(device).problems.iter().map(message).collect()
}

impl Littered {
    /// That everything that is named is there, and reads.
    fn assert_same(&self, device: &SimDevice, what: &str) {
        let mut subject = open(&device.copy()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut looked = Looked::default();
        ask(&mut subject, &self.right, &mut looked, &mut |_, _, _| {});
        assert!(looked.is_same(), "{what}: {looked:?}");
        assert_eq!(answers(subject.fs()), self.answers, "{what}");
    }
}

fn index_files(device: &SimDevice) -> BTreeSet<String> {
    let files = device.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.starts_with("index/") && !UNNAMED.contains(&path.as_str())).collect()
}

/// Each layout has another way to what is named.
const BASES: [Base; 3] = [Base::Engine(Engine::Btree), Base::Engine(Engine::Lsm), Base::Column];

#[test]
fn a_failed_read_is_reported_and_deletes_nothing_that_is_named() {
    for (seed, base) in (40..).zip(BASES) {
        let littered = littered(seed, &base);
        let named = index_files(&littered.device);
        assert!(named.len() > 1, "{base:?}: there is an index");
        for op in [Op::Read, Op::Look, Op::Open] {
            let (mut failed, mut n) = (0, 0);
            loop {
                let what = format!("seed {seed}, {base:?}: {op:?} number {n} fails");
                let device = littered.device.copy();
                let fs = volume(&device);
                device.inject(Fault::io(FaultOn::Only(op), n));
                let first = gc(&fs);
                let is_over = device.faults_left();
                device.clear_faults();
                if let Err(error) = &first {
                    failed += 1;
                    let message = error.to_string();
                    // Or the disk as a whole.
                    let files = ["btree/", "lsm/", "index", "data/", "log/", "statvfs"];
                    let is_reported = files.iter().any(|file| message.contains(file));
                    assert!(is_reported, "{what}: of what? {message}");
                    littered.assert_same(&device, &what);
                }
                assert!(index_files(&device).is_superset(&named), "{what}: of the index");
                let again = gc(&fs).unwrap_or_else(|error| panic!("{what}: again: {error}"));
                assert!(again.garbage.iter().all(|found| found.deleted), "{what}: {again:?}");
                assert!(index_files(&device).is_superset(&named), "{what}: of the index");
                for path in UNNAMED {
                    assert!(!device.files().iter().any(|(other, _)| other == path), "{what}");
                }
                fs.close().unwrap_or_else(|error| panic!("{what}: {error}"));
                drop(fs);
                littered.assert_same(&device, &what);
                assert_eq!(problems(&device), littered.problems, "{what}");
                if is_over {
                    assert!(first.is_ok(), "{what}: {first:?}");
                    break;
                }
                n += scale(3, 1);
            }
            println!("{base:?}: {op:?}: {n} calls, {failed} collections given up");
            assert!(failed > 0 || op != Op::Read, "{base:?}: nothing failed");
        }
    }
}

#[test]
fn only_index_files_that_no_base_names_are_deleted() {
    for (seed, base) in (43..).zip(BASES) {
        let littered = littered(seed, &base);
        let named = index_files(&littered.device);
        let device = littered.device.copy();
        let fs = volume(&device);
        let report = gc(&fs).expect("all can be read");
        let of_index = |found: &&fs::Garbage| found.kind == GarbageKind::IndexFile;
        let reported: Vec<_> = report.garbage.iter().filter(of_index).collect();
        assert_eq!(reported.len(), 2, "{base:?}: {reported:?}");
        let is_one = |found: &fs::Garbage| UNNAMED.iter().any(|path| path.ends_with(&found.name));
        assert!(reported.iter().all(|found| found.deleted && found.bytes > 0 && is_one(found)));
        assert_eq!(index_files(&device), named, "{base:?}");
        fs.close().expect("there is space");
        littered.assert_same(&device, &format!("{base:?}"));
    }
}

#[test]
fn an_unreadable_manifest_prevents_deletion_of_index_files() {
    for (seed, base) in (46..).zip(BASES) {
        let littered = littered(seed, &base);
        let named = index_files(&littered.device);
        let mut given_up = 0;
        for path in &named {
            let length = littered.device.read_file(path).len() as u64;
            for bit in (0..length * 8).step_by((length * 8 / scale(3, 60)).max(1) as usize) {
                let what = format!("seed {seed}, {base:?}: bit {bit} of {path}");
                let hurt = littered.device.copy();
                hurt.flip_bit(path, bit);
                let fs = volume(&hurt);
                match gc(&fs) {
                    Err(error) => {
                        given_up += 1;
                        let message = error.to_string();
                        assert!(
                            path.contains("manifest") && message.contains(path),
                            "{what}: {message}"
                        );
                        for path in UNNAMED {
                            assert!(hurt.files().iter().any(|(other, _)| other == path), "{what}");
                        }
                    }
                    Ok(_) => assert!(path.contains("cluster"), "{what}: not reported"),
                }
                assert!(index_files(&hurt).is_superset(&named), "{what}");
                fs.close().expect("there is space");
            }
        }
        assert!(given_up > 0, "{base:?}");
    }
}
