//! The header's two files. Damage of either is found and repaired from the other. A file of another
//! volume is never used, and a partial volume is never accepted as one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fs::{Engine, FileSystem, FormatOptions, Fs, NewNode, OpenError, OpenOptions, Repair};
use inode::{Caller, Kind, NodeId};
use testing::{CrashPolicy, SimDevice};

use crate::check::{assert_clean, check, env_of, repair, reported};
use crate::script::scale;

const FILES: [&str; 2] = ["volume.pando", "volume.copy"];
const ENGINES: [Engine; 2] = [Engine::Btree, Engine::Lsm];

fn options() -> OpenOptions {
    OpenOptions { index: None, log_segment_bytes: 256 << 10, ..OpenOptions::default() }
}

fn format(device: &SimDevice, engine: Engine) -> Result<(), OpenError> {
    let options = FormatOptions { engine, ..FormatOptions::default() };
    Fs::format(&env_of(device), &options).map(drop)
}

fn open(device: &SimDevice) -> Result<Arc<Fs>, OpenError> {
    Fs::open(env_of(device), &options())
}

/// A volume with a file in it, and the bytes of its header.
fn volume(engine: Engine) -> (SimDevice, Vec<u8>) {
    let device = SimDevice::new(3);
    format(&device, engine).expect("an empty disk");
    let fs = open(&device).expect("it was made just now");
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let file = fs.mknod(&Caller::root(), NodeId::ROOT, b"f", &new).expect("there is space").node;
    fs.write(&Caller::root(), file, 0, b"dear").expect("there is space");
    fs.close().expect("it is written");
    let header = device.read_file(FILES[0]);
    assert_eq!(device.read_file(FILES[1]), header);
    (device, header)
}

/// The header of another volume.
fn another(engine: Engine) -> Vec<u8> {
    let device = SimDevice::new(3);
    let env = device::Env { device: Arc::new(device.clone()), ..testing::sim_env(2).env() };
    let options = FormatOptions { engine, ..FormatOptions::default() };
    Fs::format(&env, &options).expect("an empty disk");
    device.read_file(FILES[0])
}

fn put(device: &SimDevice, path: &str, bytes: &[u8]) {
    device.overwrite(path, 0, bytes);
    device.truncate(path, bytes.len() as u64);
}

/// That a volume is whole, and has its file.
#[track_caller]
fn assert_whole(device: &SimDevice, right: &[u8], place: &str) {
    assert_clean(device, place);
    for path in FILES {
        assert_eq!(device.read_file(path), right, "{place}: {path}");
    }
    let fs = open(&device.copy()).unwrap_or_else(|error| panic!("{place}: {error}"));
    let file = fs.lookup(&Caller::root(), NodeId::ROOT, b"f").expect("it is there").node;
    let mut buffer = [0; 8];
    let read = fs.read(&Caller::root(), file, 0, &mut buffer).expect("it is there");
    assert_eq!(&buffer[..read], b"dear", "{place}");
}

/// Damage of one file: reported, there and nowhere else, and repaired.
#[track_caller]
fn assert_repaired(hurt: &SimDevice, path: &str, right: &[u8], place: &str) {
    let before = FILES.map(|path| hurt.files().iter().any(|(name, _)| name == path));
    let found = check(hurt);
    assert_eq!(found.problems.len(), 1, "{place}: {}", reported(&found));
    assert_eq!(found.problems[0].file, path, "{place}: {}", reported(&found));
    assert!(found.problems[0].remedy().is_some(), "{place}: {}", reported(&found));
    assert_eq!(before, FILES.map(|path| hurt.files().iter().any(|(name, _)| name == path)));
    let opened = open(&hurt.copy()).map(drop);
    if path == FILES[0] {
        // The store's own files contradict the header of another volume.
        let is_named = match &opened {
            Err(OpenError::HeaderDamaged(of)) => of.file == path,
            Err(OpenError::Damaged(of)) => {
                of.expected.starts_with("volume [") || of.expected == "one of this volume"
            }
            _ => false,
        };
        assert!(is_named, "{place}: {opened:?}");
    } else {
        assert!(opened.is_ok(), "{place}: {opened:?}");
    }
    let repaired = repair(hurt);
    assert!(
        repaired.after.is_clean() && repaired.failed.is_empty(),
        "{place}: {:?}",
        repaired.failed
    );
    assert_eq!(repaired.repaired.len(), 1, "{place}");
    assert_whole(hurt, right, place);
}

