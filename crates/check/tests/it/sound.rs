//! A check changes nothing, finds a record that is missing, and a repair leaves a sound volume.

use std::ops::ControlFlow;

use check::{Checks, Repair, VolumeReport, check_offline, repair};
use format::key::{self, Part};
use format::volume::VolumeHeader;
use inode::{Caller, FsError, Kind, NodeId};
use opening::create::FormatOptions;
use opening::engine::Engine;
use ops::posix::{lookup, mkdir, mknod};
use store::Batch;
use testing::{SimEnv, sim_env};
use upkeep::Upkeep;
use vfs::NewNode;
use volume::OpenOptions;

fn above_snapshots(header: &VolumeHeader) -> &[u8] {
    &header.snapshot_dir
}

fn open(sim: &SimEnv) -> Upkeep {
    let env = sim.env();
    let header = opening::header::find(&env).expect("a volume");
    check::open(env, header, &OpenOptions::default(), |store| store).expect("it opens")
}

/// A volume with two directories, one of which has a file; and their inode numbers.
fn volume(engine: Engine) -> (SimEnv, u64, u64) {
    let sim = sim_env(1);
    let format = FormatOptions { engine, ..FormatOptions::default() };
    opening::create::format(&sim.env(), &format).expect("an empty disk");
    let fs = open(&sim);
    let (root, policies) = (Caller::root(), fs.policies());
    let make = |name: &[u8]| {
        let made = mkdir::mkdir(&fs, &policies, &root, NodeId::ROOT, name, 0o755);
        made.expect("a new name").node
    };
    let (full, empty) = (make(b"full"), make(b"empty"));
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    mknod::mknod(&fs, &policies, &root, full, b"file", &new).expect("a new name");
    let inos = (full.ino().0, empty.ino().0);
    fs.close().expect("it closes");
    (sim, inos.0, inos.1)
}

fn checked(fs: &Upkeep) -> VolumeReport {
    let progress = &mut |_, _| ControlFlow::Continue(());
    Checks::of(fs, above_snapshots).check_volume(progress).expect("the check ends")
}

fn checked_offline(sim: &SimEnv) -> VolumeReport {
    check_offline(&sim.env(), above_snapshots, &mut |_, _| ControlFlow::Continue(()))
        .expect("the check ends")
}

fn files(sim: &SimEnv) -> Vec<(String, Vec<u8>)> {
    let paths = sim.device.files().into_iter();
    paths.map(|(path, _)| (path.clone(), sim.device.read_file(&path))).collect()
}

#[test]
fn sound_volume_is_clean_and_a_check_changes_nothing() {
    for engine in Engine::ALL {
        let (sim, ..) = volume(engine);
        let before = files(&sim);
        let report = checked_offline(&sim);
        assert!(report.is_clean(), "{engine:?}: {:?}", report.problems);
        // The root and two directories; the file.
        assert_eq!((report.directories, report.files), (3, 1), "{engine:?}");
        assert!(files(&sim) == before, "{engine:?}: a check writes nothing");
    }
}

#[test]
fn missing_record_of_a_directory_is_found_and_repaired() {
    for engine in Engine::ALL {
        let (sim, full, empty) = volume(engine);
        let fs = open(&sim);
        let tree = fs.root_subvol().expect("it is there").tree();
        let mut batch = Batch::new();
        for ino in [full, empty] {
            batch.delete(tree, &key::directory(ino, Part::Attributes));
        }
        fs.store.commit(&batch).expect("the store takes it");
        let online = checked(&fs);
        assert!(online.problems_count >= 2, "{engine:?}: {:?}", online.problems);
        fs.close().expect("it closes");
        let before = files(&sim);
        let progress = &mut |_, _| ControlFlow::Continue(());
        let reported =
            repair(&sim.env(), above_snapshots, Repair::Report, progress).expect("the check ends");
        assert!(!reported.before.is_clean() && reported.repaired.is_empty(), "{engine:?}");
        assert!(files(&sim) == before, "{engine:?}: a report repairs nothing");
        let repaired =
            repair(&sim.env(), above_snapshots, Repair::Do, progress).expect("the repair ends");
        assert!(repaired.failed.is_empty(), "{engine:?}: {:?}", repaired.failed);
        let after = checked_offline(&sim);
        assert!(after.is_clean(), "{engine:?}: {:?}", after.problems);
        // The file proves that its directory was there; nothing proves it of the empty one.
        let fs = open(&sim);
        let find = |parent, name: &[u8]| lookup::lookup(&fs, &Caller::root(), parent, name);
        let found = find(NodeId::ROOT, b"full").expect("it has a record again").node;
        find(found, b"file").expect("the file stays");
        let found = find(NodeId::ROOT, b"empty");
        assert!(matches!(found, Err(FsError::NotFound)), "{engine:?}: {found:?}");
        fs.close().expect("it closes");
    }
}