#[test]
fn damage_of_any_byte_of_either_file_is_repaired() {
    for engine in ENGINES {
        let (device, right) = volume(engine);
        for path in FILES {
            for byte in (0..right.len() as u64).step_by(scale(3, 1) as usize) {
                let hurt = device.copy();
                hurt.flip_bit(path, byte * 8 + byte % 8);
                let place = format!("{engine:?}, {path}, byte {byte}");
                if path == FILES[0] {
                    let error = open(&hurt.copy()).map(drop);
                    assert!(
                        matches!(error, Err(OpenError::HeaderDamaged(_))),
                        "{place}: {error:?}"
                    );
                }
                assert_repaired(&hurt, path, &right, &place);
            }
        }
    }
}

#[test]
fn a_header_that_is_gone_or_cut_off_is_repaired() {
    for engine in ENGINES {
        let (device, right) = volume(engine);
        let hurt = device.copy();
        hurt.delete(FILES[0]);
        assert!(matches!(open(&hurt.copy()).map(drop), Err(OpenError::HeaderDamaged(_))));
        // It is still a volume, and formatting it is refused.
        assert!(matches!(format(&hurt.copy(), engine), Err(OpenError::Exists)));
        assert_repaired(&hurt, FILES[0], &right, "gone");
        for path in FILES {
            for length in [0, 7, 20, right.len() as u64 - 1] {
                let hurt = device.copy();
                hurt.truncate(path, length);
                assert_repaired(&hurt, path, &right, &format!("{path} cut to {length}"));
            }
        }
    }
}

/// A volume that was made before there was a copy gets one when it is opened for writing.
#[test]
fn a_missing_copy_is_rebuilt() {
    let (device, right) = volume(Engine::Btree);
    device.delete(FILES[1]);
    assert_clean(&device, "before");
    let there = || device.files().iter().any(|(name, _)| name == FILES[1]);
    let reading = OpenOptions { read_only: true, ..options() };
    drop(Fs::open(env_of(&device), &reading).expect("a volume"));
    assert!(!there(), "who reads writes nothing");
    drop(open(&device).expect("a volume"));
    assert!(there());
    // It is durable then.
    let cut = device.after_crash(CrashPolicy::LoseAll, 1);
    assert_whole(&cut, &right, "after a power cut");
    // Not on a full disk, where it opens all the same.
    device.delete(FILES[1]);
    device.set_capacity(Some(device.used_bytes()));
    drop(open(&device).expect("a volume"));
    device.set_capacity(None);
    drop(open(&device).expect("a volume"));
    assert_whole(&device, &right, "in the end");
}

/// The store's own files identify their volume: what is another volume's is refused, and no header
/// is written from it.
#[test]
fn another_volumes_header_is_refused() {
    for engine in ENGINES {
        let (device, right) = volume(engine);
        let other = another(engine);
        assert_ne!(other, right);
        for path in FILES {
            let hurt = device.copy();
            put(&hurt, path, &other);
            assert_repaired(&hurt, path, &right, &format!("{engine:?}: another in {path}"));
        }
        let damaged = [&right[..30], b"?", &right[31..]].concat();
        for (main, copy) in [(&other, &other), (&damaged, &other), (&other, &damaged)] {
            let hurt = device.copy();
            put(&hurt, FILES[0], main);
            put(&hurt, FILES[1], copy);
            let opened = open(&hurt.copy()).map(drop);
            let is_named =
                matches!(&opened, Err(OpenError::HeaderDamaged(_) | OpenError::Damaged(_)));
            assert!(is_named, "{engine:?}: {opened:?}");
            assert!(!check(&hurt).is_clean());
            let repaired = repair(&hurt);
            assert!(
                !repaired.after.is_clean() && repaired.repaired.is_empty(),
                "{:?}",
                repaired.repaired
            );
            assert_eq!(&hurt.read_file(FILES[0]), main, "{engine:?}");
            assert_eq!(&hurt.read_file(FILES[1]), copy, "{engine:?}");
        }
    }
}

#[test]
fn damage_of_both_is_reported_for_both() {
    let (device, right) = volume(Engine::Btree);
    let damaged = [&right[..30], b"?", &right[31..]].concat();
    for path in FILES {
        put(&device, path, &damaged);
    }
    assert!(matches!(open(&device).map(drop), Err(OpenError::Damaged(_))));
    let found = check(&device);
    let files: Vec<_> = found.problems.iter().map(|problem| problem.file.as_str()).collect();
    assert_eq!(files, FILES, "{}", reported(&found));
    assert!(
        found.problems.iter().all(|problem| problem.remedy().is_none()),
        "{}",
        reported(&found)
    );
}

/// A version that is not ours is refused in either file, and nothing is written, unless all else
/// shows that it is damage.
#[test]
fn a_newer_version_of_either_is_refused() {
    let (device, right) = volume(Engine::Btree);
    let mut newer = right.clone();
    newer[8] = 4;
    // As a newer program writes it.
    newer[50] ^= 1;
    for (main, copy) in [(&newer, &newer), (&newer, &right), (&right, &newer)] {
        let hurt = device.copy();
        put(&hurt, FILES[0], main);
        put(&hurt, FILES[1], copy);
        let refused = |error| matches!(error, Err(OpenError::NewerFormat { found: 4, .. }));
        assert!(refused(open(&hurt.copy()).map(drop)));
        let mut proceed = |_, _| std::ops::ControlFlow::Continue(());
        assert!(refused(Fs::repair(&env_of(&hurt), Repair::Do, &mut proceed).map(drop)));
        assert_eq!(&hurt.read_file(FILES[0]), main);
        assert_eq!(&hurt.read_file(FILES[1]), copy);
    }
}

/// What an interrupted call of `format` left is a whole volume, or none: no repair makes one of it,
/// and the next call starts over.
fn whole_or_nothing(left: &SimDevice, engine: Engine, place: &str) -> bool {
    let mut proceed = |_, _| std::ops::ControlFlow::Continue(());
    let repaired = left.copy();
    match Fs::repair(&env_of(&repaired), Repair::DoAndCutLog, &mut proceed) {
        Ok(_) | Err(OpenError::NotAVolume) => {}
        Err(error) => panic!("{place}: {error}"),
    }
    match (open(&left.copy()), open(&repaired)) {
        (Ok(_), Ok(_)) => {
            assert_clean(left, place);
            return true;
        }
        (Err(OpenError::NotAVolume), Err(OpenError::NotAVolume)) => {}
        (one, other) => panic!("{place}: {:?}, {:?}", one.map(drop), other.map(drop)),
    }
    for left in [left.copy(), repaired] {
        format(&left, engine).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_clean(&left, place);
        drop(open(&left).unwrap_or_else(|error| panic!("{place}: {error}")));
    }
    false
}

/// Examines what each operation of a call leaves, killed or without power. Returns how many points
/// there were, and how many of the results were a volume.
fn enumerate(device: &SimDevice, engine: Engine, place: &'static str) -> (u64, u64) {
    let counted = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let count = Arc::clone(&counted);
    device.watch(move |disk, op| {
        let killed = std::iter::once(disk.copy());
        let cut = CrashPolicy::at(op).map(|policy| disk.after_crash(policy, op));
        for (number, left) in killed.chain(cut).enumerate() {
            let place = format!("{engine:?}, {place}, before operation {op}, way {number}");
            count.0.fetch_add(1, Ordering::SeqCst);
            count.1.fetch_add(whole_or_nothing(&left, engine, &place).into(), Ordering::SeqCst);
        }
    });
    format(device, engine).expect("the disk accepts it");
    device.unwatch();
    (counted.0.load(Ordering::SeqCst), counted.1.load(Ordering::SeqCst))
}

#[test]
fn half_a_volume_is_not_a_volume() {
    for engine in ENGINES {
        let device = SimDevice::new(5);
        let (points, volumes) = enumerate(&device, engine, "an empty disk");
        assert!(points > 20 && volumes > 0 && volumes < points, "{points}, {volumes}");
        // All was made but the name, and the next call removes it.
        let left = device.copy();
        put_away(&left, FILES[0], "volume.pando.new");
        let (points, volumes) = enumerate(&left, engine, "after one that was interrupted");
        assert!(points > 20 && volumes > 0 && volumes < points, "{points}, {volumes}");
    }
}

fn put_away(device: &SimDevice, from: &str, to: &str) {
    use device::Device;
    device.rename(from, to).expect("it is there");
    device.sync_dir("").expect("it is there");
}

/// The power goes at any operation of a repair: the next one ends it.
#[test]
fn an_interrupted_repair_is_repeated() {
    let (device, right) = volume(Engine::Btree);
    for path in FILES {
        let hurt = device.copy();
        hurt.flip_bit(path, 300);
        let damaged = hurt.read_file(path);
        let (points, counted) = (Arc::new(AtomicU64::new(0)), hurt.copy());
        let (count, expected) = (Arc::clone(&points), right.clone());
        counted.watch(move |disk, op| {
            for policy in CrashPolicy::ALL {
                let left = disk.after_crash(policy, op);
                let place = format!("{path}, before operation {op}, {policy:?}");
                let found = left.read_file(path);
                assert!(found == damaged || found == expected, "{place}: {found:?}");
                repair(&left);
                assert_whole(&left, &expected, &place);
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        repair(&counted);
        counted.unwatch();
        assert_whole(&counted, &right, path);
        assert!(points.load(Ordering::SeqCst) > 12);
    }
}
